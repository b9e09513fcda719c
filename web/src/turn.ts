// turn.ts: giving way to other events (messages, the network) without the delays of setTimeout.

const scope = globalThis as { setImmediate?: (f: () => void) => void };
let channel: MessageChannel | undefined;
const waiting: (() => void)[] = [];
let lastTurn = 0;

// Resolves in a new task.
export function nextTurn(): Promise<void> {
    return new Promise((resolve) => {
        if (scope.setImmediate !== undefined) {
            scope.setImmediate(resolve);
            return;
        }
        if (channel === undefined) {
            channel = new MessageChannel();
            channel.port1.onmessage = () => waiting.shift()?.();
        }
        waiting.push(resolve);
        channel.port2.postMessage(0);
    });
}

// Runs one piece of work at a time, in the order of asking. One that fails does not stop those behind it.
export class Queue {
    private last: Promise<unknown> = Promise.resolve();

    run<T>(work: () => Promise<T>): Promise<T> {
        const result = this.last.then(work);
        this.last = result.catch(() => undefined);
        return result;
    }
}

// The same if the last turn was given more than `ms` ago, else at once.
export async function turnAfter(ms: number): Promise<void> {
    if (performance.now() - lastTurn < ms) return;
    await nextTurn();
    lastTurn = performance.now();
}
