// engine.ts: one loaded model in one module: brings its bytes, runs its sessions. Lives in the worker (or wherever it is made).

import { asCaratError, makeError, throwIfAborted } from './errors';
import { ItemWriter, joinRuns, type PlanItem } from './plan';
import { EngineSession, Status } from './session';
import type { Source } from './source';
import { nextTurn, turnAfter } from './turn';
import type { Backend, LoadProgress, ModelInfo } from './types';
import { Wasm, type WasmOptions } from './wasm';
import { GpuBridge, openGpu } from './webgpu';

export interface EngineOptions extends Omit<WasmOptions, 'gpu'> {
    backend?: Backend | 'auto' | undefined;
    contextSize?: number | undefined;
    exact?: boolean | undefined;
    autotune?: boolean | undefined;
    textOnly?: boolean | undefined;
    perLayerTableOnDisk?: boolean | undefined;
    compat?: 'none' | 'ollama' | 'llama.cpp' | undefined;
    kvF32?: boolean | undefined;
    batch?: number | undefined;
    gpu?: GPU | undefined;
    projectorParts?: number | undefined; // how many of the last sources are a projector file
}

const firstHeaderBytes = 1 << 20;
const maxHeaderBytes = 512 << 20;

export type Tower = 'vision' | 'audio';

export class Engine {
    info!: ModelInfo;
    private model = 0;
    private readonly sessions = new Set<EngineSession>();
    private closed = false;

    private constructor(
        readonly wasm: Wasm,
        private readonly gpu: GpuBridge | undefined,
        private readonly sources: Source[],
        readonly options: EngineOptions,
    ) {}

    // Loads the module and the model. On failure nothing is left; the sources are closed either way in the end.
    static async load(
        sources: Source[],
        options: EngineOptions,
        onProgress: (p: LoadProgress) => void,
        signal?: AbortSignal,
    ): Promise<Engine> {
        let gpu: GpuBridge | undefined;
        let engine: Engine | undefined;
        try {
            onProgress({ phase: 'engine', done: 0, total: 0 });
            gpu = await makeGpu(options);
            throwIfAborted(signal);
            let wasm = await Wasm.load({ ...options, gpu });
            try {
                if (gpu) await testDevice(wasm, gpu, (options.autotune ?? true) && !options.exact, signal);
            } catch (error) {
                wasm.close();
                if (options.backend === 'webgpu' || signal?.aborted) throw error;
                gpu?.destroy(); // 'auto'
                gpu = undefined;
                wasm = await Wasm.load({ ...options, gpu });
            }
            throwIfAborted(signal);
            engine = new Engine(wasm, gpu, sources, options);
            await engine.open(onProgress, signal);
            return engine;
        } catch (error) {
            await engine?.close();
            gpu?.destroy();
            await Promise.all(sources.map((s) => s.close().catch(() => undefined)));
            throw asCaratError(error);
        }
    }

    // --- loading ----------------------------------------------------------------------------------------------------------------

    private async open(onProgress: (p: LoadProgress) => void, signal: AbortSignal | undefined): Promise<void> {
        const prefixes = await this.readHeaders(onProgress, signal);
        await this.execute(this.wasm.exports.wasm_text_plan(this.model), prefixes, onProgress, signal);
        await this.settle();
        if (this.wasm.exports.wasm_ready(this.model) === 0) throw this.wasm.error();
        await this.settle();
        // Errors of a device in a browser arrive when C has gone on, so they are caught here.
        if (this.gpu !== undefined && !(await this.gpu.attempt(() => this.wasm.exports.wasm_fold(this.model))))
            this.wasm.exports.wasm_unfold(this.model);
        this.info = this.readInfo();
        if (this.info.tableOnDisk) await Promise.all(this.sources.map((source) => source.ready?.()));
        this.serveReads();
        onProgress({ phase: 'ready', done: this.info.weightBytes, total: this.info.weightBytes });
    }

