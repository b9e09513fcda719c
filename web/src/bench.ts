// bench.ts: tokens per second of a loaded model, with the tests and in the table of `carat bench` (cli/bench.c).

import type { Carat } from './carat';
import { makeError } from './errors';
import { check } from './options';
import type { EngineEvent, ModelInfo } from './types';

export interface BenchOptions {
    prompts?: number[]; // lengths of prompts; default 512
    generations?: number[]; // tokens to generate; default 128
    depths?: number[]; // positions already in the cache; default 0
    repetitions?: number; // of each test, once it is warm; default 5
    noPrefillSkip?: boolean; // run the layers that share keys and values for every prompt position
    signal?: AbortSignal;
}

export interface BenchRow {
    test: string; // 'pp512', 'tg128 @ d4096'
    mean: number; // tokens per second
    deviation: number;
    median: number;
    dispatches: number; // per generated token; 0 on the processor
    memoryBytes: number; // resident weights, keys and values of the test's context, scratch
}

interface Test {
    prompt: number; // positions to process, or 0
    generate: number; // tokens to generate, or 0
    depth: number;
}

// The rows, each when it has been measured.
export async function* bench(carat: Carat, options: BenchOptions = {}): AsyncGenerator<BenchRow> {
    check(
        'the options of bench',
        options,
        'prompts 0..[], generations 0..[], depths 0..[], repetitions 1..1000, noPrefillSkip boolean, signal AbortSignal',
    );
    const { prompts = [512], generations = [128], depths = [0] } = options;
    const tests = depths.flatMap((depth) => [
        ...prompts.map((prompt) => ({ prompt, generate: 0, depth })),
        ...generations.map((generate) => ({ prompt: 0, generate, depth })),
    ]);
    for (const test of tests) if (test.prompt + test.generate > 0) yield await measure(carat, test, options);
}

async function measure(
    carat: Carat,
    test: Test,
    { repetitions = 5, noPrefillSkip = false, signal }: BenchOptions,
): Promise<BenchRow> {
    const { link, info } = carat;
    // A generation test begins after depth + 1 positions.
    const ids = idsFor(test.depth + Math.max(test.prompt, 1), info.vocabulary);
    const contextSize = Math.min(info.contextLength, ids.length + test.generate + 8);
    const { session, bytes } = await link.call('session.new', { contextSize, noPrefillSkip });
    const run = async (n: number, tokens: number) => {
        const options = { max_tokens: tokens, ignore_eos: true, temperature: 0 };
        const args = { session, ids: ids.slice(0, n), options };
        for await (const event of link.stream<'generate', EngineEvent>('generate', args, signal))
            if (event.kind === 'finish' && event.reason !== 'cancelled') return event;
        throw makeError('cancelled', 'the benchmark was stopped');
    };
    const runTest = async () => {
        await link.call('session.truncate', { session, position: 0 });
        if (test.depth > 0 && test.prompt > 0) await run(test.depth, 1);
        const end = await run(ids.length, test.prompt > 0 ? 1 : test.generate + 1);
        return test.prompt > 0
            ? { n: end.promptTokens - end.cachedTokens, ms: end.promptMs, dispatches: 0 }
            : { n: end.generatedTokens - 1, ms: end.generateMs, dispatches: end.dispatchesPerToken };
    };
    const rates: number[] = [];
    let dispatches = 0;
    try {
        await warmUp(async () => (await runTest()).ms);
        for (let i = 0; i < repetitions; i++) {
            const end = await runTest();
            rates.push((end.n * 1000) / end.ms);
            dispatches = end.dispatches;
        }
    } finally {
        await link.call('session.free', { session });
    }
    const name = `${test.prompt > 0 ? `pp${test.prompt}` : `tg${test.generate}`}${test.depth > 0 ? ` @ d${test.depth}` : ''}`;
    return { test: name, ...summarize(rates), dispatches, memoryBytes: info.weightBytes + bytes };
}

// Normal tokens spread over the vocabulary, the same in every run.
function idsFor(n: number, vocabulary: number): number[] {
    let state = 12345;
    const first = vocabulary > 1024 ? 512 : 0;
    return Array.from({ length: n }, () => {
        state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
        return first + (state % (vocabulary - first));
    });
}

function summarize(rates: number[]): { mean: number; deviation: number; median: number } {
    const n = rates.length;
    const mean = rates.reduce((sum, rate) => sum + rate, 0) / n;
    const squares = rates.reduce((sum, rate) => sum + (rate - mean) ** 2, 0);
    const sorted = [...rates].sort((a, b) => a - b);
    return {
        mean,
        deviation: n > 1 ? Math.sqrt(squares / (n - 1)) : 0,
        median: (sorted[(n - 1) >> 1]! + sorted[n >> 1]!) / 2,
    };
}

// --- warming up -----------------------------------------------------------------------------------------------------------------

export interface WarmUpRun {
    countedMs: number; // what would be measured
    wholeMs: number; // with what comes before it, the positions of a depth for instance
}

const warmUpMostRuns = 100;
const warmUpLeastMs = 2000;
const warmUpMostMs = 5000;
const warmUpSteady = 0.03; // runs that differ by less than this part are equal

