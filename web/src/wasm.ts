// wasm.ts: loads the best variant of the WebAssembly module that this browser accepts, with its memory and threads.

import { type Assets, findAssets } from './assets';
import { codesOfLibrary, makeError } from './errors';
import { type GpuBridge, type Heap, noGpuImports } from './webgpu';

// Raised whenever an export or import changes its meaning; src/wasm/exports.c holds the same number.
export const interfaceNumber = 4;

export type Variant = 'simd' | 'threads' | 'relaxed';

export interface WasmOptions {
    assets?: Assets | undefined; // where the files are; default: beside this script
    threads?: number | undefined; // wanted, the calling one included; default: one per core up to 8, 1 without isolation
    variant?: Variant | undefined; // default: the best one
    gpu?: GpuBridge | undefined;
    maxMemoryBytes?: number | undefined;
}

// The module's exports: see src/wasm/exports.c. Pointers and handles are numbers.
export interface Exports {
    _initialize?(): void;
    wasm_interface(): number;
    wasm_alloc(n: number): number;
    wasm_free(p: number): void;
    wasm_error_code(): number;
    wasm_error_message(): number;
    wasm_open(nParts: number, sizes: number, options: number): number;
    wasm_close(model: number): void;
    wasm_text_plan(model: number): number;
    wasm_plan(model: number, plan: number): number;
    wasm_plan_write(model: number, plan: number, item: number, offset: number, bytes: number, n: number): number;
    wasm_tower_wanted(model: number, kind: number): number;
    wasm_tower_plan(model: number, kind: number): number;
    wasm_tower_ready(model: number, kind: number): number;
    wasm_tower_release(model: number, kind: number): void;
    wasm_adapter_load(model: number, bytes: number, n: number, config: number, nConfig: number, scale: number): number;
    wasm_adapters_clear(model: number): void;
    wasm_ready(model: number): number;
    wasm_fold(model: number): void;
    wasm_unfold(model: number): void;
    wasm_info(model: number): number;
    wasm_tokenize(model: number, text: number, n: number, flags: number): number;
    wasm_detokenize(model: number, ids: number, n: number, flags: number): number;
    wasm_token_text(model: number, id: number): number;
    wasm_is_end(model: number, id: number): number;
    wasm_find_token(model: number, text: number, n: number): number;
    wasm_result(): number;
    wasm_result_size(): number;
    wasm_session_new(model: number, context: number, batch: number, flags: number): number;
    wasm_session_free(session: number): void;
    wasm_session_position(session: number): number;
    wasm_session_context(session: number): number;
    wasm_session_bytes(session: number): number;
    wasm_session_truncate(session: number, n: number): number;
    wasm_session_copy(session: number): number;
    wasm_state_save_begin(session: number, stepper: number, form: number): number;
    wasm_state_save_next(session: number): number;
    wasm_state_piece(): number;
    wasm_state_piece_size(): number;
    wasm_state_restore_begin(session: number, stepper: number, bytes: number): number;
    wasm_state_restore_write(session: number, bytes: number, n: number): number;
    wasm_state_restore_end(session: number): number;
    wasm_state_end(session: number): void;
    wasm_chat_begin(session: number, request: number, media: number, nMedia: number): number;
    wasm_chat_next(session: number): number;
    wasm_generate_begin(session: number, ids: number, n: number, options: number, media: number, nMedia: number): number;
    wasm_generate_next(session: number): number;
    wasm_stop(session: number): void;
    wasm_event(): number;
    wasm_stepper_new(session: number): number;
    wasm_stepper_free(stepper: number): void;
    wasm_stepper_reset(stepper: number): void;
    wasm_stepper_sampling(
        stepper: number,
        temperature: number,
        topK: number,
        topP: number,
        repetition: number,
        seed: number,
    ): number;
    wasm_step_begin(stepper: number, id: number, soft: number): number;
    wasm_step_poll(stepper: number): number;
    wasm_render(model: number, messages: number, flags: number): number;
    wasm_encode_image(model: number, pixels: number, height: number, width: number): number;
    wasm_encode_audio(model: number, samples: number, n: number): number;
    wasm_encode_steps(): number;
    wasm_encode_step(encoder: number): number;
    wasm_encode_cancel(encoder: number): void;
    wasm_encode_free(encoder: number): void;
    wasm_self_test_begin(autotune: number): number;
    wasm_self_test_poll(): number;
    wasm_decode_wav(bytes: number, n: number): number;
    threads_worker_main?(pool: number, index: number): void;
    __wasm_init_tls?(p: number): void;
    __tls_size?: WebAssembly.Global;
    __stack_pointer?: WebAssembly.Global;
}

