// source.ts: one way to read the bytes of a model, wherever they are.
//
// The engine reads a source in two ways: as a stream in file order (the weights), and, if the source can do it, synchronously (the
// header again and again, and rows of a table that stays on disk).

import { makeError } from './errors';
import type { StoreFile } from './files';
import { openRemote, readRangeSync, type RemoteFile, type RemoteOptions, streamRange } from './http';
import type { Transfer } from './store';

export interface Source {
    readonly name: string; // for messages
    readonly size: number; // bytes; Number.MAX_SAFE_INTEGER while unknown (a stream)
    // Bytes [start, end) in pieces. Pieces are valid until the next one is asked for.
    stream(start: number, end: number, signal?: AbortSignal): AsyncIterable<Uint8Array>;
    // Fills `into` at once; absent when the source can't. `rows` is true when reads of a few kB are cheap enough for every token.
    readSync?: (offset: number, into: Uint8Array) => void;
    readonly rows: boolean;
    // To be awaited before readSync is used; absent when it can be used at once.
    ready?: () => Promise<void>;
    close(): Promise<void>;
}

const pieceBytes = 4 << 20;

function outside(name: string, offset: number, n: number, size: number) {
    return makeError('bad_file', `${name}: bytes ${offset}-${offset + n} lie beyond the file's ${size}; it is cut off`);
}

// --- memory ---------------------------------------------------------------------------------------------------------------------

export function memorySource(bytes: Uint8Array, name = 'the buffer'): Source {
    return {
        name,
        size: bytes.length,
        rows: true,
        async *stream(start, end) {
            for (let at = start; at < end; at += pieceBytes) yield bytes.subarray(at, Math.min(end, at + pieceBytes));
        },
        readSync(offset, into) {
            if (offset + into.length > bytes.length) throw outside(name, offset, into.length, bytes.length);
            into.set(bytes.subarray(offset, offset + into.length));
        },
        async close() {
            /* nothing is held */
        },
    };
}

// --- a File or Blob -------------------------------------------------------------------------------------------------------------

declare class FileReaderSync {
    readAsArrayBuffer(blob: Blob): ArrayBuffer;
}

export function blobSource(blob: Blob, name = (blob as File).name ?? 'the file'): Source {
    const reader = typeof FileReaderSync === 'undefined' ? undefined : new FileReaderSync(); // workers only
    return {
        name,
        size: blob.size,
        rows: true,
        async *stream(start, end) {
            for (let at = start; at < end; at += pieceBytes)
                yield new Uint8Array(await blob.slice(at, Math.min(end, at + pieceBytes)).arrayBuffer());
        },
        ...(reader && {
            readSync(offset: number, into: Uint8Array) {
                const got = new Uint8Array(reader.readAsArrayBuffer(blob.slice(offset, offset + into.length)));
                if (got.length !== into.length) throw outside(name, offset, into.length, blob.size);
                into.set(got);
            },
        }),
        async close() {
            /* nothing is held */
        },
    };
}

// --- an open file (of the store, or of Node's disk) -----------------------------------------------------------------------------

export async function fileSource(file: StoreFile, name: string): Promise<Source> {
    const size = await file.size();
    const read = file.readSync?.bind(file);
    return {
        name,
        size,
        rows: true,
        async *stream(start, end) {
            const piece = new Uint8Array(Math.min(pieceBytes, end - start));
            for (let at = start; at < end;) {
                const n = await file.read(at, piece.subarray(0, Math.min(piece.length, end - at)));
                if (n === 0) throw outside(name, at, end - at, size);
                yield piece.subarray(0, n);
                at += n;
            }
        },
        ...(read && {
            readSync(offset: number, into: Uint8Array) {
                if (read(offset, into) !== into.length) throw outside(name, offset, into.length, size);
            },
        }),
        close: () => file.close(),
    };
}

// --- a model that is just being downloaded into the store -----------------------------------------------------------------------

