// Notice.tsx: what the user should know now, over the page so that nothing moves; and what only a screen reader says.

import { announcement, notice } from '../notice';

export function Notice() {
    const shown = notice.value;
    const close = () => { notice.value = undefined; };
    return (
        <>
            <div class="notice-place" role="status">
                {shown !== undefined && (
                    <div class="notice">
                        <span>{shown.text}</span>
                        {shown.action !== undefined && <button type="button" onClick={() => { close(); shown.action!.run(); }}>{shown.action.label}</button>}
                        <button type="button" class="quiet" onClick={close}>Dismiss</button>
                    </div>
                )}
            </div>
            <div class="hidden" role="status" aria-live="polite">{announcement.value}</div>
        </>
    );
}
