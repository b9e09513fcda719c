// conversation-file.ts: a conversation as a JSON file, attachments as data URLs: export, and import of what export made.

import { addConversation, type Attachment, type Conversation, conversations, type Message, newId, openId } from './conversations';
import { say } from './notice';

const maxBytes = 512 << 20;

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

// Adds the file's conversation and opens it. One that is here already is only opened; one that has gone on since is kept beside the
// file's. A file that is none of ours is refused and changes nothing. Resolves to true when a conversation was opened.
export async function importConversation(file: File): Promise<boolean> {
    try {
        const read = await readConversation(file);
        const same = conversations.value.find((c) => c.id === read.id);
        if (same === undefined) {
            addConversation(read);
        } else if (sameMessages(same, read)) {
            openId.value = same.id;
            say(`“${same.title}” is here already.`);
        } else {
            addConversation({ ...read, id: newId(), title: `${read.title} (from a file)` });
        }
        return true;
    } catch (error) {
        say(`${file.name} was not imported: ${(error as Error).message}`);
        return false;
    }
}

const sameMessages = (a: Conversation, b: Conversation): boolean =>
    a.messages.length === b.messages.length && a.messages.every((m, i) => m.id === b.messages[i]!.id && m.text === b.messages[i]!.text);

// --- reading, where anything may stand in the file -------------------------------------------------------------------------------------

type Fields = Record<string, unknown>;

const isFields = (value: unknown): value is Fields => typeof value === 'object' && value !== null && !Array.isArray(value);
const isTime = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value);

async function readConversation(file: File): Promise<Conversation> {
    if (file.size > maxBytes)
        throw new Error('it is too large for a conversation.');
    let all: unknown;
    try {
        all = JSON.parse(await file.text());
    } catch {
        throw new Error('it is not JSON.');
    }
    if (!isFields(all) || typeof all['title'] !== 'string' || !Array.isArray(all['messages']))
        throw new Error('it is no conversation that carat exported.');
    const now = Date.now();
    return {
        id: typeof all['id'] === 'string' ? all['id'] : newId(),
        title: all['title'].slice(0, 200) || 'Conversation',
        system: typeof all['system'] === 'string' ? all['system'] : '',
        createdAt: isTime(all['createdAt']) ? all['createdAt'] : now,
        changedAt: now, // so that it stands on top
        messages: all['messages'].map((message: unknown, i) => readMessage(message, `message ${i + 1}`)),
    };
}

function readMessage(value: unknown, place: string): Message {
    if (!isFields(value) || (value['role'] !== 'user' && value['role'] !== 'assistant'))
        throw new Error(`${place} is neither the user's nor an answer.`);
    if (typeof value['text'] !== 'string')
        throw new Error(`${place} has no text.`);
    const { id, role, text, reasoning, attachments, calls } = value;
    return {
        id: typeof id === 'string' ? id : newId(), role, text,
        ...(typeof reasoning === 'string' && { reasoning }),
        ...(value['cut'] === true && { cut: true }),
        ...(Array.isArray(calls) && { calls: calls.map((call: unknown) => readCall(call, place)) }),
        ...(Array.isArray(attachments) && { attachments: attachments.map((a: unknown) => readAttachment(a, place)) }),
    };
}

function readCall(value: unknown, place: string): { name: string; arguments: string } {
    if (!isFields(value) || typeof value['name'] !== 'string' || typeof value['arguments'] !== 'string')
        throw new Error(`${place} has a call that cannot be read.`);
    return { name: value['name'], arguments: value['arguments'] };
}

function readAttachment(value: unknown, place: string): Attachment {
    const url = isFields(value) && typeof value['url'] === 'string' ? /^data:((image|audio|video)\/[\w.+-]+)[^,]*;base64,([A-Za-z0-9+/]*={0,2})$/.exec(value['url']) : null;
    if (url === null)
        throw new Error(`${place} has an attachment that cannot be read.`);
    const [, type, kind, data] = url;
    const name = String((value as Fields)['name'] ?? 'attachment');
    return { kind: kind === 'image' ? 'image' : 'audio', name, blob: new Blob([Uint8Array.from(atob(data!), (c) => c.charCodeAt(0))], { type: type! }) };
}