// --- choosing a variant ---------------------------------------------------------------------------------------------------------

const header = [0, 97, 115, 109, 1, 0, 0, 0];
// (func (result v128) i32.const 0, i8x16.splat)
const simdProbe = [...header, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 8, 1, 6, 0, 65, 0, 253, 15, 11];
// (func (result v128) i32.const 1, i8x16.splat, i32.const 2, i8x16.splat, i8x16.relaxed_swizzle)
const relaxedProbe = [
    ...header,
    1,
    5,
    1,
    96,
    0,
    1,
    123,
    3,
    2,
    1,
    0,
    10,
    15,
    1,
    13,
    0,
    65,
    1,
    253,
    15,
    65,
    2,
    253,
    15,
    253,
    128,
    2,
    11,
];

export const hasSimd = (): boolean => WebAssembly.validate(new Uint8Array(simdProbe));
export const hasRelaxedSimd = (): boolean => WebAssembly.validate(new Uint8Array(relaxedProbe));

// Shared memory works and may be used here. In a page without cross-origin isolation the constructor is missing or the memory
// cannot be posted to a worker.
export function hasThreads(): boolean {
    const isolated = (globalThis as { crossOriginIsolated?: boolean }).crossOriginIsolated;
    return typeof SharedArrayBuffer !== 'undefined' && typeof Atomics !== 'undefined' && isolated !== false;
}

// One per core up to 8. Node has no navigator before version 21.
export async function defaultThreads(): Promise<number> {
    const cores = globalThis.navigator?.hardwareConcurrency ?? (isNode ? (await import('node:os')).availableParallelism() : 4);
    return Math.max(1, Math.min(8, cores));
}

function chooseVariant(options: WasmOptions): Variant {
    if (!hasSimd()) throw makeError('no_wasm', 'this browser has no WebAssembly SIMD');
    if (options.variant !== undefined) return options.variant;
    // The GPU path leaves the processor idle, and unshared memory is cheaper to pass to the browser.
    // A page's own thread may not wait for others.
    if (options.gpu !== undefined || !hasThreads() || typeof document !== 'undefined') return 'simd';
    if (hasRelaxedSimd()) return 'relaxed'; // for one thread, too: its products are faster
    return options.threads === 1 ? 'simd' : 'threads';
}

// --- getting the code -----------------------------------------------------------------------------------------------------------

const isNode = typeof process !== 'undefined' && process.versions?.node !== undefined;

async function compile(url: string): Promise<WebAssembly.Module> {
    try {
        if (isNode && url.startsWith('file:'))
            return await WebAssembly.compile(await (await import('node:fs/promises')).readFile(new URL(url)));
        const response = await fetch(url);
        if (!response.ok) throw makeError('not_found', `${url}: the server answers ${response.status}`);
        if (response.headers.get('content-type')?.startsWith('application/wasm'))
            return await WebAssembly.compileStreaming(response);
        return await WebAssembly.compile(await response.arrayBuffer());
    } catch (error) {
        if ((error as { code?: string }).code === 'not_found') throw error;
        throw makeError('no_wasm', `the engine could not be loaded from ${url}: ${(error as Error).message}`, { cause: error });
    }
}

// --- threads --------------------------------------------------------------------------------------------------------------------

interface Thread {
    worker: { terminate(): unknown };
    slot: number;
}

