// Library.tsx: the models on this device, and where to get more.

import { signal } from '@preact/signals';
import type { ModelSource, StoredModel } from 'carat-web';
import { useEffect, useRef } from 'preact/hooks';
import { demoBytes, demoName, demoSource } from '../demo';
import { addProjector, engine, loadModel, type Source, unloadModel } from '../engine';
import { bytes, seconds } from '../format';
import { blobUrl, download, importFile, libraryError, pause, refreshLibrary, refreshServed, remove, served, type ServerModel, stored, type Transfer, transfers, usage } from '../library';
import { Adapters } from './Adapters';
import { go } from './App';
import { LoadFailure, Loading } from './LoadState';

const address = signal('');

const isProjector = (name: string): boolean => /mmproj/i.test(name); // as llama.cpp's converter names them

async function use(name: string, source: Source, projector?: ModelSource): Promise<void> {
    if (await loadModel(name, source, projector))
        go('chat');
}

function UseButton({ name, source, label }: { name: string; source: ModelSource; label: string }) {
    const state = engine.value;
    if (isProjector(name))
        return (
            <button type="button" disabled={state.kind !== 'ready'} title="Eyes and ears for a model of text" onClick={() => void addProjector(source)}>
                {state.kind === 'ready' ? `Add to ${state.name}` : 'Add to a loaded model'}
            </button>
        );
    const loaded = state.kind === 'ready' && state.name === name;
    return <button type="button" class="primary" disabled={loaded} onClick={() => void use(name, source)}>{loaded ? 'In use' : label}</button>;
}

function describe({ progress, waits }: Transfer): string {
    if (waits)
        return `Waiting for the network${progress === undefined ? '' : `; ${bytes(progress.received)} of ${bytes(progress.total)} are here`}`;
    if (progress === undefined)
        return 'Starting';
    if (progress.phase === 'verify')
        return 'Checking';
    return `${bytes(progress.received)} of ${bytes(progress.total)}, ${bytes(progress.bytesPerSecond)}/s, ${seconds(progress.secondsLeft)} left`;
}

function TransferLine({ modelKey }: { modelKey: string }) {
    const transfer = transfers.value[modelKey]!;
    const { label, progress } = transfer;
    return (
        <div class="transfer">
            <progress aria-label={`Download of ${label}`} {...(progress !== undefined && { value: progress.received, max: progress.total })} />
            <span>{describe(transfer)}</span>
            <button type="button" onClick={() => pause(modelKey)}>Pause</button>
        </div>
    );
}

const asked = signal<string | undefined>(undefined); // the model whose deletion waits for a second press

function DeleteButton({ model }: { model: StoredModel }) {
    if (asked.value !== model.key)
        return <button type="button" class="danger" onClick={() => { asked.value = model.key; }}>Delete</button>;
    return (
        <>
            <button type="button" class="danger" onClick={() => void remove(model.key)}>Delete {bytes(model.size)} now</button>
            <button type="button" onClick={() => { asked.value = undefined; }}>Keep</button>
        </>
    );
}

function StoredLine({ model }: { model: StoredModel }) {
    const running = transfers.value[model.key];
    return (
        <li class="model">
            <div><strong>{model.label}</strong> <span class="hint">{model.state === 'complete' ? bytes(model.size) : `${bytes(model.received)} of ${bytes(model.size)}`}</span></div>
            {running !== undefined ? <TransferLine modelKey={model.key} /> : (
                <div class="actions">
                    {model.state === 'complete' && <UseButton name={model.label} source={{ store: model.key }} label="Use" />}
                    {model.state !== 'complete' && model.url !== null && (
                        <button type="button" onClick={() => void download(model.url!, model.label, model.key, model.sha256 ?? undefined)}>{model.state === 'broken' ? 'Download again' : 'Resume'}</button>
                    )}
                    <DeleteButton model={model} />
                </div>
            )}
        </li>
    );
}

function ServedLine({ model }: { model: ServerModel }) {
    const url = blobUrl(model.name);
    const known = stored.value.some((s) => s.key === url);
    if (known || transfers.value[url] !== undefined)
        return null;
    return (
        <li class="model">
            <div><strong>{model.name}</strong> <span class="hint">{bytes(model.size)}</span></div>
            <div class="actions">
                <UseButton name={model.name} source={url} label="Use from the server" />
                <button type="button" onClick={() => void download(url, model.name, url, model.digest?.replace('sha256:', ''))}>Download</button>
            </div>
        </li>
    );
}

