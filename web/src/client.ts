// client.ts: the caller's side of the protocol (see src/host.ts): typed calls, events, cancelling.

import { workerMark } from './assets';
import { asCaratError, type CaratError, fromPlain, makeError, toPlain } from './errors';
import type { FromHost, HostEvent, HostOptions, Method, Methods, ToHost } from './host';
import { sameOriginScript } from './wasm';

export interface Link {
    send(message: ToHost, transfer?: Transferable[]): void;
    onMessage(receive: (message: FromHost) => void): void;
    onFailure(fail: (error: CaratError) => void): void;
    close(): void;
}

type Reader = (part: number, offset: number, n: number) => Promise<Uint8Array>;

interface Pending {
    resolve: (result: never) => void;
    reject: (error: unknown) => void;
    onEvent?: ((event: HostEvent) => void) | undefined;
    reader?: Reader | undefined;
}

export interface CallOptions {
    signal?: AbortSignal | undefined;
    onEvent?: ((event: never) => void) | undefined;
    reader?: Reader | undefined;
    transfer?: Transferable[] | undefined;
}

export class Client {
    private readonly pending = new Map<number, Pending>();
    private nextId = 1;
    private failure: CaratError | undefined;

    constructor(private readonly link: Link) {
        link.onMessage((message) => this.receive(message));
        link.onFailure((error) => this.fail(error));
    }

    // One request. An abort rejects when the host has come to rest, with the host's answer: 'cancelled' unless it was done before.
    call<M extends Method>(method: M, args: Methods[M]['args'], options: CallOptions = {}): Promise<Methods[M]['result']> {
        if (this.failure !== undefined) return Promise.reject(this.failure);
        if (options.signal?.aborted)
            return Promise.reject(makeError('cancelled', 'the call was cancelled', { cause: options.signal.reason }));
        const id = this.nextId++;
        const cancel = () => this.link.send({ id, cancel: true });
        options.signal?.addEventListener('abort', cancel, { once: true });
        return new Promise<never>((resolve, reject) => {
            this.pending.set(id, { resolve, reject, onEvent: options.onEvent as Pending['onEvent'], reader: options.reader });
            this.link.send({ id, method, args }, options.transfer);
        }).finally(() => options.signal?.removeEventListener('abort', cancel));
    }

    // A request whose events are to be read one by one. Leaving the loop early cancels it.
    async *stream<M extends Method, E extends HostEvent>(
        method: M,
        args: Methods[M]['args'],
        signal?: AbortSignal,
        transfer?: Transferable[],
    ): AsyncGenerator<E> {
        const waiting: E[] = [];
        let wake: () => void = () => undefined;
        let ended = false;
        const stop = new AbortController();
        const forward = () => stop.abort(signal?.reason);
        if (signal?.aborted) forward();
        signal?.addEventListener('abort', forward, { once: true });
        const onEvent = (event: E) => {
            waiting.push(event);
            wake();
        };
        const result = this.call(method, args, {
            signal: stop.signal,
            onEvent: onEvent as CallOptions['onEvent'],
            transfer,
        }).finally(() => {
            ended = true;
            wake();
        });
        result.catch(() => undefined);
        try {
            for (;;) {
                while (waiting.length > 0) yield waiting.shift()!;
                if (ended) break;
                await new Promise<void>((resolve) => {
                    wake = resolve;
                });
            }
            await result;
        } finally {
            signal?.removeEventListener('abort', forward);
            if (!ended) {
                stop.abort();
                await result.catch(() => undefined);
            }
        }
    }

    close(): void {
        this.fail(makeError('closed', 'the model was closed'));
        this.link.close();
    }

    private fail(error: CaratError): void {
        this.failure ??= error;
        for (const pending of this.pending.values()) pending.reject(error);
        this.pending.clear();
    }

    private receive(message: FromHost): void {
        const pending = this.pending.get(message.id);
        if (pending === undefined) return;
        if ('event' in message) {
            pending.onEvent?.(message.event);
        } else if ('ask' in message) {
            const { request, part, offset, n } = message.ask;
            const read = pending.reader?.(part, offset, n) ?? Promise.reject(makeError('io', 'nobody reads this source'));
            read.then(
                (bytes) => this.link.send({ id: request, reply: bytes }),
                (error: unknown) => this.link.send({ id: request, reply: null, error: toPlain(error) }),
            );
        } else {
            this.pending.delete(message.id);
            if ('error' in message) pending.reject(fromPlain(message.error));
            else pending.resolve(message.result as never);
        }
    }
}

// A link to a dedicated worker of its own.
export function workerLink(name: string, script: string): Link {
    const worker = new Worker(sameOriginScript(script + workerMark), { type: 'module', name });
    return {
        send: (message, transfer) => worker.postMessage(message, transfer ?? []),
        onMessage: (receive) => {
            worker.onmessage = (event: MessageEvent<FromHost>) => receive(event.data);
        },
        onFailure: (fail) => {
            worker.onerror = (event) =>
                fail(makeError('no_wasm', `the worker stopped: ${event.message || 'its script could not be loaded'}`));
            worker.onmessageerror = () => fail(asCaratError(new Error('a message of the worker could not be read')));
        },
        close: () => worker.terminate(),
    };
}

// A link to a host in this thread.
export async function localLink(options: HostOptions): Promise<Link> {
    const { Host } = await import('./worker.js'); // the finished script (build.mjs), for bundlers to see
    let receive: (message: FromHost) => void = () => undefined;
    const host = new Host((message) => queueMicrotask(() => receive(message)), options);
    return {
        send: (message) => queueMicrotask(() => host.receive(message)),
        onMessage: (f) => {
            receive = f;
        },
        onFailure: () => undefined,
        close: () => undefined,
    };
}
