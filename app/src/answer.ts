// answer.ts: writes answers into conversations: streaming, stopping, waiting while the page is hidden, coming back from a lost device.

import { signal } from '@preact/signals';
import { CaratError, type ChatChunk, type ChatMessage, type ContentPart } from 'carat-web';
import { type Conversation, forgetAnswer, keepAnswer, type Message, newId, type Stats, titleFrom, updateConversation } from './conversations';
import { currentModel, explain, measuring, modelInfo, reload } from './engine';
import { keepAwake, onHidden, visible } from './lifecycle';
import { announcement, say } from './notice';
import { settings } from './settings';

export const answering = signal<{ conversation: string; note: string } | undefined>(undefined);

// An answer while it is written.
interface Turn {
    conversation: Conversation;
    before: Message[];           // what it answers
    reply: Message;
    thinks: boolean;             // may still think: nothing of the answer is there
    user: AbortController;       // aborted by the user: the end
}

type Outcome = 'finished' | 'stopped' | 'hidden' | 'lost' | 'failed';

let current: Turn | undefined;

export function stop(): void {
    current?.user.abort();
}

// Adds the user's message and answers it.
export async function send(conversation: Conversation, message: Omit<Message, 'id' | 'role'>): Promise<void> {
    const messages: Message[] = [...conversation.messages, { ...message, id: newId(), role: 'user' }];
    const title = conversation.messages.length === 0 ? titleFrom(message.text || message.attachments?.[0]?.name || '') : conversation.title;
    void updateConversation(conversation.id, { messages, title });
    await answer({ ...conversation, messages, title });
}

// Answers `kept`, the beginning of a conversation, anew. What else was lost with the old answer can be brought back.
export async function answerFrom(conversation: Conversation, kept: Message[]): Promise<void> {
    void updateConversation(conversation.id, { messages: kept });
    const nLost = conversation.messages.length - kept.length - 1;
    if (nLost > 0)
        say(nLost === 1 ? 'A later message was removed.' : `${nLost} later messages were removed.`, { label: 'Undo', run: () => void bringBack(conversation) });
    await answer({ ...conversation, messages: kept });
}

async function bringBack(conversation: Conversation): Promise<void> {
    if (answering.value?.conversation === conversation.id) {
        stop();
        await new Promise<void>((resolve) => {
            const forget = answering.subscribe((value) => {
                if (value === undefined)
                    setTimeout(() => { forget(); resolve(); });
            });
        });
    }
    void updateConversation(conversation.id, { messages: conversation.messages });
}

// Writes an answer to the conversation's last message; `continued`: goes on with an answer that was cut.
export async function answer(conversation: Conversation, continued = false): Promise<void> {
    if (currentModel() === undefined || answering.value !== undefined || measuring.value)
        return;
    const cut = continued ? conversation.messages.at(-1) : undefined;
    const turn: Turn = current = {
        conversation, before: continued ? conversation.messages.slice(0, -1) : conversation.messages,
        reply: { id: cut?.id ?? newId(), role: 'assistant', text: cut?.text ?? '', reasoning: cut?.reasoning ?? '' },
        thinks: settings.value.thinking, user: new AbortController(),
    };
    announcement.value = '';
    answering.value = { conversation: conversation.id, note: 'Reading' };
    void show(turn, false);
    const letSleep = keepAwake();
    try {
        const outcome = await writeToTheEnd(turn);
        turn.reply.cut = outcome === 'finished' ? turn.reply.cut : true;
        announcement.value = outcome === 'finished' ? `Answer: ${turn.reply.text.slice(0, 1000)}` : 'The answer was stopped.';
    } finally {
        letSleep();
        current = undefined;
        answering.value = undefined;
        await show(turn, true);
        forgetAnswer(conversation.id);
    }
}

// An answer that a hidden page or a lost device interrupts goes on where it stopped.
async function writeToTheEnd(turn: Turn): Promise<Outcome> {
    for (let lost = 0;;) {
        const outcome = await write(turn);
        if (outcome === 'hidden')
            await visible(turn.user.signal);
        else if (outcome !== 'lost' || lost++ > 0 || !await comeBack(turn))
            return outcome;
        if (turn.user.signal.aborted)
            return 'stopped';
    }
}

async function comeBack(turn: Turn): Promise<boolean> {
    say('The graphics device was lost. The model is being loaded again; the conversation is kept.');
    note(turn, 'Loading the model again');
    const back = await reload();
    say(back ? 'The graphics device was lost, and the model was loaded again.'
        : 'The graphics device was lost, and the model could not be loaded again. The conversation is kept.');
    return back;
}

