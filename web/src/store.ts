// store.ts: models kept on the device: downloads that survive anything, verified by sha256.
//
// A model of key K has three files: ID.journal, ID.part while it is incomplete, ID.gguf afterwards. The journal is a list of lines
// "crc32 json"; a line whose crc does not match (torn by a killed tab) ends the list. Bytes are written and flushed before the
// journal says so, and nothing counts that the journal does not say. The order at the end: all chunks verified against the
// sha256, line "done", rename to .gguf. So at any moment the state can be told from the files, and a download goes on where the
// journal ends.
//
// The sha256 is computed over what is read back from the file, in order, while later chunks are still arriving. Each chunk's
// crc32 is in the journal too: a byte that rotted on disk is found and its chunk brought again.

import { asCaratError, makeError, throwIfAborted } from './errors';
import type { StoreFile, StoreFolder, StoreKind } from './files';
import { openRemote, type RemoteFile, type RemoteOptions, sleep, streamRange } from './http';
import { type Begin, Journal } from './journal';
import { crc32, Sha256 } from './sha256';
import { Queue, turnAfter } from './turn';

export interface StoredModel {
    key: string;
    label: string;
    state: 'partial' | 'complete' | 'broken'; // broken: something outside changed its size; downloading starts anew
    size: number;
    received: number; // bytes that are safely stored
    sha256: string | null; // verified when complete; as promised, when partial
    url: string | null; // null: imported from a file
    addedAt: number; // milliseconds since 1970
}

export interface StoreProgress {
    key: string;
    phase: 'download' | 'verify';
    received: number;
    total: number;
    bytesPerSecond: number;
    secondsLeft: number; // Infinity while unknown
}

export interface DownloadOptions extends RemoteOptions {
    sha256?: string | undefined;
    label?: string | undefined;
    parallel?: number | undefined; // range requests at a time; default 4
    chunkBytes?: number | undefined; // default 8 MiB
    onProgress?: ((progress: StoreProgress) => void) | undefined;
}

export interface StoreUsage {
    kind: StoreKind;
    modelBytes: number;
    usage: number;
    quota: number;
}

const defaultChunkBytes = 8 << 20;
const pieceBytes = 1 << 20;
const encoder = new TextEncoder();

