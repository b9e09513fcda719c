// build.mjs: makes dist/: the scripts, the WebAssembly modules and the types.
// usage: node build.mjs [--wasm FOLDER] [--no-types]     FOLDER: with carat-*.wasm; default ../build/wasm
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import * as path from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import * as esbuild from 'esbuild';

const here = path.dirname(fileURLToPath(import.meta.url));
const dist = path.join(here, 'dist');
const option = (name, otherwise) => {
    const i = process.argv.indexOf(name);
    return i < 0 ? otherwise : process.argv[i + 1];
};
const wasmFolder = path.resolve(option('--wasm', path.join(here, '../build/wasm')));
const limits = { js: 60 * 1024, wasm: 500 * 1024 }; // gzipped

fs.rmSync(dist, { recursive: true, force: true });
fs.mkdirSync(dist, { recursive: true });

const hash = createHash('sha256');
for (const variant of ['simd', 'threads', 'relaxed']) {
    const name = `carat-${variant}.wasm`,
        from = path.join(wasmFolder, name);
    if (!fs.existsSync(from))
        throw new Error(`${from} is missing; build it with: cmake --preset wasm && cmake --build build/wasm`);
    fs.copyFileSync(from, path.join(dist, name));
    hash.update(fs.readFileSync(from));
}

const { version } = JSON.parse(fs.readFileSync(path.join(here, 'package.json'), 'utf8'));
const common = {
    bundle: true,
    format: 'esm',
    target: 'es2022',
    minify: true,
    sourcemap: true,
    outdir: dist,
    absWorkingDir: here,
    logLevel: 'warning',
    external: ['node:*'],
    define: { CARAT_VERSION: JSON.stringify(version), CARAT_BUILD: JSON.stringify(hash.digest('hex').slice(0, 12)) },
};
const entries = [
    { in: 'src/index.ts', out: 'carat' },
    { in: 'src/bench.ts', out: 'bench' },
];
if (fs.existsSync(path.join(here, 'src/original.ts'))) entries.push({ in: 'src/original.ts', out: 'original' });
const external = [...common.external, './worker.js'];
await esbuild.build({ ...common, external, splitting: true, entryPoints: entries });
await esbuild.build({ ...common, entryPoints: ['src/worker.ts', 'src/thread.ts'] }); // each complete in itself
if (!process.argv.includes('--no-types'))
    execFileSync(process.execPath, [path.join(here, 'node_modules/typescript/bin/tsc'), '-p', here], { stdio: 'inherit' });

const sizeOf = (name) => gzipSync(fs.readFileSync(path.join(dist, name)), { level: 9 }).length;
const files = fs.readdirSync(dist).filter((name) => /\.(js|wasm)$/.test(name));
const js = files.filter((name) => name.endsWith('.js')).reduce((n, name) => n + sizeOf(name), 0);
for (const name of files) console.log(`${name.padEnd(24)} ${(sizeOf(name) / 1024).toFixed(1).padStart(7)} KiB gzipped`);
console.log(`${'all JavaScript'.padEnd(24)} ${(js / 1024).toFixed(1).padStart(7)} KiB gzipped`);
const tooLarge = files.filter((name) => name.endsWith('.wasm') && sizeOf(name) > limits.wasm);
if (js > limits.js || tooLarge.length > 0) throw new Error(`too large: ${js > limits.js ? 'JavaScript' : tooLarge.join(', ')}`);