    // Brings every byte that a plan asks for.
    private async execute(
        plan: number,
        prefixes: Uint8Array[],
        onProgress: (p: LoadProgress) => void,
        signal: AbortSignal | undefined,
    ): Promise<void> {
        const items = this.linesOf(plan);
        const total = items.reduce((n, item) => n + item.bytes, 0);
        let done = 0;
        let reported = 0;
        const step = (n: number) => {
            done += n;
            if (done - reported >= total / 200 || done === total) {
                reported = done;
                onProgress({ phase: 'weights', done, total });
            }
        };
        for (const run of joinRuns(items)) await this.bring(plan, run, prefixes[run[0]!.part] ?? new Uint8Array(0), step, signal);
    }

    // Opens the model; whenever the module asks for header bytes that are not here yet, fetches more of them and tries again.
    private async readHeaders(onProgress: (p: LoadProgress) => void, signal: AbortSignal | undefined): Promise<Uint8Array[]> {
        const prefixes = this.sources.map(() => new Uint8Array(0));
        for (;;) {
            let missing: { part: number; end: number } | undefined;
            this.wasm.hostRead = (part, offset, into) => {
                const source = this.sources[part]!,
                    prefix = prefixes[part]!;
                if (offset + into.length <= prefix.length) {
                    into.set(prefix.subarray(offset, offset + into.length));
                    return 1;
                }
                if (source.rows && source.readSync !== undefined && source.ready === undefined)
                    return readNow(source, offset, into);
                missing = { part, end: offset + into.length };
                return -1;
            };
            this.model = this.callOpen();
            if (this.model !== 0) return prefixes;
            if (missing === undefined) throw this.wasm.error();
            const { part, end } = missing as { part: number; end: number };
            const have = prefixes[part]!.length;
            const want = Math.min(this.sources[part]!.size, Math.max(end, have * 4, firstHeaderBytes));
            if (want <= have || want > maxHeaderBytes) throw this.wasm.error();
            const report = (n: number) => onProgress({ phase: 'header', done: n, total: want });
            prefixes[part] = await extend(this.sources[part]!, prefixes[part]!, want, report, signal);
            if (prefixes[part].length === have) throw this.wasm.error(); // a stream ended within the header
        }
    }

    private callOpen(): number {
        const { options: o, wasm } = this;
        const backend = this.gpu !== undefined ? 1 : o.backend === 'ref' ? 2 : 0;
        const flags = (o.exact ? 1 : 0) | (o.textOnly ? 2 : 0);
        const compat = o.compat === 'ollama' ? 1 : o.compat === 'llama.cpp' ? 2 : 0;
        const sizes = new Uint8Array(Float64Array.from(this.sources, (s) => s.size).buffer);
        const words = new Uint8Array(
            Int32Array.from([backend, wasm.threadCount, flags, compat, o.projectorParts ?? 0, this.diskAboveMib()]).buffer,
        );
        return wasm.with(sizes, (s) => wasm.with(words, (w) => wasm.exports.wasm_open(this.sources.length, s, w)));
    }

    // The per-layer table is over half of an E2B file, and only rows of it are needed. Left in the file it costs a read for every
    // token, and on a GPU the wait for the token's id.
    private diskAboveMib(): number {
        const wish = this.options.perLayerTableOnDisk;
        if (wish === false || this.sources.some((s) => s.readSync === undefined)) return -1;
        if (wish === true) return 0;
        const cheap = this.sources.every((s) => s.rows);
        if (this.gpu === undefined) return cheap ? 0 : 2048; // a request for every row of a prompt is dear

        return !cheap ? 8192 : isSmallDevice() ? 0 : 3072;
    }

    private linesOf(plan: number): PlanItem[] {
        const { wasm } = this;
        const n = wasm.exports.wasm_plan(this.model, plan);
        if (n < 0) throw wasm.error();
        const p = wasm.exports.wasm_result() >>> 0;
        wasm.refresh();
        return Array.from({ length: n }, (_, i) => {
            const [index, part, offset, bytes, direct] = wasm.f64.subarray(p / 8 + 5 * i, p / 8 + 5 * i + 5);
            return { index: index!, part: part!, offset: offset!, bytes: bytes!, direct: direct !== 0 };
        });
    }

