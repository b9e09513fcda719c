// files.ts: where the model store keeps its files: the browser's private file system (OPFS) through sync handles or, outside of a
// worker, through whole segments; IndexedDB; memory; a folder in Node. One interface, flat names.
//
// A folder that cannot change a file in place (everything but sync handles and Node) keeps it as segments of 4 MiB under
// "name/index", and the size under "name/size".

import { makeError } from './errors';
import { Queue } from './turn';

export type StoreKind = 'opfs' | 'opfs-segments' | 'indexeddb' | 'memory' | 'folder';

// An open file. Only one open StoreFile of a name exists at a time, in all tabs; a second open fails with code 'busy'.
export interface StoreFile {
    size(): Promise<number>;
    read(offset: number, into: Uint8Array): Promise<number>; // bytes read, less than asked only at the end
    readSync?: (offset: number, into: Uint8Array) => number;
    write(offset: number, bytes: Uint8Array): Promise<void>;
    truncate(size: number): Promise<void>;
    flush(): Promise<void>;
    close(): Promise<void>;
}

export interface StoreFolder {
    readonly kind: StoreKind;
    list(): Promise<{ name: string; size: number }[]>;
    open(name: string, create: boolean, readOnly?: boolean): Promise<StoreFile>; // code 'not_found' when absent and not to be created
    remove(name: string): Promise<void>; // absent is fine
    rename(from: string, to: string): Promise<void>;
    blob?: (name: string) => Promise<Blob>; // for reading where a handle is taken
}

// --- OPFS with sync access handles (in a worker) --------------------------------------------------------------------------------

class SyncFile implements StoreFile {
    constructor(private readonly handle: FileSystemSyncAccessHandle) {}
    async size() {
        return this.handle.getSize();
    }
    async read(offset: number, into: Uint8Array) {
        return this.readSync(offset, into);
    }
    readSync(offset: number, into: Uint8Array) {
        return this.handle.read(into, { at: offset });
    }
    async write(offset: number, bytes: Uint8Array) {
        const n = this.handle.write(bytes, { at: offset });
        if (n !== bytes.length) throw makeError('quota', 'the browser has no room for more bytes of this file'); // n may be an error's number
    }
    async truncate(size: number) {
        this.handle.truncate(size);
    }
    async flush() {
        this.handle.flush();
    }
    async close() {
        this.handle.close();
    }
}

interface MovableHandle extends FileSystemFileHandle {
    createSyncAccessHandle(options?: { mode?: string }): Promise<FileSystemSyncAccessHandle>;
    move?: (name: string) => Promise<void>;
}

async function handleOf(folder: FileSystemDirectoryHandle, name: string, create: boolean): Promise<MovableHandle> {
    try {
        return (await folder.getFileHandle(name, { create })) as MovableHandle;
    } catch (error) {
        if ((error as DOMException).name === 'NotFoundError')
            throw makeError('not_found', `there is no file '${name}' in the store`, { cause: error });
        throw error;
    }
}

async function listFiles(folder: FileSystemDirectoryHandle): Promise<{ name: string; size: number }[]> {
    const found: { name: string; size: number }[] = [];
    for await (const [name, handle] of folder as unknown as AsyncIterable<[string, FileSystemHandle]>) {
        if (handle.kind !== 'file') continue;
        const file = await (handle as FileSystemFileHandle).getFile().catch((error) => {
            if ((error as DOMException).name !== 'NotFoundError') throw error; // else removed or renamed since it was named
        });
        if (file !== undefined) found.push({ name, size: file.size });
    }
    return found;
}

class SyncFolder implements StoreFolder {
    readonly kind = 'opfs';
    constructor(private readonly folder: FileSystemDirectoryHandle) {}
    list() {
        return listFiles(this.folder);
    }
    async open(name: string, create: boolean, readOnly = false): Promise<StoreFile> {
        const handle = await handleOf(this.folder, name, create);
        try {
            // Browsers that do not know the mode open exclusively.
            return new SyncFile(await handle.createSyncAccessHandle(readOnly ? { mode: 'read-only' } : undefined));
        } catch (error) {
            if ((error as DOMException).name !== 'NoModificationAllowedError') throw error;
            throw makeError('busy', `'${name}' is in use by another tab`, { cause: error });
        }
    }
    async remove(name: string) {
        await this.folder.removeEntry(name).catch(ignoreAbsent);
    }
    async rename(from: string, to: string) {
        const handle = await handleOf(this.folder, from, false);
        if (handle.move === undefined) throw makeError('unsupported', 'this browser cannot rename files of the store');
        await handle.move(to);
    }
    async blob(name: string): Promise<Blob> {
        return (await handleOf(this.folder, name, false)).getFile();
    }
}

function ignoreAbsent(error: unknown): void {
    if ((error as DOMException).name === 'NoModificationAllowedError')
        throw makeError('busy', 'the file is in use by another tab', { cause: error });
    if ((error as DOMException).name !== 'NotFoundError') throw error;
}

// --- files made of segments -----------------------------------------------------------------------------------------------------