// True when a test with these runs behind it may begin to count: the rule of cli/bench_warm_up.h, which says why.
export function isWarm(runs: readonly WarmUpRun[]): boolean {
    const [before, last] = [runs.at(-2), runs.at(-1)];
    const wholeMs = runs.reduce((sum, run) => sum + run.wholeMs, 0);
    if (last === undefined) return false;
    if (runs.length >= warmUpMostRuns || wholeMs >= warmUpMostMs) return true;
    if (wholeMs < warmUpLeastMs) return false;
    if (before === undefined) return true;
    return Math.abs(last.countedMs - before.countedMs) < warmUpSteady * Math.min(last.countedMs, before.countedMs);
}

// Runs a test until it is warm. run: once, giving the milliseconds that would be counted.
export async function warmUp(run: () => Promise<number>): Promise<void> {
    for (const runs: WarmUpRun[] = []; !isWarm(runs);) {
        const start = performance.now();
        const countedMs = await run();
        runs.push({ countedMs, wholeMs: performance.now() - start });
    }
}

// --- the table ------------------------------------------------------------------------------------------------------------------

const maxAdapter = 48;
interface Column {
    name: string;
    width: number;
    isNumber?: boolean;
}

// The same for every test of a model.
const factColumns: Column[] = [
    { name: 'model', width: 30 },
    { name: 'size', width: 9, isNumber: true },
    { name: 'params', width: 8, isNumber: true },
    { name: 'backend', width: 7 },
    { name: 'adapter', width: 7 },
];
const resultColumns: Column[] = [
    { name: 'test', width: 14, isNumber: true },
    { name: 't/s', width: 16, isNumber: true },
    { name: 'dispatches', width: 10, isNumber: true },
    { name: 'memory', width: 9, isNumber: true },
];

const columns = [...factColumns, ...resultColumns];

const namesOf = (some: Column[]): readonly string[] => some.map((column) => column.name);
export const benchFactNames = namesOf(factColumns);
export const benchResultNames = namesOf(resultColumns);

// What stands in the columns of the facts,
export function benchFacts(info: ModelInfo): string[] {
    return [
        `${info.name.slice(0, 20)} ${info.quantization}`,
        bytesText(info.fileBytes),
        info.parameters < 1e9 ? `${(info.parameters * 1e-6).toFixed(2)} M` : `${(info.parameters * 1e-9).toFixed(2)} B`,
        info.backend,
        info.device.slice(0, maxAdapter),
    ];
}

// and of the results.
export function benchResults(row: BenchRow): string[] {
    return [
        row.test,
        `${row.mean.toFixed(2)} +- ${row.deviation.toFixed(2)}`,
        row.dispatches.toFixed(0),
        bytesText(row.memoryBytes),
    ];
}

// How fast the weights came: '3.42 GB of weights to the device at 4.40 GB/s'; empty where they are used in place.
export function benchLoad({ loadedBytes, loadMs, backend }: ModelInfo): string {
    if (loadedBytes < 1e5 || loadMs <= 0) return '';
    const place = backend === 'webgpu' ? 'the device' : 'memory';
    return `${bytesText(loadedBytes)} of weights to ${place} at ${(loadedBytes / loadMs / 1e6).toFixed(2)} GB/s`;
}

// '3.58 GB, of which 178 MB are folded matrices'.
export function benchWeights({ weightBytes, foldedBytes }: ModelInfo): string {
    return bytesText(weightBytes) + (foldedBytes > 0 ? `, of which ${bytesText(foldedBytes)} are folded matrices` : '');
}

// Two lines: names and dashes.
export function benchHead(info: ModelInfo): string {
    const names = lineOf(info, namesOf(columns));
    const dashes = columns.map((c) => '-'.repeat(widthOf(info, c) - (c.isNumber ? 1 : 0)) + (c.isNumber ? ':' : ''));
    return `${names}\n${lineOf(info, dashes)}`;
}

export function benchLine(info: ModelInfo, row: BenchRow): string {
    return lineOf(info, [...benchFacts(info), ...benchResults(row)]);
}

// The object that `carat bench --json` prints.
export function benchObject(info: ModelInfo, row: BenchRow): object {
    return {
        model: benchFacts(info)[0],
        size: info.fileBytes,
        params: info.parameters,
        backend: info.backend,
        adapter: info.device,
        test: row.test,
        tokens_per_second: row.mean,
        deviation: row.deviation,
        median: row.median,
        dispatches_per_token: row.dispatches,
        memory: row.memoryBytes,
    };
}

function widthOf(info: ModelInfo, column: { name: string; width: number }): number {
    return column.name === 'adapter' ? Math.min(maxAdapter, Math.max(column.width, info.device.length)) : column.width;
}

function lineOf(info: ModelInfo, cells: readonly string[]): string {
    const padded = columns.map((column, i) => {
        const width = widthOf(info, column);
        return column.isNumber ? cells[i]!.padStart(width) : cells[i]!.slice(0, width).padEnd(width);
    });
    return `| ${padded.join(' | ')} |`;
}

// Three digits, as bytes_text of cli/options.c.
export function bytesText(n: number): string {
    const units = ['B', 'kB', 'MB', 'GB', 'TB'];
    let unit = 0;
    for (; n >= 999.5 && unit < 4; unit++) n /= 1000;
    return `${n.toFixed(unit === 0 || n >= 99.95 ? 0 : n >= 9.995 ? 1 : 2)} ${units[unit]}`;
}
