// webgpu.ts: the functions of webgpu.h that the C library uses (see src/webgpu/gpu.c), over navigator.gpu.
//
// Objects are known to C by a number, the index in a table here; 0 is NULL. Descriptors are read from the module's memory with
// the layout that webgpu.h has on wasm32. The functions called for each dispatch (SetPipeline, SetBindGroup,
// DispatchWorkgroups) allocate nothing.
//
// Errors arrive as events and are kept until C asks with gpu_error_from_host. Completion of a map is seen by C in the buffer's
// map state; JavaScript waits for it with GpuBridge.news().

import { type CaratError, makeError } from './errors';
import { nextTurn } from './turn';

// The module's memory as C's pointers see it. Views are replaced when the memory grows.
export interface Heap {
    u8: Uint8Array;
    u32: Uint32Array;
    refresh(): void;
}

// Pointers from here on mean bytes that JavaScript holds ready in GpuBridge.direct; the module's memory never reaches so far.
export const directBase = 0xf0000000;

const enum MapState {
    Unmapped = 1,
    Pending = 2,
    Mapped = 3,
}

interface MappableBuffer extends GPUBuffer {
    caratState?: MapState;
}

export interface GpuDevice {
    device: GPUDevice;
    name: string;
    words: number[]; // of struct gpu_host_info, behind the handle
}

// Asks for the best device there is. Fails with 'no_device'.
export async function openGpu(gpu: GPU | undefined = globalThis.navigator?.gpu): Promise<GpuDevice> {
    if (gpu === undefined) throw makeError('no_device', 'this browser has no WebGPU');
    const adapter = (await gpu.requestAdapter({ powerPreference: 'high-performance' })) ?? (await gpu.requestAdapter());
    if (adapter === null) throw makeError('no_device', 'WebGPU is there, but it offers no adapter');
    const cap = 2 ** 31; // keeps every byte offset in 32 bits
    const best = adapter.limits;
    const info = adapter.info as GPUAdapterInfo & { subgroupMinSize?: number; subgroupMaxSize?: number };
    const subgroups = adapter.features.has('subgroups' as GPUFeatureName);
    const device = await adapter
        .requestDevice({
            requiredFeatures: subgroups ? ['subgroups' as GPUFeatureName] : [],
            requiredLimits: {
                maxBufferSize: Math.min(best.maxBufferSize, cap),
                maxStorageBufferBindingSize: Math.min(best.maxStorageBufferBindingSize, cap - 4),
                maxComputeWorkgroupStorageSize: best.maxComputeWorkgroupStorageSize,
                maxComputeWorkgroupsPerDimension: best.maxComputeWorkgroupsPerDimension,
            },
        })
        .catch((error: Error) => {
            throw makeError('no_device', `the GPU gave no device: ${error.message}`, { cause: error });
        });
    const name = [info.vendor, info.architecture, info.description || info.device].filter((part) => part).join(' ');
    const limits = device.limits;
    const words = [
        limits.maxBufferSize / 2 ** 20,
        limits.maxStorageBufferBindingSize / 2 ** 20,
        limits.maxComputeWorkgroupStorageSize,
        limits.maxComputeWorkgroupsPerDimension,
        Number(subgroups),
        info.subgroupMinSize ?? 0,
        info.subgroupMaxSize ?? 0,
        Number(gpu.wgslLanguageFeatures?.has('packed_4x8_integer_dot_product') ?? false),
    ];
    return { device, name: name || 'WebGPU', words };
}

// Connects one module with one device.
export class GpuBridge {
    // The bytes that pointers from directBase on stand for, for the duration of one call into the module.
    direct: Uint8Array | undefined;
    readonly lost: Promise<GPUDeviceLostInfo>;
    isLost = false;
    private readonly table: unknown[] = [null];
    private readonly free: number[] = [];
    private readonly errors: { kind: number; message: string }[] = [];
    private readonly waiting: (() => void)[] = [];
    private nMapping = 0;