function Current() {
    const state = engine.value;
    if (state.kind === 'empty')
        return <p>No model is loaded.</p>;
    if (state.kind === 'failed')
        return <LoadFailure />;
    if (state.kind === 'loading')
        return <Loading />;
    const { info } = state;
    return (
        <div class="model">
            <div>
                <strong>{state.name}</strong> <span class="hint">{info.quantization}, {(info.parameters / 1e6).toFixed(0)} million parameters, {bytes(info.weightBytes)} resident, on {info.device}</span>
                <div class="hint">{[info.hasVision && 'sees', info.hasAudio && 'hears', `${state.context} positions of up to ${info.contextLength}`].filter((part) => part).join(', ')}</div>
            </div>
            <div class="actions"><button type="button" onClick={() => void unloadModel()}>Unload</button></div>
        </div>
    );
}

function AddModel() {
    const opener = useRef<HTMLInputElement>(null);
    const copier = useRef<HTMLInputElement>(null);
    const start = (keep: boolean) => {
        const url = address.value.trim();
        if (!URL.canParse(url)) {
            libraryError.value = 'That is no address of a file.';
            return;
        }
        const name = decodeURIComponent(new URL(url).pathname.split('/').at(-1) ?? url);
        void (keep ? download(url, name) : use(name, url));
    };
    const copy = (files: File[]) => files.forEach((file) => void importFile(file));
    const open = (files: File[]) => { // the parts of one model, perhaps with its towers
        const parts = files.filter((file) => !isProjector(file.name)).sort((a, b) => a.name.localeCompare(b.name));
        if (parts.length > 0)
            void use(parts[0]!.name, parts.length === 1 ? parts[0]! : parts, files.find((file) => isProjector(file.name)));
    };
    const taken = (input: HTMLInputElement): File[] => {
        const files = [...input.files ?? []];
        input.value = '';
        return files;
    };
    return (
        <div class="add">
            <form onSubmit={(e) => { e.preventDefault(); start(true); }}>
                <label>Address of a GGUF file <input type="url" placeholder="https://" value={address.value} onInput={(e) => { address.value = e.currentTarget.value; }} /></label>
                <div class="actions"><button type="submit">Download</button><button type="button" onClick={() => start(false)}>Use from there</button></div>
            </form>
            <div class="actions">
                <input ref={opener} type="file" class="hidden" accept=".gguf" multiple tabIndex={-1} aria-label="Choose a GGUF file to use" onChange={(e) => open(taken(e.currentTarget))} />
                <input ref={copier} type="file" class="hidden" accept=".gguf" multiple tabIndex={-1} aria-label="Choose a GGUF file to keep" onChange={(e) => copy(taken(e.currentTarget))} />
                <button type="button" onClick={() => copier.current?.click()}>Copy a file into the browser</button>
                <button type="button" onClick={() => opener.current?.click()}>Use a file from where it is</button>
            </div>
            <p class="hint">Or drop a file anywhere to copy it. Choose the parts of a split model, or a model and its mmproj file, together.</p>
        </div>
    );
}

export function Library() {
    useEffect(() => {
        void refreshLibrary();
        void refreshServed();
    }, []);
    const waiting = Object.entries(transfers.value).filter(([key]) => !stored.value.some((s) => s.key === key));
    return (
        <section class="page" aria-labelledby="models-title">
            <h1 id="models-title">Models</h1>
            {libraryError.value !== undefined && <p class="error" role="alert">{libraryError.value}</p>}
            <h2>Loaded</h2>
            <Current />
            {engine.value.kind === 'ready' && <Adapters />}
            <h2>On this device</h2>
            <ul class="models">
                <li class="model">
                    <div><strong>{demoName}</strong> <span class="hint">{bytes(demoBytes)}, comes with the app: small talk, gems, sums, pictures, spoken words</span></div>
                    <div class="actions"><UseButton name={demoName} source={demoSource} label="Use" /></div>
                </li>
                {stored.value.map((model) => <StoredLine key={model.key} model={model} />)}
                {waiting.map(([key, t]) => <li key={key} class="model"><strong>{t.label}</strong><TransferLine modelKey={key} /></li>)}
            </ul>
            {usage.value !== undefined && (
                <p class="hint">Models take {bytes(usage.value.modelBytes)}; the browser gives this site {bytes(usage.value.quota)}.
                    {usage.value.kind === 'memory' && ' There is no storage here: models are gone when the page closes.'}</p>
            )}
            {served.value.length > 0 && <><h2>On the server</h2><ul class="models">{served.value.map((model) => <ServedLine key={model.name} model={model} />)}</ul></>}
            <h2>Add</h2>
            <AddModel />
        </section>
    );
}
