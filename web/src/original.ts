// original.ts: the interface of the original system, rullama, for code written for it: a Model whose token loop JavaScript drives.
//
// The engine runs in the caller's thread, as the original did, so the small calls are synchronous; put a Model into a worker of
// your own. What differs: `position`, the getters and cancelMultimodalEncode work while an encode is pending; the repetition
// penalty counts a token once and acts in greedy mode too.

import { findAssets } from './assets';
import { Engine, type EngineOptions } from './engine';
import { makeError } from './errors';
import { check, need } from './options';
import type { EngineSession, Stepper } from './session';
import { functionSource, memorySource, type ReadFunction, type Source, urlSource } from './source';
import { openGpu } from './webgpu';

export interface SamplingOptions {
    temperature?: number;
    top_k?: number;
    top_p?: number;
    repetition_penalty?: number;
    seed?: number | bigint;
}
export interface OriginalMessage {
    role: 'system' | 'user' | 'model';
    content: string;
}

// Backend and place of the module, for those who need to say; not part of the original.
export interface ModelSettings {
    backend?: 'auto' | 'webgpu' | 'cpu';
    wasmUrl?: string;
    gpu?: GPU;
    threads?: number;
}

const sampling = 'temperature ~0..100, top_k 0.., top_p ~0..1, repetition_penalty ~0.01..100, seed -9e15..9e15|bigint';
const settings = 'backend =auto|=webgpu|=cpu, wasmUrl string, gpu object, threads 1..256';
const side = '1..65535';

const originalSampling = { temperature: 0.7, top_k: 40, top_p: 0.95, repetition_penalty: 1, seed: 0 };

export class Model {
    static settings: ModelSettings = {};
    private adapterSlots = 0;
    private pendingEncode: AbortController | undefined;

    private constructor(
        private readonly engine: Engine,
        private readonly session: EngineSession,
        private readonly stepper: Stepper,
    ) {}

    // A whole file in memory.
    static async load(bytes: Uint8Array): Promise<Model> {
        need('the model', bytes, 'Uint8Array');
        return Model.open(memorySource(bytes), 4096, false);
    }

    // A file on a server that answers range requests.
    static async loadFromUrl(url: string): Promise<Model> {
        need('the address', url, 'string');
        return Model.open(await urlSource(url), 4096, false);
    }

    // read(offset, n) gives n bytes, at once or as a promise. maxContext 0 or absent: 4096.
    static async loadFromOpfs(read: ReadFunction, total: number, maxContext?: number): Promise<Model> {
        return Model.open(readSource(read, total, maxContext), maxContext || 4096, false);
    }

    // Without the vision and audio towers. maxContext 0 or absent: 512.
    static async loadFromOpfsTextOnly(read: ReadFunction, total: number, maxContext?: number): Promise<Model> {
        return Model.open(readSource(read, total, maxContext), maxContext || 512, true);
    }

    private static async open(source: Source, context: number, textOnly: boolean): Promise<Model> {
        check('Model.settings', Model.settings, settings);
        const { wasmUrl, ...rest } = Model.settings;
        const options: EngineOptions = { backend: 'auto', ...rest, assets: findAssets(wasmUrl), textOnly, contextSize: context };
        const engine = await Engine.load([source], options, () => undefined);
        try {
            const session = engine.newSession(Math.min(context, engine.info.contextLength));
            return new Model(engine, session, session.stepper());
        } catch (error) {
            await engine.close();
            throw error;
        }
    }

    // --- tokens -----------------------------------------------------------------------------------------------------------------