    constructor(private readonly gpu: GpuDevice) {
        gpu.device.addEventListener('uncapturederror', (event) => {
            const error = (event as GPUUncapturedErrorEvent).error;
            const memory = typeof GPUOutOfMemoryError !== 'undefined' && error instanceof GPUOutOfMemoryError;
            this.note(memory ? 1 : 3, error.message);
        });
        this.lost = gpu.device.lost;
        void this.lost.then((info) => {
            this.isLost = true;
            if (info.reason !== 'destroyed') this.note(2, info.message || 'the device was lost');
            this.wake();
        });
    }

    // Resolves when a map that is under way has ended, or the device is lost.
    news(): Promise<void> {
        if (this.nMapping === 0 || this.isLost) return nextTurn();
        return new Promise((resolve) => this.waiting.push(resolve));
    }

    // Resolves when everything handed to the device so far is done, and errors of it have been seen.
    async settled(): Promise<void> {
        if (!this.isLost) await this.gpu.device.queue.onSubmittedWorkDone().catch(() => undefined);
        await nextTurn();
    }

    // Runs something that may as well fail: true when the device took it all. Errors go to the caller alone, not to C.
    async attempt(run: () => void): Promise<boolean> {
        const { device } = this.gpu;
        const kinds = ['internal', 'validation', 'out-of-memory'] as const;
        for (const kind of kinds) device.pushErrorScope(kind);
        let errors: Promise<GPUError | null>[];
        try {
            run();
        } finally {
            errors = kinds.map(() => device.popErrorScope().catch(() => null)); // a lost device says so elsewhere
        }
        return (await Promise.all(errors)).every((error) => error === null);
    }

    // The first error that C has not yet asked for.
    pendingError(): CaratError | undefined {
        const error = this.errors[0];
        if (error === undefined) return undefined;
        const code = error.kind === 1 ? 'no_memory' : error.kind === 2 ? 'device_lost' : 'unsupported';
        return makeError(code, `the GPU did not take the model: ${error.message}`, {
            remedy: 'Use backend "cpu", or a smaller model.',
        });
    }

    destroy(): void {
        this.gpu.device.destroy();
    }

    private note(kind: number, message: string): void {
        if (this.errors.length < 16) this.errors.push({ kind, message });
    }

    private wake(): void {
        for (const resolve of this.waiting.splice(0)) resolve();
    }

    private add(object: unknown): number {
        const handle = this.free.pop() ?? this.table.length;
        this.table[handle] = object;
        return handle;
    }

    private drop = (handle: number): void => {
        this.table[handle] = null;
        this.free.push(handle);
    };

    // The functions the module imports from "env".
    imports(heap: Heap): Record<string, (...args: never[]) => unknown> {
        return {
            ...this.hostFunctions(heap),
            ...this.creation(heap),
            ...this.encoding(),
            ...this.buffers(heap),
            ...this.releases(),
        };
    }

    private hostFunctions(heap: Heap) {
        const { device, name, words } = this.gpu;
        return {
            gpu_device_from_host: (p: number): number => {
                heap.refresh();
                heap.u32.set([this.add(device), ...words], p >>> 2); // fractions are cut off
                writeText(heap.u8, (p >>> 0) + 4 * (1 + words.length), 96, name);
                return 1;
            },
            gpu_error_from_host: (p: number, capacity: number): number => {
                const error = this.errors.shift();
                if (error === undefined) return 0;
                heap.refresh();
                writeText(heap.u8, p >>> 0, capacity, error.message);
                return error.kind;
            },
        };
    }

