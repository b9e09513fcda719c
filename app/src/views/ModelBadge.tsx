// ModelBadge.tsx: which model is loaded, in the bar.

import { engine } from '../engine';
import { bytes } from '../format';
import { go } from './App';

function describe(): string {
    const state = engine.value;
    if (state.kind === 'ready')
        return `${state.name} · ${state.info.backend === 'webgpu' ? 'GPU' : `${state.info.threads} thread${state.info.threads === 1 ? '' : 's'}`}`;
    if (state.kind === 'failed')
        return `${state.name} could not be loaded`;
    if (state.kind === 'empty')
        return 'No model';
    const { progress } = state;
    return progress === undefined || progress.total === 0 ? `Loading ${state.name}`
        : `Loading ${state.name}: ${bytes(progress.done)} of ${bytes(progress.total)}`;
}

export function ModelBadge() {
    return (
        <button type="button" class="badge" data-state={engine.value.kind} onClick={() => go('models')}>
            <span class="dot" aria-hidden="true" /><span class="badge-text">{describe()}</span>
        </button>
    );
}
