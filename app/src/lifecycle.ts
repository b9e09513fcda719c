// lifecycle.ts: the page and the network come and go: the screen stays on while an answer is written, and a hidden page can wait.

import { CaratError } from 'carat-web';

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

// Resolves after a while, or as soon as the network is back. Rejects when the signal aborts.
export function networkBack(ms: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
        const end = () => {
            clearTimeout(timer);
            removeEventListener('online', end);
            signal.removeEventListener('abort', end);
            if (signal.aborted)
                reject(new CaratError('cancelled', 'the call was cancelled'));
            else
                resolve();
        };
        const timer = setTimeout(end, ms);
        addEventListener('online', end);
        signal.addEventListener('abort', end);
    });
}
