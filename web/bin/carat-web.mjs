#!/usr/bin/env node
// carat-web.mjs: one prompt (or the benchmark) through the package in Node, on the processor or, with npm's `webgpu` installed, on
// the GPU.
import { parseArgs } from 'node:util';
import { Carat, version } from '../dist/carat.js';
import { benchCommand } from './bench.mjs';
import { gpuOfNode } from './gpu.mjs';

const usage = `usage: carat-web MODEL [-p PROMPT] [--backend auto|cpu|webgpu] [--threads N] [-n TOKENS] [--temp T] [--seed N]
       carat-web bench MODEL [OPTIONS]     tokens per second; carat-web bench --help
MODEL is the path of a GGUF file or an http(s) address. The answer goes to stdout, everything else to stderr.`;

async function main() {
    const { values, positionals } = parseArgs({
        allowPositionals: true,
        options: {
            prompt: { type: 'string', short: 'p', default: 'Why is the sky blue?' },
            backend: { type: 'string', default: 'auto' },
            threads: { type: 'string' },
            n: { type: 'string', short: 'n', default: '128' },
            temp: { type: 'string' },
            seed: { type: 'string' },
            help: { type: 'boolean', short: 'h' },
            version: { type: 'boolean' },
        },
    });
    if (values.version || values.help || positionals.length !== 1) {
        console.log(values.version ? version : usage);
        return values.version || values.help ? 0 : 2;
    }
    const gpu = values.backend === 'cpu' ? undefined : await gpuOfNode(values.backend === 'webgpu');
    const carat = await Carat.load(positionals[0], {
        backend: values.backend,
        gpu,
        threads: values.threads === undefined ? undefined : Number(values.threads),
        onProgress: (p) => {
            if (process.stderr.isTTY)
                process.stderr.write(`\r${p.phase} ${(p.done / 1e6).toFixed(0)} of ${(p.total / 1e6).toFixed(0)} MB  `);
        },
    });
    console.error(`${carat.info.name}, ${carat.info.quantization}, ${carat.info.backend}: ${carat.info.device}`);
    const chunks = await carat.chat.completions.create({
        messages: [{ role: 'user', content: values.prompt }],
        stream: true,
        max_tokens: Number(values.n),
        ...(values.temp !== undefined && { temperature: Number(values.temp) }),
        ...(values.seed !== undefined && { seed: Number(values.seed) }),
    });
    for await (const chunk of chunks) {
        process.stdout.write(chunk.choices[0]?.delta.content ?? '');
        if (chunk.timings)
            console.error(`\n${chunk.timings.predicted_n} tokens, ${chunk.timings.predicted_per_second.toFixed(1)} a second`);
    }
    await carat.close();
    return 0;
}

try {
    process.exit(process.argv[2] === 'bench' ? await benchCommand(process.argv.slice(3)) : await main());
} catch (error) {
    console.error(`${error.message}${error.remedy ? `\n${error.remedy}` : ''}`);
    process.exit(1);
}