    private creation(heap: Heap) {
        const device = this.gpu.device;
        const u32 = (p: number) => heap.u32[p >>> 2]!;
        const u64 = (p: number) => u32(p) + u32(p + 4) * 2 ** 32;
        const text = (p: number) => readText(heap.u8, u32(p), u32(p + 4));
        const object = <T>(handle: number) => this.table[handle] as T;
        const started = <T>(make: () => T) => {
            heap.refresh();
            return this.add(make());
        };
        return {
            wgpuDeviceGetQueue: () => this.add(device.queue),
            wgpuDeviceCreateBuffer: (_device: number, d: number) =>
                started(() => device.createBuffer({ usage: u32(d + 16), size: u64(d + 24), mappedAtCreation: false })),
            wgpuDeviceCreateShaderModule: (_device: number, d: number) =>
                started(() => device.createShaderModule({ label: text(d + 4), code: text(u32(d) + 8) })),
            wgpuDeviceCreateBindGroupLayout: (_device: number, d: number) =>
                started(() => {
                    const types: GPUBufferBindingType[] = ['uniform', 'uniform', 'uniform', 'storage', 'read-only-storage'];
                    const entries = Array.from({ length: u32(d + 12) }, (_, i): GPUBindGroupLayoutEntry => {
                        const e = u32(d + 16) + 88 * i;
                        return {
                            binding: u32(e + 4),
                            visibility: u32(e + 8),
                            buffer: {
                                type: types[u32(e + 28)]!,
                                hasDynamicOffset: u32(e + 32) !== 0,
                                minBindingSize: u64(e + 40),
                            },
                        };
                    });
                    return device.createBindGroupLayout({ entries });
                }),
            wgpuDeviceCreatePipelineLayout: (_device: number, d: number) =>
                started(() =>
                    device.createPipelineLayout({
                        bindGroupLayouts: Array.from({ length: u32(d + 12) }, (_, i) =>
                            object<GPUBindGroupLayout>(u32(u32(d + 16) + 4 * i)),
                        ),
                    }),
                ),
            wgpuDeviceCreateComputePipeline: (_device: number, d: number) =>
                started(() =>
                    device.createComputePipeline({
                        label: text(d + 4),
                        layout: object<GPUPipelineLayout>(u32(d + 12)),
                        compute: { module: object<GPUShaderModule>(u32(d + 20)), entryPoint: text(d + 24) },
                    }),
                ),
            wgpuDeviceCreateBindGroup: (_device: number, d: number) =>
                started(() =>
                    device.createBindGroup({
                        layout: object<GPUBindGroupLayout>(u32(d + 12)),
                        entries: Array.from({ length: u32(d + 16) }, (_, i) => {
                            const e = u32(d + 20) + 40 * i;
                            return {
                                binding: u32(e + 4),
                                resource: { buffer: object<GPUBuffer>(u32(e + 8)), offset: u64(e + 16), size: u64(e + 24) },
                            };
                        }),
                    }),
                ),
            wgpuDeviceCreateCommandEncoder: () => this.add(device.createCommandEncoder()),
        };
    }

    private encoding() {
        const table = this.table as never[];
        return {
            wgpuCommandEncoderBeginComputePass: (encoder: number) =>
                this.add((table[encoder] as GPUCommandEncoder).beginComputePass()),
            wgpuCommandEncoderCopyBufferToBuffer: (
                encoder: number,
                src: number,
                srcOffset: bigint,
                dst: number,
                dstOffset: bigint,
                size: bigint,
            ) =>
                (table[encoder] as GPUCommandEncoder).copyBufferToBuffer(
                    table[src]!,
                    Number(srcOffset),
                    table[dst]!,
                    Number(dstOffset),
                    Number(size),
                ),
            wgpuCommandEncoderFinish: (encoder: number) => this.add((table[encoder] as GPUCommandEncoder).finish()),
            wgpuComputePassEncoderSetPipeline: (pass: number, pipeline: number) =>
                (table[pass] as GPUComputePassEncoder).setPipeline(table[pipeline]!),
            wgpuComputePassEncoderSetBindGroup: (pass: number, index: number, group: number) =>
                (table[pass] as GPUComputePassEncoder).setBindGroup(index, table[group]!),
            wgpuComputePassEncoderDispatchWorkgroups: (pass: number, x: number, y: number, z: number) =>
                y === 1 && z === 1 // each argument takes time
                    ? (table[pass] as GPUComputePassEncoder).dispatchWorkgroups(x)
                    : (table[pass] as GPUComputePassEncoder).dispatchWorkgroups(x, y, z),
            wgpuComputePassEncoderEnd: (pass: number) => (table[pass] as GPUComputePassEncoder).end(),
        };
    }

