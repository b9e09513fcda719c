// Notice.tsx: what the user should know now.

import { notice } from '../engine';

export function Notice() {
    if (notice.value === undefined)
        return <div role="status" class="notice-place" />;
    return (
        <div role="status" class="notice-place">
            <div class="notice">
                <span>{notice.value}</span>
                <button type="button" class="quiet" onClick={() => { notice.value = undefined; }}>Dismiss</button>
            </div>
        </div>
    );
}
