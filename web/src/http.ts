// http.ts: a file on a server, read by ranges that are checked: a reply that is not exactly the bytes asked for is an error.

import { CaratError, makeError, throwIfAborted } from './errors';

export interface RemoteOptions {
    headers?: Record<string, string>;
    signal?: AbortSignal | undefined;
    retries?: number; // attempts without progress before giving up; default 6
    backoffMs?: number; // wait before the first retry, doubled each time; default 500
    stallMs?: number; // no byte for so long counts as a lost connection; default 30 000
}

// What identifies the file: two replies with different validators are not of one file.
export interface RemoteFile {
    url: string;
    size: number;
    etag: string | null; // null: not sent, or hidden by CORS
    headers: Record<string, string>;
}

const maxBackoffMs = 30_000;

// Asks for the first byte to learn the size and whether ranges work.
export async function openRemote(url: string, options: RemoteOptions = {}): Promise<RemoteFile> {
    return retrying(options, async () => {
        const response = await request(url, 0, 1, options.headers ?? {}, options.signal);
        try {
            const total = contentRange(response, url, 0, 1);
            return { url, size: total, etag: response.headers.get('etag'), headers: options.headers ?? {} };
        } finally {
            response.body?.cancel().catch(() => undefined);
        }
    });
}

// The bytes [start, end) in pieces as they arrive. A lost connection is taken up again where it broke.
export async function* streamRange(
    file: RemoteFile,
    start: number,
    end: number,
    options: RemoteOptions = {},
): AsyncGenerator<Uint8Array> {
    let at = start;
    let attempt = 0;
    while (at < end) {
        const before = at;
        try {
            for await (const piece of oneRequest(file, at, end, options)) {
                at += piece.length;
                yield piece;
            }
        } catch (error) {
            throwIfAborted(options.signal);
            attempt = at > before ? 0 : attempt + 1;
            if (!isTransient(error) || attempt >= (options.retries ?? 6)) throw error;
            await sleep(waitMs(options, attempt, error), options.signal);
        }
    }
}

// The bytes [start, end) as one array.
export async function readRange(file: RemoteFile, start: number, end: number, options: RemoteOptions = {}): Promise<Uint8Array> {
    const all = new Uint8Array(end - start);
    let at = 0;
    for await (const piece of streamRange(file, start, end, options)) {
        all.set(piece, at);
        at += piece.length;
    }
    return all;
}

// The same, blocking: only in a worker, and only where nothing else can read synchronously.
export function readRangeSync(file: RemoteFile, start: number, into: Uint8Array): void {
    const xhr = new XMLHttpRequest();
    xhr.open('GET', file.url, false);
    xhr.responseType = 'arraybuffer';
    for (const [name, value] of Object.entries(file.headers)) xhr.setRequestHeader(name, value);
    xhr.setRequestHeader('Range', `bytes=${start}-${start + into.length - 1}`);
    xhr.send();
    const body = xhr.response as ArrayBuffer | null;
    if (xhr.status !== 206 || body === null || body.byteLength !== into.length)
        throw makeError('io', `${file.url}: reading ${into.length} bytes at ${start} gave status ${xhr.status}`);
    into.set(new Uint8Array(body));
}

async function* oneRequest(file: RemoteFile, start: number, end: number, options: RemoteOptions): AsyncGenerator<Uint8Array> {
    const stop = new AbortController();
    const forward = () => stop.abort(options.signal?.reason);
    throwIfAborted(options.signal);
    options.signal?.addEventListener('abort', forward, { once: true });
    let stalled = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const watch = () => {
        clearTimeout(timer);
        timer = setTimeout(() => {
            stalled = true;
            stop.abort();
        }, options.stallMs ?? 30_000);
    };
    const lost = new Promise<never>((_, reject) => stop.signal.addEventListener('abort', reject, { once: true }));
    lost.catch(() => undefined);
    let at = start;
    try {
        watch();
        const response = await request(file.url, start, end, file.headers, stop.signal);
        const total = contentRange(response, file.url, start, end);
        const etag = response.headers.get('etag');
        if (total !== file.size || (file.etag !== null && etag !== null && etag !== file.etag))
            throw makeError('changed', `${file.url} changed on the server while it was read`);
        const reader = response.body!.getReader();
        try {
            for (;;) {
                // A body that is aborted just after its last byte may never settle its read (Node 20).
                const { done, value } = await Promise.race([reader.read(), lost]);
                if (done) break;
                watch();
                if (at + value.length > end) throw makeError('io', `${file.url}: the server sent more bytes than asked for`);
                at += value.length;
                yield value;
            }
        } finally {
            reader.cancel().catch(() => undefined);
        }
        if (at < end) throw transient(`${file.url}: the connection closed after ${at - start} of ${end - start} bytes`);
    } catch (error) {
        if (stalled) throw transient(`${file.url}: no byte arrived for ${(options.stallMs ?? 30_000) / 1000} s`);
        if (error instanceof CaratError || options.signal?.aborted) throw error;
        throw transient(`${file.url}: ${(error as Error).message}`, error);
    } finally {
        clearTimeout(timer);
        options.signal?.removeEventListener('abort', forward);
        stop.abort();
    }
}

