// engine.ts: the loaded model: loading, answering, losing the device and coming back.

import { computed, signal } from '@preact/signals';
import { Carat, CaratError, type ChatMessage, type ContentPart, type LoadProgress, type ModelInfo, type ModelSource } from 'carat-web';
import { type Conversation, type Message, newId, type Stats, titleFrom, updateConversation } from './conversations';
import { settings } from './settings';

export const demoModel = { name: 'carat demo', url: new URL('models/carat-demo.gguf', document.baseURI).href };

export type EngineState =
    | { kind: 'empty' }
    | { kind: 'loading'; name: string; progress: LoadProgress | undefined }
    | { kind: 'ready'; name: string; info: ModelInfo }
    | { kind: 'failed'; name: string; message: string; remedy: string };

export const engine = signal<EngineState>({ kind: 'empty' });
export const answering = signal<{ conversation: string; note: string } | undefined>(undefined);
export const notice = signal<string | undefined>(undefined);
export const modelInfo = computed(() => (engine.value.kind === 'ready' ? engine.value.info : undefined));

let carat: Carat | undefined;
let last: { name: string; source: ModelSource } | undefined;
let loading: AbortController | undefined;
let stopping: AbortController | undefined;

export const currentModel = (): Carat | undefined => carat;

function explain(error: unknown): { message: string; remedy: string } {
    return error instanceof CaratError ? { message: error.message, remedy: error.remedy } : { message: (error as Error).message ?? String(error), remedy: '' };
}

// Loads a model in the place of the one there is. Resolves to true when it is ready.
export async function loadModel(name: string, source: ModelSource): Promise<boolean> {
    await unloadModel();
    last = { name, source };
    loading = new AbortController();
    engine.value = { kind: 'loading', name, progress: undefined };
    const { backend, threads, contextSize } = settings.value;
    try {
        carat = await loadFitting(source, {
            backend, contextSize, signal: loading.signal, ...(threads > 0 && { threads }),
            onProgress: (progress) => { engine.value = { kind: 'loading', name, progress }; },
        });
        engine.value = { kind: 'ready', name, info: carat.info };
        return true;
    } catch (error) {
        engine.value = loading.signal.aborted ? { kind: 'empty' } : { kind: 'failed', name, ...explain(error) };
        return false;
    }
}

// A context that the model was not trained for is refused: then the model's own limit is taken.
async function loadFitting(source: ModelSource, options: NonNullable<Parameters<typeof Carat.load>[1]>): Promise<Carat> {
    const model = await Carat.load(source, options);
    if (options.contextSize === undefined || options.contextSize <= model.info.contextLength)
        return model;
    await model.close();
    return Carat.load(source, { ...options, contextSize: model.info.contextLength });
}

export function cancelLoading(): void {
    loading?.abort();
}

export async function unloadModel(): Promise<void> {
    stop();
    loading?.abort();
    const old = carat;
    carat = undefined;
    engine.value = { kind: 'empty' };
    await old?.close();
}

export function stop(): void {
    stopping?.abort();
}

// --- answering ------------------------------------------------------------------------------------------------------------------

function contentOf(message: Message): string | ContentPart[] {
    if (message.attachments === undefined || message.attachments.length === 0)
        return message.text;
    const media = message.attachments.map((a): ContentPart => (a.kind === 'image' ? { type: 'image', image: a.blob } : { type: 'audio', audio: a.blob }));
    return [...media, { type: 'text', text: message.text }];
}

function requestMessages(conversation: Conversation, messages: Message[]): ChatMessage[] {
    const system: ChatMessage[] = conversation.system.trim() === '' ? [] : [{ role: 'system', content: conversation.system }];
    return [...system, ...messages.map((m): ChatMessage => ({ role: m.role, content: contentOf(m) }))];
}

async function keepAwake(): Promise<{ release(): Promise<void> } | undefined> {
    return navigator.wakeLock?.request('screen').catch(() => undefined);
}

