// Headless Chromium with WebGPU on its software renderer, for the browser tests.
import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';
import { pathToFileURL } from 'node:url';
import { requireFromWeb, root } from './load.mjs';

const { chromium } = requireFromWeb('playwright-core');
export const { serve } = await import(pathToFileURL(path.join(root, 'web/serve.mjs')).href);
export const fixtureModels = path.join(root, 'build/fixtures/models');

const flags = [
    '--no-sandbox',
    '--ignore-gpu-blocklist',
    '--disable-quic',
    '--no-first-run',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
];
const gpuFlags = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader', '--enable-features=Vulkan,WebGPUService'];

// A browser with a profile of its own, so that storage lives as long as the caller wants. gpu false: without WebGPU.
export async function launch({
    gpu = true,
    profile = fs.mkdtempSync(path.join(os.tmpdir(), 'carat-browser-')),
    keep = false,
} = {}) {
    const context = await chromium.launchPersistentContext(profile, {
        executablePath: process.env.CARAT_CHROMIUM ?? '/usr/bin/chromium',
        headless: true,
        args: [...flags, ...(gpu ? gpuFlags : ['--disable-features=WebGPUService,WebGPU'])],
    });
    return {
        context,
        profile,
        close: async () => {
            await context.close();
            if (!keep) fs.rmSync(profile, { recursive: true, force: true });
        },
    };
}

// A blank page of the server with the package at window.carat. Errors of the page fail loudly.
export async function openPage(context, url) {
    const page = await context.newPage();
    page.on('pageerror', (error) => console.error('page error:', error.message));
    if (process.env.CARAT_CONSOLE) page.on('console', (message) => console.error('page:', message.text()));
    await page.goto(`${url}/blank`);
    await page.evaluate(async () => {
        window.carat = await import('/dist/carat.js');
    });
    return page;
}

export const blank = {
    '/blank': (_request, response, headers) =>
        response.writeHead(200, { ...headers, 'content-type': 'text/html' }).end('<!doctype html><title>blank</title>'),
};
