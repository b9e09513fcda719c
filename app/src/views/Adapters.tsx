// Adapters.tsx: LoRA adapters of the loaded model.

import { signal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { adapters, addAdapter, removeAdapters } from '../engine';

const strength = signal(1);

export function Adapters() {
    const picker = useRef<HTMLInputElement>(null);
    return (
        <>
            <h2>Adapters</h2>
            <p class="hint">A LoRA adapter changes how the loaded model answers. A GGUF or safetensors file; choose a safetensors file together with its adapter_config.json. Adapters add up.</p>
            {adapters.value.length > 0 && (
                <ul class="models">
                    {adapters.value.map((adapter, i) => <li key={i} class="model"><div><strong>{adapter.name}</strong> <span class="hint">changes {adapter.weights} weights</span></div></li>)}
                </ul>
            )}
            <div class="actions">
                <input ref={picker} type="file" class="hidden" accept=".gguf,.safetensors,.json" multiple tabIndex={-1} aria-label="Choose an adapter"
                    onChange={(e) => {
                        const files = [...e.currentTarget.files ?? []];
                        e.currentTarget.value = '';
                        void addAdapter(files, strength.value);
                    }} />
                <button type="button" onClick={() => picker.current?.click()}>Add an adapter</button>
                <label class="inline">Strength <input type="number" min={-4} max={4} step={0.1} value={strength.value}
                    onChange={(e) => { strength.value = Number.isFinite(e.currentTarget.valueAsNumber) ? e.currentTarget.valueAsNumber : 1; }} /></label>
                {adapters.value.length > 0 && <button type="button" class="danger" onClick={() => void removeAdapters()}>Remove all</button>}
            </div>
        </>
    );
}
