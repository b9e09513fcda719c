// lifecycle.ts: the page comes and goes: the screen stays on while an answer is written, and a hidden page can wait.

interface Lock { release(): Promise<void> }

// Keeps the screen on until the result is called. Browsers take the lock away when the page is hidden, so it is asked for again.
export function keepAwake(): () => void {
    let lock: Lock | undefined;
    let ended = false;
    const ask = async () => {
        if (document.hidden || ended)
            return;
        lock = await navigator.wakeLock?.request('screen').catch(() => undefined);
        if (ended)
            void lock?.release();
    };
    document.addEventListener('visibilitychange', ask);
    void ask();
    return () => {
        ended = true;
        document.removeEventListener('visibilitychange', ask);
        void lock?.release();
    };
}

// Calls back when the page is hidden, until the result is called.
export function onHidden(run: () => void): () => void {
    const changed = () => {
        if (document.hidden)
            run();
    };
    document.addEventListener('visibilitychange', changed);
    return () => document.removeEventListener('visibilitychange', changed);
}

// Resolves when the page is seen, or when the signal aborts.
export function visible(signal: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
        const check = () => {
            if (document.hidden && !signal.aborted)
                return;
            document.removeEventListener('visibilitychange', check);
            signal.removeEventListener('abort', check);
            resolve();
        };
        document.addEventListener('visibilitychange', check);
        signal.addEventListener('abort', check);
        check();
    });
}