    // Markers such as <|turn> in the text become their tokens.
    encode(text: string): Uint32Array {
        need('the text', text, 'string');
        return Uint32Array.from(this.engine.tokenize(text, false, true));
    }
    // The entry of the vocabulary: U+2581 for a space, <0xHH> for a byte.
    tokenStr(id: number): string {
        need('the token', id, '0..');
        return this.engine.tokenText(id);
    }
    get vocabSize(): number {
        return this.engine.info.vocabulary;
    }
    isEos(id: number): boolean {
        need('the token', id, '0..');
        return this.engine.isEnd(id);
    }
    renderChat(messages: OriginalMessage[], withBos = false): string {
        return this.engine.render(withoutModelRole(messages), withBos, false);
    }
    // The last model turn is left open, so that an interrupted answer can be continued.
    renderChatForContinuation(messages: OriginalMessage[], withBos = false): string {
        return this.engine.render(withoutModelRole(messages), withBos, true);
    }

    // --- the loop ---------------------------------------------------------------------------------------------------------------

    // Tokens consumed so far.
    get position(): number {
        return this.session.position;
    }
    // Position 0 and an empty penalty history; the random numbers run on.
    reset(): void {
        this.stepper.reset();
    }
    // Feeds a token and samples the next one.
    async step(token: number): Promise<number> {
        need('the token', token, '0..');
        return this.stepper.step(token);
    }
    // Feeds one soft token of the model's width.
    async stepWithEmbedding(soft: Float32Array): Promise<number> {
        need('the soft token', soft, 'Float32Array');
        return this.stepper.step(-1, soft);
    }
    setSampling(options: SamplingOptions): void {
        check('the options of setSampling', options, sampling);
        const s = { ...originalSampling, ...options };
        this.stepper.setSampling(s.temperature, s.top_k, s.top_p, s.repetition_penalty, Number(s.seed));
    }

    // --- adapters ---------------------------------------------------------------------------------------------------------------

    get hasAdapter(): boolean {
        return this.adapterSlots > 0;
    }
    // One adapter at a time: a new one takes the place of the old. The number of weights it changes.
    async loadAdapter(bytes: Uint8Array): Promise<number> {
        need('the adapter', bytes, 'Uint8Array');
        this.clearAdapter();
        return (this.adapterSlots = this.engine.loadAdapter(bytes, undefined, 1));
    }
    clearAdapter(): void {
        if (this.adapterSlots > 0) this.engine.clearAdapters();
        this.adapterSlots = 0;
    }

    // --- images and sounds ------------------------------------------------------------------------------------------------------

    get hasVision(): boolean {
        return this.engine.info.hasVision;
    }
    get hasAudio(): boolean {
        return this.engine.info.hasAudio;
    }
    // Planar [3, height, width] in [-1, 1], sides multiples of 48. Flat soft tokens.
    async encodeImage(
        pixels: Float32Array,
        height: number,
        width: number,
        progress?: (layer: number, total: number) => void,
    ): Promise<Float32Array> {
        need('the pixels', pixels, 'Float32Array');
        need('the height', height, side);
        need('the width', width, side);
        return this.encoding((signal) => this.engine.encode({ pixels, height, width }, progress ?? (() => undefined), signal));
    }
    async encodeAudio(samples: Float32Array): Promise<Float32Array> {
        need('the samples', samples, 'Float32Array');
        return this.encoding((signal) => this.engine.encode({ samples }, () => undefined, signal));
    }
    // Soft tokens of an image, or null when a side is no multiple of 48.
    imageSoftTokenCount(height: number, width: number): number | null {
        return height > 0 && width > 0 && height % 48 === 0 && width % 48 === 0 ? (height / 48) * (width / 48) : null;
    }
    get imageSentinelIds(): [number, number] | null {
        return this.sentinels('<|image>', '<image|>');
    }
    get audioSentinelIds(): [number, number] | null {
        return this.sentinels('<|audio>', '<audio|>');
    }
    // A WAV file as mono samples at 16 kHz.
    decodeWav(bytes: Uint8Array): Float32Array {
        need('the file', bytes, 'Uint8Array');
        return this.engine.decodeWav(bytes);
    }
    // The pending encode rejects with 'cancelled'.
    cancelMultimodalEncode(): void {
        this.pendingEncode?.abort();
    }
    // Gives the tower's memory back; it comes again with the next encode. 1 when there was something to give back.
    releaseVisionWeights(): number {
        return this.release('vision');
    }
    releaseAudioWeights(): number {
        return this.release('audio');
    }
    get cachedWeightBytes(): bigint {
        return BigInt(this.engine.info.weightBytes);
    }

