// host.ts: the side of the protocol that does the work: answers requests of a client (src/client.ts) with engines and the model
// store. Runs in the worker, or in the client's own thread when there is none.
//
// A request is {id, method, args}; while it runs the host may send {id, event}; it ends with {id, result} or {id, error}.
// {id, cancel: true} cancels it. {id, reply} answers a question {id, ask} of the host (read functions of the caller).

import { asCaratError, makeError, type PlainError, toPlain } from './errors';
import { Engine, type EngineOptions, selfTest } from './engine';
import { openBrowserFolder, type StoreFolder, type StoreKind } from './files';
import { decodeFiles } from './media';
import type { EngineSession } from './session';
import {
    blobSource,
    fileSource,
    functionSource,
    memorySource,
    type Source,
    streamSource,
    transferSource,
    urlSource,
} from './source';
import { ModelStore, type StoredModel, type StoreProgress, type StoreUsage, Transfer } from './store';
import type { EngineEvent, GenerateOptions, LoadProgress, Media, ModelInfo } from './types';

// A ModelSource in a form that postMessage can carry.
export type PlainSource =
    | { kind: 'url'; url: string; headers?: Record<string, string>; store?: string; sha256?: string }
    | { kind: 'blob'; blob: Blob }
    | { kind: 'bytes'; bytes: Uint8Array }
    | { kind: 'store'; key: string }
    | { kind: 'stream'; stream: ReadableStream<Uint8Array>; size?: number }
    | { kind: 'pull'; size?: number } // a stream whose pieces the client is asked for
    | { kind: 'function'; size: number } // read by asking the client
    | { kind: 'path'; path: string }; // Node

export interface DownloadArgs {
    key: string;
    url: string;
    headers?: Record<string, string>;
    sha256?: string;
    label?: string;
    parallel?: number;
    retries?: number;
}

export interface NewSession {
    session: number;
    context: number; // positions
    bytes: number; // keys, values and scratch
}

// Every method: its arguments and its result. Events are listed beside those that send them.
export interface Methods {
    'load': { args: { sources: PlainSource[]; options: EngineOptions }; result: ModelInfo }; // LoadProgress
    'close': { args: null; result: void };
    'selfTest': { args: Pick<EngineOptions, 'assets' | 'gpu'>; result: { device: string; ms: number } };
    'session.new': { args: { contextSize?: number; noPrefillSkip?: boolean }; result: NewSession };
    'session.copy': { args: { session: number }; result: NewSession };
    'session.save': { args: { session: number }; result: Uint8Array };
    'session.restore': { args: { session: number; bytes: Uint8Array }; result: void };
    'session.free': { args: { session: number }; result: void };
    'session.truncate': { args: { session: number; position: number }; result: number };
    'chat': { args: { session: number; request: string; media: Media[] }; result: void }; // EngineEvent
    'generate': { args: { session: number; ids: number[]; options: GenerateOptions; media?: Media[] }; result: void }; // EngineEvent
    'tokenize': { args: { text: string; addBos: boolean; parseSpecial: boolean }; result: Int32Array };
    'detokenize': { args: { ids: number[]; withSpecial: boolean }; result: string };
    'adapter.load': { args: { bytes: Uint8Array; config?: string; scale: number }; result: number };
    'adapter.clear': { args: null; result: void };
    'tower.release': { args: { kind: 'vision' | 'audio' }; result: void };
    'memory': { args: null; result: { wasmBytes: number } };
    'loseDevice': { args: null; result: void };
    'store.list': { args: null; result: StoredModel[] };
    'store.usage': { args: null; result: StoreUsage };
    'store.download': { args: DownloadArgs; result: StoredModel }; // StoreProgress
    'store.import': { args: { key: string; blob: Blob; sha256?: string; label?: string }; result: StoredModel }; // StoreProgress
    'store.pause': { args: { key: string }; result: void };
    'store.verify': { args: { key: string }; result: boolean };
    'store.delete': { args: { key: string }; result: void };
    'store.blob': { args: { key: string }; result: Blob };
}

export type Method = keyof Methods;
export type ToHost =
    | { id: number; method: Method; args: unknown }
    | { id: number; cancel: true }
    | { id: number; reply: unknown; error?: PlainError };
export type HostEvent = LoadProgress | EngineEvent | StoreProgress;
export type FromHost =
    | { id: number; event: HostEvent }
    | { id: number; result: unknown }
    | { id: number; error: PlainError }
    | { id: number; ask: { request: number; offset: number; n: number; part: number } };

interface Call {
    signal: AbortSignal;
    event: (event: HostEvent) => void;
    ask: (part: number, offset: number, n: number) => Promise<Uint8Array>;
}

export interface HostOptions {
    storeFolder?: (() => Promise<StoreFolder>) | undefined;
    openPath?: ((path: string) => Promise<Source>) | undefined;
    storeKind?: StoreKind | undefined;
}

