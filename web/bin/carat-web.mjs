#!/usr/bin/env node
// carat-web.mjs: one prompt through the package in Node, on the processor or, with npm's `webgpu` installed, on the GPU.
import { parseArgs } from 'node:util';
import { Carat, version } from '../dist/carat.js';

const usage = `usage: carat-web MODEL [-p PROMPT] [--backend auto|cpu|webgpu] [--threads N] [-n TOKENS] [--temp T] [--seed N]
MODEL is the path of a GGUF file or an http(s) address. The answer goes to stdout, everything else to stderr.`;

async function gpuOfNode(wanted) {
    try {
        const { create, globals } = await import('webgpu');
        Object.assign(globalThis, globals);
        return (globalThis.caratGpu = create([])); // stays reachable: Dawn crashes once it is collected
    } catch (error) {
        if (wanted) throw new Error(`npm's webgpu is needed for --backend webgpu: ${error.message}`, { cause: error });
        return undefined;
    }
}

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
    process.exit(await main());
} catch (error) {
    console.error(`${error.message}${error.remedy ? `\n${error.remedy}` : ''}`);
    process.exit(1);
}
