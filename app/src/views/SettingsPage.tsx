// SettingsPage.tsx: sampling, context, backend, appearance.

import { loadModel, engine, modelInfo, demoModel } from '../engine';
import { change, defaults, settings, type Settings } from '../settings';

type NumberKey = { [K in keyof Settings]: Settings[K] extends number ? K : never }[keyof Settings];

function NumberField({ name, label, hint, min, max, step }: { name: NumberKey; label: string; hint: string; min: number; max: number; step: number }) {
    return (
        <div class="field">
            <label for={name}>{label}</label>
            <input id={name} type="number" min={min} max={max} step={step} value={settings.value[name]} aria-describedby={`${name}-hint`}
                onChange={(e) => {
                    const value = e.currentTarget.valueAsNumber;
                    change({ [name]: Number.isFinite(value) ? Math.min(max, Math.max(min, value)) : defaults[name] });
                }} />
            <p class="hint" id={`${name}-hint`}>{hint}</p>
        </div>
    );
}

function Choice<K extends 'theme' | 'backend'>({ name, label, options }: { name: K; label: string; options: [Settings[K], string][] }) {
    return (
        <div class="field">
            <label for={name}>{label}</label>
            <select id={name} value={settings.value[name]} onChange={(e) => change({ [name]: e.currentTarget.value })}>
                {options.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
            </select>
        </div>
    );
}

export function SettingsPage() {
    const limit = modelInfo.value?.contextLength;
    return (
        <section class="page" aria-labelledby="settings-title">
            <h1 id="settings-title">Settings</h1>
            <h2>Answers</h2>
            <NumberField name="temperature" label="Temperature" hint="0 always takes the likeliest token; 1 is recommended." min={0} max={5} step={0.1} />
            <NumberField name="top_k" label="Top-k" hint="Only the k likeliest tokens; 0 for all. 64 is recommended." min={0} max={1000} step={1} />
            <NumberField name="top_p" label="Top-p" hint="The smallest set of tokens with this probability. 0.95 is recommended." min={0} max={1} step={0.01} />
            <NumberField name="min_p" label="Min-p" hint="Tokens with at least this share of the largest probability; 0 is off." min={0} max={1} step={0.01} />
            <NumberField name="repetition_penalty" label="Repetition penalty" hint="Above 1 makes recent tokens less likely; 1 is off." min={0.5} max={2} step={0.05} />
            <NumberField name="max_tokens" label="Longest answer" hint="In tokens; 0 for as long as the context lasts." min={0} max={131072} step={1} />
            <p><button type="button" onClick={() => change(defaults)}>Back to the defaults</button></p>
            <h2>Model</h2>
            <Choice name="backend" label="Compute on" options={[['auto', 'Graphics device if there is one'], ['webgpu', 'Graphics device'], ['cpu', 'Processor']]} />
            <NumberField name="threads" label="Threads" hint="Of the processor; 0 for one per core." min={0} max={64} step={1} />
            <NumberField name="contextSize" label="Context" min={256} max={131072} step={256}
                hint={`Positions the model can look back on.${limit !== undefined ? ` This model was trained for ${limit}.` : ''} E2B needs about 6 kB for each.`} />
            {engine.value.kind === 'ready' && <p class="hint">Loading again makes these three take effect. <button type="button" onClick={() => void loadModel(demoModel.name, demoModel.url)} hidden={engine.value.name !== demoModel.name}>Load again</button></p>}
            <h2>Appearance</h2>
            <Choice name="theme" label="Colours" options={[['system', 'As the system'], ['light', 'Light'], ['dark', 'Dark']]} />
        </section>
    );
}
