// Loads a TypeScript module of web/src for a test in Node.
import { createRequire } from 'node:module';
import * as fs from 'node:fs';
import * as path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

export const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../../..');
export const requireFromWeb = createRequire(path.join(root, 'web/package.json'));

export async function load(name) {
    const out = path.join(root, 'build/web-tests', `${name}-${process.pid}.mjs`);
    fs.mkdirSync(path.dirname(out), { recursive: true });
    await requireFromWeb('esbuild').build({
        entryPoints: [path.join(root, 'web/src', `${name}.ts`)],
        bundle: true,
        format: 'esm',
        platform: 'node',
        outfile: out,
        logLevel: 'error',
    });
    try {
        return await import(pathToFileURL(out).href);
    } finally {
        fs.rmSync(out);
    }
}