export class Host {
    private readonly running = new Map<number, AbortController>();
    private readonly questions = new Map<number, { resolve: (bytes: Uint8Array) => void; reject: (error: unknown) => void }>();
    private nextQuestion = 1;
    private engine: Engine | undefined;
    private damage: unknown; // the file that the engine was loaded from turned out to be wrong
    private readonly sessions = new Map<number, EngineSession>();
    private nextSession = 1;
    private store: Promise<ModelStore> | undefined;
    private queue: Promise<unknown> = Promise.resolve();

    constructor(
        private readonly post: (message: FromHost, transfer?: Transferable[]) => void,
        private readonly options: HostOptions = {},
    ) {}

    // Takes one message of the client.
    receive(message: ToHost): void {
        if ('cancel' in message) {
            this.running.get(message.id)?.abort();
        } else if ('reply' in message) {
            const question = this.questions.get(message.id);
            this.questions.delete(message.id);
            if (message.error !== undefined) question?.reject(makeError(message.error.code, message.error.message));
            else question?.resolve(message.reply as Uint8Array);
        } else {
            void this.answer(message.id, message.method, message.args);
        }
    }

    private async answer(id: number, method: Method, args: unknown): Promise<void> {
        const stop = new AbortController();
        this.running.set(id, stop);
        try {
            const handler = this.methods[method] as ((args: unknown, call: Call) => unknown) | undefined;
            if (handler === undefined) throw makeError('version_mismatch', `the worker does not know '${method}'`);
            const call: Call = {
                signal: stop.signal,
                event: (event) => this.post({ id, event }),
                ask: (part, offset, n) => this.ask(id, part, offset, n),
            };
            this.post({ id, result: (await handler(args, call)) ?? null });
        } catch (error) {
            this.post({ id, error: toPlain(error) });
        } finally {
            this.running.delete(id);
        }
    }

    private ask(id: number, part: number, offset: number, n: number): Promise<Uint8Array> {
        return new Promise((resolve, reject) => {
            const request = this.nextQuestion++;
            this.questions.set(request, { resolve, reject });
            this.post({ id, ask: { request, part, offset, n } });
        });
    }