// A name for files that is safe everywhere and different for different keys.
export function fileIdOf(key: string): string {
    const slug = key
        .replace(/^https?:\/\//, '')
        .replace(/[^A-Za-z0-9._-]+/g, '-')
        .slice(-40)
        .replace(/^[.-]+/, '');
    return `${slug || 'model'}-${new Sha256().update(encoder.encode(key)).digest().slice(0, 12)}`;
}

// --- a model being filled -------------------------------------------------------------------------------------------------------

// Where chunks come from: bytes [start, end) in pieces.
type ChunkStream = (start: number, end: number, signal: AbortSignal) => AsyncIterable<Uint8Array>;

interface Waiter {
    start: number;
    end: number;
    resolve: () => void;
    reject: (error: unknown) => void;
}

// One model's transfer into the store. Its bytes can be read while they arrive: see read().
export class Transfer {
    readonly key: string;
    readonly size: number;
    // Fulfilled when the model is complete and verified. The rejection is always the reason why it is not.
    readonly finished: Promise<StoredModel>;
    private readonly stop = new AbortController();
    private readonly active = new Set<number>();
    private readonly waiters: Waiter[] = [];
    private readonly urgent: number[] = [];
    private readonly rate = new Rate();
    private inFlightBytes = 0;
    private failed: unknown;
    private lastReport = 0;
    private badRounds = 0;
    private hashed = 0;
    private wakeHasher: () => void = () => undefined;

    constructor(
        private readonly folder: StoreFolder,
        private readonly id: string,
        private readonly journal: Journal,
        private readonly part: StoreFile,
        private readonly stream: ChunkStream,
        private readonly options: DownloadOptions,
        private readonly onEnd: () => void,
    ) {
        this.key = journal.begin!.key;
        this.size = journal.begin!.size;
        this.finished = this.run();
        this.finished.catch(() => undefined);
    }

    describe(): StoredModel {
        return describe(this.journal, 'partial');
    }

    // Whether the stored model will be read synchronously.
    get canReadSync(): boolean {
        return this.part.readSync !== undefined;
    }

    // Pauses: what is stored stays, download() goes on later.
    cancel(): void {
        this.stop.abort();
    }

    // Reads bytes as soon as they have arrived; asks for them first. They are checked only when the transfer has finished.
    async read(offset: number, into: Uint8Array): Promise<void> {
        await this.wait(offset, offset + into.length);
        await this.part.read(offset, into);
    }

    private wait(start: number, end: number): Promise<void> {
        if (this.failed !== undefined) return Promise.reject(this.failed);
        if (end > this.size)
            return Promise.reject(makeError('bad_argument', `bytes ${start}-${end} lie beyond the file's ${this.size}`));
        const missing = this.missingIn(start, end);
        if (missing.length === 0) return Promise.resolve();
        this.urgent.push(...missing);
        return new Promise((resolve, reject) => this.waiters.push({ start, end, resolve, reject }));
    }

    private missingIn(start: number, end: number): number[] {
        const missing: number[] = [];
        for (let i = Math.floor(start / this.journal.begin!.chunk); i * this.journal.begin!.chunk < end; i++)
            if (!this.journal.crcs.has(i)) missing.push(i);
        return missing;
    }

    private async run(): Promise<StoredModel> {
        const forward = () => this.stop.abort();
        this.options.signal?.addEventListener('abort', forward, { once: true });
        if (this.options.signal?.aborted) forward();
        try {
            throwIfAborted(this.stop.signal);
            // Segments are changed one at a time: parts side by side would only fetch them from each other.
            const inPlace = this.folder.kind === 'opfs' || this.folder.kind === 'folder';
            const lanes = Array.from({ length: inPlace ? Math.max(1, this.options.parallel ?? 4) : 1 }, () => this.lane());
            const hasher = this.verify();
            const all = [hasher, ...lanes];
            all.forEach((p) =>
                p.catch((error) => {
                    this.failed ??= error;
                    this.stop.abort();
                    this.wakeHasher();
                }),
            );
            const results = await Promise.allSettled(all);
            const broken = results.find((r) => r.status === 'rejected');
            if (broken !== undefined) throw this.failed ?? (broken as PromiseRejectedResult).reason;
            return await this.complete(await hasher);
        } catch (error) {
            this.failed = error;
            throw asCaratError(error);
        } finally {
            this.options.signal?.removeEventListener('abort', forward);
            for (const waiter of this.waiters.splice(0))
                waiter.reject(this.failed ?? makeError('cancelled', 'the transfer ended'));
            await this.part.close().catch(() => undefined);
            await this.journal.close().catch(() => undefined);
            this.onEnd();
        }
    }

    // Brings chunks until none is missing, urgent ones first.
    private async lane(): Promise<void> {
        for (;;) {
            throwIfAborted(this.stop.signal);
            const i = this.next();
            if (i === undefined) {
                if (this.hashed >= this.journal.chunkCount()) return;
                await sleep(20, this.stop.signal); // the verification may still find a bad chunk
                continue;
            }
            this.active.add(i);
            try {
                await this.bring(i);
            } finally {
                this.active.delete(i);
            }
        }
    }

    private next(): number | undefined {
        const free = (i: number) => !this.journal.crcs.has(i) && !this.active.has(i);
        while (this.urgent.length > 0) {
            const i = this.urgent.shift()!;
            if (free(i)) return i;
        }
        for (let i = 0; i < this.journal.chunkCount(); i++) if (free(i)) return i;
        return undefined;
    }

    private async bring(i: number): Promise<void> {
        const [start, end] = this.journal.chunkRange(i);
        let at = start,
            crc = 0;
        try {
            for await (const piece of this.stream(start, end, this.stop.signal)) {
                await this.part.write(at, piece);
                crc = crc32(piece, crc);
                at += piece.length;
                this.inFlightBytes += piece.length;
                this.rate.add(piece.length);
                this.report('download');
            }
        } finally {
            this.inFlightBytes -= at - start;
        }
        if (at !== end) throw makeError('io', `the source gave ${at - start} bytes instead of ${end - start}`);
        await this.part.flush();
        await this.journal.append({ t: 'chunk', i, crc });
        this.wakeHasher();
        this.report('download');
        for (const waiter of [...this.waiters])
            if (this.missingIn(waiter.start, waiter.end).length === 0) {
                this.waiters.splice(this.waiters.indexOf(waiter), 1);
                waiter.resolve();
            }
    }

    // Hashes the file in order behind the arriving chunks. A chunk that is not what was received is brought again.
    private async verify(): Promise<string> {
        const sha = new Sha256();
        const chunk = new Uint8Array(Math.min(this.journal.begin!.chunk, this.size));
        for (let i = 0; i < this.journal.chunkCount();) {
            throwIfAborted(this.stop.signal);
            if (!this.journal.crcs.has(i)) {
                await new Promise<void>((resolve) => {
                    this.wakeHasher = resolve;
                });
                continue;
            }
            const [start, end] = this.journal.chunkRange(i);
            const bytes = chunk.subarray(0, end - start);
            const n = await this.part.read(start, bytes);
            if (n !== bytes.length || crc32(bytes) !== this.journal.crcs.get(i)) {
                if (++this.badRounds > 8)
                    throw makeError('corrupt', `the storage does not keep what is written to it (at byte ${start})`);
                await this.journal.append({ t: 'bad', i });
                continue;
            }
            for (let at = 0; at < bytes.length; at += pieceBytes) {
                sha.update(bytes.subarray(at, at + pieceBytes));
                await turnAfter(12);
            }
            this.hashed = ++i;
            if (this.journal.crcs.size === this.journal.chunkCount()) this.report('verify', i === this.journal.chunkCount());
        }
        return sha.digest();
    }

    private async complete(sha256: string): Promise<StoredModel> {
        const begin = this.journal.begin!;
        if (begin.sha256 !== null && begin.sha256 !== sha256) {
            // Every chunk is what the source sent: the source is wrong, and no byte of it can be trusted.
            for (const i of [...this.journal.crcs.keys()]) await this.journal.append({ t: 'bad', i });
            throw makeError(
                'corrupt',
                `'${begin.key}' has sha256 ${sha256} instead of ${begin.sha256}; the bytes were thrown away`,
            );
        }
        await this.journal.append({ t: 'done', sha256 });
        await this.part.close();
        await finishRename(this.folder, this.id);
        return describe(this.journal, 'complete');
    }

    private report(phase: StoreProgress['phase'], always = false): void {
        const now = Date.now();
        if (this.options.onProgress === undefined || (!always && now - this.lastReport < 100)) return;
        this.lastReport = now;
        const verified = Math.min(this.size, this.hashed * this.journal.begin!.chunk);
        const received = phase === 'verify' ? verified : this.journal.received() + this.inFlightBytes;
        const bytesPerSecond = this.rate.perSecond();
        const secondsLeft = phase === 'verify' ? 0 : bytesPerSecond > 0 ? (this.size - received) / bytesPerSecond : Infinity;
        this.options.onProgress({ key: this.key, phase, received, total: this.size, bytesPerSecond, secondsLeft });
    }
}

// Bytes a second over the last few seconds.
class Rate {
    private readonly samples: [number, number][] = [];
    add(n: number): void {
        const now = Date.now();
        const last = this.samples[this.samples.length - 1];
        if (last !== undefined && now - last[0] < 100) last[1] += n;
        else this.samples.push([now, n]);
        while (this.samples.length > 0 && now - this.samples[0]![0] > 5000) this.samples.shift();
    }
    perSecond(): number {
        const first = this.samples[0];
        if (first === undefined) return 0;
        const n = this.samples.reduce((sum, s) => sum + s[1], 0);
        return n / Math.max(0.1, (Date.now() - first[0]) / 1000);
    }
}

// Some browsers cannot rename: then the complete file keeps the name .part, and the journal says that it is complete.
async function finishRename(folder: StoreFolder, id: string): Promise<void> {
    try {
        await folder.rename(`${id}.part`, `${id}.gguf`);
    } catch (error) {
        if (!['unsupported', 'not_found'].includes(asCaratError(error).code)) throw error;
    }
}

function describe(journal: Journal, state: StoredModel['state']): StoredModel {
    const { key, label, size, url, sha256, at } = journal.begin!;
    const received = state === 'complete' ? size : journal.received();
    return { key, label, state, size, received, sha256: journal.doneSha256 ?? sha256, url, addedAt: at };
}

// --- the store ------------------------------------------------------------------------------------------------------------------

export interface StoreLimits {
    quota: number;
    usage: number;
}

export class ModelStore {
    private readonly transfers = new Map<string, Transfer>();
    // Looking at the files and beginning a transfer take turns: of a transfer that is just beginning there are files without a name
    // or without bytes, which a look would remove as leftovers.
    private readonly queue = new Queue();

    constructor(
        readonly folder: StoreFolder,
        private readonly limits: () => Promise<StoreLimits> = browserLimits,
    ) {}

    // Every model, complete or not, oldest first. Leftovers that belong to no journal are removed.
    list(): Promise<StoredModel[]> {
        return this.queue.run(async () => {
            const found: StoredModel[] = [];
            const before = await this.sizes();
            for (const name of before.keys()) {
                if (!name.endsWith('.journal')) continue;
                const model = await this.inspect(name.slice(0, -'.journal'.length));
                if (model !== undefined) found.push(model);
            }
            const now = await this.sizes(); // a journal is written before its bytes: one that came meanwhile is seen
            for (const name of before.keys())
                if (/\.(part|gguf)$/.test(name) && !now.has(name.replace(/\.(part|gguf)$/, '.journal')))
                    await this.folder.remove(name).catch(() => undefined);
            return found.sort((a, b) => a.addedAt - b.addedAt);
        });
    }

    get(key: string): Promise<StoredModel | undefined> {
        return this.queue.run(() => this.lookUp(key));
    }

    async usage(): Promise<StoreUsage> {
        const modelBytes = (await this.folder.list()).reduce((sum, f) => sum + f.size, 0);
        return { kind: this.folder.kind, modelBytes, ...(await this.limits()) };
    }

    // Begins a download or goes on with one. Resolves when the transfer runs: await .finished for its end. When the model is
    // complete already, resolves to it.
    async download(key: string, url: string, options: DownloadOptions = {}): Promise<Transfer | StoredModel> {
        const running = this.transfers.get(key);
        if (running !== undefined) return running;
        const known = await this.get(key);
        if (known?.state === 'complete') {
            if (options.sha256 !== undefined && options.sha256.toLowerCase() !== known.sha256)
                throw makeError('bad_argument', `the store has another file as '${key}': its sha256 is ${known.sha256}`);
            return known;
        }
        if (known?.state === 'broken') await this.delete(key);
        const remote = await openRemote(url, options);
        const label = options.label ?? url.split(/[?#]/)[0]!.split('/').pop()!;
        const what = { label, url, size: remote.size, etag: remote.etag, sha256: options.sha256?.toLowerCase() ?? null };
        const stream: ChunkStream = (start, end, signal) => streamRange(remote, start, end, { ...options, signal });
        return this.queue.run(() => this.transfer(key, what, stream, options, remote));
    }

    // Copies a local file into the store.
    async import(key: string, file: Blob, options: DownloadOptions = {}): Promise<Transfer | StoredModel> {
        const running = this.transfers.get(key);
        if (running !== undefined) return running;
        const known = await this.get(key);
        if (known?.state === 'complete') return known;
        if (known?.state === 'broken') await this.delete(key);
        const label = options.label ?? (file as File).name ?? key;
        const stamp = `${(file as File).lastModified ?? ''}`;
        const what = { label, url: null, size: file.size, etag: stamp, sha256: options.sha256?.toLowerCase() ?? null };
        const stream: ChunkStream = (start, end) => blobPieces(file, start, end);
        return this.queue.run(() => this.transfer(key, what, stream, { ...options, parallel: 1 }));
    }

    // Reads a whole complete model again; false when a byte is not what was downloaded.
    async verify(key: string, signal?: AbortSignal): Promise<boolean> {
        const model = await this.get(key);
        if (model?.state !== 'complete') throw makeError('not_found', `the store has no complete model '${key}'`);
        const file = await this.openFile(key);
        try {
            const sha = new Sha256(),
                bytes = new Uint8Array(pieceBytes);
            for (let at = 0; at < model.size; at += pieceBytes) {
                throwIfAborted(signal);
                sha.update(bytes.subarray(0, await file.read(at, bytes)));
                await turnAfter(12);
            }
            return sha.digest() === model.sha256;
        } finally {
            await file.close();
        }
    }

    // A running transfer, to pause it or to read from.
    running(key: string): Transfer | undefined {
        return this.transfers.get(key);
    }

    // The bytes of a complete model. Close it when done; it may be 'busy' in another tab (then see openBlob).
    async openFile(key: string): Promise<StoreFile> {
        const id = fileIdOf(key);
        try {
            return await this.folder.open(`${id}.gguf`, false, true);
        } catch (error) {
            if (asCaratError(error).code !== 'not_found') throw error;
            return this.folder.open(`${id}.part`, false, true);
        }
    }

    async openBlob(key: string): Promise<Blob | undefined> {
        const id = fileIdOf(key);
        return this.folder.blob?.(`${id}.gguf`).catch(() => this.folder.blob!(`${id}.part`));
    }

    async delete(key: string): Promise<void> {
        const running = this.transfers.get(key);
        if (running !== undefined) {
            running.cancel();
            await running.finished.catch(() => undefined);
        }
        const id = fileIdOf(key);
        // The journal goes last: a kill in between leaves no bytes without a name.
        for (const end of ['gguf', 'part', 'journal']) await this.folder.remove(`${id}.${end}`);
    }

    private async sizes(): Promise<Map<string, number>> {
        return new Map((await this.folder.list()).map((f) => [f.name, f.size]));
    }

    private async lookUp(key: string): Promise<StoredModel | undefined> {
        const id = fileIdOf(key);
        return (await this.sizes()).has(`${id}.journal`) ? this.inspect(id) : undefined;
    }

    private async transfer(
        key: string,
        what: Pick<Begin, 'label' | 'url' | 'size' | 'etag' | 'sha256'>,
        stream: ChunkStream,
        options: DownloadOptions,
        remote?: RemoteFile,
    ): Promise<Transfer> {
        const running = this.transfers.get(key); // begun since it was asked for
        if (running !== undefined) return running;
        const id = fileIdOf(key);
        await this.checkQuota(key, what.size - ((await this.lookUp(key))?.received ?? 0));
        let file: StoreFile | undefined;
        let part: StoreFile | undefined;
        try {
            file = await this.folder.open(`${id}.journal`, true);
            const journal = await Journal.open(file);
            await this.begin(id, journal, key, what, options);
            part = await this.folder.open(`${id}.part`, true);
            await this.reserve(part, journal);
            if (remote !== undefined && remote.etag === null) remote.etag = journal.begin!.etag;
            const transfer = new Transfer(this.folder, id, journal, part, stream, options, () => this.transfers.delete(key));
            this.transfers.set(key, transfer);
            return transfer;
        } catch (error) {
            await part?.close();
            await file?.close();
            if (asCaratError(error).code !== 'quota') throw error;
            const received = (await this.lookUp(key))?.received ?? 0;
            if (received === 0) await this.delete(key);
            throw makeError('quota', `'${key}' needs ${gigabytes(what.size - received)} more than the browser lets this site store`, {
                cause: error,
            });
        }
    }

    private async begin(
        id: string,
        journal: Journal,
        key: string,
        what: Pick<Begin, 'label' | 'url' | 'size' | 'etag' | 'sha256'>,
        options: DownloadOptions,
    ): Promise<void> {
        const known = journal.begin;
        if (known === undefined) {
            await this.folder.remove(`${id}.part`);
            await journal.append({
                t: 'begin',
                v: 1,
                key,
                ...what,
                chunk: options.chunkBytes ?? defaultChunkBytes,
                at: Date.now(),
            });
            return;
        }
        const sameBytes = known.sha256 !== null && known.sha256 === what.sha256; // then it may come from anywhere
        const sameTag = known.etag === null || what.etag === null || known.etag === what.etag;
        if (known.size !== what.size || (!sameBytes && !sameTag) || (what.sha256 !== null && known.sha256 !== null && !sameBytes))
            throw makeError('changed', `'${key}' was begun with another file (${known.size} bytes, now ${what.size})`);
    }

    // Gives the file its full size at once, which costs nothing but the quota. Browsers no longer tell the true quota beforehand.
    private async reserve(part: StoreFile, journal: Journal): Promise<void> {
        if ((await part.size()) === journal.begin!.size) return;
        await part.truncate(journal.begin!.size);
    }

    private async checkQuota(key: string, needed: number): Promise<void> {
        const { quota, usage } = await this.limits();
        if (quota > 0 && needed > quota - usage)
            throw makeError(
                'quota',
                `'${key}' needs ${gigabytes(needed)} more, the browser has ` +
                    `${gigabytes(Math.max(0, quota - usage))} of ${gigabytes(quota)} left for this site`,
            );
    }

    private async inspect(id: string): Promise<StoredModel | undefined> {
        const running = [...this.transfers.values()].find((t) => fileIdOf(t.key) === id);
        if (running !== undefined) return running.describe();
        const journal = await this.peek(id);
        if (journal === undefined) return undefined;
        const files = await this.sizes(); // after the journal: what that calls done is there by now, also when another tab did it
        const begin = journal.begin;
        const hasPart = files.has(`${id}.part`),
            hasWhole = files.has(`${id}.gguf`);
        if (begin === undefined || (journal.doneSha256 !== undefined && !hasPart && !hasWhole)) {
            await this.folder.remove(`${id}.journal`).catch(() => undefined); // nothing is left of it
            return undefined;
        }
        if (journal.doneSha256 === undefined) return describe(journal, 'partial');
        if (!hasWhole) await finishRename(this.folder, id);
        const stored = files.get(`${id}.gguf`) ?? files.get(`${id}.part`);
        return describe(journal, stored === begin.size ? 'complete' : 'broken');
    }

    // The journal as it stands, also while someone writes it; undefined when it cannot be read now.
    private async peek(id: string): Promise<Journal | undefined> {
        try {
            if (this.folder.blob !== undefined)
                return Journal.parse(new Uint8Array(await (await this.folder.blob(`${id}.journal`)).arrayBuffer()));
            const file = await this.folder.open(`${id}.journal`, false, true);
            try {
                const bytes = new Uint8Array(await file.size());
                await file.read(0, bytes);
                return Journal.parse(bytes);
            } finally {
                await file.close();
            }
        } catch (error) {
            if (['busy', 'not_found'].includes(asCaratError(error).code)) return undefined;
            throw error;
        }
    }
}

function gigabytes(n: number): string {
    return n >= 1e8 ? `${(n / 1e9).toFixed(1)} GB` : `${Math.ceil(n / 1e6)} MB`;
}

async function* blobPieces(file: Blob, start: number, end: number): AsyncGenerator<Uint8Array> {
    for (let at = start; at < end; at += pieceBytes)
        yield new Uint8Array(await file.slice(at, Math.min(end, at + pieceBytes)).arrayBuffer());
}

async function browserLimits(): Promise<StoreLimits> {
    const estimate = await globalThis.navigator?.storage?.estimate?.().catch(() => undefined);
    return { quota: estimate?.quota ?? 0, usage: estimate?.usage ?? 0 };
}
