// probe.ts: says whether this browser can run a model, and what is missing.

import { findAssets } from './assets';
import { openLink } from './carat';
import { Client } from './client';
import { check } from './options';
import { openBrowserFolder, type StoreKind } from './files';
import { defaultThreads, hasRelaxedSimd, hasSimd, hasThreads } from './wasm';

export interface Capabilities {
    usable: boolean;
    problems: string[]; // sentences for people; empty when nothing is missing
    webgpu: { available: boolean; name: string; maxBufferBytes: number; maxBindingBytes: number; reason: string };
    wasm: { simd: boolean; relaxedSimd: boolean; threads: boolean; threadCount: number };
    crossOriginIsolated: boolean;
    store: StoreKind;
    storage: { quota: number; usage: number; persisted: boolean };
    deviceMemoryGiB: number | undefined;
}

export async function probe(): Promise<Capabilities> {
    const webgpu = await probeGpu();
    const simd = hasSimd(),
        threads = hasThreads();
    const isolated = (globalThis as { crossOriginIsolated?: boolean }).crossOriginIsolated === true;
    const store = await openBrowserFolder().then(
        (folder) => folder.kind,
        (): StoreKind => 'memory',
    );
    const estimate = await globalThis.navigator?.storage?.estimate?.().catch(() => undefined);
    const problems: string[] = [];
    if (!simd) problems.push('This browser has no WebAssembly SIMD; use a current one.');
    if (!webgpu.available) problems.push(`No GPU can be used: ${webgpu.reason}. Models run on the processor.`);
    if (!threads)
        problems.push(
            isolated
                ? 'This browser has no threads.'
                : 'The page is not cross-origin isolated, so the processor runs one thread only.',
        );
    if (store === 'memory')
        problems.push('The browser gives no storage here (perhaps a private window): models are gone when the page closes.');
    if (store === 'indexeddb')
        problems.push('The browser has no private file system: models are kept in a database, which is slower.');
    return {
        usable: simd,
        problems,
        webgpu,
        crossOriginIsolated: isolated,
        store,
        wasm: { simd, relaxedSimd: hasRelaxedSimd(), threads, threadCount: threads ? await defaultThreads() : 1 },
        storage: {
            quota: estimate?.quota ?? 0,
            usage: estimate?.usage ?? 0,
            persisted: (await globalThis.navigator?.storage?.persisted?.().catch(() => false)) ?? false,
        },
        deviceMemoryGiB: (globalThis.navigator as { deviceMemory?: number } | undefined)?.deviceMemory,
    };
}

async function probeGpu(): Promise<Capabilities['webgpu']> {
    const none = (reason: string) => ({ available: false, name: '', maxBufferBytes: 0, maxBindingBytes: 0, reason });
    const gpu = globalThis.navigator?.gpu;
    if (gpu === undefined) return none('this browser has no WebGPU');
    try {
        const adapter = await gpu.requestAdapter({ powerPreference: 'high-performance' });
        if (adapter === null) return none('WebGPU offers no adapter');
        const { vendor, architecture, description, device } = adapter.info;
        return {
            available: true,
            name: [vendor, architecture, description || device].filter((part) => part).join(' '),
            maxBufferBytes: adapter.limits.maxBufferSize,
            maxBindingBytes: adapter.limits.maxStorageBufferBindingSize,
            reason: '',
        };
    } catch (error) {
        return none((error as Error).message);
    }
}

// Runs the GPU's kernels on numbers whose results are known: some adapters compute wrongly, and this shows before a model is
// downloaded. Rejects with a CaratError that says what is wrong; then use backend 'cpu'.
export async function selfTest(
    options: { worker?: boolean; wasmUrl?: string; gpu?: GPU } = {},
): Promise<{ device: string; ms: number }> {
    check('the options of selfTest', options, 'worker boolean, wasmUrl string, gpu object');
    const client = new Client(await openLink(options));
    try {
        return await client.call('selfTest', { assets: findAssets(options.wasmUrl), gpu: options.gpu });
    } finally {
        client.close();
    }
}
