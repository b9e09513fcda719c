// models.ts: the models kept on this device, for pages: the store of src/store.ts, run in a worker.

import { absolute, openLink } from './carat';
import { Client } from './client';
import { check, need } from './options';
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

const importRules = 'key string, label string, sha256 string, signal AbortSignal, onProgress function';
const downloadRules = `${importRules}, headers object, parallel 1..64, retries 0..1000`;

export class Models {
    private constructor(private readonly client: Client) {}

    static async open(options: ModelsOptions = {}): Promise<Models> {
        check('the options of Models.open', options, 'worker boolean, kind =opfs|=opfs-segments|=indexeddb|=memory');
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
        check('the options of download', options, downloadRules);
        const { signal, onProgress, key, ...rest } = options;
        const address = absolute(url);
        await askToPersist();
        return this.client.call(
            'store.download',
            { key: key ?? address, url: address, ...rest },
            { signal, onEvent: onProgress as never },
        );
    }

    // Copies a local file (from a picker, or dropped) into the store.
    async import(file: Blob, options: Omit<DownloadCall, 'headers' | 'parallel'> = {}): Promise<StoredModel> {
        check('the options of import', options, importRules);
        need('the file', file, 'Blob');
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
        await this.client.call('store.pause', named(key));
    }

    // Reads the whole model again; false when a byte has changed since it was downloaded.
    async verify(key: string, options: { signal?: AbortSignal } = {}): Promise<boolean> {
        check('the options of verify', options, 'signal AbortSignal');
        return this.client.call('store.verify', named(key), options);
    }

    async delete(key: string): Promise<void> {
        await this.client.call('store.delete', named(key));
    }

    // A complete model as a file, e.g. to save it elsewhere.
    async blob(key: string): Promise<Blob> {
        return this.client.call('store.blob', named(key));
    }

    close(): void {
        this.client.close();
    }
}

function named(key: string): { key: string } {
    need('the key', key, 'string');
    return { key };
}

let asked = false;
// Without it the browser may clear the models when the disk fills up. Works in pages only; the answer changes nothing here.
async function askToPersist(): Promise<void> {
    if (asked || typeof document === 'undefined') return;
    asked = true;
    await navigator.storage?.persist?.().catch(() => false);
}
