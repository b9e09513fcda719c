// carat.ts: a loaded model, as a web developer uses it: chat.completions.create in OpenAI's shape, session() in the shape of the
// browser's built-in Prompt API, generate() on token ids.

import { findAssets } from './assets';
import { Client, localLink, type Link, workerLink } from './client';
import { makeError } from './errors';
import type { HostOptions, PlainSource } from './host';
import { sleep } from './http';
import { bytesOf, checkMedia, gatherMedia } from './gather';
import { check, idsOf, jsonOf, need } from './options';
import { PromptSession, type PromptSessionOptions } from './prompt-session';
import type {
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    EngineEvent,
    FinishReason,
    GenerateOptions,
    LoadOptions,
    LoadProgress,
    Media,
    ModelInfo,
    ModelSource,
    Timings,
    TokenLogprob,
    ToolCall,
    Usage,
} from './types';

type Finish = Extract<EngineEvent, { kind: 'finish' }>;

const closeMs = 10_000;
const loadRules =
    'backend =auto|=webgpu|=cpu|=ref, contextSize 1.., threads 1..256, exact boolean, autotune boolean, textOnly boolean, ' +
    'perLayerTableOnDisk boolean, projector string|object, compat =none|=ollama|=llama.cpp, kvF32 boolean, batch 1.., signal AbortSignal, onProgress function, ' +
    'wasmUrl string, variant =simd|=threads|=relaxed, worker boolean, gpu object';
// What a request may hold too is looked at by the engine, as a request is.
const inRequest =
    'temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, penalty_window, seed, logit_bias, ' +
    'max_tokens, ignore_eos';
const sizeRule = '0..9e15';
const isNode = typeof process !== 'undefined' && process.versions?.node !== undefined;
const canWork = typeof Worker !== 'undefined' && !isNode;

export class Carat {
    readonly info: ModelInfo;
    readonly chat: { completions: { create: CreateCompletion } };
    private sharedSession: Promise<number> | undefined;
    private closed = false;

    private constructor(
        private readonly client: Client,
        info: ModelInfo,
        private readonly options: LoadOptions,
    ) {
        this.info = info;
        this.chat = {
            completions: {
                create: ((request: ChatRequest, options?: { signal?: AbortSignal }) =>
                    this.complete(request, options)) as CreateCompletion,
            },
        };
    }

    // Loads a model. Rejects with a CaratError; nothing is left behind then.
    static async load(source: ModelSource | ModelSource[], options: LoadOptions = {}): Promise<Carat> {
        check('the options of load', options, loadRules);
        if (Array.isArray(source)) need('the number of sources', source.length, '1..');
        const inWorker = options.worker ?? canWork;
        const plain = await Promise.all((Array.isArray(source) ? source : [source]).map((s) => plainSource(s, inWorker)));
        const projector = options.projector === undefined ? [] : [await plainSource(options.projector, inWorker)];
        const sources = [...plain, ...projector].map((s) => s.plain);
        const readers = [...plain, ...projector].map((s) => s.read);
        const client = new Client(await openLink(options));
        try {
            const { signal, onProgress, worker: _w, projector: _p, wasmUrl, ...engineOptions } = options;
            const assets = findAssets(wasmUrl);
            const info = await client.call(
                'load',
                { sources, options: { ...engineOptions, assets, projectorParts: projector.length } },
                {
                    signal,
                    onEvent: onProgress as ((event: LoadProgress) => void) | undefined as never,
                    reader: async (part, offset, n) => readers[part]!(offset, n),
                    transfer: sources.flatMap((s) => (s.kind === 'stream' && inWorker ? [s.stream] : [])),
                },
            );
            return new Carat(client, info, options);
        } catch (error) {
            client.close();
            throw error;
        }
    }

    // --- chat.completions -------------------------------------------------------------------------------------------------------

    private async complete(
        request: ChatRequest,
        options: { signal?: AbortSignal | undefined } = {},
    ): Promise<ChatCompletion | ChatStream> {
        check('the options of create', options, 'signal AbortSignal');
        need('the request', request, 'object');
        const { stream, stream_options, model: name } = request;
        check('a request', { stream, stream_options, model: name }, 'stream boolean, stream_options object, model string');
        const events = await this.chatEvents(request, await this.shared(), options.signal);
        const id = `chatcmpl-${randomId()}`,
            created = Math.floor(Date.now() / 1000),
            model = request.model ?? this.info.name;
        const chunks = chunksOf(events, { id, created, model }, request.stream_options?.include_usage === true);
        if (request.stream) return new ChatStream(chunks);
        return collect(chunks, { id, created, model });
    }

