// prompt-session.ts: a conversation in the shape of the browser's built-in Prompt API (LanguageModel).

import type { Carat } from './carat';
import { makeError, throwIfAborted } from './errors';
import { check, jsonOf, need } from './options';
import type { ChatMessage, ChatRequest, ContentPart, EngineEvent, Sampling } from './types';

export type PromptRole = 'system' | 'user' | 'assistant';
export interface PromptPart {
    type: 'text' | 'image' | 'audio';
    value: unknown;
}
export interface PromptMessage {
    role: PromptRole;
    content: string | PromptPart[];
    prefix?: boolean;
}
export type PromptInput = string | PromptMessage[];

export interface PromptSessionOptions {
    initialPrompts?: PromptMessage[];
    temperature?: number;
    topK?: number;
    sampling?: Sampling; // everything else
    contextSize?: number;
    thinking?: boolean;
    state?: SessionState; // of save(): goes on from there, initial prompts included
    signal?: AbortSignal; // destroys the session
}

// A conversation with what was computed for it: plain data, for IndexedDB or postMessage. It fits the model and the adapters that it
// was saved with.
export interface SessionState {
    messages: ChatMessage[];
    contextUsage: number;
    cache: Uint8Array; // carat's own form, docs/state.md
}

export interface PromptOptions {
    signal?: AbortSignal;
    stop?: string | string[];
    maxTokens?: number;
}

const sessionRules =
    'initialPrompts object[], temperature ~0..100, topK 0.., sampling object, contextSize 1.., thinking boolean, state object, signal AbortSignal';

export class PromptSession extends EventTarget {
    contextUsage = 0; // tokens of the conversation so far
    cachedUsage = 0; // of the last prompt, those that did not have to be computed
    readonly contextWindow: number;
    private readonly messages: ChatMessage[];
    private readonly life = new AbortController(); // ends with the session
    private queue: Promise<unknown> = Promise.resolve();

    private constructor(
        private readonly carat: Carat,
        private readonly options: PromptSessionOptions,
        private readonly session: number,
        context: number,
        messages: ChatMessage[],
    ) {
        super();
        this.contextWindow = context;
        this.messages = messages;
        options.signal?.addEventListener(
            'abort',
            () => {
                void this.destroy();
            },
            { once: true },
        );
    }

    static async create(carat: Carat, options: PromptSessionOptions): Promise<PromptSession> {
        check('the options of session', options, sessionRules);
        const { state, initialPrompts = [], signal } = options;
        throwIfAborted(signal);
        if (state !== undefined) check('a state', { ...state }, 'messages object[], contextUsage 0.., cache Uint8Array');
        jsonOf("'sampling'", options.sampling);
        if (state !== undefined && initialPrompts.length > 0)
            throw makeError('bad_argument', 'a session goes on from a state or begins with initialPrompts, not both');
        const messages = state === undefined ? initialPrompts.map(toMessage) : structuredClone(state.messages);
        const made = await carat.newEngineSession(options.contextSize);
        await orFree(carat, made.session, signal, async () => {
            if (state !== undefined) await carat.link.call('session.restore', { session: made.session, bytes: state.cache });
        });
        const session = new PromptSession(carat, options, made.session, made.context, messages);
        session.contextUsage = state?.contextUsage ?? 0;
        return session;
    }

    // The whole answer.
    async prompt(input: PromptInput, options: PromptOptions = {}): Promise<string> {
        let text = '';
        for await (const piece of this.answer(input, options)) text += piece;
        return text;
    }

    // The answer in pieces, as they are generated, whether somebody reads or not: nobody behind it in the queue waits for a reader.
    promptStreaming(input: PromptInput, options: PromptOptions = {}): ReadableStream<string> {
        const cancelled = new AbortController();
        const pieces = this.answer(input, { ...options, signal: anyOf(options.signal, cancelled.signal) });
        return new ReadableStream<string>({
            async start(controller) {
                for await (const piece of pieces) if (!cancelled.signal.aborted) controller.enqueue(piece);
                if (!cancelled.signal.aborted) controller.close();
            },
            cancel(reason) {
                cancelled.abort(reason);
            },
        });
    }

    // Adds messages without asking for an answer.
    async append(input: PromptInput): Promise<void> {
        this.check();
        const added = toMessages(input);
        await this.queue;
        this.messages.push(...added);
    }

    // A session that goes on from here by itself. What was computed is copied with it.
    async clone(options: { signal?: AbortSignal } = {}): Promise<PromptSession> {
        this.check();
        await this.queue;
        check('the options of clone', options, 'signal AbortSignal');
        throwIfAborted(options.signal);
        const { signal: _own, ...rest } = this.options;
        const messages = structuredClone(this.messages);
        const { session, context } = await this.carat.link.call('session.copy', { session: this.session });
        await orFree(this.carat, session, options.signal);
        const copy = new PromptSession(this.carat, { ...rest, ...options }, session, context, messages);
        copy.contextUsage = this.contextUsage;
        return copy;
    }

    // The conversation as it is now, to go on from with carat.session({state}): after a reload, say. Nothing is computed again then.
    async save(): Promise<SessionState> {
        this.check();
        await this.queue;
        const messages = structuredClone(this.messages);
        const cache = await this.carat.link.call('session.save', { session: this.session });
        return { messages, contextUsage: this.contextUsage, cache };
    }

