// conversations.ts: conversations, kept in IndexedDB (in memory where that is missing).

import { computed, signal } from '@preact/signals';
import { type IDBPDatabase, openDB } from 'idb';
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
        conversations.value = all.sort((a, b) => b.changedAt - a.changedAt);
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

// Changes a conversation everywhere it is shown. `save: false` while an answer streams; the last call saves.
export function updateConversation(id: string, changes: Partial<Conversation>, save = true): void {
    conversations.value = conversations.value.map((c) => (c.id === id ? { ...c, ...changes, changedAt: Date.now() } : c));
    const changed = conversations.value.find((c) => c.id === id);
    if (save && changed !== undefined)
        store(changed);
}

function store(conversation: Conversation): void {
    database?.put('conversations', conversation).then(() => tabs?.postMessage(conversation.id),
        (error: Error) => say(`This conversation could not be kept: ${error.message}`));
}

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

// Brings back what was deleted.
export function restoreConversation(conversation: Conversation): void {
    conversations.value = [...conversations.value, conversation].sort((a, b) => b.changedAt - a.changedAt);
    openId.value = conversation.id;
    store(conversation);
}

export function deleteConversation(id: string): void {
    forget(id);
    void database?.delete('conversations', id).then(() => tabs?.postMessage(id));
}

// As JSON; attachments as data URLs.
export async function exportConversation(conversation: Conversation): Promise<Blob> {
    const messages = await Promise.all(conversation.messages.map(async ({ attachments, ...message }) => ({
        ...message,
        ...(attachments !== undefined && { attachments: await Promise.all(attachments.map(async (a) => ({ kind: a.kind, name: a.name, url: await dataUrl(a.blob) }))) }),
    })));
    return new Blob([JSON.stringify({ ...conversation, messages }, null, 2)], { type: 'application/json' });
}

function dataUrl(blob: Blob): Promise<string> {
    return new Promise((resolve, reject) => {
        const reader = new FileReader();
        reader.onload = () => resolve(reader.result as string);
        reader.onerror = () => reject(reader.error);
        reader.readAsDataURL(blob);
    });
}

// The first words of the first message.
export function titleFrom(text: string): string {
    const line = text.trim().split('\n')[0] ?? '';
    return line.length > 48 ? `${line.slice(0, 47).trimEnd()}…` : line || 'New conversation';
}