    // The engine's own events for a chat request on a session.
    async chatEvents(request: ChatRequest, session: number, signal?: AbortSignal): Promise<AsyncGenerator<EngineEvent>> {
        const { stream: _s, stream_options: _o, model: _m, ...body } = request;
        if (!Array.isArray(request.messages)) throw makeError('bad_argument', "'messages' must be a list");
        const { messages, media } = await gatherMedia(request.messages);
        const text = jsonOf('the request', { ...body, messages: messages.map((m) => renamed(m as { role: string })) });
        return this.client.stream<'chat', EngineEvent>('chat', { session, request: text, media }, signal);
    }

    // --- the rest ---------------------------------------------------------------------------------------------------------------

    // A conversation that remembers, in the shape of the browser's LanguageModel.
    async session(options: PromptSessionOptions = {}): Promise<PromptSession> {
        return PromptSession.create(this, options);
    }

    // Continues a sequence of token ids (the BOS token included). What earlier calls have in common is not computed again.
    // A run of media placeholders in the ids stands for one of `media`.
    generate(
        ids: ArrayLike<number>,
        options: GenerateOptions & { signal?: AbortSignal; media?: Media[] } = {},
    ): AsyncIterableIterator<EngineEvent> {
        const shared = () => this.shared();
        const client = this.client;
        return (async function* () {
            check(
                'the options of generate',
                options,
                `${inRequest}, with_special boolean, logprobs 0..20, signal AbortSignal, media object[]`,
            );
            const { signal, media = [], ...rest } = options;
            jsonOf('the options of generate', rest);
            media.forEach(checkMedia);
            const list = idsOf(ids);
            yield* client.stream<'generate', EngineEvent>(
                'generate',
                { session: await shared(), ids: list, options: rest, media },
                signal,
            );
        })();
    }

    // Text to ids. parseSpecial: marker texts such as <|turn> become their tokens.
    async tokenize(text: string, options: { addBos?: boolean; parseSpecial?: boolean } = {}): Promise<Int32Array> {
        need('the text', text, 'string');
        check('the options of tokenize', options, 'addBos boolean, parseSpecial boolean');
        return this.client.call('tokenize', {
            text,
            addBos: options.addBos ?? false,
            parseSpecial: options.parseSpecial ?? false,
        });
    }
    async detokenize(ids: ArrayLike<number>, options: { withSpecial?: boolean } = {}): Promise<string> {
        check('the options of detokenize', options, 'withSpecial boolean');
        return this.client.call('detokenize', { ids: idsOf(ids), withSpecial: options.withSpecial ?? false });
    }

    // Adds a LoRA adapter: a GGUF or safetensors file; PEFT's safetensors come with the text of their adapter_config.json. Adapters add
    // up. The number of weights it changes.
    async loadAdapter(file: Blob | ArrayBuffer | Uint8Array, options: { config?: string; scale?: number } = {}): Promise<number> {
        check('the options of loadAdapter', options, 'config string, scale ~-3e38..3e38');
        need('the adapter', file, 'Blob|ArrayBuffer|Uint8Array');
        const bytes = (await bytesOf(file))!;
        return this.client.call('adapter.load', {
            bytes,
            scale: options.scale ?? 1,
            ...(options.config !== undefined && { config: options.config }),
        });
    }
    async clearAdapters(): Promise<void> {
        await this.client.call('adapter.clear', null);
    }

    // Gives back the memory of a tower until the next image or sound.
    async releaseTower(kind: 'vision' | 'audio'): Promise<void> {
        need('the tower', kind, '=vision|=audio');
        await this.client.call('tower.release', { kind });
    }

    // Bytes of the module's memory (weights on the GPU are not in it).
    async memory(): Promise<{ wasmBytes: number }> {
        return this.client.call('memory', null);
    }

    // Lower layer, for the parts of this package.
    get link(): Client {
        return this.client;
    }

    async newEngineSession(contextSize = this.options.contextSize): Promise<{ session: number; context: number }> {
        return this.client.call('session.new', contextSize === undefined ? {} : { contextSize });
    }

    // Frees everything. Calls under way are cancelled.
    async close(): Promise<void> {
        if (this.closed) return;
        this.closed = true;
        // A worker that does not answer (a hung GPU) is ended all the same.
        const answered = new AbortController();
        const late = sleep(closeMs, answered.signal).catch(() => undefined);
        await Promise.race([this.client.call('close', null).catch(() => undefined), late]);
        answered.abort();
        this.client.close();
    }

    async [Symbol.asyncDispose](): Promise<void> {
        await this.close();
    }

    private shared(): Promise<number> {
        this.sharedSession ??= this.newEngineSession().then((s) => s.session);
        this.sharedSession.catch(() => {
            this.sharedSession = undefined;
        });
        return this.sharedSession;
    }
}

