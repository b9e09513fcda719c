// media.ts: turns the images and sounds of a message into what the engine takes: RGB bytes, and mono samples at 16 kHz.

import { makeError } from './errors';
import type { ChatMessage, ContentPart, Media } from './types';

const sampleRate = 16_000;

// The request's messages with each image and sound replaced by its number in the list of media.
export async function gatherMedia(messages: ChatMessage[]): Promise<{ messages: unknown[]; media: Media[] }> {
    const media: Media[] = [];
    const replaced: unknown[] = [];
    for (const message of messages) {
        if (!Array.isArray(message.content)) {
            replaced.push(message);
            continue;
        }
        const content: unknown[] = [];
        for (const part of message.content) {
            const item = await decode(part);
            content.push(item === undefined ? part : { type: item.kind, media: media.push(item) - 1 });
        }
        replaced.push({ ...message, content });
    }
    return { messages: replaced, media };
}

async function decode(part: ContentPart): Promise<Media | undefined> {
    switch (part.type) {
    case 'image_url': return decodeImage(await fetchBlob(part.image_url.url));
    case 'image': return decodeImage(part.image);
    case 'input_audio': return decodeAudio(bytesOfBase64(part.input_audio.data));
    case 'audio': return decodeAudio(part.audio instanceof Blob ? await part.audio.arrayBuffer() : part.audio);
    default: return undefined;
    }
}

async function fetchBlob(url: string): Promise<Blob> {
    const response = await fetch(url).catch((error: Error) => { throw makeError('io', `the image could not be loaded: ${error.message}`, { cause: error }); });
    if (!response.ok)
        throw makeError('not_found', `the image could not be loaded: the server answers ${response.status}`);
    return response.blob();
}

function bytesOfBase64(text: string): ArrayBuffer {
    return Uint8Array.from(atob(text.replace(/^data:[^,]*,/, '')), (c) => c.charCodeAt(0)).buffer;
}

export async function decodeImage(image: Blob | ImageBitmapSource): Promise<Media> {
    const bitmap = await createImageBitmap(image, { colorSpaceConversion: 'default', premultiplyAlpha: 'none' })
        .catch((error: Error) => { throw makeError('bad_file', `the image cannot be decoded: ${error.message}`, { cause: error, remedy: 'Use a PNG, JPEG or WebP image.' }); });
    try {
        const { width, height } = bitmap;
        const context = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true })!;
        context.fillStyle = '#fff';
        context.fillRect(0, 0, width, height); // what is transparent becomes white
        context.drawImage(bitmap, 0, 0);
        const rgba = context.getImageData(0, 0, width, height).data;
        const rgb = new Uint8Array(3 * width * height);
        for (let i = 0, j = 0; j < rgb.length; i += 4, j += 3) {
            rgb[j] = rgba[i]!;
            rgb[j + 1] = rgba[i + 1]!;
            rgb[j + 2] = rgba[i + 2]!;
        }
        return { kind: 'image', rgb, width, height };
    } finally {
        bitmap.close();
    }
}

// Float32Array: mono samples at 16 kHz already. Anything else is a file that the browser can decode.
export async function decodeAudio(audio: ArrayBuffer | Float32Array): Promise<Media> {
    if (audio instanceof Float32Array)
        return { kind: 'audio', samples: audio };
    if (typeof OfflineAudioContext === 'undefined')
        throw makeError('unsupported', 'sounds can only be decoded in a page', { remedy: 'Pass a Float32Array of mono samples at 16 kHz.' });
    const context = new OfflineAudioContext(1, 1, sampleRate); // decodeAudioData resamples to the context's rate
    const buffer = await context.decodeAudioData(audio.slice(0))
        .catch((error: Error) => { throw makeError('bad_file', `the sound cannot be decoded: ${error.message}`, { cause: error, remedy: 'Use WAV, MP3, OGG or M4A.' }); });
    const samples = new Float32Array(buffer.length);
    for (let c = 0; c < buffer.numberOfChannels; c++) {
        const channel = buffer.getChannelData(c);
        for (let i = 0; i < samples.length; i++)
            samples[i]! += channel[i]! / buffer.numberOfChannels;
    }
    return { kind: 'audio', samples };
}