// What a segmented folder needs below it.
interface Pairs {
    get(key: string): Promise<Uint8Array | undefined>;
    put(key: string, bytes: Uint8Array): Promise<void>;
    remove(key: string): Promise<void>;
    keys(): Promise<string[]>;
}

const segmentBytes = 4 << 20;
const openSegmented = new Set<string>();

class SegmentedFile implements StoreFile {
    private cached: { index: number; bytes: Uint8Array; dirty: boolean } | undefined;
    private readonly queue = new Queue();
    constructor(
        private readonly pairs: Pairs,
        private readonly name: string,
        private nBytes: number,
        private readonly lock: string,
    ) {}

    async size() {
        return this.nBytes;
    }

    // One operation at a time: the parts of a download that arrive side by side share the cached segment.
    read(offset: number, into: Uint8Array): Promise<number> {
        return this.queue.run(() => this.readSegments(offset, into));
    }
    write(offset: number, bytes: Uint8Array): Promise<void> {
        return this.queue.run(() => this.writeSegments(offset, bytes));
    }
    truncate(size: number): Promise<void> {
        return this.queue.run(() => this.resize(size));
    }
    flush(): Promise<void> {
        return this.queue.run(() => this.save());
    }

    private async readSegments(offset: number, into: Uint8Array): Promise<number> {
        const end = Math.min(this.nBytes, offset + into.length);
        for (let at = offset; at < end;) {
            const inside = at % segmentBytes,
                n = Math.min(segmentBytes - inside, end - at);
            const segment = await this.load(Math.floor(at / segmentBytes));
            const part = segment.subarray(inside, inside + n);
            into.fill(0, at - offset, at - offset + n);
            into.set(part, at - offset);
            at += n;
        }
        return Math.max(0, end - offset);
    }

    private async writeSegments(offset: number, bytes: Uint8Array): Promise<void> {
        for (let done = 0; done < bytes.length;) {
            const at = offset + done,
                inside = at % segmentBytes,
                n = Math.min(segmentBytes - inside, bytes.length - done);
            let segment = await this.load(Math.floor(at / segmentBytes));
            if (segment.length < inside + n) {
                const longer = new Uint8Array(inside + n);
                longer.set(segment);
                this.cached!.bytes = segment = longer;
            }
            segment.set(bytes.subarray(done, done + n), inside);
            this.cached!.dirty = true;
            done += n;
        }
        this.nBytes = Math.max(this.nBytes, offset + bytes.length);
    }

    private async resize(size: number): Promise<void> {
        await this.save();
        this.cached = undefined;
        for (let i = Math.ceil(size / segmentBytes); i * segmentBytes < this.nBytes; i++)
            await this.pairs.remove(`${this.name}/${i}`);
        const last = Math.floor(size / segmentBytes);
        if (size < this.nBytes && size % segmentBytes !== 0) {
            const segment = await this.load(last);
            this.cached = { index: last, bytes: segment.slice(0, size % segmentBytes), dirty: true };
        }
        this.nBytes = size;
        await this.save();
    }

    private async save(): Promise<void> {
        if (this.cached?.dirty) {
            await this.pairs.put(`${this.name}/${this.cached.index}`, this.cached.bytes);
            this.cached.dirty = false;
        }
        await this.pairs.put(`${this.name}/size`, new TextEncoder().encode(String(this.nBytes)));
    }

    async close(): Promise<void> {
        await this.flush();
        openSegmented.delete(this.lock);
    }

    private async load(index: number): Promise<Uint8Array> {
        if (this.cached?.index === index) return this.cached.bytes;
        if (this.cached?.dirty) await this.pairs.put(`${this.name}/${this.cached.index}`, this.cached.bytes);
        const bytes = (await this.pairs.get(`${this.name}/${index}`)) ?? new Uint8Array(0);
        this.cached = { index, bytes, dirty: false };
        return bytes;
    }
}

class SegmentedFolder implements StoreFolder {
    constructor(
        readonly kind: StoreKind,
        private readonly pairs: Pairs,
    ) {}
    async list() {
        const found: { name: string; size: number }[] = [];
        for (const key of await this.pairs.keys())
            if (key.endsWith('/size')) {
                const name = key.slice(0, -'/size'.length);
                found.push({ name, size: (await this.sizeOf(name)) ?? 0 });
            }
        return found;
    }
    async open(name: string, create: boolean): Promise<StoreFile> {
        const lock = `${this.kind}:${name}`;
        if (openSegmented.has(lock)) throw makeError('busy', `'${name}' is in use`);
        openSegmented.add(lock); // before anything else can happen
        try {
            const size = await this.sizeOf(name);
            if (size === undefined && !create) throw makeError('not_found', `there is no file '${name}' in the store`);
            return new SegmentedFile(this.pairs, name, size ?? 0, lock);
        } catch (error) {
            openSegmented.delete(lock);
            throw error;
        }
    }
    async remove(name: string) {
        if (openSegmented.has(`${this.kind}:${name}`)) throw makeError('busy', `'${name}' is in use`);
        for (const key of await this.pairs.keys()) if (key.startsWith(`${name}/`)) await this.pairs.remove(key);
    }
    async rename(from: string, to: string) {
        for (const key of await this.pairs.keys())
            if (key.startsWith(`${from}/`)) {
                await this.pairs.put(to + key.slice(from.length), (await this.pairs.get(key))!);
                await this.pairs.remove(key);
            }
    }
    private async sizeOf(name: string): Promise<number | undefined> {
        const bytes = await this.pairs.get(`${name}/size`);
        return bytes === undefined ? undefined : Number(new TextDecoder().decode(bytes));
    }
}

