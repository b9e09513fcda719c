// conversations.ts: conversations, kept in IndexedDB (in memory where that is missing).

import { computed, signal } from '@preact/signals';
import { type IDBPDatabase, openDB } from 'idb';

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

export const newId = (): string => crypto.randomUUID();

let database: IDBPDatabase | undefined;

export async function loadConversations(): Promise<void> {
    try {
        database = await openDB('carat', 1, { upgrade: (db) => { db.createObjectStore('conversations', { keyPath: 'id' }); } });
        const all = await database.getAll('conversations') as Conversation[];
        conversations.value = all.sort((a, b) => b.changedAt - a.changedAt);
    } catch {
        database = undefined; // a private window: they last as long as the page
    }
}

export function createConversation(): Conversation {
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
        void database?.put('conversations', changed);
}

export function deleteConversation(id: string): void {
    conversations.value = conversations.value.filter((c) => c.id !== id);
    if (openId.value === id)
        openId.value = conversations.value[0]?.id;
    void database?.delete('conversations', id);
}

export function exportConversation(conversation: Conversation): Blob {
    const plain = { ...conversation, messages: conversation.messages.map(({ attachments, ...m }) => ({ ...m, attachments: attachments?.map((a) => a.name) })) };
    return new Blob([JSON.stringify(plain, null, 2)], { type: 'application/json' });
}

// The first words of the first message.
export function titleFrom(text: string): string {
    const line = text.trim().split('\n')[0] ?? '';
    return line.length > 48 ? `${line.slice(0, 47).trimEnd()}…` : line || 'New conversation';
}
