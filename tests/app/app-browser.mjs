// app-browser.mjs: headless Chromium with the app, for the tests of the app.
import * as fs from 'node:fs';
import * as http from 'node:http';
import * as path from 'node:path';
import { chromium } from 'playwright-core';
import { repository } from './serve.mjs';

export const appFolder = process.env.CARAT_APP ?? path.join(repository, 'app/dist');
export const fixtureModels = path.join(repository, 'build/fixtures/models');

const flags = ['--no-sandbox', '--ignore-gpu-blocklist', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--use-fake-device-for-media-stream', '--use-fake-ui-for-media-stream'];
const gpuFlags = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader', '--enable-features=Vulkan,WebGPUService'];

export function launch({ gpu = false } = {}) {
    return chromium.launch({ executablePath: process.env.CARAT_CHROMIUM ?? '/usr/bin/chromium', headless: true, args: [...flags, ...(gpu ? gpuFlags : [])] });
}

// A visitor of their own: nothing stored yet. Greedy answers on the processor unless `settings` say otherwise.
// worker: a script that runs first in each of the app's workers, to take something away from them.
export async function visit(browser, url, { settings = {}, worker = '', page: pageScript = '', serviceWorkers = 'block', ...context } = {}) {
    const visitor = await browser.newContext({ viewport: { width: 1280, height: 800 }, serviceWorkers, ...context });
    const requests = [];
    visitor.on('request', (request) => requests.push(request.url()));
    const page = await visitor.newPage();
    const problems = [];
    page.on('pageerror', (error) => problems.push(error.message));
    page.setDefaultTimeout(20_000);
    await page.addInitScript((wanted) => {
        if (localStorage.getItem('carat.settings') === null)
            localStorage.setItem('carat.settings', JSON.stringify(wanted));
    }, { backend: 'cpu', temperature: 0, ...settings });
    if (pageScript !== '')
        await page.addInitScript(pageScript);
    if (worker !== '')
        await page.route(/worker-[^/]*\.js/, async (route) => {
            const response = await route.fetch();
            await route.fulfill({ response, body: `${worker}\n${await response.text()}` });
        });
    await page.goto(url);
    return { page, context: visitor, requests, problems, close: () => visitor.close() };
}

export async function loadDemo(page) {
    await page.getByRole('button', { name: /Start with the small demo model/ }).click();
    await ready(page);
}

export async function ready(page) {
    await page.locator('.badge[data-state="ready"]').waitFor();
}

// Sends a message; resolves with the answer's text when it is complete.
export async function ask(page, text) {
    const answers = await page.locator('.message.assistant').count();
    await page.getByLabel('Message', { exact: true }).fill(text);
    await page.keyboard.press('Enter');
    await page.locator('.message.assistant').nth(answers).locator('.actions').waitFor();
    return lastAnswer(page);
}

export async function lastAnswer(page) {
    return (await page.locator('.message.assistant').last().locator('.markdown').innerText()).trim();
}

// What the answer's line of figures says.
export async function lastStats(page) {
    const line = await page.locator('.message.assistant').last().locator('.stats').innerText();
    const [, tokens, read, remembered] = /^(\d+) tokens, [\d.]+ per second; (\d+) read, (\d+) remembered$/.exec(line).map(Number);
    return { tokens, read, remembered };
}

const types = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.wasm': 'application/wasm', '.svg': 'image/svg+xml', '.png': 'image/png',
    '.webmanifest': 'application/manifest+json' };

// A plain file server: no isolation, so no threads; ranges for the models.
export async function servePlainly(folder) {
    const server = http.createServer((request, response) => {
        const name = path.join(folder, path.normalize(new URL(request.url, 'http://x').pathname).replace(/\/$/, '/index.html'));
        if (!fs.existsSync(name) || !fs.statSync(name).isFile()) {
            response.writeHead(404).end();
            return;
        }
        const bytes = fs.readFileSync(name), type = { 'content-type': types[path.extname(name)] ?? 'application/octet-stream' };
        const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
        if (range === null) {
            response.writeHead(200, type).end(bytes);
            return;
        }
        const start = Number(range[1]), end = Math.min(Number(range[2]), bytes.length - 1);
        response.writeHead(206, { ...type, 'content-range': `bytes ${start}-${end}/${bytes.length}` }).end(bytes.subarray(start, end + 1));
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    return { url: `http://localhost:${server.address().port}`, stop: () => new Promise((resolve) => { server.closeAllConnections(); server.close(resolve); }) };
}
