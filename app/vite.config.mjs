// vite.config.mjs: builds dist/: the app with the engine's files, the demo model, and the service worker that makes it work offline.
import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import * as path from 'node:path';
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vite';

const here = path.dirname(fileURLToPath(import.meta.url));
const demoModel = path.join(here, '../models/carat-demo.gguf');

function copyDemoModel() {
    let dist;
    return {
        name: 'carat-demo-model',
        configResolved(config) { dist = path.resolve(config.root, config.build.outDir); },
        closeBundle() {
            fs.mkdirSync(path.join(dist, 'models'), { recursive: true });
            fs.copyFileSync(demoModel, path.join(dist, 'models/carat-demo.gguf'));
        },
    };
}

// Fills in which files the service worker keeps, and a version that changes with any of them.
function fillServiceWorker() {
    const listFiles = (folder, base = '') => fs.readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
        entry.isDirectory() ? listFiles(path.join(folder, entry.name), `${base}${entry.name}/`) : [`${base}${entry.name}`]);
    let dist;
    return {
        name: 'carat-service-worker',
        configResolved(config) { dist = path.resolve(config.root, config.build.outDir); },
        closeBundle() {
            const files = listFiles(dist).filter((name) => !/\.map$|\.gguf$|^sw\.js$/.test(name)).sort();
            const hash = createHash('sha256');
            for (const name of files)
                hash.update(name).update(fs.readFileSync(path.join(dist, name)));
            const text = fs.readFileSync(path.join(dist, 'sw.js'), 'utf8')
                .replace("'FILES'", JSON.stringify(['./', ...files.filter((name) => name !== 'index.html')]))
                .replace('VERSION', hash.digest('hex').slice(0, 12));
            fs.writeFileSync(path.join(dist, 'sw.js'), text);
        },
    };
}

const demoBytes = fs.readFileSync(demoModel);

export default defineConfig({
    base: './',
    define: { DEMO_SHA256: JSON.stringify(createHash('sha256').update(demoBytes).digest('hex')), DEMO_BYTES: demoBytes.length },
    oxc: { jsx: { runtime: 'automatic', importSource: 'preact' } },
    build: { target: 'es2022', outDir: 'dist', emptyOutDir: true, assetsInlineLimit: 0 },
    optimizeDeps: { exclude: ['carat-web'] }, // its workers and modules lie beside it
    server: { // npm run dev: models and API come from a `carat serve` on its usual port
        headers: { 'Cross-Origin-Opener-Policy': 'same-origin', 'Cross-Origin-Embedder-Policy': 'require-corp' },
        fs: { allow: ['..'] },
        proxy: { '/api': 'http://localhost:8088', '/v1': 'http://localhost:8088', '/models': 'http://localhost:8088' },
    },
    plugins: [copyDemoModel(), fillServiceWorker()],
});