async function request(
    url: string,
    start: number,
    end: number,
    headers: Record<string, string>,
    signal: AbortSignal | undefined,
): Promise<Response> {
    let response: Response;
    try {
        response = await fetch(url, {
            headers: { ...headers, Range: `bytes=${start}-${end - 1}` },
            signal: signal ?? null,
            cache: 'no-store',
        });
    } catch (error) {
        throwIfAborted(signal);
        throw transient(`${url}: ${(error as Error).message}`, error);
    }
    if (response.status === 206) return response;
    response.body?.cancel().catch(() => undefined);
    if (response.status === 200) throw makeError('no_ranges', `${url}: the server answers 200 to a range request`);
    if (response.status === 404 || response.status === 410)
        throw makeError('not_found', `${url}: the server answers ${response.status}`);
    if (response.status === 416) throw makeError('changed', `${url}: the server has no bytes ${start}-${end - 1}`);
    if (response.status >= 500 || response.status === 408 || response.status === 425 || response.status === 429)
        throw transient(`${url}: the server answers ${response.status}`, undefined, response.headers.get('retry-after'));
    throw makeError('io', `${url}: the server answers ${response.status}`, {
        remedy: 'Check the address and whether it needs a login.',
    });
}

// Checks that the reply is the range that was asked for, and returns the file's total size.
function contentRange(response: Response, url: string, start: number, end: number): number {
    const encoding = response.headers.get('content-encoding');
    if (encoding !== null && encoding !== 'identity')
        throw makeError('no_ranges', `${url}: the server compresses the file (${encoding}), so that byte positions mean nothing`);
    const header = response.headers.get('content-range');
    if (header === null)
        throw makeError('no_ranges', `${url}: the reply has no Content-Range, or the server does not let this site see it`, {
            remedy: 'The server must send Access-Control-Expose-Headers: Content-Range. Or download the file and open it as a local file.',
        });
    const match = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(header.trim());
    if (match === null) throw makeError('no_ranges', `${url}: Content-Range '${header}' cannot be understood`);
    const [first, last, total] = [Number(match[1]), Number(match[2]), Number(match[3])];
    if (first !== start || last !== Math.min(end, total) - 1 || last < first)
        throw makeError('no_ranges', `${url}: asked for bytes ${start}-${end - 1}, got '${header}'`);
    return total;
}

// --- trying again -------------------------------------------------------------------------------------------------------------

class TransientError extends CaratError {
    constructor(
        message: string,
        readonly retryAfterMs: number | null,
        cause?: unknown,
    ) {
        super('io', message, { cause });
        this.name = 'NetworkError';
    }
}

function transient(message: string, cause?: unknown, retryAfter: string | null = null): CaratError {
    const seconds = Number(retryAfter ?? NaN);
    return new TransientError(message, Number.isFinite(seconds) ? seconds * 1000 : null, cause);
}

export function isTransient(error: unknown): boolean {
    return error instanceof TransientError;
}

function waitMs(options: RemoteOptions, attempt: number, error: unknown): number {
    const asked = error instanceof TransientError ? error.retryAfterMs : null;
    const own = (options.backoffMs ?? 500) * 2 ** Math.max(0, attempt - 1) * (0.75 + Math.random() / 2);
    return Math.min(maxBackoffMs, Math.max(own, asked ?? 0));
}

export function sleep(ms: number, signal?: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
        const abort = () => {
            clearTimeout(timer);
            reject(makeError('cancelled', 'the call was cancelled'));
        };
        const timer = setTimeout(() => {
            signal?.removeEventListener('abort', abort);
            resolve();
        }, ms);
        if (signal?.aborted) abort();
        signal?.addEventListener('abort', abort, { once: true });
    });
}

async function retrying<T>(options: RemoteOptions, attemptOnce: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
        try {
            return await attemptOnce();
        } catch (error) {
            throwIfAborted(options.signal);
            if (!isTransient(error) || attempt >= (options.retries ?? 6)) throw error;
            await sleep(waitMs(options, attempt, error), options.signal);
        }
    }
}
