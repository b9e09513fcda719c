// bench.mjs: carat-web bench: what `carat bench` measures, through WebAssembly in Node, in the same table.
import { parseArgs } from 'node:util';
import { bench, benchHead, benchLine, benchLoad, benchObject, benchWeights } from '../dist/bench.js';
import { Carat } from '../dist/carat.js';
import { gpuOfNode } from './gpu.mjs';

const usage = `usage: carat-web bench MODEL [OPTIONS]

Measures prompt processing (pp) and text generation (tg) with random tokens; prints mean and deviation.

  -p N[,N...]           prompt lengths (default 512; 0: none)
  -n N[,N...]           tokens to generate (default 128; 0: none)
  -d N[,N...]           depths: positions already in the cache (default 0)
  -r N                  repetitions (default 5)
  --batch N             rows of a prefill chunk (default 512)
  --kv-f32              keys and values in 32 bits
  --no-prefill-skip     run the layers that share keys and values for every prompt position
  --json                one JSON object a line instead of the table
  --backend NAME        auto, cpu or webgpu
  --threads N           of the processor

Each test first warms up: for 2 s and until two runs in a row differ by less than 3 %, but for 5 s at most; a first run
of 2 s is enough. Then it runs as often as -r says. memory: resident weights, keys, values and scratch.`;

function lengths(text) {
    const numbers = text.split(',').map(Number);
    if (!numbers.every((n) => Number.isInteger(n) && n >= 0)) throw new Error(`'${text}' must be lengths separated by commas`);
    return numbers;
}

export async function benchCommand(args) {
    const { values, positionals } = parseArgs({
        args,
        allowPositionals: true,
        options: {
            'p': { type: 'string', short: 'p', default: '512' },
            'n': { type: 'string', short: 'n', default: '128' },
            'd': { type: 'string', short: 'd', default: '0' },
            'r': { type: 'string', short: 'r', default: '5' },
            'batch': { type: 'string' },
            'kv-f32': { type: 'boolean' },
            'no-prefill-skip': { type: 'boolean' },
            'json': { type: 'boolean' },
            'backend': { type: 'string', default: 'auto' },
            'threads': { type: 'string' },
            'help': { type: 'boolean', short: 'h' },
        },
    });
    if (values.help || positionals.length !== 1) {
        console.log(usage);
        return values.help ? 0 : 2;
    }
    const number = (text) => (text === undefined ? undefined : Number(text));
    const [repetitions] = lengths(values.r);
    if (repetitions < 1) throw new Error('-r must be at least 1');
    const start = performance.now();
    const carat = await Carat.load(positionals[0], {
        backend: values.backend,
        gpu: values.backend === 'cpu' ? undefined : await gpuOfNode(values.backend === 'webgpu'),
        threads: number(values.threads),
        batch: number(values.batch),
        kvF32: values['kv-f32'],
    });
    const { info } = carat;
    const openMs = performance.now() - start;
    const load = benchLoad(info);
    if (!values.json)
        console.log(
            `opened in ${openMs.toFixed(0)} ms; ${load && `${load}; `}resident weights ${benchWeights(info)}\n\n${benchHead(info)}`,
        );
    const tests = { prompts: lengths(values.p), generations: lengths(values.n), depths: lengths(values.d) };
    for await (const row of bench(carat, { ...tests, repetitions, noPrefillSkip: values['no-prefill-skip'] ?? false }))
        console.log(values.json ? JSON.stringify(benchObject(info, row)) : benchLine(info, row));
    await carat.close();
    return 0;
}