    // Brings a run of items that lie close together in one stretch of a file.
    private async bring(
        plan: number,
        run: PlanItem[],
        prefix: Uint8Array,
        step: (n: number) => void,
        signal: AbortSignal | undefined,
    ): Promise<void> {
        const first = run[0]!,
            last = run[run.length - 1]!;
        const start = first.offset,
            end = last.offset + last.bytes;
        const writer = new ItemWriter(this.wasm, this.gpu, this.model, plan, run, step);
        let at = start;
        const feed = async (bytes: Uint8Array) => {
            await writer.feed(at, bytes);
            at += bytes.length;
            throwIfAborted(signal);
            await turnAfter(12);
        };
        try {
            if (start < prefix.length) await feed(prefix.subarray(start, Math.min(prefix.length, end)));
            if (at < end) for await (const piece of this.sources[first.part]!.stream(at, end, signal)) await feed(piece);
            await writer.finish();
        } finally {
            writer.free();
        }
    }

    // Waits until the GPU has taken what it was given; errors it found are thrown.
    private async settle(): Promise<void> {
        if (this.gpu === undefined) return;
        await this.gpu.settled();
        const error = this.gpu.pendingError();
        if (error !== undefined) throw error;
    }

    private readInfo(): ModelInfo {
        const json = this.textResult(this.wasm.exports.wasm_info(this.model));
        return { ...(JSON.parse(json) as ModelInfo), threads: this.wasm.threadCount, wasmVariant: this.wasm.variant };
    }

    // From now on only rows of a table are read.
    private serveReads(): void {
        this.wasm.hostRead = (part, offset, into) => {
            const source = this.sources[part];
            return source?.readSync === undefined ? 0 : readNow(source, offset, into);
        };
    }

    // Brings the weights of a tower, if there is one and they are not here.
    async loadTower(kind: Tower, onProgress: (p: LoadProgress) => void = () => undefined, signal?: AbortSignal): Promise<void> {
        this.check();
        const { exports } = this.wasm,
            number = kind === 'vision' ? 0 : 1;
        if (exports.wasm_tower_wanted(this.model, number) === 0) return;
        const plan = exports.wasm_tower_plan(this.model, number);
        try {
            if (plan === 0) throw this.wasm.error();
            await this.execute(plan, [], onProgress, signal);
            await this.settle();
            if (exports.wasm_tower_ready(this.model, number) === 0) throw this.wasm.error();
        } catch (error) {
            exports.wasm_tower_release(this.model, number);
            throw error;
        }
    }

    towerLoaded(kind: Tower): boolean {
        const number = kind === 'vision' ? 0 : 1;
        return (
            (kind === 'vision' ? this.info.hasVision : this.info.hasAudio) &&
            this.wasm.exports.wasm_tower_wanted(this.model, number) === 0
        );
    }

    // Gives its memory back; it comes again when it is needed.
    releaseTower(kind: Tower): void {
        this.check();
        this.wasm.exports.wasm_tower_release(this.model, kind === 'vision' ? 0 : 1);
    }