    private buffers(heap: Heap) {
        const { device } = this.gpu;
        const buffer = (handle: number) => this.table[handle] as MappableBuffer;
        return {
            wgpuQueueWriteBuffer: (_queue: number, target: number, offset: bigint, data: number, size: number) => {
                const p = data >>> 0,
                    n = size >>> 0;
                if (p >= directBase) {
                    const at = p - directBase;
                    device.queue.writeBuffer(buffer(target), Number(offset), this.direct! as Uint8Array<ArrayBuffer>, at, n);
                } else {
                    heap.refresh();
                    device.queue.writeBuffer(buffer(target), Number(offset), heap.u8 as Uint8Array<ArrayBuffer>, p, n);
                }
            },
            wgpuQueueSubmit: (_queue: number, n: number, commands: number) => {
                heap.refresh();
                device.queue.submit(
                    Array.from({ length: n }, (_, i) => this.table[heap.u32[(commands >>> 2) + i]!] as GPUCommandBuffer),
                );
            },
            wgpuBufferMapAsync: (handle: number, mode: bigint, offset: number, size: number): bigint => {
                const target = buffer(handle);
                target.caratState = MapState.Pending;
                this.nMapping++;
                const end = (state: MapState) => {
                    target.caratState = state;
                    this.nMapping--;
                    this.wake();
                };
                target.mapAsync(Number(mode), offset >>> 0, size >>> 0).then(
                    () => end(MapState.Mapped),
                    () => end(MapState.Unmapped),
                );
                return 0n;
            },
            wgpuBufferGetMapState: (handle: number) => buffer(handle).caratState ?? MapState.Unmapped,
            wgpuBufferReadMappedRange: (handle: number, offset: number, data: number, size: number): number => {
                heap.refresh();
                heap.u8.set(
                    new Uint8Array(buffer(handle).getMappedRange(offset >>> 0, Math.ceil((size >>> 0) / 4) * 4), 0, size >>> 0),
                    data >>> 0,
                );
                return 1; // WGPUStatus_Success
            },
            wgpuBufferUnmap: (handle: number) => {
                buffer(handle).caratState = MapState.Unmapped;
                buffer(handle).unmap();
            },
            wgpuBufferDestroy: (handle: number) => buffer(handle).destroy(),
        };
    }

    private releases() {
        const kinds = [
            'Buffer',
            'BindGroup',
            'BindGroupLayout',
            'PipelineLayout',
            'ShaderModule',
            'ComputePipeline',
            'CommandEncoder',
            'CommandBuffer',
            'ComputePassEncoder',
            'Queue',
            'Device',
        ];
        return Object.fromEntries(kinds.map((kind) => [`wgpu${kind}Release`, this.drop]));
    }
}

// Stand-ins for a module that runs without a GPU: there is no device, so nothing else is ever called.
export function noGpuImports(module: WebAssembly.Module): Record<string, () => number> {
    const names = WebAssembly.Module.imports(module)
        .filter((i) => i.module === 'env' && i.kind === 'function')
        .map((i) => i.name);
    return Object.fromEntries(names.map((name) => [name, () => 0]));
}

const encoder = new TextEncoder();
const decoder = new TextDecoder();

function writeText(u8: Uint8Array, p: number, capacity: number, text: string): void {
    const { written } = encoder.encodeInto(text, scratch.subarray(0, Math.max(0, Math.min(capacity - 1, scratch.length))));
    u8.set(scratch.subarray(0, written), p);
    u8[p + written] = 0;
}
const scratch = new Uint8Array(1024);

function readText(u8: Uint8Array, p: number, n: number): string {
    const end = n === 0xffffffff ? u8.indexOf(0, p) : p + n;
    return decoder.decode(u8.slice(p, end)); // a copy: TextDecoder refuses shared memory
}