    // --- state ------------------------------------------------------------------------------------------------------------------

    // The cache and the sampler as RLMS version 1, in f32. Calls wait for steps under way.
    saveKvState(): Promise<Uint8Array> {
        return this.stepper.save();
    }
    // Takes what saveKvState gave, here or in the original. A state whose head does not fit is refused and changes nothing; one with
    // damaged keys or values leaves the session empty.
    async restoreKvState(bytes: Uint8Array): Promise<void> {
        need('the state', bytes, 'Uint8Array');
        return this.stepper.restore(bytes);
    }

    // Frees everything, as wasm-bindgen's objects do.
    free(): void {
        void this.engine.close();
    }

    private async encoding(run: (signal: AbortSignal) => Promise<Float32Array>): Promise<Float32Array> {
        if (this.pendingEncode !== undefined) throw makeError('busy', 'another encode is pending');
        const stop = (this.pendingEncode = new AbortController());
        try {
            return await run(stop.signal);
        } finally {
            this.pendingEncode = undefined;
        }
    }

    private release(kind: 'vision' | 'audio'): number {
        if (this.pendingEncode !== undefined || !this.engine.towerLoaded(kind)) return 0;
        this.engine.releaseTower(kind);
        return 1;
    }

    private sentinels(begin: string, end: string): [number, number] | null {
        const ids: [number, number] = [this.engine.findToken(begin), this.engine.findToken(end)];
        return ids[0] < 0 || ids[1] < 0 ? null : ids;
    }
}

function readSource(read: ReadFunction, total: number, maxContext = 0): Source {
    need('the read function', read, 'function');
    need('the size', total, '0..9e15');
    need('the context', maxContext, '0..');
    return functionSource(read, total);
}

function withoutModelRole(messages: OriginalMessage[]): string {
    need('the messages', messages, 'object[]');
    return JSON.stringify(messages.map((m) => (m.role === 'model' ? { ...m, role: 'assistant' } : m)));
}

// A smoke test: the GPU doubles the numbers.
export async function computeSpike(values: Float32Array): Promise<Float32Array> {
    const { device } = await openGpu(Model.settings.gpu);
    try {
        const bytes = Math.max(4, values.byteLength);
        const buffer = device.createBuffer({ size: bytes, usage: 128 | 8 | 4 }); // storage, copy destination and source
        const back = device.createBuffer({ size: bytes, usage: 1 | 8 }); // map for reading, copy destination
        device.queue.writeBuffer(buffer, 0, values as Float32Array<ArrayBuffer>);
        const code = `@group(0) @binding(0) var<storage, read_write> v: array<f32>;
            @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) { if (id.x < arrayLength(&v)) { v[id.x] = 2.0 * v[id.x]; } }`;
        const pipeline = device.createComputePipeline({
            layout: 'auto',
            compute: { module: device.createShaderModule({ code }) },
        });
        const encoder = device.createCommandEncoder();
        const pass = encoder.beginComputePass();
        pass.setPipeline(pipeline);
        pass.setBindGroup(
            0,
            device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries: [{ binding: 0, resource: { buffer } }] }),
        );
        pass.dispatchWorkgroups(Math.ceil(values.length / 64));
        pass.end();
        encoder.copyBufferToBuffer(buffer, 0, back, 0, bytes);
        device.queue.submit([encoder.finish()]);
        await back.mapAsync(1);
        return new Float32Array(back.getMappedRange().slice(0)).subarray(0, values.length);
    } finally {
        device.destroy();
    }
}