    // Soft tokens of an image (planar [3, height, width] in [-1, 1]) or of mono samples at 16 kHz, for callers that feed them themselves.
    async encode(
        input: { pixels: Float32Array; height: number; width: number } | { samples: Float32Array },
        onStep: (done: number, total: number) => void,
        signal?: AbortSignal,
    ): Promise<Float32Array> {
        if ('pixels' in input && input.pixels.length !== 3 * input.height * input.width)
            throw makeError(
                'bad_argument',
                `an image of ${input.width} x ${input.height} has ${3 * input.height * input.width} values, not ${input.pixels.length}`,
            );
        await this.loadTower('pixels' in input ? 'vision' : 'audio', undefined, signal);
        throwIfAborted(signal);
        const { wasm } = this,
            { exports } = wasm;
        const data = 'pixels' in input ? input.pixels : input.samples;
        const p = wasm.alloc(data.byteLength);
        wasm.u8.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), p);
        const encoder =
            'pixels' in input
                ? exports.wasm_encode_image(this.model, p, input.height, input.width)
                : exports.wasm_encode_audio(this.model, p, data.length);
        try {
            if (encoder === 0) throw wasm.error();
            return await this.runEncoder(encoder, onStep, signal);
        } finally {
            if (!this.closed) {
                exports.wasm_encode_free(encoder);
                exports.wasm_free(p);
            }
        }
    }

    private async runEncoder(
        encoder: number,
        onStep: (done: number, total: number) => void,
        signal: AbortSignal | undefined,
    ): Promise<Float32Array> {
        const { wasm } = this,
            { exports } = wasm;
        for (let before = -1; ;) {
            if (signal?.aborted) exports.wasm_encode_cancel(encoder);
            const status = exports.wasm_encode_step(encoder) as Status;
            if (status === Status.Failed) throw wasm.error();
            const [done, total] = new Int32Array(wasm.bytesOf(exports.wasm_encode_steps(), 8).buffer);
            if (done !== before) onStep((before = done!), total!);
            if (status === Status.Done)
                return new Float32Array(wasm.bytesOf(exports.wasm_result(), exports.wasm_result_size()).buffer);
            await this.news();
            this.check();
        }
    }

    // Adds an adapter (GGUF or safetensors; PEFT's needs its adapter_config.json). The number of weights it changes.
    loadAdapter(bytes: Uint8Array, config: string | undefined, scale: number): number {
        this.check();
        const { wasm } = this;
        const load = (p: number, c: number, n: number) =>
            wasm.exports.wasm_adapter_load(this.model, p, bytes.length, c, n, scale);
        const matched = wasm.with(bytes, (p) =>
            config === undefined ? load(p, 0, 0) : wasm.withText(config, (c, n) => load(p, c, n)),
        );
        if (matched === 0) throw wasm.error();
        this.forget();
        return matched;
    }

    clearAdapters(): void {
        this.check();
        this.wasm.exports.wasm_adapters_clear(this.model);
        this.forget();
    }

    // What sessions remember was computed with other weights.
    private forget(): void {
        for (const session of this.sessions) session.truncate(0);
    }

    // --- use --------------------------------------------------------------------------------------------------------------------

    // noPrefillSkip: the layers that share keys and values run for every position of a prompt, for measurements.
    newSession(contextSize = this.options.contextSize, noPrefillSkip = false): EngineSession {
        this.check();
        const flags = (this.options.kvF32 ? 1 : 0) | (noPrefillSkip ? 2 : 0);
        return this.adoptSession(
            this.wasm.exports.wasm_session_new(this.model, contextSize ?? 0, this.options.batch ?? 0, flags),
        );
    }

    // A session that the module made; 0: it failed to.
    adoptSession(handle: number): EngineSession {
        if (handle === 0) throw this.wasm.error();
        const session = new EngineSession(this, handle, () => this.sessions.delete(session));
        this.sessions.add(session);
        return session;
    }

    tokenize(text: string, addBos: boolean, parseSpecial: boolean): Int32Array {
        this.check();
        const flags = (addBos ? 1 : 0) | (parseSpecial ? 2 : 0);
        const n = this.wasm.withText(text, (p, length) => this.wasm.exports.wasm_tokenize(this.model, p, length, flags));
        if (n < 0) throw this.wasm.error();
        return new Int32Array(this.wasm.bytesOf(this.wasm.exports.wasm_result(), 4 * n).buffer);
    }

    detokenize(ids: ArrayLike<number>, withSpecial: boolean): string {
        this.check();
        const words = new Uint8Array(Int32Array.from(ids).buffer);
        return this.textResult(
            this.wasm.with(words, (p) => this.wasm.exports.wasm_detokenize(this.model, p, ids.length, withSpecial ? 1 : 0)),
        );
    }

    // The entry of the vocabulary as it stands in the file.
    tokenText(id: number): string {
        this.check();
        return this.textResult(this.wasm.exports.wasm_token_text(this.model, id));
    }
    isEnd(id: number): boolean {
        this.check();
        return this.wasm.exports.wasm_is_end(this.model, id) !== 0;
    }

    // The prompt of a list of messages (JSON).
    render(messages: string, withBos: boolean, continueLast: boolean): string {
        this.check();
        const flags = (withBos ? 1 : 0) | (continueLast ? 2 : 0);
        return this.textResult(this.wasm.withText(messages, (p) => this.wasm.exports.wasm_render(this.model, p, flags)));
    }

    // A WAV file as mono samples at 16 kHz.
    decodeWav(bytes: Uint8Array): Float32Array {
        this.check();
        if (this.wasm.with(bytes, (p) => this.wasm.exports.wasm_decode_wav(p, bytes.length)) === 0) throw this.wasm.error();
        return new Float32Array(this.wasm.bytesOf(this.wasm.exports.wasm_result(), this.wasm.exports.wasm_result_size()).buffer);
    }

    // The id of exactly this entry, or -1.
    findToken(text: string): number {
        this.check();
        return this.wasm.withText(text, (p, n) => this.wasm.exports.wasm_find_token(this.model, p, n));
    }

    private textResult(ok: number): string {
        if (ok === 0) throw this.wasm.error();
        return this.wasm.textOf(this.wasm.exports.wasm_result(), this.wasm.exports.wasm_result_size());
    }

    // Waits until it makes sense to ask the module again.
    async news(): Promise<void> {
        if (this.gpu === undefined) await nextTurn();
        else await this.gpu.news();
    }

    check(): void {
        if (this.closed) throw makeError('closed', 'the model was closed');
    }

    get memoryBytes(): number {
        return this.wasm.memoryBytes;
    }

    // Makes the device go away, as a driver's reset would (for tests of recovery).
    loseDevice(): void {
        this.gpu?.destroy();
    }

    async close(): Promise<void> {
        if (this.closed) return;
        this.closed = true;
        try {
            for (const session of [...this.sessions]) session.free();
            if (this.model !== 0) this.wasm.exports.wasm_close(this.model);
        } finally {
            this.wasm.close();
            await Promise.all(this.sources.map((s) => s.close().catch(() => undefined)));
        }
    }
}

