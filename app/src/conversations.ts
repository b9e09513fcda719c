// conversations.ts: conversations, kept in IndexedDB (in memory where that is missing).

import { computed, signal } from '@preact/signals';
import { type IDBPDatabase, openDB } from 'idb';
import { keep, readKept } from './kept';
import { say } from './notice';

export interface Attachment { kind: 'image' | 'audio'; name: string; blob: Blob }

export interface Stats { tokens: number; tokensPerSecond: number; promptTokens: number; cachedTokens: number; contextUsed: number }

export interface Message {
    id: string;
    role: 'user' | 'assistant';
    text: string;
    attachments?: Attachment[];
    reasoning?: string;
    calls?: { name: string; arguments: string }[];
    cut?: boolean;       // stopped or out of room: can be continued
    stats?: Stats;
}

export interface Conversation {
    id: string;
    title: string;
    system: string;
    createdAt: number;   // milliseconds since 1970
    changedAt: number;
    messages: Message[];
}

export const conversations = signal<Conversation[]>([]);          // newest change first
export const openId = signal<string | undefined>(undefined);
export const openConversation = computed(() => conversations.value.find((c) => c.id === openId.value));

// crypto.randomUUID is missing where the page is not secure.
export const newId = (): string => Array.from(crypto.getRandomValues(new Uint8Array(16)), (b) => b.toString(16).padStart(2, '0')).join('');

let database: IDBPDatabase | undefined;

export async function loadConversations(): Promise<void> {
    try {
        database = await openDB('carat', 1, { upgrade: (db) => { db.createObjectStore('conversations', { keyPath: 'id' }); } });
        const all = await database.getAll('conversations') as Conversation[];
        conversations.value = all.map(withKeptAnswer).sort((a, b) => b.changedAt - a.changedAt);
        tabs?.addEventListener('message', (event) => void takeOver(event as MessageEvent<string>));
    } catch {
        database = undefined; // a private window: they last as long as the page
    }
}

// A new conversation; one that nothing was written into is used again.
export function createConversation(): Conversation {
    const empty = conversations.value.find((c) => c.messages.length === 0);
    if (empty !== undefined) {
        openId.value = empty.id;
        return empty;
    }
    const now = Date.now();
    const conversation: Conversation = { id: newId(), title: 'New conversation', system: '', createdAt: now, changedAt: now, messages: [] };
    conversations.value = [conversation, ...conversations.value];
    openId.value = conversation.id;
    return conversation;
}

// Changes a conversation everywhere it is shown. `save: false` while an answer streams; the last call saves. Resolves when it is saved.
export async function updateConversation(id: string, changes: Partial<Conversation>, save = true): Promise<void> {
    conversations.value = conversations.value.map((c) => (c.id === id ? { ...c, ...changes, changedAt: Date.now() } : c));
    const changed = conversations.value.find((c) => c.id === id);
    if (save && changed !== undefined)
        await store(changed);
}

async function store(conversation: Conversation): Promise<void> {
    try {
        await database?.put('conversations', conversation);
        tabs?.postMessage(conversation.id);
    } catch (error) {
        say(`This conversation could not be kept: ${(error as Error).message}`);
    }
}

// --- answers under way ------------------------------------------------------------------------------------------------------------

// A page can end at any moment, so an answer is kept while it comes: beside the conversation, whose pictures would be written with it.
const answerKey = (id: string): string => `carat.answer.${id}`;

export function keepAnswer(id: string, reply: Message): void {
    keep(answerKey(id), JSON.stringify(reply));
}

export function forgetAnswer(id: string): void {
    keep(answerKey(id), undefined);
}

function readAnswer(id: string): Message | undefined {
    try {
        return JSON.parse(readKept(answerKey(id)) ?? 'null') as Message | null ?? undefined;
    } catch {
        return undefined;
    }
}

// A conversation with the answer that was under way when its page ended, which can be continued.
function withKeptAnswer(conversation: Conversation): Conversation {
    const kept = readAnswer(conversation.id);
    if (kept === undefined)
        return conversation;
    const reply = { ...kept, cut: true };
    const last = conversation.messages.at(-1);
    const before = last?.id === reply.id ? conversation.messages.slice(0, -1) : conversation.messages;
    const isNews = before.at(-1)?.role === 'user' && (before === conversation.messages || reply.text.length > last!.text.length);
    const changed = isNews ? { ...conversation, messages: [...before, reply] } : conversation;
    void (isNews ? store(changed) : Promise.resolve()).then(() => forgetAnswer(conversation.id));
    return changed;
}

// --- tabs, deleting ---------------------------------------------------------------------------------------------------------------

// What one tab of the app changes the others show.
const tabs = typeof BroadcastChannel === 'undefined' ? undefined : new BroadcastChannel('carat');

async function takeOver(event: MessageEvent<string>): Promise<void> {
    const changed = await database?.get('conversations', event.data) as Conversation | undefined;
    const known = conversations.value.some((c) => c.id === event.data);
    if (changed === undefined)
        forget(event.data);
    else
        conversations.value = known ? conversations.value.map((c) => (c.id === changed.id ? changed : c)) : [changed, ...conversations.value];
}

function forget(id: string): void {
    conversations.value = conversations.value.filter((c) => c.id !== id);
    if (openId.value === id)
        openId.value = conversations.value[0]?.id;
}

// Adds a conversation: one that was deleted, or that comes from a file.
export function addConversation(conversation: Conversation): void {
    conversations.value = [...conversations.value, conversation].sort((a, b) => b.changedAt - a.changedAt);
    openId.value = conversation.id;
    void store(conversation);
}

export function deleteConversation(id: string): void {
    forget(id);
    forgetAnswer(id);
    void database?.delete('conversations', id).then(() => tabs?.postMessage(id));
}

// The first words of the first message.
export function titleFrom(text: string): string {
    const line = text.trim().split('\n')[0] ?? '';
    return line.length > 48 ? `${line.slice(0, 47).trimEnd()}…` : line || 'New conversation';
}