// Writes an answer to the conversation's last message; `continued`: goes on with an answer that was cut.
export async function answer(conversation: Conversation, continued = false): Promise<void> {
    if (carat === undefined || answering.value !== undefined)
        return;
    const before = continued ? conversation.messages.slice(0, -1) : conversation.messages;
    const cut = continued ? conversation.messages.at(-1) : undefined;
    const reply: Message = { id: cut?.id ?? newId(), role: 'assistant', text: cut?.text ?? '', reasoning: cut?.reasoning ?? '' };
    const show = (save: boolean) => updateConversation(conversation.id, { messages: [...before, { ...reply }] }, save);
    stopping = new AbortController();
    answering.value = { conversation: conversation.id, note: 'Reading' };
    show(false);
    const lock = await keepAwake();
    try {
        await stream(requestMessages(conversation, continued ? conversation.messages : before), continued, reply, conversation.id, () => show(false));
    } catch (error) {
        reply.cut = true;
        if (!stopping.signal.aborted)
            await recover(error);
    } finally {
        await lock?.release();
        answering.value = undefined;
        show(true);
    }
}

async function stream(messages: ChatMessage[], continued: boolean, reply: Message, conversation: string, show: () => void): Promise<void> {
    const { temperature, top_k, top_p, min_p, repetition_penalty, max_tokens, thinking } = settings.value;
    const chunks = await carat!.chat.completions.create({
        messages, stream: true, temperature, top_k, top_p, min_p, repetition_penalty, reasoning: thinking && !continued,
        seed: crypto.getRandomValues(new Uint32Array(1))[0]!, ...(max_tokens > 0 && { max_tokens }), ...(continued && { continue_final_message: true }),
    }, { signal: stopping!.signal });
    let shownAt = 0;
    for await (const chunk of chunks) {
        const choice = chunk.choices[0];
        reply.text += choice?.delta.content ?? '';
        reply.reasoning = (reply.reasoning ?? '') + (choice?.delta.reasoning_content ?? '');
        for (const call of choice?.delta.tool_calls ?? [])
            reply.calls = [...(reply.calls ?? []), { name: call.function.name, arguments: call.function.arguments }];
        const percent = (p: { done: number; total: number }) => `${Math.round(100 * p.done / Math.max(1, p.total))} %`;
        if (chunk.encoding_progress !== undefined)
            answering.value = { conversation, note: `Looking and listening, ${percent(chunk.encoding_progress)}` };
        else if (chunk.prompt_progress !== undefined)
            answering.value = { conversation, note: `Reading, ${percent(chunk.prompt_progress)}` };
        else if (reply.text !== '' || reply.reasoning !== '')
            answering.value = { conversation, note: reply.text === '' ? 'Thinking' : 'Answering' };
        if (choice?.finish_reason === 'length' || choice?.finish_reason === 'cancelled')
            reply.cut = true;
        if (chunk.timings !== undefined && chunk.usage !== undefined)
            reply.stats = statsOf(chunk.usage, chunk.timings);
        if (performance.now() - shownAt > 30) { // one repaint for several tokens
            shownAt = performance.now();
            show();
        }
    }
}

function statsOf(usage: { prompt_tokens: number; completion_tokens: number; prompt_tokens_details: { cached_tokens: number } }, timings: { predicted_per_second: number }): Stats {
    return {
        tokens: usage.completion_tokens, tokensPerSecond: timings.predicted_per_second, promptTokens: usage.prompt_tokens,
        cachedTokens: usage.prompt_tokens_details.cached_tokens, contextUsed: usage.prompt_tokens + usage.completion_tokens,
    };
}

// The conversation is the page's, not the device's: a lost device costs a reload of the model.
async function recover(error: unknown): Promise<void> {
    const { message, remedy } = explain(error);
    notice.value = `${message}. ${remedy}`;
    if (error instanceof CaratError && (error.code === 'device_lost' || error.code === 'closed') && last !== undefined) {
        notice.value = 'The graphics device was lost. The model is being loaded again; the conversation is kept.';
        if (await loadModel(last.name, last.source))
            notice.value = 'The graphics device was lost and the model was loaded again. Press Regenerate or Continue to go on.';
    }
}

// Adds the user's message and answers it.
export async function send(conversation: Conversation, message: Omit<Message, 'id' | 'role'>): Promise<void> {
    const messages: Message[] = [...conversation.messages, { ...message, id: newId(), role: 'user' }];
    const title = conversation.messages.length === 0 ? titleFrom(message.text || message.attachments?.[0]?.name || '') : conversation.title;
    updateConversation(conversation.id, { messages, title });
    await answer({ ...conversation, messages, title });
}