    // Tokens that the input would take.
    async measureContextUsage(input: PromptInput): Promise<number> {
        this.check();
        const overhead = 5; // <|turn>, the role, a newline, <turn|>, a newline
        let n = 0;
        for (const message of toMessages(input)) {
            n += overhead + (await this.carat.tokenize(textOf(message))).length;
        }
        return n;
    }

    // Ends what is under way, which then rejects as cancelled.
    async destroy(): Promise<void> {
        if (this.life.signal.aborted) return;
        this.life.abort();
        await this.queue;
        await free(this.carat, this.session);
    }

    private check(): void {
        if (this.life.signal.aborted) throw makeError('closed', 'the session was destroyed');
    }

    // One answer after the other. What was asked and answered is remembered unless the call failed or was aborted.
    private async *answer(input: PromptInput, options: PromptOptions): AsyncGenerator<string> {
        this.check();
        check('the options of prompt', options, 'signal AbortSignal, stop string|string[], maxTokens 1..');
        throwIfAborted(options.signal);
        const asked = toMessages(input);
        const before = this.queue;
        let release: () => void = () => undefined;
        this.queue = new Promise<void>((resolve) => {
            release = resolve;
        });
        try {
            await before;
            this.check();
            const last = Array.isArray(input) ? input[input.length - 1] : undefined;
            const prefix = last?.role === 'assistant' && last.prefix === true;
            let text = '';
            const signal = anyOf(options.signal, this.life.signal);
            for await (const event of await this.events([...this.messages, ...asked], prefix, { ...options, signal })) {
                if (event.kind === 'content') {
                    text += event.text;
                    yield event.text;
                }
                if (event.kind === 'finish') this.finish(event, asked, prefix, text, options);
            }
        } finally {
            release();
        }
    }

    private finish(
        event: Extract<EngineEvent, { kind: 'finish' }>,
        asked: ChatMessage[],
        prefix: boolean,
        text: string,
        options: PromptOptions,
    ): void {
        if (event.reason === 'cancelled')
            throw makeError('cancelled', 'the call was cancelled', { cause: options.signal?.reason });
        if (prefix) text = textOf(asked.pop()!) + text;
        this.messages.push(...asked, { role: 'assistant', content: text });
        this.contextUsage = event.promptTokens + event.generatedTokens;
        this.cachedUsage = event.cachedTokens;
        if (event.reason === 'length' && this.contextUsage >= this.contextWindow)
            this.dispatchEvent(new Event('contextoverflow'));
    }

    private events(messages: ChatMessage[], prefix: boolean, options: PromptOptions): Promise<AsyncGenerator<EngineEvent>> {
        const { temperature, topK, sampling, thinking } = this.options;
        const request: ChatRequest = {
            messages,
            ...sampling,
            ...(temperature !== undefined && { temperature }),
            ...(topK !== undefined && { top_k: topK }),
            ...(thinking && { reasoning: true }),
            ...(prefix && { continue_final_message: true }),
            ...(options.stop !== undefined && { stop: options.stop }),
            ...(options.maxTokens !== undefined && { max_tokens: options.maxTokens }),
        };
        return this.carat.chatEvents(request, this.session, options.signal);
    }
}

async function free(carat: Carat, session: number): Promise<void> {
    await carat.link.call('session.free', { session }).catch(() => undefined);
}

// Gives a new engine session back when what it needs fails, or when it was aborted meanwhile: nobody else would.
async function orFree(carat: Carat, session: number, signal: AbortSignal | undefined, work?: () => Promise<void>): Promise<void> {
    try {
        await work?.();
        throwIfAborted(signal);
    } catch (error) {
        await free(carat, session);
        throw error;
    }
}

// Aborted with the first of these.
function anyOf(...signals: (AbortSignal | undefined)[]): AbortSignal {
    return AbortSignal.any(signals.filter((signal) => signal !== undefined));
}

function textOf(message: ChatMessage): string {
    if (typeof message.content === 'string') return message.content;
    return (message.content ?? []).map((part) => (part.type === 'text' ? part.text : '')).join('');
}

function toMessages(input: PromptInput): ChatMessage[] {
    need('the input', input, 'string|object[]');
    return typeof input === 'string' ? [{ role: 'user', content: input }] : input.map(toMessage);
}

function toMessage(message: PromptMessage): ChatMessage {
    check('a message', message, 'role =system|=user|=assistant, content string|object[], prefix boolean');
    need("a message's 'content'", message.content, 'string|object[]');
    if (typeof message.content === 'string') return { role: message.role, content: message.content };
    return { role: message.role, content: message.content.map(toPart) };
}

function toPart(part: PromptPart): ContentPart {
    if (part.type === 'text') return { type: 'text', text: String(part.value) };
    if (part.type === 'image') return { type: 'image', image: part.value as Blob };
    if (part.type === 'audio') return { type: 'audio', audio: part.value as Blob };
    throw makeError('bad_argument', `a prompt cannot hold a part of type '${String((part as PromptPart).type)}'`);
}