interface CreateCompletion {
    (request: ChatRequest & { stream: true }, options?: { signal?: AbortSignal }): Promise<ChatStream>;
    (request: ChatRequest & { stream?: false }, options?: { signal?: AbortSignal }): Promise<ChatCompletion>;
    (request: ChatRequest, options?: { signal?: AbortSignal }): Promise<ChatCompletion | ChatStream>;
}

// The chunks of a streamed answer. Leaving the loop, or abort(), stops the generation.
export class ChatStream implements AsyncIterable<ChatChunk> {
    constructor(private readonly chunks: AsyncGenerator<ChatChunk>) {}
    [Symbol.asyncIterator](): AsyncIterator<ChatChunk> {
        return this.chunks;
    }
    async abort(): Promise<void> {
        await this.chunks.return(undefined);
    }
    toReadableStream(): ReadableStream<ChatChunk> {
        const { chunks } = this;
        return new ReadableStream({
            async pull(controller) {
                const { done, value } = await chunks.next();
                if (done) controller.close();
                else controller.enqueue(value);
            },
            async cancel() {
                await chunks.return(undefined);
            },
        });
    }
}

// --- events to chunks and completions -------------------------------------------------------------------------------------------

interface Head {
    id: string;
    created: number;
    model: string;
}

function renamed(message: { role: string }): unknown {
    return message.role === 'model' ? { ...message, role: 'assistant' } : message;
}

function randomId(): string {
    return Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) => b.toString(16).padStart(2, '0')).join('');
}

function logprobsOf(event: { logprobs?: string }): { content: TokenLogprob[] } | null {
    return event.logprobs === undefined ? null : { content: JSON.parse(event.logprobs) as TokenLogprob[] };
}

async function* chunksOf(events: AsyncGenerator<EngineEvent>, head: Head, includeUsage: boolean): AsyncGenerator<ChatChunk> {
    const chunk = (
        delta: ChatChunk['choices'][0]['delta'],
        logprobs: { content: TokenLogprob[] } | null = null,
        finish: FinishReason | null = null,
    ): ChatChunk => ({
        ...head,
        object: 'chat.completion.chunk',
        choices: [{ index: 0, delta, finish_reason: finish, logprobs }],
    });
    let nCalls = 0;
    yield chunk({ role: 'assistant', content: '' });
    for await (const event of events) {
        if (event.kind === 'content') yield chunk({ content: event.text }, logprobsOf(event));
        else if (event.kind === 'reasoning') yield chunk({ reasoning_content: event.text }, logprobsOf(event));
        else if (event.kind === 'progress' || event.kind === 'encoding') {
            const { done, total } = event;
            const name = event.kind === 'progress' ? 'prompt_progress' : 'encoding_progress';
            yield { ...head, object: 'chat.completion.chunk', choices: [], [name]: { done, total } };
        } else if (event.kind === 'tool_call')
            yield chunk({
                tool_calls: [
                    {
                        index: nCalls++,
                        id: `call_${randomId()}`,
                        type: 'function',
                        function: { name: event.name, arguments: event.arguments },
                    },
                ],
            });
        else if (event.kind === 'finish') yield* lastChunks(event, chunk({}, null, event.reason), includeUsage);
    }
}

function* lastChunks(event: Finish, last: ChatChunk, includeUsage: boolean): Generator<ChatChunk> {
    const usage = usageOf(event),
        timings = timingsOf(event);
    yield includeUsage ? { ...last, timings } : { ...last, usage, timings };
    if (includeUsage) yield { ...last, choices: [], usage, timings };
}

export function usageOf(event: Finish): Usage {
    return {
        prompt_tokens: event.promptTokens,
        completion_tokens: event.generatedTokens,
        total_tokens: event.promptTokens + event.generatedTokens,
        prompt_tokens_details: { cached_tokens: event.cachedTokens },
    };
}

function timingsOf(event: Finish): Timings {
    const n = event.promptTokens - event.cachedTokens;
    const perSecond = (count: number, ms: number) => (ms > 0 ? (count / ms) * 1000 : 0);
    return {
        prompt_n: n,
        prompt_ms: event.promptMs,
        prompt_per_second: perSecond(n, event.promptMs),
        predicted_n: event.generatedTokens,
        predicted_ms: event.generateMs,
        predicted_per_second: perSecond(event.generatedTokens, event.generateMs),
        encode_ms: event.encodeMs,
    };
}

