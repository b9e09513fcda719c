// Everyone can use the app: axe, phones, the keyboard, installing it; and nothing of it leaves the origin.
import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import * as http from 'node:http';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { ask, loadDemo, ready } from './app-browser.mjs';
import { server, visiting } from './visiting.mjs';

const axeSource = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const phone = { width: 360, height: 740 }, desk = { width: 1280, height: 800 };

const serious = (page) => page.evaluate(async (source) => {
    if (window.axe === undefined)
        (0, eval)(source);
    const { violations } = await window.axe.run(document, { resultTypes: ['violations'] });
    return violations.filter((v) => ['serious', 'critical'].includes(v.impact)).map((v) => `${v.id}: ${v.nodes.map((n) => n.target).join(' ')}`);
}, axeSource);

visiting('every page passes axe in both themes, and none scrolls sideways on a phone', { bypassCSP: true }, async (page) => {
    const check = async (name) => {
        for (const colorScheme of ['light', 'dark']) {
            await page.emulateMedia({ colorScheme });
            for (const size of [desk, phone]) {
                await page.setViewportSize(size);
                assert.deepEqual(await serious(page), [], `${name}, ${colorScheme}, ${size.width} px`);
                const excess = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
                assert.ok(excess <= 0, `${name} is ${excess} px too wide at ${size.width} px`);
            }
        }
        await page.setViewportSize(desk);
    };
    await page.getByText('This browser can run it.').waitFor();
    await check('welcome');
    await loadDemo(page);
    await page.getByLabel('Think first').check();
    await ask(page, 'What is 12 plus 30?');
    await check('chat');
    for (const name of ['models', 'settings', 'bench']) {
        await page.goto(`${server.url}/#${name}`);
        await check(name);
    }
    await page.setViewportSize(phone);
    await page.getByRole('button', { name: 'Menu' }).click();
    assert.deepEqual(await serious(page), [], 'menu');
});

visiting('the keyboard reaches everything: skip link, menu, message', { viewport: phone }, async (page) => {
    await page.getByText('This browser can run it.').waitFor();
    await page.keyboard.press('Tab');
    assert.equal(await page.evaluate(() => document.activeElement.className), 'skip');
    await page.keyboard.press('Enter');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'main');
    await page.getByRole('button', { name: 'Menu' }).focus();
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.activeElement.textContent === 'New conversation');
    await page.keyboard.press('Escape');
    assert.equal(await page.evaluate(() => document.activeElement.id), 'menu-button');
    await loadDemo(page);
    const small = await page.evaluate(() => [...document.querySelectorAll('main button, header button')].filter((b) => b.offsetHeight > 0 && b.offsetHeight < 44).map((b) => b.textContent));
    assert.deepEqual(small, []);
});

test('the manifest and its icons make the app installable', async () => {
    const read = (name) => fetch(`${server.url}/${name}`).then((response) => { assert.equal(response.status, 200, name); return response; });
    const manifest = await (await read('manifest.webmanifest')).json();
    assert.equal(manifest.display, 'standalone');
    for (const icon of manifest.icons) {
        const bytes = Buffer.from(await (await read(icon.src)).arrayBuffer());
        if (icon.type === 'image/png') // width and height stand in the first chunk
            assert.equal(`${bytes.readUInt32BE(16)}x${bytes.readUInt32BE(20)}`, icon.sizes);
    }
});

// --- nothing is sent anywhere -------------------------------------------------------------------------------------------------------

// Whatever a visitor asks of anyone, by whatever means, comes by here; only the app's server is reached.
const strangers = [];
const proxy = http.createServer((request, response) => {
    if (!request.url.startsWith(`${server.url}/`)) {
        strangers.push(request.url);
        response.writeHead(502).end();
        return;
    }
    const { method, headers } = request;
    request.pipe(http.request(request.url, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
    }).on('error', () => response.destroy()));
}).on('connect', (request, socket) => {
    if (request.url !== 'content-autofill.googleapis.com:443') // Chromium itself, for its form filling
        strangers.push(request.url);
    socket.destroy();
});
const viaProxy = {};
before(async () => {
    await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));
    viaProxy.server = `http://127.0.0.1:${proxy.address().port}`;
});
after(() => {
    proxy.closeAllConnections();
    proxy.close();
});

visiting('a whole visit asks nothing of anyone but its origin: first visit, chat, download, settings, benchmark', {
    serviceWorkers: 'allow', proxy: viaProxy, settings: { backend: 'auto' },
}, async (page, visitor) => {
    await page.getByText('This browser can run it.').waitFor();
    await page.evaluate(() => navigator.serviceWorker.ready);
    await loadDemo(page);
    await ask(page, 'What colour is a ruby?');
    await page.goto(`${server.url}/#models`);
    const line = page.locator('.model', { hasText: 'micro-31b.F16.gguf' });
    await line.getByRole('button', { name: 'Download' }).click();
    await line.getByRole('button', { name: 'Use', exact: true }).click();
    await ready(page);
    await page.goto(`${server.url}/#settings`);
    await page.getByLabel('Colours').selectOption('dark');
    await page.getByRole('button', { name: 'Load again' }).click();
    await ready(page);
    await page.goto(`${server.url}/#bench`);
    await page.reload();
    await ready(page);
    assert.deepEqual(strangers, []);
    await page.evaluate(() => fetch('https://elsewhere.example/').catch(() => undefined)); // this is how it would be noticed
    assert.deepEqual(strangers.splice(0), ['elsewhere.example:443']);
    visitor.requests.splice(visitor.requests.indexOf('https://elsewhere.example/'), 1);
});
