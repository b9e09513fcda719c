// clipboard.ts: copies text, also where the page is not secure (plain http in the local network) and has no clipboard API.

import { say } from './notice';

export async function copyText(text: string): Promise<boolean> {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        const box = document.createElement('textarea');
        box.value = text;
        document.body.append(box);
        box.select();
        const done = document.execCommand('copy');
        box.remove();
        if (!done)
            say('The browser does not allow copying here.');
        return done;
    }
}
