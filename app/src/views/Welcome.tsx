// Welcome.tsx: the first visit: can this browser do it, and with which model?

import { signal } from '@preact/signals';
import { type Capabilities, probe } from 'carat-web';
import { useEffect } from 'preact/hooks';
import { cancelLoading, demoModel, engine, loadModel } from '../engine';
import { bytes } from '../format';
import { refreshLibrary, stored } from '../library';
import { go } from './App';

const capabilities = signal<Capabilities | undefined>(undefined);

function Abilities({ found }: { found: Capabilities }) {
    const gpu = found.webgpu.available ? `Graphics: ${found.webgpu.name || 'yes'}` : 'No graphics device';
    const threads = `Processor: ${found.wasm.threadCount} thread${found.wasm.threadCount === 1 ? '' : 's'}`;
    const room = found.storage.quota > 0 ? `Room for models: ${bytes(found.storage.quota - found.storage.usage)}` : 'No storage for models';
    return (
        <>
            <ul class="abilities"><li>{gpu}</li><li>{threads}</li><li>{room}</li></ul>
            {found.problems.length > 0 && <ul class="problems">{found.problems.map((p) => <li key={p}>{p}</li>)}</ul>}
        </>
    );
}

function Loading() {
    const state = engine.value;
    if (state.kind !== 'loading')
        return null;
    const { progress } = state;
    return (
        <div class="loading" role="status">
            <p>Loading {state.name}{progress !== undefined && progress.total > 0 && `: ${bytes(progress.done)} of ${bytes(progress.total)}`}</p>
            <progress aria-label={`Loading ${state.name}`} {...(progress !== undefined && progress.total > 0 && { value: progress.done, max: progress.total })} />
            <button type="button" onClick={cancelLoading}>Cancel</button>
        </div>
    );
}

export function Welcome() {
    useEffect(() => {
        void probe().then((found) => { capabilities.value = found; });
        void refreshLibrary();
    }, []);
    const found = capabilities.value;
    const state = engine.value;
    const complete = stored.value.filter((model) => model.state === 'complete');
    return (
        <div class="welcome">
            <h1>Gemma 4, on this device</h1>
            <p>The model runs in this page. What you type, show or say stays here.</p>
            {found === undefined ? <p class="hint" role="status">Looking at what this browser can do …</p> : <Abilities found={found} />}
            {state.kind === 'failed' && <p class="error" role="alert">{state.name} could not be loaded: {state.message}. {state.remedy}</p>}
            {state.kind === 'loading' ? <Loading /> : (
                <div class="choices">
                    <button type="button" class="primary" disabled={found !== undefined && !found.usable} onClick={() => void loadModel(demoModel.name, demoModel.url)}>
                        Start with the small demo model (16 MB)
                    </button>
                    {complete.map((model) => (
                        <button key={model.key} type="button" onClick={() => void loadModel(model.label, { store: model.key })}>Use {model.label} ({bytes(model.size)})</button>
                    ))}
                    <button type="button" onClick={() => go('models')}>Choose another model</button>
                </div>
            )}
        </div>
    );
}
