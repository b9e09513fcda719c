// media.ts: turns images and sounds into what the engine takes: RGB bytes, and mono samples at 16 kHz.

import type { Engine } from './engine';
import { makeError } from './errors';
import type { DecodedMedia, ImageMedia, Media, Pixels } from './types';

const sampleRate = 16_000;

// WAV goes to the engine as it is; for anything else the browser's decoder is needed, which works in pages only.
export async function decodeSound(bytes: Uint8Array): Promise<Media> {
    const isWav = String.fromCharCode(...bytes.subarray(0, 4)) === 'RIFF';
    return isWav ? { kind: 'audio-file', bytes } : decodeAudio(bytes);
}

// Files become pixels and samples. WAV is read by the engine, images by the browser.
export async function decodeFiles(engine: Engine, media: Media[]): Promise<DecodedMedia[]> {
    return Promise.all(
        media.map(async (item): Promise<DecodedMedia> => {
            if (item.kind === 'audio-file') return { kind: 'audio', samples: engine.decodeWav(item.bytes) };
            if (!('bytes' in item)) return item;
            const decoded = await decodeImage(new Blob([item.bytes as Uint8Array<ArrayBuffer>]));
            return item.tokens === undefined ? decoded : { ...decoded, tokens: item.tokens };
        }),
    );
}

// What is transparent becomes white.
export function fromPixels({ data, width, height }: Pixels): ImageMedia {
    if (data.length !== 4 * width * height)
        throw makeError(
            'bad_argument',
            `an image of ${width} x ${height} pixels has ${4 * width * height} bytes of RGBA, not ${data.length}`,
        );
    const rgb = new Uint8Array(3 * width * height);
    for (let i = 0, j = 0; j < rgb.length; i += 4, j += 3) {
        const alpha = data[i + 3]! / 255;
        for (let c = 0; c < 3; c++) rgb[j + c] = Math.round(data[i + c]! * alpha + 255 * (1 - alpha));
    }
    return { kind: 'image', rgb, width, height };
}

export async function decodeImage(image: ImageBitmapSource): Promise<ImageMedia> {
    if (typeof createImageBitmap === 'undefined')
        throw makeError('unsupported', 'there is no decoder for image files here: browsers have one, Node.js has none', {
            remedy: "Decode the file first (npm's sharp does: .ensureAlpha().raw()) and pass {type: 'image', image: {data, width, height}} with RGBA bytes.",
        });
    const bitmap = await createImageBitmap(image, { premultiplyAlpha: 'none' }).catch((error: Error) => {
        throw makeError('bad_file', `the image cannot be decoded: ${error.message}`, {
            cause: error,
            remedy: 'Use a PNG, JPEG or WebP image.',
        });
    });
    try {
        const { width, height } = bitmap;
        const context = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true })!;
        context.drawImage(bitmap, 0, 0);
        return fromPixels(context.getImageData(0, 0, width, height));
    } finally {
        bitmap.close();
    }
}

async function decodeAudio(bytes: Uint8Array): Promise<DecodedMedia> {
    if (typeof OfflineAudioContext === 'undefined')
        throw makeError('unsupported', 'only WAV can be decoded here: other sounds need a page', {
            remedy: 'Pass a WAV file, or a Float32Array of mono samples at 16 kHz.',
        });
    const context = new OfflineAudioContext(1, 1, sampleRate); // decodeAudioData resamples to the context's rate
    const buffer = await context.decodeAudioData(bytes.slice().buffer).catch((error: Error) => {
        throw makeError('bad_file', `the sound cannot be decoded: ${error.message}`, {
            cause: error,
            remedy: 'Use WAV, MP3, OGG or M4A.',
        });
    });
    const samples = new Float32Array(buffer.length);
    for (let c = 0; c < buffer.numberOfChannels; c++) {
        const channel = buffer.getChannelData(c);
        for (let i = 0; i < samples.length; i++) samples[i]! += channel[i]! / buffer.numberOfChannels;
    }
    return { kind: 'audio', samples };
}
