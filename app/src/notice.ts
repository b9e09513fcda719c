// notice.ts: what the user should know now, and what a screen reader should say.

import { signal } from '@preact/signals';

export interface Notice { text: string; action?: { label: string; run: () => void } }

export const notice = signal<Notice | undefined>(undefined);
export const announcement = signal(''); // read aloud, not shown

export function say(text: string, action?: Notice['action']): void {
    notice.value = action === undefined ? { text } : { text, action };
}