class MemoryPairs implements Pairs {
    private readonly map = new Map<string, Uint8Array>();
    async get(key: string) {
        return this.map.get(key);
    }
    async put(key: string, bytes: Uint8Array) {
        this.map.set(key, bytes.slice());
    }
    async remove(key: string) {
        this.map.delete(key);
    }
    async keys() {
        return [...this.map.keys()];
    }
}

class OpfsPairs implements Pairs {
    constructor(private readonly folder: FileSystemDirectoryHandle) {}
    private static file(key: string) {
        return `segment-${encodeURIComponent(key)}`;
    }
    async get(key: string) {
        try {
            const file = await (await this.folder.getFileHandle(OpfsPairs.file(key))).getFile();
            return new Uint8Array(await file.arrayBuffer());
        } catch (error) {
            if ((error as DOMException).name === 'NotFoundError') return undefined;
            throw error;
        }
    }
    async put(key: string, bytes: Uint8Array) {
        const writable = await (await this.folder.getFileHandle(OpfsPairs.file(key), { create: true })).createWritable();
        await writable.write(bytes as Uint8Array<ArrayBuffer>);
        await writable.close();
    }
    async remove(key: string) {
        await this.folder.removeEntry(OpfsPairs.file(key)).catch(ignoreAbsent);
    }
    async keys() {
        return (await listFiles(this.folder))
            .filter((f) => f.name.startsWith('segment-'))
            .map((f) => decodeURIComponent(f.name.slice('segment-'.length)));
    }
}

class DatabasePairs implements Pairs {
    constructor(private readonly db: IDBDatabase) {}
    private run<T>(mode: IDBTransactionMode, use: (store: IDBObjectStore) => IDBRequest): Promise<T> {
        return new Promise((resolve, reject) => {
            const transaction = this.db.transaction('files', mode);
            const asked = use(transaction.objectStore('files'));
            transaction.oncomplete = () => resolve(asked.result as T);
            transaction.onabort = transaction.onerror = () => reject(transaction.error ?? asked.error);
        });
    }
    get(key: string) {
        return this.run<Uint8Array | undefined>('readonly', (s) => s.get(key));
    }
    async put(key: string, bytes: Uint8Array) {
        await this.run('readwrite', (s) => s.put(bytes.slice(), key));
    }
    async remove(key: string) {
        await this.run('readwrite', (s) => s.delete(key));
    }
    keys() {
        return this.run<string[]>('readonly', (s) => s.getAllKeys());
    }
}

function openDatabase(name: string): Promise<IDBDatabase> {
    return new Promise((resolve, reject) => {
        const asked = indexedDB.open(name, 1);
        asked.onupgradeneeded = () => asked.result.createObjectStore('files');
        asked.onsuccess = () => resolve(asked.result);
        asked.onerror = () => reject(asked.error);
        asked.onblocked = () => reject(makeError('busy', 'the database of the store is blocked by another tab'));
    });
}

// --- choosing -------------------------------------------------------------------------------------------------------------------

export function memoryFolder(): StoreFolder {
    return new SegmentedFolder('memory', new MemoryPairs());
}

// The best place this browser offers. `only` forces one (for tests, and for people who know). What was chosen is in .kind.
export async function openBrowserFolder(name = 'carat-models', only?: StoreKind): Promise<StoreFolder> {
    const tried: unknown[] = [];
    if (only === undefined || only === 'opfs' || only === 'opfs-segments') {
        try {
            const folder = await (await navigator.storage.getDirectory()).getDirectoryHandle(name, { create: true });
            const sync =
                typeof FileSystemFileHandle !== 'undefined' && 'createSyncAccessHandle' in FileSystemFileHandle.prototype;
            if (sync && only !== 'opfs-segments') return new SyncFolder(folder);
            if (only !== 'opfs' && 'createWritable' in FileSystemFileHandle.prototype)
                return new SegmentedFolder('opfs-segments', new OpfsPairs(folder));
        } catch (error) {
            tried.push(error);
        }
    }
    if (only === undefined || only === 'indexeddb') {
        try {
            return new SegmentedFolder('indexeddb', new DatabasePairs(await openDatabase(name)));
        } catch (error) {
            tried.push(error);
        }
    }
    if (only === undefined || only === 'memory') return memoryFolder();
    throw makeError('unsupported', `this browser has no ${only} storage`, { cause: tried[0] });
}
