// models.ts: the models kept on this device, for pages: the store of src/store.ts, run in a worker.

import { openLink } from './carat';
import { Client } from './client';
import type { StoredModel, StoreProgress, StoreUsage } from './store';

export interface ModelsOptions {
    worker?: boolean; // false: run here; default true in browsers
    kind?: 'opfs' | 'opfs-segments' | 'indexeddb' | 'memory'; // insist on one place; default: the best
}

export interface DownloadCall {
    key?: string; // default: the URL
    label?: string;
    sha256?: string; // verified while streaming
    headers?: Record<string, string>;
    parallel?: number; // range requests at a time; default 4
    retries?: number; // attempts without a byte before it fails; default 6
    signal?: AbortSignal; // pauses: downloading the same key again goes on
    onProgress?: (progress: StoreProgress) => void;
}

export class Models {
    private constructor(private readonly client: Client) {}

    static async open(options: ModelsOptions = {}): Promise<Models> {
        return new Models(
            new Client(await openLink({ worker: options.worker, ...(options.kind && { storeKind: options.kind }) })),
        );
    }

    list(): Promise<StoredModel[]> {
        return this.client.call('store.list', null);
    }

    // What the store takes, what the browser gives, and where the models are: 'memory' means that they are gone with the page.
    usage(): Promise<StoreUsage> {
        return this.client.call('store.usage', null);
    }

    // Downloads, or goes on with a download. The model can be loaded with {store: key} when it resolves.
    async download(url: string | URL, options: DownloadCall = {}): Promise<StoredModel> {
        const { signal, onProgress, key, ...rest } = options;
        const address = new URL(url, globalThis.location?.href).href;
        await askToPersist();
        return this.client.call(
            'store.download',
            { key: key ?? address, url: address, ...rest },
            { signal, onEvent: onProgress as never },
        );
    }

    // Copies a local file (from a picker, or dropped) into the store.
    async import(file: Blob, options: Omit<DownloadCall, 'headers' | 'parallel'> = {}): Promise<StoredModel> {
        const { signal, onProgress, key, ...rest } = options;
        await askToPersist();
        return this.client.call(
            'store.import',
            { key: key ?? (file as File).name ?? 'file', blob: file, ...rest },
            { signal, onEvent: onProgress as never },
        );
    }

    // Stops a download; what has arrived is kept.
    async pause(key: string): Promise<void> {
        await this.client.call('store.pause', { key });
    }

    // Reads the whole model again; false when a byte has changed since it was downloaded.
    verify(key: string, options: { signal?: AbortSignal } = {}): Promise<boolean> {
        return this.client.call('store.verify', { key }, options);
    }

    async delete(key: string): Promise<void> {
        await this.client.call('store.delete', { key });
    }

    // A complete model as a file, e.g. to save it elsewhere.
    blob(key: string): Promise<Blob> {
        return this.client.call('store.blob', { key });
    }

    close(): void {
        this.client.close();
    }
}

let asked = false;
// Without it the browser may clear the models when the disk fills up. Works in pages only; the answer changes nothing here.
async function askToPersist(): Promise<void> {
    if (asked || typeof document === 'undefined') return;
    asked = true;
    await navigator.storage?.persist?.().catch(() => false);
}