    // One generation at a time; those waiting can be cancelled.
    private inTurn<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
        const before = this.queue;
        const mine = (async () => {
            await before;
            if (signal.aborted) throw makeError('cancelled', 'the call was cancelled');
            return work();
        })();
        this.queue = mine.catch(() => undefined);
        return mine;
    }

    private readonly methods: {
        [M in Method]: (args: Methods[M]['args'], call: Call) => Promise<Methods[M]['result']> | Methods[M]['result'];
    } = {
        'load': async ({ sources, options }, call) => {
            if (this.engine !== undefined) throw makeError('busy', 'this worker holds a model already');
            this.damage = undefined;
            const opened: Source[] = [];
            try {
                for (const [part, source] of sources.entries()) opened.push(await this.open(source, part, call));
            } catch (error) {
                await Promise.all(opened.map((s) => s.close().catch(() => undefined)));
                throw error;
            }
            this.engine = await Engine.load(opened, options, call.event, call.signal);
            return this.engine.info;
        },
        'selfTest': (options) => selfTest(options),
        'close': async () => {
            for (const stop of this.running.values()) stop.abort();
            await this.queue;
            await this.engine?.close();
            this.engine = undefined;
            this.sessions.clear();
        },
        'session.new': ({ contextSize, noPrefillSkip }) => this.keep(this.need().newSession(contextSize, noPrefillSkip)),
        'session.copy': ({ session }, call) => this.inTurn(call.signal, async () => this.keep(this.session(session).copy())),
        'session.save': ({ session }, call) => this.inTurn(call.signal, () => this.session(session).save()),
        'session.restore': ({ session, bytes }, call) => this.inTurn(call.signal, () => this.session(session).restore(bytes)),
        'session.free': async ({ session }, call) =>
            this.inTurn(call.signal, async () => {
                this.sessions.get(session)?.free();
                this.sessions.delete(session);
            }),
        'session.truncate': ({ session, position }, call) =>
            this.inTurn(call.signal, async () => this.session(session).truncate(position)),
        'chat': ({ session, request, media }, call) =>
            this.inTurn(call.signal, async () => {
                for await (const event of this.session(session).chat(request, await decodeFiles(this.need(), media), call.signal))
                    call.event(event);
            }),
        'generate': ({ session, ids, options, media }, call) =>
            this.inTurn(call.signal, async () => {
                for await (const event of this.session(session).generate(
                    ids,
                    options,
                    await decodeFiles(this.need(), media ?? []),
                    call.signal,
                ))
                    call.event(event);
            }),
        'tokenize': ({ text, addBos, parseSpecial }) => this.need().tokenize(text, addBos, parseSpecial),
        'detokenize': ({ ids, withSpecial }) => this.need().detokenize(ids, withSpecial),
        'adapter.load': ({ bytes, config, scale }, call) =>
            this.inTurn(call.signal, async () => this.need().loadAdapter(bytes, config, scale)),
        'adapter.clear': (_args, call) => this.inTurn(call.signal, async () => this.need().clearAdapters()),
        'tower.release': ({ kind }, call) => this.inTurn(call.signal, async () => this.need().releaseTower(kind)),
        'memory': () => ({ wasmBytes: this.need().memoryBytes }),
        'loseDevice': () => this.need().loseDevice(),
        'store.list': async () => (await this.openStore()).list(),
        'store.usage': async () => (await this.openStore()).usage(),
        'store.download': async ({ key, url, ...rest }, call) => {
            const got = await (
                await this.openStore()
            ).download(key, url, { ...rest, signal: call.signal, onProgress: call.event });
            return got instanceof Transfer ? got.finished : got;
        },
        'store.import': async ({ key, blob, ...rest }, call) => {
            const got = await (
                await this.openStore()
            ).import(key, blob, { ...rest, signal: call.signal, onProgress: call.event });
            return got instanceof Transfer ? got.finished : got;
        },
        'store.pause': async ({ key }) => {
            const transfer = (await this.openStore()).running(key);
            transfer?.cancel();
            await transfer?.finished.catch(() => undefined);
        },
        'store.verify': async ({ key }, call) => (await this.openStore()).verify(key, call.signal),
        'store.delete': async ({ key }) => (await this.openStore()).delete(key),
        'store.blob': async ({ key }) => {
            const blob = await (await this.openStore()).openBlob(key);
            if (blob === undefined) throw makeError('unsupported', 'this store cannot give its models out as files');
            return blob;
        },
    };

    private need(): Engine {
        if (this.engine === undefined) throw makeError('closed', 'no model is loaded');
        if (this.damage !== undefined) throw this.damage;
        return this.engine;
    }

    private keep(session: EngineSession): NewSession {
        this.sessions.set(this.nextSession, session);
        return { session: this.nextSession++, context: session.context, bytes: session.bytes };
    }

    private session(id: number): EngineSession {
        this.need();
        const session = this.sessions.get(id);
        if (session === undefined) throw makeError('closed', 'the session was closed');
        return session;
    }

    private openStore(): Promise<ModelStore> {
        this.store ??= (this.options.storeFolder?.() ?? openBrowserFolder('carat-models', this.options.storeKind)).then(
            (folder) => new ModelStore(folder),
        );
        this.store.catch(() => {
            this.store = undefined;
        });
        return this.store;
    }

    private async open(source: PlainSource, part: number, call: Call): Promise<Source> {
        switch (source.kind) {
            case 'url':
                return source.store === undefined
                    ? urlSource(source.url, { ...(source.headers && { headers: source.headers }), signal: call.signal })
                    : this.openStored(source.store, source);
            case 'blob':
                return blobSource(source.blob);
            case 'bytes':
                return memorySource(source.bytes);
            case 'store':
                return this.openStored(source.key);
            case 'stream':
                return streamSource(source.stream, source.size);
            case 'pull':
                return streamSource(
                    pulled(() => call.ask(part, 0, 0)),
                    source.size,
                );
            case 'function':
                return functionSource((offset, n) => call.ask(part, offset, n), source.size);
            case 'path':
                if (this.options.openPath === undefined)
                    throw makeError('unsupported', 'a browser cannot open a path', { remedy: 'Use a URL or a File.' });
                return this.options.openPath(source.path);
        }
    }

    // A model of the store; with a URL it is downloaded while it is used, if it is not there yet.
    private async openStored(
        key: string,
        from?: { url: string; headers?: Record<string, string>; sha256?: string },
    ): Promise<Source> {
        const store = await this.openStore();
        const model = await store.get(key);
        if (model?.state !== 'complete') {
            const url = from?.url;
            if (url === undefined) throw makeError('not_found', `the store has no complete model '${key}'`);
            const got = await store.download(key, url, { headers: from!.headers ?? {}, sha256: from!.sha256 });
            if (got instanceof Transfer) {
                got.finished.catch((error) => {
                    if (asCaratError(error).code === 'corrupt') this.damage = error;
                });
                return transferSource(got, () => this.openStored(key));
            }
        }
        try {
            return await fileSource(await store.openFile(key), key);
        } catch (error) {
            if (asCaratError(error).code !== 'busy')
                // open in another tab: read it the slower way
                throw error;
            const blob = await store.openBlob(key);
            if (blob === undefined) throw error;
            return blobSource(blob, key);
        }
    }
}

// A stream made of what `next` gives, until that is empty.
function pulled(next: () => Promise<Uint8Array>): ReadableStream<Uint8Array> {
    return new ReadableStream({
        async pull(controller) {
            const bytes = await next();
            if (bytes.length > 0) controller.enqueue(bytes);
            else controller.close();
        },
    });
}