function isSmallDevice(): boolean {
    const { deviceMemory, userAgent } = (globalThis.navigator ?? {}) as { deviceMemory?: number; userAgent?: string };
    return (deviceMemory ?? 8) <= 4 || /iPhone|iPad|Android/.test(userAgent ?? '');
}

// Runs a few kernels whose results are known. Throws 'bad_number' (or what else went wrong) when the GPU computes wrongly, as some do.
export async function selfTest(options: Pick<EngineOptions, 'assets' | 'gpu'>): Promise<{ device: string; ms: number }> {
    const device = await openGpu(options.gpu);
    const gpu = new GpuBridge(device);
    const begun = performance.now();
    try {
        await testDevice(await Wasm.load({ ...options, gpu, variant: 'simd' }), gpu, true, undefined);
        return { device: device.name, ms: performance.now() - begun };
    } finally {
        gpu.destroy();
    }
}

async function testDevice(wasm: Wasm, gpu: GpuBridge, autotune: boolean, signal: AbortSignal | undefined): Promise<void> {
    if (wasm.exports.wasm_self_test_begin(Number(autotune)) === 0) throw wasm.error();
    for (;;) {
        const state = wasm.exports.wasm_self_test_poll();
        if (state === 1) return;
        if (state === 0) throw wasm.error();
        await gpu.news();
        throwIfAborted(signal);
    }
}

async function makeGpu(options: EngineOptions): Promise<GpuBridge | undefined> {
    if (options.backend === 'cpu' || options.backend === 'ref') return undefined;
    try {
        return new GpuBridge(await openGpu(options.gpu));
    } catch (error) {
        if (options.backend === 'webgpu') throw error;
        return undefined; // 'auto'
    }
}

function readNow(source: Source, offset: number, into: Uint8Array): 1 | 0 {
    try {
        if (into.buffer instanceof ArrayBuffer) {
            source.readSync!(offset, into);
        } else {
            // files and streams don't take shared memory
            const copy = new Uint8Array(into.length);
            source.readSync!(offset, copy);
            into.set(copy);
        }
        return 1;
    } catch {
        return 0;
    }
}

async function extend(
    source: Source,
    have: Uint8Array,
    want: number,
    onBytes: (n: number) => void,
    signal: AbortSignal | undefined,
): Promise<Uint8Array<ArrayBuffer>> {
    const longer = new Uint8Array(want);
    longer.set(have);
    let at = have.length;
    for await (const piece of source.stream(have.length, want, signal)) {
        longer.set(piece, at);
        at += piece.length;
        onBytes(at);
    }
    return longer.subarray(0, at);
}
