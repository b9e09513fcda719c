// library.ts: the models on this device and those that can be had.

import { signal } from '@preact/signals';
import { CaratError, Models, type StoredModel, type StoreProgress, type StoreUsage } from 'carat-web';
import { demoKey, isDemo } from './demo';

export interface ServerModel { name: string; size: number; digest?: string }

export const stored = signal<StoredModel[]>([]);
export const usage = signal<StoreUsage | undefined>(undefined);
export const transfers = signal<Record<string, { label: string; progress: StoreProgress | undefined }>>({}); // by key
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

export async function refreshLibrary(): Promise<void> {
    try {
        const opened = await store();
        const [all, used] = await Promise.all([opened.list(), opened.usage()]);
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

async function transfer(key: string, label: string, run: (opened: Models, signal: AbortSignal, onProgress: (p: StoreProgress) => void) => Promise<unknown>): Promise<boolean> {
    const abort = new AbortController();
    aborts.set(key, abort);
    libraryError.value = undefined;
    transfers.value = { ...transfers.value, [key]: { label, progress: undefined } };
    try {
        await run(await store(), abort.signal, (progress) => { transfers.value = { ...transfers.value, [key]: { label, progress } }; });
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

// Downloads, or goes on with a download that was paused.
export function download(url: string, label: string, key = url, sha256?: string): Promise<boolean> {
    return transfer(key, label, (opened, signal, onProgress) => opened.download(url, { key, label, signal, onProgress, ...(sha256 !== undefined && { sha256 }) }));
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
