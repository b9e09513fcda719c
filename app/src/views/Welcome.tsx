// Welcome.tsx: the first visit: can this browser do it, and with which model?

import { signal } from '@preact/signals';
import { type Capabilities, probe } from 'carat-web';
import { useEffect } from 'preact/hooks';
import { demoBytes, demoName, demoSource } from '../demo';
import { engine, loadModel } from '../engine';
import { bytes } from '../format';
import { refreshLibrary, stored } from '../library';
import { go } from './App';
import { LoadFailure, Loading } from './LoadState';
import { SelfTest } from './SelfTest';

const capabilities = signal<Capabilities | undefined>(undefined);

function Abilities({ found }: { found: Capabilities | undefined }) {
    if (found === undefined)
        return <div class="abilities"><p class="hint" role="status">Looking at what this browser can do …</p></div>;
    const { webgpu, wasm, storage, problems, usable } = found;
    return (
        <div class="abilities">
            <p role="status"><strong>{usable ? 'This browser can run it.' : 'This browser cannot run it.'}</strong></p>
            <dl>
                <dt>Graphics</dt><dd>{webgpu.available ? <>{webgpu.name || 'WebGPU'}. <SelfTest device={webgpu.name} /></> : 'No device'}</dd>
                <dt>Processor</dt><dd>{wasm.threadCount} {wasm.threadCount === 1 ? 'thread' : 'threads'}</dd>
                <dt>Room</dt><dd>{storage.quota > 0 ? `${bytes(storage.quota - storage.usage)} for models` : 'None for models'}</dd>
            </dl>
            {problems.length > 0 && <ul class="problems">{problems.map((p) => <li key={p}>{p}</li>)}</ul>}
        </div>
    );
}

function Choices({ usable }: { usable: boolean }) {
    const complete = stored.value.filter((model) => model.state === 'complete');
    return (
        <div class="choices">
            <button type="button" class="primary" disabled={!usable} onClick={() => void loadModel(demoName, demoSource)}>
                Start with the small demo model ({bytes(demoBytes)})
            </button>
            {complete.map((model) => (
                <button key={model.key} type="button" disabled={!usable} onClick={() => void loadModel(model.label, { store: model.key })}>Use {model.label} ({bytes(model.size)})</button>
            ))}
            <button type="button" onClick={() => go('models')}>Choose another model</button>
        </div>
    );
}

export function Welcome() {
    useEffect(() => {
        void probe().then((found) => { capabilities.value = found; });
        void refreshLibrary();
    }, []);
    const found = capabilities.value;
    return (
        <div class="welcome">
            <h1>Gemma 4, on this device</h1>
            <p>The model runs in this page. What you type, show or say stays here.</p>
            <Abilities found={found} />
            <LoadFailure />
            {engine.value.kind === 'loading' ? <Loading /> : <Choices usable={found?.usable !== false} />}
        </div>
    );
}
