// llama.mjs: llama.cpp through npm's node-llama-cpp: a test per line of stdin, its rate as a line on stdout.
// usage: llama.mjs MODEL cpu|vulkan THREADS POSITIONS
//
// It measures as llama-bench does: batches go to llama_decode, with logits for the last row only, and nothing is sampled. So it
// works on the layer below node-llama-cpp's own loop, whose price is not llama.cpp's.
import { createRequire } from 'node:module';
import * as path from 'node:path';
import * as readline from 'node:readline';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { warmUp } from '../../web/dist/bench.js';

const peers = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../build/peers');
const library = createRequire(path.join(peers, 'package.json')).resolve('node-llama-cpp');
const { getLlama } = await import(pathToFileURL(library).href);

const batchSize = 512;
const [file, where, threads, positions] = process.argv.slice(2);
const gpu = where === 'cpu' ? false : where;
const llama = await getLlama({ gpu, build: 'never', skipDownload: true, logLevel: 'error', maxThreads: Number(threads) });
// Without a card it would quietly compute on the processor.
const cards = gpu === false ? [] : await llama.getGpuDeviceNames();
if (gpu !== false && cards.length === 0) throw new Error('llama.cpp finds no graphics card here');
const model = await llama.loadModel({ modelPath: file, gpuLayers: gpu === false ? 0 : 'max' });
const context = await model.createContext({
    contextSize: Number(positions),
    batchSize,
    threads: { ideal: Number(threads), min: Number(threads) },
    flashAttention: 'auto',
});
const sequence = context.getSequence();
const core = context._ctx;

// Ids spread over the vocabulary, as in carat bench.
const first = 512;
const ids = new Uint32Array(Number(positions));
for (let i = 0, state = 12345; i < ids.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    ids[i] = first + (state % (model.fileInfo.metadata.tokenizer.ggml.tokens.length - first));
}

let position = 0;

// The next n positions; the last row of each batch gives logits only at the end.
async function decode(n) {
    for (const end = position + n; position < end;) {
        const rows = ids.subarray(position, Math.min(end, position + batchSize));
        core.initBatch(rows.length);
        core.addToBatch(0, position, rows, Uint32Array.from(position + rows.length === end ? [rows.length - 1] : []));
        await core.decodeBatch();
        position += rows.length;
    }
}

// Goes back to where the cache holds the first n positions. What it holds already is not computed again.
async function standAt(n) {
    if (position < n || n === 0 || !core.removeTokenCellsFromSequence(0, n, -1)) {
        core.removeTokenCellsFromSequence(0, 0, -1);
        position = 0;
        await decode(n);
    }
    position = n;
}

// The milliseconds it took.
async function runOnce({ kind, n, depth }) {
    await standAt(kind === 'tg' ? depth + 1 : depth); // a generation begins after depth + 1 positions, as in carat bench
    const start = performance.now();
    if (kind === 'pp') await decode(n);
    else for (let i = 0; i < n; i++) await decode(1);
    return performance.now() - start;
}

const place = gpu === false ? `${core.getThreads()} threads` : cards.join(', ');
console.log(JSON.stringify({ about: `llama.cpp ${llama.llamaCppRelease.release}, ${where}: ${place}` }));
for await (const line of readline.createInterface({ input: process.stdin })) {
    const test = JSON.parse(line);
    await warmUp(() => runOnce(test));
    console.log(JSON.stringify({ rate: (test.n * 1000) / (await runOnce(test)) }));
}
sequence.dispose();
await llama.dispose();
