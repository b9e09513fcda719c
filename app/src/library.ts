// library.ts: the models on this device and those that can be had.

import { signal } from '@preact/signals';
import { CaratError, Models, type StoredModel, type StoreProgress, type StoreUsage } from 'carat-web';
import { demoKey, isDemo } from './demo';
import { keep, readKept } from './kept';
import { networkBack } from './lifecycle';

export interface Transfer { label: string; progress: StoreProgress | undefined; waits: boolean } // waits: for the network, or for another tab
export interface ServerModel { name: string; size: number; digest?: string }

export const stored = signal<StoredModel[]>([]);
export const usage = signal<StoreUsage | undefined>(undefined);
export const transfers = signal<Record<string, Transfer>>({}); // by key
export const served = signal<ServerModel[]>([]);
export const libraryError = signal<string | undefined>(undefined);

let models: Promise<Models> | undefined;
const aborts = new Map<string, AbortController>();

function store(): Promise<Models> {
    models ??= Models.open();
    return models;
}

function say(error: unknown): void {
    if (error instanceof CaratError && error.code === 'cancelled')
        return;
    libraryError.value = error instanceof CaratError ? `${error.message}. ${error.remedy}` : (error as Error).message;
}

let refreshes = 0;

export async function refreshLibrary(): Promise<void> {
    const own = ++refreshes;
    try {
        const opened = await store();
        const [all, used] = await Promise.all([opened.list(), opened.usage()]);
        if (own !== refreshes) // a later one knows more: this list may have what was deleted meanwhile
            return;
        stored.value = all.filter((model) => !isDemo(model.key));
        usage.value = used;
        for (const model of all.filter((m) => isDemo(m.key) && m.key !== demoKey)) // of an earlier release
            await opened.delete(model.key);
    } catch (error) {
        say(error);
    }
}

// The models of the server that this page came from; a plain file server has none.
export async function refreshServed(): Promise<void> {
    const response = await fetch(new URL('/api/models', location.href)).catch(() => undefined);
    const list = response?.ok && response.headers.get('content-type')?.includes('json') ? await response.json() as { models: ServerModel[] } : { models: [] };
    served.value = list.models;
}

function show(key: string, changes: Partial<Transfer>): void {
    const { [key]: running } = transfers.value;
    transfers.value = { ...transfers.value, [key]: { label: key, progress: undefined, waits: false, ...running, ...changes } };
}

async function transfer(key: string, label: string, run: (opened: Models, signal: AbortSignal, onProgress: (p: StoreProgress) => void) => Promise<unknown>): Promise<boolean> {
    const abort = new AbortController();
    aborts.set(key, abort);
    libraryError.value = undefined;
    show(key, { label });
    try {
        await run(await store(), abort.signal, (progress) => show(key, { progress, waits: false }));
        return true;
    } catch (error) {
        say(error);
        return false;
    } finally {
        aborts.delete(key);
        const { [key]: _done, ...rest } = transfers.value;
        transfers.value = rest;
        await refreshLibrary();
    }
}

// --- downloads --------------------------------------------------------------------------------------------------------------------

interface Download { url: string; label: string; key: string; sha256?: string | undefined }

const downloadsKey = 'carat.downloads'; // those under way, to go on with after a reload of the page
const maxFailures = 10; // without a byte in between: about a quarter of an hour

function keptDownloads(): Download[] {
    try {
        return JSON.parse(readKept(downloadsKey) ?? '[]') as Download[];
    } catch {
        return [];
    }
}

function keepDownload(key: string, download: Download | undefined): void {
    const others = keptDownloads().filter((d) => d.key !== key);
    const all = download === undefined ? others : [...others, download];
    keep(downloadsKey, all.length === 0 ? undefined : JSON.stringify(all));
}

// Downloads, or goes on with a download. Waits for the network when that is away.
export async function download(url: string, label: string, key = url, sha256?: string): Promise<boolean> {
    if (aborts.has(key))
        return false;
    keepDownload(key, { url, label, key, sha256 });
    const done = await transfer(key, label, async (opened, signal, onProgress) => {
        for (let failures = 0, received = 0; ;) {
            try {
                await opened.download(url, {
                    key, label, signal, retries: 3, ...(sha256 !== undefined && { sha256 }),
                    onProgress: (progress) => {
                        if (progress.received > received)
                            failures = 0;
                        received = progress.received;
                        onProgress(progress);
                    },
                });
                return;
            } catch (error) {
                const mayPass = error instanceof CaratError && (error.code === 'io' || error.code === 'busy'); // busy: another tab has it
                if (!mayPass || ++failures > maxFailures)
                    throw error;
                show(key, { waits: true });
                await networkBack(Math.min(120_000, 1000 * 2 ** failures), signal);
            }
        }
    });
    keepDownload(key, undefined); // complete, paused or hopeless
    return done;
}

// Goes on with the downloads that the page left behind when it was closed.
export function resumeDownloads(): void {
    for (const { url, label, key, sha256 } of keptDownloads())
        void download(url, label, key, sha256);
}

export function importFile(file: File): Promise<boolean> {
    return transfer(file.name, file.name, (opened, signal, onProgress) => opened.import(file, { key: file.name, label: file.name, signal, onProgress }));
}

export function pause(key: string): void {
    aborts.get(key)?.abort();
}

export async function remove(key: string): Promise<void> {
    try {
        await (await store()).delete(key);
    } catch (error) {
        say(error);
    }
    await refreshLibrary();
}

export const blobUrl = (name: string): string => new URL(`/api/blob/${encodeURIComponent(name)}`, location.href).href;
