// LoadState.tsx: how far a load is, why it failed, and a way to load the last model again.

import { cancelLoading, engine, last, reload } from '../engine';
import { bytes } from '../format';
import { go } from './App';

export function Loading() {
    const state = engine.value;
    if (state.kind !== 'loading')
        return null;
    const { progress } = state;
    const known = progress !== undefined && progress.total > 0;
    return (
        <div class="loading">
            <p role="status">Loading {state.name}</p>
            <progress aria-label={`Loading ${state.name}`} {...(known && { value: progress.done, max: progress.total })} />
            <p class="hint">{known ? `${bytes(progress.done)} of ${bytes(progress.total)}` : 'Starting'}</p>
            <p><button type="button" onClick={cancelLoading}>Cancel</button></p>
        </div>
    );
}

export function LoadFailure() {
    const state = engine.value;
    return state.kind === 'failed' ? <p class="error" role="alert">{state.name} could not be loaded: {state.message}. {state.remedy}</p> : null;
}

// Above the composer of a conversation that has begun while there is no model.
export function LoadAgain() {
    if (engine.value.kind === 'ready')
        return null;
    if (engine.value.kind === 'loading')
        return <div class="load-again"><Loading /></div>;
    return (
        <div class="load-again">
            <LoadFailure />
            <p class="actions">
                {last.value !== undefined && <button type="button" class="primary" onClick={() => void reload()}>Load {last.value.name}</button>}
                <button type="button" class={last.value === undefined ? 'primary' : ''} onClick={() => go('models')}>Choose a model</button>
            </p>
        </div>
    );
}
