// assets.ts: where the files beside this script are. Written out one by one, so that bundlers see them and take them along.

declare const CARAT_BUILD: string;
const build = typeof CARAT_BUILD === 'undefined' ? '' : CARAT_BUILD; // of the wasm files: a stale cached one is never used

export interface Assets {
    worker: string;
    thread: string;
    simd: string;
    threads: string;
    relaxed: string;
}

export const workerMark = '#worker'; // ends the address of worker.js when it is to serve as one

const fresh = (url: URL): string => (build !== '' && /^https?:$/.test(url.protocol) ? `${url.href}?${build}` : url.href);

// folder: where the files are instead.
export function findAssets(folder?: string): Assets {
    if (folder !== undefined) {
        const base = new URL(folder.endsWith('/') ? folder : `${folder}/`, globalThis.location?.href).href;
        const at = (name: string) => fresh(new URL(name, base));
        return {
            worker: at('worker.js'),
            thread: at('thread.js'),
            simd: at('carat-simd.wasm'),
            threads: at('carat-threads.wasm'),
            relaxed: at('carat-relaxed.wasm'),
        };
    }
    return {
        worker: fresh(new URL('./worker.js', import.meta.url)),
        thread: fresh(new URL('./thread.js', import.meta.url)),
        simd: fresh(new URL('./carat-simd.wasm', import.meta.url)),
        threads: fresh(new URL('./carat-threads.wasm', import.meta.url)),
        relaxed: fresh(new URL('./carat-relaxed.wasm', import.meta.url)),
    };
}
