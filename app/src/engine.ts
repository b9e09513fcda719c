// engine.ts: the loaded model: loading, unloading, adapters, and which one to load again after a reload of the page.

import { computed, signal } from '@preact/signals';
import { Carat, CaratError, type LoadOptions, type LoadProgress, type ModelInfo, type ModelSource } from 'carat-web';
import { keep, readKept } from './kept';
import { say } from './notice';
import { defaults, settings } from './settings';

export type EngineState =
    | { kind: 'empty' }
    | { kind: 'loading'; name: string; progress: LoadProgress | undefined }
    | { kind: 'ready'; name: string; info: ModelInfo; context: number } // context: positions
    | { kind: 'failed'; name: string; message: string; remedy: string };

export interface Adapter { name: string; weights: number }

export type Source = ModelSource | ModelSource[]; // a list: the parts of a split file
export interface Named { name: string; source: Source; projector?: ModelSource | undefined } // projector: a file with the towers

export const engine = signal<EngineState>({ kind: 'empty' });
export const adapters = signal<Adapter[]>([]);
export const measuring = signal(false); // the benchmark has the engine
export const modelInfo = computed(() => (engine.value.kind === 'ready' ? engine.value.info : undefined));

let carat: Carat | undefined;
let loading: AbortController | undefined;

export const currentModel = (): Carat | undefined => carat;

export function explain(error: unknown): { message: string; remedy: string } {
    return error instanceof CaratError ? { message: error.message, remedy: error.remedy } : { message: (error as Error).message ?? String(error), remedy: '' };
}

// --- the last model ---------------------------------------------------------------------------------------------------------------

const lastKey = 'carat.model', loadingKey = 'carat.loading';

function readLast(): Named | undefined {
    try {
        return JSON.parse(readKept(lastKey) ?? 'null') as Named | null ?? undefined;
    } catch {
        return undefined;
    }
}

export const last = signal<Named | undefined>(readLast());

// A file lasts as long as the page; an address or a key of the store can be opened again later.
function remember(model: Named): void {
    last.value = model;
    const lasts = (source: Source) => typeof source === 'string' || isKept(source);
    keep(lastKey, lasts(model.source) && (model.projector === undefined || lasts(model.projector)) ? JSON.stringify(model) : undefined);
}

function isKept(source: Source): boolean {
    return typeof source === 'object' && 'store' in source;
}

// Loads what was loaded before the page was closed, if it is on this device. Not after a load that the page did not survive.
export function resumeLast(): void {
    const model = last.value;
    const crashed = readKept(loadingKey) !== undefined;
    keep(loadingKey, undefined);
    if (model === undefined || !settings.value.loadAtStart || !isKept(model.source) || (model.projector !== undefined && !isKept(model.projector)))
        return;
    if (crashed)
        say(`The page was closed while ${model.name} was loading. Perhaps it is too large for this device.`);
    else
        void loadModel(model.name, model.source, model.projector);
}

// --- loading ----------------------------------------------------------------------------------------------------------------------

// Loads a model in the place of the one there is. Resolves to true when it is ready.
export async function loadModel(name: string, source: Source, projector?: ModelSource): Promise<boolean> {
    await unloadModel();
    const abort = loading = new AbortController();
    engine.value = { kind: 'loading', name, progress: undefined };
    keep(loadingKey, name);
    try {
        const loaded = await loadSomehow(source, {
            backend: settings.value.backend, signal: abort.signal, projector, ...(settings.value.threads > 0 && { threads: settings.value.threads }),
            onProgress: (progress) => {
                if (loading === abort)
                    engine.value = { kind: 'loading', name, progress };
            },
        });
        if (abort.signal.aborted) {
            await loaded.close();
            throw abort.signal.reason;
        }
        carat = loaded;
        remember({ name, source, projector });
        engine.value = { kind: 'ready', name, info: carat.info, context: Math.min(settings.value.contextSize, carat.info.contextLength) };
        return true;
    } catch (error) {
        if (loading === abort)
            engine.value = abort.signal.aborted ? { kind: 'empty' } : { kind: 'failed', name, ...explain(error) };
        return false;
    } finally {
        keep(loadingKey, undefined);
    }
}

// A context that the model was not trained for is refused: then the model's own limit is taken. Where the store has no room for
// a model that could be kept, it is used from the network.
async function loadSomehow(source: Source, options: LoadOptions): Promise<Carat> {
    const { contextSize } = settings.value;
    const wanted = contextSize === defaults.contextSize ? options : { ...options, contextSize }; // the default fits itself to the model
    try {
        const model = await Carat.load(source, wanted);
        if (wanted.contextSize === undefined || contextSize <= model.info.contextLength)
            return model;
        await model.close();
        return await Carat.load(source, { ...options, contextSize: model.info.contextLength });
    } catch (error) {
        if (!(error instanceof CaratError) || error.code !== 'quota' || typeof source !== 'object' || !('url' in source) || !('store' in source))
            throw error;
        say('The browser has no room to keep this model; it comes from the network each time.');
        return loadSomehow(String(source.url), options);
    }
}

export function reload(): Promise<boolean> {
    return last.value === undefined ? Promise.resolve(false) : loadModel(last.value.name, last.value.source, last.value.projector);
}

// Loads the model again with the towers of this file.
export function addProjector(projector: ModelSource): Promise<boolean> {
    return last.value === undefined ? Promise.resolve(false) : loadModel(last.value.name, last.value.source, projector);
}

export function cancelLoading(): void {
    loading?.abort();
}

// An answer under way ends with what it has.
export async function unloadModel(): Promise<void> {
    loading?.abort();
    const old = carat;
    carat = undefined;
    adapters.value = [];
    engine.value = { kind: 'empty' };
    await old?.close();
}

// --- adapters ---------------------------------------------------------------------------------------------------------------------

// Adds a LoRA adapter: a GGUF or safetensors file; PEFT's safetensors come with their adapter_config.json.
export async function addAdapter(files: File[], scale: number): Promise<void> {
    const config = files.find((file) => file.name.endsWith('.json'));
    const file = files.find((f) => f !== config);
    if (file === undefined || carat === undefined) {
        say('Choose a .gguf or .safetensors file (and its adapter_config.json).');
        return;
    }
    try {
        const weights = await carat.loadAdapter(file, { scale, ...(config !== undefined && { config: await config.text() }) });
        adapters.value = [...adapters.value, { name: file.name, weights }];
    } catch (error) {
        const { message, remedy } = explain(error);
        say(`${file.name} was not added: ${message}. ${remedy}`);
    }
}

export async function removeAdapters(): Promise<void> {
    await carat?.clearAdapters();
    adapters.value = [];
}