async function collect(chunks: AsyncGenerator<ChatChunk>, head: Head): Promise<ChatCompletion> {
    let content = '',
        reasoning = '',
        finish: FinishReason = 'stop';
    const calls: ToolCall[] = [],
        logprobs: TokenLogprob[] = [];
    let usage: Usage | undefined, timings: Timings | undefined;
    for await (const chunk of chunks) {
        const choice = chunk.choices[0];
        content += choice?.delta.content ?? '';
        reasoning += choice?.delta.reasoning_content ?? '';
        calls.push(...(choice?.delta.tool_calls ?? []).map(({ index: _index, ...call }) => call));
        logprobs.push(...(choice?.logprobs?.content ?? []));
        finish = choice?.finish_reason ?? finish;
        usage = chunk.usage ?? usage;
        timings = chunk.timings ?? timings;
    }
    if (usage === undefined || timings === undefined) throw makeError('io', 'the answer ended without a finish');
    return {
        ...head,
        object: 'chat.completion',
        usage,
        timings,
        choices: [
            {
                index: 0,
                finish_reason: finish,
                logprobs: logprobs.length > 0 ? { content: logprobs } : null,
                message: {
                    role: 'assistant',
                    content: content === '' && calls.length > 0 ? null : content,
                    ...(reasoning !== '' && { reasoning_content: reasoning }),
                    ...(calls.length > 0 && { tool_calls: calls }),
                },
            },
        ],
    };
}

// --- links and sources ----------------------------------------------------------------------------------------------------------

// Where the engine runs: in a worker of its own in browsers, here in Node or when asked for.
export async function openLink(options: Pick<LoadOptions, 'worker' | 'wasmUrl'> & { storeKind?: string }): Promise<Link> {
    if (options.worker ?? canWork) {
        if (!canWork) throw makeError('unsupported', 'there are no web workers here', { remedy: 'Pass worker: false.' });
        return workerLink(
            options.storeKind === undefined ? 'carat' : `carat&store=${options.storeKind}`,
            findAssets(options.wasmUrl).worker,
        );
    }
    const host: HostOptions = isNode
        ? await (await import('./node')).nodeHostOptions()
        : { storeKind: options.storeKind as HostOptions['storeKind'] };
    return localLink(host);
}

type Read = (offset: number, n: number) => Promise<Uint8Array>;
const noRead: Read = () => Promise.reject(makeError('io', 'nobody reads this source'));

async function plainSource(source: ModelSource, inWorker: boolean): Promise<{ plain: PlainSource; read: Read }> {
    const plain = (value: PlainSource, read = noRead) => ({ plain: value, read });
    if (typeof source === 'string' && isNode && !/^[a-z]+:\/\//i.test(source)) return plain({ kind: 'path', path: source });
    if (typeof source === 'string' || source instanceof URL) return plain({ kind: 'url', url: absolute(source) });
    if (source instanceof Blob) return plain({ kind: 'blob', blob: source });
    if (source instanceof Uint8Array || source instanceof ArrayBuffer)
        return plain({ kind: 'bytes', bytes: source instanceof Uint8Array ? source : new Uint8Array(source) });
    if (source instanceof ReadableStream) return plainStream(source, undefined, inWorker);
    need('the source', source, 'object');
    const { stream, read, size, url, headers, store, sha256 } = source as Record<string, unknown>; // of a class, perhaps
    check(
        'the source',
        { stream, read, size, url, headers, store, sha256 },
        `stream ReadableStream, read function, size ${sizeRule}, url string|URL, headers object, store string, sha256 string`,
    );
    if ('read' in source) need('the size of a source', source.size, sizeRule);
    if ('stream' in source) return plainStream(source.stream, source.size, inWorker);
    if ('read' in source)
        return plain({ kind: 'function', size: source.size }, async (offset, n) => {
            const bytes = await source.read(offset, n);
            return bytes instanceof Uint8Array ? bytes : new Uint8Array(bytes);
        });
    if ('url' in source) return plain({ ...source, kind: 'url', url: absolute(source.url) });
    if ('store' in source) return plain({ kind: 'store', key: source.store });
    throw makeError('bad_argument', 'this is no source of a model', {
        remedy: 'Pass a URL, a File, bytes, a stream or {store: key}.',
    });
}

// Not every browser can pass a stream to a worker; then its pieces are passed.
function plainStream(
    stream: ReadableStream<Uint8Array>,
    size: number | undefined,
    inWorker: boolean,
): { plain: PlainSource; read: Read } {
    const known = size === undefined ? {} : { size };
    if (!inWorker || canPassStreams()) return { plain: { kind: 'stream', stream, ...known }, read: noRead };
    const reader = stream.getReader();
    return { plain: { kind: 'pull', ...known }, read: async () => (await reader.read()).value ?? new Uint8Array(0) };
}

function canPassStreams(): boolean {
    const stream = new ReadableStream();
    try {
        new MessageChannel().port1.postMessage(stream, [stream]);
        return true;
    } catch {
        return false;
    }
}

export function absolute(url: string | URL): string {
    try {
        return new URL(url, globalThis.location?.href).href;
    } catch {
        throw makeError('bad_argument', `'${String(url)}' is no address`);
    }
}
