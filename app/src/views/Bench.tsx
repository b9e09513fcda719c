// Bench.tsx: tokens per second on this device: the tests and the table of the command line.

import { signal } from '@preact/signals';
import { Fragment } from 'preact';
import { bench, benchFactNames, benchFacts, benchHead, benchLine, benchLoad, benchResultNames, benchResults, type BenchRow } from 'carat-web/bench';
import { answering } from '../answer';
import { copyText } from '../clipboard';
import { currentModel, measuring, modelInfo } from '../engine';

const rows = signal<BenchRow[]>([]);
const running = signal<AbortController | undefined>(undefined);
const problem = signal<string | undefined>(undefined);
const tests = { prompts: [128, 512], generations: [64], repetitions: 3 };

async function run(): Promise<void> {
    const abort = new AbortController();
    running.value = abort;
    measuring.value = true;
    rows.value = [];
    problem.value = undefined;
    try {
        for await (const row of bench(currentModel()!, { ...tests, signal: abort.signal }))
            rows.value = [...rows.value, row];
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
    const load = benchLoad(info);
    return [...(load === '' ? [] : [load]), benchHead(info), ...rows.value.map((row) => benchLine(info, row))].join('\n');
}

export function Bench() {
    const info = modelInfo.value;
    return (
        <section class="page" aria-labelledby="bench-title">
            <h1 id="bench-title">Benchmark</h1>
            <p>Measures how fast the loaded model reads a prompt (pp) and writes tokens (tg): tokens per second (t/s), three times each, once its speed has become steady. The result stays here unless you copy it.</p>
            {info === undefined ? <p>Load a model first.</p>
                : <dl>{benchFacts(info).map((fact, i) => <Fragment key={benchFactNames[i]}><dt>{benchFactNames[i]}</dt><dd>{fact}</dd></Fragment>)}{benchLoad(info) !== '' && <><dt>loaded</dt><dd>{benchLoad(info)}</dd></>}</dl>}
            <div class="actions">
                {running.value === undefined ? <button type="button" class="primary" disabled={info === undefined || answering.value !== undefined} onClick={() => void run()}>Measure</button>
                    : <button type="button" onClick={() => running.value?.abort()}>Stop</button>}
                {rows.value.length > 0 && <button type="button" onClick={() => void copyText(asText())}>Copy</button>}
            </div>
            {problem.value !== undefined && <p class="error" role="alert">{problem.value}</p>}
            <div class="wide" role="region" aria-label="Results" tabIndex={0}>
                <table aria-busy={running.value !== undefined}>
                    <thead><tr>{benchResultNames.map((name) => <th scope="col" key={name}>{name}</th>)}</tr></thead>
                    <tbody>
                        {info !== undefined && rows.value.map((row) => <tr key={row.test}>{benchResults(row).map((cell, i) => <td key={benchResultNames[i]}>{cell}</td>)}</tr>)}
                        {rows.value.length === 0 && <tr><td colSpan={benchResultNames.length} class="hint">{running.value === undefined ? 'Nothing measured yet.' : 'Measuring …'}</td></tr>}
                    </tbody>
                </table>
            </div>
        </section>
    );
}
