// Library.tsx: the models on this device, and where to get more.

import { signal } from '@preact/signals';
import type { StoredModel, StoreProgress } from 'carat-web';
import { useEffect, useRef } from 'preact/hooks';
import { cancelLoading, demoModel, engine, loadModel, unloadModel } from '../engine';
import { bytes, seconds } from '../format';
import { blobUrl, download, importFile, libraryError, pause, refreshLibrary, refreshServed, remove, served, type ServerModel, stored, transfers, usage } from '../library';
import { go } from './App';

const address = signal('');

async function use(name: string, source: Parameters<typeof loadModel>[1]): Promise<void> {
    if (await loadModel(name, source))
        go('chat');
}

function TransferLine({ progress }: { progress: StoreProgress }) {
    return (
        <div class="transfer" role="status">
            <progress aria-label={`Download of ${progress.key}`} value={progress.received} max={progress.total} />
            <span>{progress.phase === 'verify' ? 'Checking' : `${bytes(progress.received)} of ${bytes(progress.total)}, ${bytes(progress.bytesPerSecond)}/s, ${seconds(progress.secondsLeft)} left`}</span>
            <button type="button" onClick={() => pause(progress.key)}>Pause</button>
        </div>
    );
}

function StoredLine({ model }: { model: StoredModel }) {
    const running = transfers.value[model.key];
    const loaded = engine.value.kind === 'ready' && engine.value.name === model.label;
    return (
        <li class="model">
            <div><strong>{model.label}</strong> <span class="hint">{model.state === 'complete' ? bytes(model.size) : `${bytes(model.received)} of ${bytes(model.size)}`}</span></div>
            {running !== undefined ? <TransferLine progress={running} /> : (
                <div class="actions">
                    {model.state === 'complete' && <button type="button" class="primary" disabled={loaded} onClick={() => void use(model.label, { store: model.key })}>{loaded ? 'In use' : 'Use'}</button>}
                    {model.state !== 'complete' && model.url !== null && (
                        <button type="button" onClick={() => void download(model.url!, model.label, model.key, model.sha256 ?? undefined)}>{model.state === 'broken' ? 'Download again' : 'Resume'}</button>
                    )}
                    <button type="button" class="danger" onClick={() => void remove(model.key)}>Delete</button>
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
                <button type="button" class="primary" onClick={() => void use(model.name, url)}>Use from the server</button>
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
        return <p class="error" role="alert">{state.name} could not be loaded: {state.message}. {state.remedy}</p>;
    if (state.kind === 'loading')
        return <p role="status">Loading {state.name} … <button type="button" onClick={cancelLoading}>Cancel</button></p>;
    const { info } = state;
    return (
        <div class="model">
            <div>
                <strong>{state.name}</strong> <span class="hint">{info.quantization}, {(info.parameters / 1e6).toFixed(0)} million numbers, {bytes(info.weightBytes)} resident, on {info.device}</span>
                <div class="hint">{[info.hasVision && 'sees', info.hasAudio && 'hears', `up to ${info.contextLength} positions`].filter((part) => part).join(', ')}</div>
            </div>
            <div class="actions"><button type="button" onClick={() => void unloadModel()}>Unload</button></div>
        </div>
    );
}

function AddModel() {
    const picker = useRef<HTMLInputElement>(null);
    const start = (keep: boolean) => {
        const url = address.value.trim();
        if (!URL.canParse(url)) {
            libraryError.value = 'That is no address of a file.';
            return;
        }
        const name = decodeURIComponent(new URL(url).pathname.split('/').at(-1) ?? url);
        void (keep ? download(url, name) : use(name, url));
    };
    const take = (files: FileList | null, keep: boolean) => {
        const file = files?.[0];
        if (file !== undefined)
            void (keep ? importFile(file) : use(file.name, file));
    };
    return (
        <div class="add" onDragOver={(e) => e.preventDefault()} onDrop={(e) => { e.preventDefault(); take(e.dataTransfer?.files ?? null, true); }}>
            <form onSubmit={(e) => { e.preventDefault(); start(true); }}>
                <label>Address of a GGUF file <input type="url" placeholder="https://" value={address.value} onInput={(e) => { address.value = e.currentTarget.value; }} /></label>
                <div class="actions"><button type="submit">Download</button><button type="button" onClick={() => start(false)}>Use from there</button></div>
            </form>
            <p>
                <input ref={picker} type="file" class="hidden" accept=".gguf" tabIndex={-1} aria-label="Choose a GGUF file" onChange={(e) => { take(e.currentTarget.files, false); }} />
                <button type="button" onClick={() => picker.current?.click()}>Open a file</button> or drop one here to copy it into the browser.
            </p>
        </div>
    );
}

export function Library() {
    useEffect(() => {
        void refreshLibrary();
        void refreshServed();
    }, []);
    const waiting = Object.values(transfers.value).filter((t) => !stored.value.some((s) => s.key === t.key));
    return (
        <section class="page" aria-labelledby="models-title">
            <h1 id="models-title">Models</h1>
            {libraryError.value !== undefined && <p class="error" role="alert">{libraryError.value}</p>}
            <h2>Loaded</h2>
            <Current />
            <h2>On this device</h2>
            <ul class="models">
                <li class="model">
                    <div><strong>{demoModel.name}</strong> <span class="hint">15.8 MB, comes with the app: small talk, gems, sums, pictures, spoken words</span></div>
                    <div class="actions"><button type="button" class="primary" onClick={() => void use(demoModel.name, demoModel.url)}>Use</button></div>
                </li>
                {stored.value.map((model) => <StoredLine key={model.key} model={model} />)}
                {waiting.map((t) => <li key={t.key} class="model"><strong>{t.key}</strong><TransferLine progress={t} /></li>)}
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