async function write(turn: Turn): Promise<Outcome> {
    const abort = new AbortController();
    let hidden = false;
    const hide = () => {
        hidden = settings.value.pauseHidden;
        if (hidden)
            abort.abort();
    };
    const forward = () => abort.abort();
    const forget = onHidden(hide);
    turn.user.signal.addEventListener('abort', forward);
    try {
        const reason = await stream(turn, abort.signal);
        return reason === 'cancelled' ? ended(turn, hidden) : 'finished';
    } catch (error) {
        const code = error instanceof CaratError ? error.code : undefined;
        if (abort.signal.aborted)
            return ended(turn, hidden);
        if (code === 'device_lost')
            return 'lost';
        if (code !== 'closed' && code !== 'cancelled') { // those: another model was loaded meanwhile
            const { message, remedy } = explain(error);
            say(`${message}. ${remedy}`);
        }
        return 'failed';
    } finally {
        keepAnswer(turn.conversation.id, turn.reply); // browsers end hidden pages
        forget();
        turn.user.signal.removeEventListener('abort', forward);
    }
}

function ended(turn: Turn, hidden: boolean): Outcome {
    return turn.user.signal.aborted || !hidden ? 'stopped' : 'hidden';
}

async function stream(turn: Turn, signal: AbortSignal): Promise<string | undefined> {
    const { reply } = turn;
    const goesOn = reply.text !== '';
    if (!goesOn)
        reply.reasoning = ''; // a thought that was cut is thought again
    const { temperature, top_k, top_p, min_p, repetition_penalty, max_tokens } = settings.value;
    const chunks = await currentModel()!.chat.completions.create({
        messages: requestMessages(turn.conversation, goesOn ? [...turn.before, reply] : turn.before), stream: true,
        temperature, top_k, top_p, min_p, repetition_penalty, reasoning: turn.thinks && !goesOn,
        seed: crypto.getRandomValues(new Uint32Array(1))[0]!, ...(max_tokens > 0 && { max_tokens }), ...(goesOn && { continue_final_message: true }),
    }, { signal });
    let shownAt = 0, keptAt = 0;
    let reason: string | undefined;
    for await (const chunk of chunks) {
        take(turn, chunk);
        reason = chunk.choices[0]?.finish_reason ?? reason;
        if (performance.now() - shownAt > 50) { // one repaint for several tokens
            shownAt = performance.now();
            void show(turn, false);
        }
        if (performance.now() - keptAt > 500) {
            keptAt = performance.now();
            keepAnswer(turn.conversation.id, reply);
        }
    }
    reply.cut = reason === 'length';
    return reason;
}

function take(turn: Turn, chunk: ChatChunk): void {
    const { reply } = turn;
    const delta = chunk.choices[0]?.delta;
    reply.text += delta?.content ?? '';
    reply.reasoning = (reply.reasoning ?? '') + (delta?.reasoning_content ?? '');
    for (const call of delta?.tool_calls ?? [])
        reply.calls = [...(reply.calls ?? []), { name: call.function.name, arguments: call.function.arguments }];
    if (chunk.encoding_progress !== undefined)
        note(turn, `Looking and listening, ${percent(chunk.encoding_progress)}`);
    else if (chunk.prompt_progress !== undefined)
        note(turn, `Reading, ${percent(chunk.prompt_progress)}`);
    else if (reply.text !== '' || reply.reasoning !== '')
        note(turn, reply.text === '' ? 'Thinking' : 'Answering');
    if (chunk.timings !== undefined && chunk.usage !== undefined)
        reply.stats = statsOf(chunk.usage, chunk.timings);
}

function percent(p: { done: number; total: number }): string {
    return `${Math.round(100 * p.done / Math.max(1, p.total))} %`;
}

function note(turn: Turn, text: string): void {
    if (answering.value?.note !== text)
        answering.value = { conversation: turn.conversation.id, note: text };
}

function show(turn: Turn, save: boolean): Promise<void> {
    return updateConversation(turn.conversation.id, { messages: [...turn.before, { ...turn.reply }] }, save);
}

function statsOf(usage: NonNullable<ChatChunk['usage']>, timings: NonNullable<ChatChunk['timings']>): Stats {
    return {
        tokens: usage.completion_tokens, tokensPerSecond: timings.predicted_per_second, promptTokens: usage.prompt_tokens,
        cachedTokens: usage.prompt_tokens_details.cached_tokens, contextUsed: usage.prompt_tokens + usage.completion_tokens,
    };
}

// --- the request ------------------------------------------------------------------------------------------------------------------

// Pictures and sounds of an earlier model that this one cannot take are left out, so that the conversation can go on.
function contentOf(message: Message): string | ContentPart[] {
    const takes = { image: modelInfo.value?.hasVision === true, audio: modelInfo.value?.hasAudio === true };
    const media = (message.attachments ?? []).filter((a) => takes[a.kind]).map((a): ContentPart =>
        (a.kind === 'image' ? { type: 'image', image: a.blob, ...{ tokens: settings.value.imageTokens } } : { type: 'audio', audio: a.blob }));
    return media.length === 0 ? message.text : [...media, { type: 'text', text: message.text }];
}

function requestMessages(conversation: Conversation, messages: Message[]): ChatMessage[] {
    const system: ChatMessage[] = conversation.system.trim() === '' ? [] : [{ role: 'system', content: conversation.system }];
    return [...system, ...messages.map((m): ChatMessage => ({ role: m.role, content: contentOf(m) }))];
}
