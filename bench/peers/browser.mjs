// browser.mjs: carat-web and wllama as two tabs of one headless Chromium, on pages that may use threads.
import * as fs from 'node:fs';
import * as http from 'node:http';
import { createRequire } from 'node:module';
import * as os from 'node:os';
import * as path from 'node:path';
import { fileURLToPath } from 'node:url';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');
const { chromium } = createRequire(path.join(root, 'web/package.json'))('playwright-core');

const quietFlags = [
    ...['--no-sandbox', '--no-first-run', '--disable-quic', '--disable-sync'],
    ...['--disable-background-networking', '--disable-component-update'],
];
const gpuFlags = [
    ...['--enable-unsafe-webgpu', '--enable-features=Vulkan,WebGPUService', '--ignore-gpu-blocklist', '--disable-gpu-sandbox'],
    ...['--use-gl=angle', '--use-angle=vulkan', '--disable-vulkan-surface'],
];
const types = { '.html': 'text/html', '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };

// Files of the two packages, this folder's page.mjs and the model, with the headers that allow threads.
function serve(model) {
    const folders = {
        '/carat/': path.join(root, 'web/dist'),
        '/wllama/': path.join(root, 'build/peers/node_modules/@wllama/wllama/esm'),
        '/bench/': path.join(root, 'bench/peers'),
    };
    const server = http.createServer((request, response) => {
        const { pathname } = new URL(request.url, 'http://x');
        const headers = {
            'cross-origin-opener-policy': 'same-origin',
            'cross-origin-embedder-policy': 'require-corp',
            'accept-ranges': 'bytes',
            'cache-control': 'no-store',
        };
        if (pathname === '/') {
            response.writeHead(200, { ...headers, 'content-type': 'text/html' });
            return response.end('<!doctype html><title>compare</title>');
        }
        const prefix = Object.keys(folders).find((name) => pathname.startsWith(name));
        const inFolder = prefix && path.join(folders[prefix], path.normalize(`/${pathname.slice(prefix.length)}`));
        const file = pathname === '/model.gguf' ? model : inFolder;
        if (!file || !fs.existsSync(file)) return response.writeHead(404, headers).end();
        const { size } = fs.statSync(file);
        const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
        const start = range === null ? 0 : Number(range[1]);
        const end = range === null || range[2] === '' ? size : Math.min(size, Number(range[2]) + 1);
        response.writeHead(range === null ? 200 : 206, {
            ...headers,
            'content-type': types[path.extname(file)] ?? 'application/octet-stream',
            'content-length': end - start,
            ...(range !== null && { 'content-range': `bytes ${start}-${end - 1}/${size}` }),
        });
        return fs.createReadStream(file, { start, end: end - 1 }).pipe(response);
    });
    return new Promise((resolve) =>
        server.listen(0, '127.0.0.1', () => resolve({ url: `http://127.0.0.1:${server.address().port}`, server })),
    );
}

async function launch(backend) {
    const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'carat-compare-'));
    const more = (process.env.CARAT_CHROMIUM_FLAGS ?? '').split(' ').filter((flag) => flag !== '');
    const context = await chromium.launchPersistentContext(profile, {
        executablePath: process.env.CARAT_CHROMIUM ?? '/usr/bin/chromium',
        headless: true,
        args: [...quietFlags, ...(backend === 'webgpu' ? gpuFlags : []), ...more],
    });
    return { context, profile };
}

async function openSide(context, url, name, setup) {
    const page = await context.newPage();
    page.setDefaultTimeout(0);
    page.on('pageerror', (error) => process.stderr.write(`${name}: ${error.message}\n`));
    if (process.env.CARAT_CONSOLE) page.on('console', (message) => process.stderr.write(`${name}: ${message.text()}\n`));
    await page.goto(url);
    const open = async ([name, setup]) => {
        const sides = await import('/bench/page.mjs');
        globalThis.side = await sides[name](setup);
        return globalThis.side.about;
    };
    try {
        const about = await page.evaluate(open, [name, setup]);
        const measure = async (test) => {
            await page.bringToFront();
            return page.evaluate((test) => globalThis.side.measure(test), test);
        };
        return { about, measure, close: () => page.close() };
    } catch (error) {
        await page.close();
        throw error;
    }
}

export async function browserContestants({ model, tests, backend, threads }) {
    const { url, server } = await serve(model);
    const { context, profile } = await launch(backend);
    const close = async () => {
        await context.close();
        server.closeAllConnections();
        server.close();
        fs.rmSync(profile, { recursive: true, force: true });
    };
    const positions = Math.max(...tests.map((test) => test.depth + test.n)) + 64;
    const setup = { backend, threads, positions };
    const sides = ['carat', 'wllama'].map((name) => ({ name, open: () => openSide(context, url, name, setup) }));
    return { sides, close };
}
