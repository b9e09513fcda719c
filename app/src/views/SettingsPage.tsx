// SettingsPage.tsx: sampling, context, backend, appearance.

import { engine, modelInfo, reload } from '../engine';
import { bytes } from '../format';
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

function Switch({ name, label, hint }: { name: 'pauseHidden' | 'loadAtStart' | 'thinking'; label: string; hint: string }) {
    return (
        <div class="field">
            <label for={name}>{label}</label>
            <input id={name} type="checkbox" checked={settings.value[name]} aria-describedby={`${name}-hint`} onChange={(e) => change({ [name]: e.currentTarget.checked })} />
            <p class="hint" id={`${name}-hint`}>{hint}</p>
        </div>
    );
}

function Choice<K extends 'theme' | 'backend' | 'imageTokens'>({ name, label, options }: { name: K; label: string; options: [Settings[K], string][] }) {
    return (
        <div class="field">
            <label for={name}>{label}</label>
            <select id={name} value={settings.value[name]} onChange={(e) => change({ [name]: options.find(([value]) => String(value) === e.currentTarget.value)?.[0] ?? defaults[name] })}>
                {options.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
            </select>
        </div>
    );
}

// What the keys and values of the chosen context take, for the loaded model.
function contextCost(): string {
    const info = modelInfo.value;
    if (info === undefined)
        return '';
    const positions = Math.min(settings.value.contextSize, info.contextLength);
    const limit = positions < settings.value.contextSize ? `, since this model was trained for ${info.contextLength}` : '';
    return ` With this model it takes ${bytes(info.kvBytes.fixed + info.kvBytes.perPosition * positions)} for ${positions} positions${limit}.`;
}

export function SettingsPage() {
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
            <Switch name="thinking" label="Think first" hint="Slower, and better at questions with several steps. The thought is shown folded." />
            <Choice name="imageTokens" label="Detail of images" options={[[70, 'Lowest'], [140, 'Low'], [280, 'Normal'], [560, 'High'], [1120, 'Highest: small print']]} />
            <Switch name="pauseHidden" label="Wait while hidden" hint="An answer pauses while you look at another page, and goes on when you come back. Phones need it." />
            <p><button type="button" onClick={() => change({ ...defaults, theme: settings.value.theme })}>Back to the defaults</button></p>
            <h2>Model</h2>
            <Choice name="backend" label="Compute on" options={[['auto', 'Graphics device if there is one'], ['webgpu', 'Graphics device'], ['cpu', 'Processor']]} />
            <NumberField name="threads" label="Threads" hint="Of the processor; 0 for one per core." min={0} max={64} step={1} />
            <NumberField name="contextSize" label="Context" min={256} max={131072} step={256}
                hint={`Positions (tokens) that the model can look back on.${contextCost()}`} />
            <Switch name="loadAtStart" label="Load at start" hint="The model that was used last, if it is kept on this device." />
            <p class="actions"><button type="button" disabled={engine.value.kind !== 'ready'} onClick={() => void reload()}>Load again</button> <span class="hint">makes device, threads and context take effect.</span></p>
            <h2>Appearance</h2>
            <Choice name="theme" label="Colours" options={[['system', 'As the system'], ['light', 'Light'], ['dark', 'Dark']]} />
        </section>
    );
}
