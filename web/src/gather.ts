// gather.ts: takes the images and sounds out of the messages of a request, and looks at what callers pass as such.

import { makeError } from './errors';
import { decodeImage, decodeSound, fromPixels } from './media';
import { check, need } from './options';
import type { ChatMessage, ContentPart, ImageMedia, Media, Pixels } from './types';

// The request's messages with each image and sound replaced by its number in the list of media.
export async function gatherMedia(messages: ChatMessage[]): Promise<{ messages: unknown[]; media: Media[] }> {
    const media: Media[] = [];
    const replaced: unknown[] = [];
    for (const message of messages) {
        need('a message', message, 'object');
        need("a message's 'role'", message.role, '=system|=developer|=user|=assistant|=model|=tool');
        if (!Array.isArray(message.content)) {
            replaced.push(message);
            continue;
        }
        const content: unknown[] = [];
        for (const part of message.content) {
            const item = await decode(part);
            content.push(item === undefined ? part : { type: item.kind.replace('-file', ''), media: media.push(item) - 1 });
        }
        replaced.push({ ...message, content });
    }
    return { messages: replaced, media };
}

async function decode(part: ContentPart): Promise<Media | undefined> {
    need('a part of a message', part, 'object');
    switch (part.type) {
        case 'image_url':
            need("'image_url'", part.image_url, 'object');
            need("'image_url.url'", part.image_url.url, 'string');
            return { kind: 'image-file', bytes: await fetchBytes(part.image_url.url) };
        case 'image': {
            need("'image'", part.image, 'object');
            if (part.tokens !== undefined) need("'tokens'", part.tokens, budget);
            const bytes = await bytesOf(part.image);
            const media: Media =
                bytes !== undefined
                    ? { kind: 'image-file', bytes }
                    : isBytes((part.image as Pixels).data)
                      ? fromPixels(part.image as Pixels)
                      : await decodeImage(part.image as ImageBitmapSource);
            return part.tokens === undefined ? media : { ...media, tokens: part.tokens };
        }
        case 'input_audio':
            need("'input_audio'", part.input_audio, 'object');
            return decodeSound(fromBase64(part.input_audio.data));
        case 'audio': {
            if (part.audio instanceof Float32Array) return { kind: 'audio', samples: part.audio };
            need("'audio'", part.audio, 'Blob|ArrayBuffer|Uint8Array|Float32Array');
            return decodeSound((await bytesOf(part.audio))!);
        }
        case 'text':
            return undefined;
        default:
            throw makeError('bad_argument', `a message cannot hold a part of type '${String((part as { type: unknown }).type)}'`);
    }
}

const side = '1..65535',
    budget = '=70|=140|=280|=560|=1120';
const mediumRules = `kind =image|=audio|=image-file|=audio-file, rgb Uint8Array, bytes Uint8Array, samples Float32Array, width ${side}, height ${side}, tokens ${budget}`;

const isBytes = (data: unknown) => data instanceof Uint8Array || data instanceof Uint8ClampedArray;

// What generate() is given beside the ids.
export function checkMedia(media: Media): void {
    check('a medium', media, mediumRules);
    const { kind, rgb, width, height, bytes, samples } = media as ImageMedia & {
        kind: unknown;
        bytes: unknown;
        samples: unknown;
    };
    if (kind === 'image' ? rgb?.length !== 3 * width * height : (kind === 'audio' ? samples : bytes) === undefined)
        throw makeError('bad_argument', `a medium of the kind '${String(kind)}' lacks its data, or they have another size`);
}

function fromBase64(text: unknown): Uint8Array {
    need("'input_audio.data'", text, 'string');
    try {
        return Uint8Array.from(atob((text as string).replace(/^data:[^,]*,/, '')), (c) => c.charCodeAt(0));
    } catch {
        throw makeError('bad_argument', "'input_audio.data' is not base64");
    }
}

export async function bytesOf(data: unknown): Promise<Uint8Array | undefined> {
    if (data instanceof Blob) return new Uint8Array(await data.arrayBuffer());
    if (data instanceof ArrayBuffer) return new Uint8Array(data);
    return data instanceof Uint8Array ? data : undefined;
}

async function fetchBytes(url: string): Promise<Uint8Array> {
    const response = await fetch(url).catch((error: Error) => {
        throw makeError('io', `the image could not be loaded: ${error.message}`, { cause: error });
    });
    if (!response.ok) throw makeError('not_found', `the image could not be loaded: the server answers ${response.status}`);
    return new Uint8Array(await response.arrayBuffer());
}
