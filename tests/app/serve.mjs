// serve.mjs: starts `carat serve` for a test.
import { spawn } from 'node:child_process';
import * as path from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
export const repository = path.resolve(here, '../..');
export const program = process.env.CARAT_PROGRAM ?? path.join(repository, 'build/release/carat');
export const demoModel = path.join(repository, 'models/carat-demo.gguf');

// Resolves to {url, stop} when the server listens.
export async function serve(...args) {
    const child = spawn(program, ['serve', '--port', '0', '--backend', 'cpu', '--threads', '1', ...args], { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, OLLAMA_MODELS: '/nonexistent' } });
    let complaint = '';
    child.stderr.on('data', (text) => { complaint += text; });
    const exit = new Promise((resolve) => child.on('exit', resolve));
    const line = createInterface({ input: child.stdout })[Symbol.asyncIterator]().next();
    const first = await Promise.race([line, exit.then(() => ({ done: true }))]);
    if (first.done)
        throw new Error(`carat serve ended: ${complaint}`);
    return { url: first.value.replace(/\/$/, ''), child, async stop() { child.kill('SIGTERM'); return exit; } };
}
