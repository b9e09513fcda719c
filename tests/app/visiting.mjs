// visiting.mjs: the server and the browsers of a file of tests, a test of one visitor, and what visitors do.
import assert from 'node:assert/strict';
import * as path from 'node:path';
import { after, before, test } from 'node:test';
import { appFolder, fixtureModels, launch, ready, visit } from './app-browser.mjs';
import { repository, serve } from './serve.mjs';

export const serveApp = () => serve('--app', appFolder, '--models', path.join(repository, 'models'), '--models', fixtureModels);

export let server;
const browsers = {};
before(async () => {
    server = await serveApp();
});
after(async () => {
    await Promise.all(Object.values(browsers).map(async (browser) => (await browser).close()));
    await server?.stop();
});

// A test of one visitor of `own` server, or of the file's. Errors that the page does not handle fail it, and so does a request that
// leaves the page's origin.
export function visiting(name, { own, gpu = false, ...options }, run) {
    test(name, async () => {
        const place = own === undefined ? server : await own();
        const browser = await (browsers[gpu ? 'gpu' : 'plain'] ??= launch({ gpu }));
        const visitor = await visit(browser, `${place.url}/`, options);
        try {
            await run(visitor.page, visitor, place);
            assert.deepEqual(visitor.problems, []);
            assert.deepEqual(visitor.requests.filter((url) => !/^(blob|data):/.test(url) && new URL(url).origin !== place.url), []);
        } catch (error) {
            if (process.env.CARAT_SHOTS) // a folder: what the visitor saw
                await visitor.page.screenshot({ path: path.join(process.env.CARAT_SHOTS, `${name.replace(/\W+/g, '-').slice(0, 60)}.png`) }).catch(() => undefined);
            throw error;
        } finally {
            await visitor.close();
            if (place !== server)
                await place.stop();
        }
    });
}

export const answers = (page) => page.locator('.message.assistant');
export const notice = (page) => page.locator('.notice');

// Asks what that model answers at length; resolves when the answer has begun.
export async function goOn(page) {
    await page.getByLabel('Message', { exact: true }).fill('Go on for ever');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.message.assistant .markdown')?.textContent.length > 10);
}

// A model of random weights goes on until it is stopped.
export async function useEndlessModel(page, name = 'tiny-26b.Q4_K_M.gguf') {
    await page.goto(`${server.url}/#models`);
    await page.locator('.model', { hasText: name }).getByRole('button', { name: 'Use from the server' }).click();
    await ready(page);
    await page.getByLabel('Message', { exact: true }).waitFor();
}

// A red circle on white.
export const drawCircle = (page) => page.evaluate(async () => {
    const canvas = new OffscreenCanvas(96, 96), context = canvas.getContext('2d');
    context.fillStyle = '#fff';
    context.fillRect(0, 0, 96, 96);
    context.fillStyle = '#f00';
    context.arc(48, 48, 30, 0, 7);
    context.fill();
    return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
});
