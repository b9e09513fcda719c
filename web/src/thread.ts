// thread.ts: one thread of the module: a worker that shares its memory, waits to be sent into the library's pool, and waits again.

import type { Exports, ThreadStart } from './wasm';
import { noGpuImports } from './webgpu';

async function run(start: ThreadStart, ready: () => void): Promise<void> {
    const { module, memory, slot, stackTop, tls } = start;
    const instance = await WebAssembly.instantiate(module, {
        carat: { read: () => 0, now: () => performance.now(), thread_start: () => 0 },
        env: { ...noGpuImports(module), memory },
    });
    const exports = instance.exports as unknown as Exports;
    exports.__stack_pointer!.value = stackTop;
    exports.__wasm_init_tls?.(tls);
    const words = new Int32Array(memory.buffer),
        at = slot >>> 2;
    ready();
    await Promise.resolve(); // let the message out before the first wait
    for (;;) {
        Atomics.wait(words, at, 0);
        if (Atomics.load(words, at) === 0) continue;
        exports.threads_worker_main!(words[at + 1]!, words[at + 2]!);
        Atomics.store(words, at, 0);
    }
}

if (typeof process !== 'undefined' && process.versions?.node !== undefined) {
    const { parentPort, workerData } = await import('node:worker_threads');
    void run(workerData as ThreadStart, () => parentPort!.postMessage('ready'));
} else {
    addEventListener('message', (event) => void run((event as MessageEvent<ThreadStart>).data, () => postMessage('ready')), {
        once: true,
    });
}