// Its file is closed when it has finished: from then on `reopen` gives the stored model.
export function transferSource(transfer: Transfer, reopen: () => Promise<Source>): Source {
    let complete = false;
    transfer.finished.then(
        () => {
            complete = true;
        },
        () => undefined,
    );
    let stored: Source | undefined;
    return {
        name: transfer.key,
        size: transfer.size,
        rows: transfer.canReadSync,
        ...(transfer.canReadSync && {
            readSync: (offset: number, into: Uint8Array) => stored!.readSync!(offset, into),
            async ready() {
                await transfer.finished;
                stored ??= await reopen();
            },
        }),
        async *stream(start, end, signal) {
            const piece = new Uint8Array(Math.min(pieceBytes, end - start));
            for (let at = start; at < end; at += piece.length) {
                const part = piece.subarray(0, Math.min(piece.length, end - at));
                if (!complete) await transfer.read(at, part).catch(() => transfer.finished); // it may finish just now
                if (complete) {
                    stored ??= await reopen();
                    yield* stored.stream(at, end, signal);
                    return;
                }
                yield part;
            }
        },
        async close() {
            await stored?.close(); // the transfer goes on
        },
    };
}

// --- a server that answers range requests ---------------------------------------------------------------------------------------

export async function urlSource(url: string, options: RemoteOptions = {}): Promise<Source> {
    const file: RemoteFile = await openRemote(url, options);
    const sync = typeof XMLHttpRequest !== 'undefined' && typeof document === 'undefined';
    return {
        name: url,
        size: file.size,
        rows: false, // each would be a request of its own
        stream: (start, end, signal) => streamRange(file, start, end, { ...options, signal }),
        ...(sync && { readSync: (offset: number, into: Uint8Array) => readRangeSync(file, offset, into) }),
        async close() {
            /* nothing is held */
        },
    };
}

// --- a stream: read once, from front to back ------------------------------------------------------------------------------------

export function streamSource(stream: ReadableStream<Uint8Array>, size = Number.MAX_SAFE_INTEGER, name = 'the stream'): Source {
    const reader = stream.getReader();
    let at = 0; // position of `rest` in the stream
    let rest = new Uint8Array(0); // arrived, but not given out
    return {
        name,
        size,
        rows: false,
        async *stream(start, end) {
            if (start < at)
                throw makeError('bad_argument', `${name} was asked for bytes that went by; use a file or a URL for this model`);
            while (start < end) {
                const passed = Math.min(rest.length, start - at);
                rest = rest.subarray(passed);
                at += passed;
                if (rest.length === 0) {
                    const { done, value } = await reader.read();
                    if (done && size < Number.MAX_SAFE_INTEGER) throw outside(name, start, end - start, at);
                    if (done) return; // only now the end is known
                    rest = value as Uint8Array<ArrayBuffer>;
                    continue;
                }
                const piece = rest.subarray(0, Math.min(rest.length, end - start));
                rest = rest.subarray(piece.length);
                at += piece.length;
                start += piece.length;
                yield piece;
            }
        },
        async close() {
            await reader.cancel().catch(() => undefined);
        },
    };
}

// --- a function of the caller ---------------------------------------------------------------------------------------------------

// read(offset, n) gives exactly n bytes, at once or later: the original system's loadFromOpfs.
export type ReadFunction = (offset: number, n: number) => Uint8Array | ArrayBuffer | Promise<Uint8Array | ArrayBuffer>;

export function functionSource(read: ReadFunction, size: number, name = 'the read function'): Source {
    return {
        name,
        size,
        rows: false,
        async *stream(start, end) {
            for (let at = start; at < end; at += pieceBytes) {
                const n = Math.min(pieceBytes, end - at);
                const got = await read(at, n);
                const bytes = got instanceof Uint8Array ? got : new Uint8Array(got);
                if (bytes.length !== n) throw makeError('io', `${name} gave ${bytes.length} bytes instead of ${n} at ${at}`);
                yield bytes;
            }
        },
        async close() {
            /* nothing is held */
        },
    };
}
