// native.mjs: `carat bench`, `carat-web bench` in Node, and llama.cpp (llama.mjs in a process of its own) as sides of a comparison.
import { execFile, spawn } from 'node:child_process';
import * as path from 'node:path';
import * as readline from 'node:readline';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';

const here = path.dirname(fileURLToPath(import.meta.url));
const run = promisify(execFile);

// command: the program that benches, with its first words.
async function openCarat(command, { model, backend, threads }) {
    const [program, ...words] = command;
    const bench = async (test) => {
        const lengths = test.kind === 'pp' ? ['-p', test.n, '-n', 0] : ['-p', 0, '-n', test.n];
        const all = test.allRows ? ['--no-prefill-skip'] : [];
        const options = [...lengths, '-d', test.depth, '-r', 1, ...all, '--backend', backend, '--threads', threads, '--json'];
        const { stdout } = await run(program, [...words, 'bench', model, ...options.map(String)]);
        return JSON.parse(stdout);
    };
    const about = await bench({ kind: 'tg', n: 1, depth: 0 }); // also brings the file into the page cache
    return {
        about: `${about.model}, ${about.backend}: ${about.adapter}`,
        measure: async (test) => (await bench(test)).tokens_per_second,
        close: async () => undefined,
    };
}

async function openLlama({ model, tests, backend, threads }) {
    const positions = Math.max(...tests.map((test) => test.depth + test.n)) + 64;
    const words = [model, backend === 'cpu' ? 'cpu' : 'vulkan', threads, positions].map(String);
    const child = spawn(process.execPath, [path.join(here, 'llama.mjs'), ...words], { stdio: ['pipe', 'pipe', 'inherit'] });
    child.stdin.on('error', () => undefined); // it has ended, which its answer tells
    const lines = readline.createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const answer = async () => {
        const { value, done } = await lines.next();
        if (done) throw new Error('llama.cpp ended');
        return JSON.parse(value);
    };
    return {
        about: (await answer()).about,
        measure: async (test) => {
            child.stdin.write(`${JSON.stringify(test)}\n`);
            return (await answer()).rate;
        },
        close: async () => child.stdin.end(),
    };
}

const program = (name, setup) => ({
    name,
    open: () => openCarat([setup.carat ?? path.join(here, '../../build/release/carat')], setup),
});

export const nativeContestants = async (setup) => ({
    sides: [program('carat', setup), { name: 'llama.cpp', open: () => openLlama(setup) }],
    close: async () => undefined,
});

// The WebAssembly build in Node against the program.
export async function nodeContestants(setup) {
    const web = [process.execPath, path.join(here, '../../web/bin/carat-web.mjs')];
    const sides = [{ name: 'carat', open: () => openCarat(web, setup) }, program('carat, native', setup)];
    return { sides, close: async () => undefined };
}
