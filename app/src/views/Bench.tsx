// Bench.tsx: tokens per second on this device, as the command line prints them.

import { signal } from '@preact/signals';
import { answering } from '../answer';
import { copyText } from '../clipboard';
import { currentModel, measuring, modelInfo } from '../engine';

interface Row { test: string; rate: number; spread: number; dispatches: number }

const rows = signal<Row[]>([]);
const running = signal<AbortController | undefined>(undefined);
const problem = signal<string | undefined>(undefined);
const repetitions = 3;

// The same ids in every run, spread over the vocabulary; each repetition begins differently, so that nothing is found in the cache.
function idsFor(n: number, vocabulary: number, start: number): number[] {
    let state = 12345 + start;
    const first = vocabulary > 1024 ? 512 : 0;
    return Array.from({ length: n }, () => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return first + state % (vocabulary - first);
    });
}

async function runOnce(ids: number[], tokens: number, signal: AbortSignal) {
    for await (const event of currentModel()!.generate(ids, { max_tokens: tokens, ignore_eos: true, temperature: 0, signal })) {
        if (event.kind === 'finish')
            return event;
    }
    throw new Error('The run was stopped.');
}

async function measure(prompt: number, generate: number, signal: AbortSignal): Promise<Row> {
    const rates: number[] = [];
    let dispatches = 0;
    for (let i = -1; i < repetitions; i++) { // the first one warms up
        const ids = idsFor(Math.max(prompt, 1), modelInfo.value!.vocabulary, 7919 * (i + 2) + generate);
        const end = await runOnce(ids, prompt > 0 ? 1 : generate + 1, signal);
        dispatches = end.dispatchesPerToken;
        if (i >= 0)
            rates.push(prompt > 0 ? (end.promptTokens - end.cachedTokens) * 1000 / end.promptMs : (end.generatedTokens - 1) * 1000 / end.generateMs);
    }
    const mean = rates.reduce((a, b) => a + b, 0) / rates.length;
    const spread = Math.sqrt(rates.reduce((sum, r) => sum + (r - mean) ** 2, 0) / Math.max(1, rates.length - 1));
    return { test: prompt > 0 ? `pp${prompt}` : `tg${generate}`, rate: mean, spread, dispatches };
}

async function run(): Promise<void> {
    const abort = new AbortController();
    running.value = abort;
    measuring.value = true;
    rows.value = [];
    problem.value = undefined;
    try {
        for (const [prompt, generate] of [[128, 0], [512, 0], [0, 64]] as const)
            rows.value = [...rows.value, await measure(prompt, generate, abort.signal)];
    } catch (error) {
        if (!abort.signal.aborted)
            problem.value = (error as Error).message;
    } finally {
        running.value = undefined;
        measuring.value = false;
    }
}

function asText(): string {
    const info = modelInfo.value!;
    return [`${info.name} ${info.quantization}, ${info.backend} (${info.device}), ${info.threads} threads`,
        ...rows.value.map((r) => `${r.test}: ${r.rate.toFixed(2)} ± ${r.spread.toFixed(2)} tokens/s${r.dispatches > 0 ? `, ${r.dispatches.toFixed(0)} dispatches` : ''}`)].join('\n');
}

export function Bench() {
    const info = modelInfo.value;
    return (
        <section class="page" aria-labelledby="bench-title">
            <h1 id="bench-title">Benchmark</h1>
            <p>Measures how fast the loaded model reads a prompt (pp) and writes tokens (tg), three times each. The result stays here unless you copy it.</p>
            {info === undefined ? <p>Load a model first.</p> : <p class="hint">{info.name}, {info.quantization}, {info.backend === 'webgpu' ? 'graphics' : `${info.threads} threads`}: {info.device}</p>}
            <div class="actions">
                {running.value === undefined ? <button type="button" class="primary" disabled={info === undefined || answering.value !== undefined} onClick={() => void run()}>Measure</button>
                    : <button type="button" onClick={() => running.value?.abort()}>Stop</button>}
                {rows.value.length > 0 && <button type="button" onClick={() => void copyText(asText())}>Copy</button>}
            </div>
            {problem.value !== undefined && <p class="error" role="alert">{problem.value}</p>}
            <table aria-busy={running.value !== undefined}>
                <thead><tr><th scope="col">Test</th><th scope="col">Tokens per second</th><th scope="col">Dispatches a token</th></tr></thead>
                <tbody>
                    {rows.value.map((row) => <tr key={row.test}><td>{row.test}</td><td>{row.rate.toFixed(1)} ± {row.spread.toFixed(1)}</td><td>{row.dispatches > 0 ? row.dispatches.toFixed(0) : '–'}</td></tr>)}
                    {rows.value.length === 0 && <tr><td colSpan={3} class="hint">{running.value === undefined ? 'Nothing measured yet.' : 'Measuring …'}</td></tr>}
                </tbody>
            </table>
        </section>
    );
}