export interface ThreadStart {
    module: WebAssembly.Module;
    memory: WebAssembly.Memory;
    slot: number;
    stackTop: number;
    tls: number;
}

const threadStackBytes = 512 << 10;

async function startWorker(script: string, start: ThreadStart): Promise<Thread['worker']> {
    if (isNode) {
        const { Worker } = await import('node:worker_threads');
        const worker = new Worker(new URL(script), { workerData: start });
        worker.unref();
        await new Promise<void>((resolve, reject) => {
            worker.once('message', () => resolve());
            worker.once('error', reject);
        });
        return worker;
    }
    const worker = new Worker(sameOriginScript(script), { type: 'module', name: 'carat thread' });
    await new Promise<void>((resolve, reject) => {
        worker.onmessage = () => resolve();
        worker.onerror = (event) => reject(makeError('no_wasm', `a thread did not start: ${event.message}`));
        worker.postMessage(start);
    });
    return worker;
}

// Scripts of workers must come from the page's own origin; a script of a CDN is imported by one that does.
export function sameOriginScript(script: string): string | URL {
    const url = new URL(script);
    if (url.protocol === 'blob:' || url.origin === globalThis.location?.origin) return url;
    return URL.createObjectURL(new Blob([`import ${JSON.stringify(script)};`], { type: 'text/javascript' }));
}

// --- the module -----------------------------------------------------------------------------------------------------------------

// Reads n bytes at `offset` of source number `part` into `into`: 1 done, 0 failed, -1 not here yet.
export type HostRead = (part: number, offset: number, into: Uint8Array) => 1 | 0 | -1;

const decoder = new TextDecoder();
const encoder = new TextEncoder();

export class Wasm implements Heap {
    u8!: Uint8Array;
    u32!: Uint32Array;
    f64!: Float64Array;
    exports!: Exports;
    hostRead: HostRead = () => 0;
    readonly threads: Thread[] = [];

    private constructor(
        readonly variant: Variant,
        readonly memory: WebAssembly.Memory,
        readonly gpu: GpuBridge | undefined,
    ) {
        this.refresh();
    }

    static async load(options: WasmOptions): Promise<Wasm> {
        const variant = chooseVariant(options);
        const assets = options.assets ?? findAssets();
        const module = await compile(assets[variant]);
        const wasm = new Wasm(variant, makeMemory(variant, options.maxMemoryBytes), options.gpu);
        const instance = await WebAssembly.instantiate(module, wasm.imports(module));
        wasm.exports = instance.exports as unknown as Exports;
        wasm.exports._initialize?.();
        wasm.refresh();
        const found = wasm.exports.wasm_interface?.();
        if (found !== interfaceNumber)
            throw makeError(
                'version_mismatch',
                `the WebAssembly module has interface ${found}, this script needs ${interfaceNumber}`,
            );
        if (variant !== 'simd') await wasm.startThreads(module, assets.thread, (options.threads ?? (await defaultThreads())) - 1);
        return wasm;
    }

    get threadCount(): number {
        return this.threads.length + 1;
    }
    get memoryBytes(): number {
        return this.memory.buffer.byteLength;
    }

    // Views of the memory; to be called after anything that may have grown it.
    refresh(): void {
        if (this.u8 !== undefined && this.u8.buffer === this.memory.buffer && this.u8.length === this.memory.buffer.byteLength)
            return;
        this.u8 = new Uint8Array(this.memory.buffer);
        this.u32 = new Uint32Array(this.memory.buffer);
        this.f64 = new Float64Array(this.memory.buffer);
    }

    text(p: number): string {
        this.refresh();
        return p === 0 ? '' : this.textOf(p, this.u8.indexOf(0, p >>> 0) - (p >>> 0));
    }

    textOf(p: number, n: number): string {
        this.refresh();
        return decoder.decode(this.u8.slice(p >>> 0, (p >>> 0) + n));
    }

    bytesOf(p: number, n: number): Uint8Array {
        this.refresh();
        return this.u8.slice(p >>> 0, (p >>> 0) + n);
    }

    // Memory of the module for the duration of `use`, holding `bytes`.
    with<T>(bytes: Uint8Array, use: (p: number) => T): T {
        const p = this.alloc(bytes.length);
        try {
            this.u8.set(bytes, p);
            return use(p);
        } finally {
            this.exports.wasm_free(p);
        }
    }

    withText<T>(text: string, use: (p: number, n: number) => T): T {
        const bytes = encoder.encode(`${text}\0`);
        return this.with(bytes, (p) => use(p, bytes.length - 1));
    }

    alloc(n: number): number {
        const p = this.exports.wasm_alloc(Math.max(16, n)) >>> 0;
        if (p === 0) throw makeError('no_memory', `the module has no room for ${n} bytes`);
        this.refresh();
        return p;
    }

    // The error that the last failed call left.
    error(): Error {
        const code = codesOfLibrary[this.exports.wasm_error_code()] ?? 'unsupported';
        return makeError(code, this.text(this.exports.wasm_error_message()) || 'the engine failed without a word');
    }

    close(): void {
        for (const thread of this.threads.splice(0)) void thread.worker.terminate();
        this.gpu?.destroy();
    }

    private imports(module: WebAssembly.Module): WebAssembly.Imports {
        const read = (part: number, offset: number, p: number, n: number): number => {
            this.refresh();
            return this.hostRead(part, offset, this.u8.subarray(p >>> 0, (p >>> 0) + (n >>> 0)));
        };
        return {
            carat: {
                read,
                now: () => performance.now(),
                thread_start: (pool: number, index: number) => this.startThread(pool, index),
            },
            env: { ...noGpuImports(module), ...this.gpu?.imports(this), memory: this.memory },
        };
    }

    // Starts n waiting threads. They wait in the module's memory, so that the module can send them off while it runs.
    private async startThreads(module: WebAssembly.Module, script: string, n: number): Promise<void> {
        const starts = Array.from({ length: Math.max(0, n) }, (): ThreadStart => {
            const slot = this.alloc(64),
                stack = this.alloc(threadStackBytes);
            const tls = this.alloc(((this.exports.__tls_size?.value as number | undefined) ?? 0) + 64);
            this.u8.fill(0, slot, slot + 64);
            return {
                module,
                memory: this.memory,
                slot,
                stackTop: Math.floor((stack + threadStackBytes) / 16) * 16,
                tls: Math.ceil(tls / 64) * 64,
            };
        });
        this.threads.push(
            ...(await Promise.all(starts.map(async (start) => ({ worker: await startWorker(script, start), slot: start.slot })))),
        );
    }

    private startThread(pool: number, index: number): number {
        const words = new Int32Array(this.memory.buffer);
        const free = () => this.threads.find((t) => Atomics.load(words, t.slot >>> 2) === 0);
        // Threads of a pool that was just freed take a moment to come back.
        const deadline = performance.now() + 200;
        let thread = free();
        while (thread === undefined && this.threads.length > 0 && performance.now() < deadline) thread = free();
        if (thread === undefined) return 0;
        const at = thread.slot >>> 2;
        words[at + 1] = pool;
        words[at + 2] = index;
        Atomics.store(words, at, 1);
        Atomics.notify(words, at);
        return 1;
    }
}

// Shared memory must name its maximum, and some browsers set that much address space aside: ask for less when it is refused.
function makeMemory(variant: Variant, wanted: number | undefined): WebAssembly.Memory {
    const initial = 64;
    const page = 65536;
    if (variant === 'simd') return new WebAssembly.Memory({ initial });
    for (let pages = Math.min(65536, Math.ceil((wanted ?? 2 ** 32) / page)); ; pages = Math.floor(pages / 2)) {
        try {
            return new WebAssembly.Memory({ initial, maximum: pages, shared: true });
        } catch (error) {
            if (pages < 4096) throw makeError('no_memory', 'the browser gives no shared memory', { cause: error });
        }
    }
}
