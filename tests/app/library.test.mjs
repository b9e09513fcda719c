// Models in headless Chromium: downloads, files dropped and chosen, towers and adapters, the settings' memory, the benchmark.
import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import * as path from 'node:path';
import { ask, fixtureModels, lastAnswer, loadDemo, ready } from './app-browser.mjs';
import { repository } from './serve.mjs';
import { answers, drawCircle, server, visiting } from './visiting.mjs';

// The demo model's parts after the first wait until release(); `ranges` are the beginnings of what was asked for. broken: the network.
async function holdDownload(context) {
    const hold = { ranges: [], broken: false, release: undefined };
    const held = new Promise((resolve) => { hold.release = resolve; });
    await context.route(/\/api\/blob\/carat-demo\.gguf/, async (route) => {
        const start = Number(/bytes=(\d+)-/.exec(route.request().headers().range ?? '')?.[1] ?? 0);
        hold.ranges.push(start);
        if (hold.broken) {
            await route.abort('internetdisconnected');
            return;
        }
        if (start > 0)
            await held;
        const response = await route.fetch().catch(() => undefined);
        await route.fulfill({ response }).catch(() => undefined); // the page may not wait for it any more
    });
    return hold;
}

// A download of the demo model of which the first part, 8 MiB, is on the disk.
async function beginDownload(page) {
    await page.goto(`${server.url}/#models`);
    const line = page.locator('.model', { hasText: 'carat-demo.gguf' });
    await line.getByRole('button', { name: 'Download' }).click();
    await line.getByText('8.39 MB of').waitFor();
    return line;
}

const asksFromTheDisk = (ranges) => ranges.some((start) => start > 0) && ranges.every((start) => start === 0 || start >= 8 << 20);

visiting('a download can be paused, goes on from what is kept, and can be used and deleted', {}, async (page) => {
    const hold = await holdDownload(page);
    const line = await beginDownload(page);
    await line.getByRole('button', { name: 'Pause' }).click();
    await line.getByRole('button', { name: 'Resume' }).waitFor();
    assert.match(await line.innerText(), /8\.39 MB of 1\d\.\d MB/);
    await page.reload(); // what the user paused stays paused
    await line.getByRole('button', { name: 'Resume' }).waitFor();
    hold.release();
    hold.ranges.length = 0;
    await line.getByRole('button', { name: 'Resume' }).click();
    await line.getByRole('button', { name: 'Use', exact: true }).waitFor();
    assert.ok(asksFromTheDisk(hold.ranges), `asked for ${hold.ranges}`);
    await line.getByRole('button', { name: 'Use', exact: true }).click();
    await ready(page);
    assert.match(await ask(page, 'What colour is a ruby?'), /red/i);
    await page.goto(`${server.url}/#models`);
    await page.getByRole('button', { name: 'Unload' }).click();
    await line.getByRole('button', { name: 'Delete' }).click();
    await line.getByRole('button', { name: /Delete .* now/ }).click();
    await line.getByRole('button', { name: 'Download' }).waitFor(); // offered by the server again
});

visiting('a download goes on by itself after a reload of the page, and when the network is back', {}, async (page) => {
    const hold = await holdDownload(page);
    const line = await beginDownload(page);
    hold.broken = true;
    hold.ranges.length = 0;
    await page.reload();
    await line.getByText('Waiting for the network').waitFor();
    hold.broken = false;
    hold.release();
    await page.evaluate(() => dispatchEvent(new Event('online'))); // the browser says so
    await line.getByRole('button', { name: 'Use', exact: true }).waitFor();
    assert.ok(asksFromTheDisk(hold.ranges), `asked for ${hold.ranges}`);
    assert.equal(await page.evaluate(() => localStorage.getItem('carat.downloads')), null);
});

visiting('a model dropped on the page is copied into the browser', {}, async (page) => {
    const file = fs.readFileSync(path.join(fixtureModels, 'micro-31b.F16.gguf')).toString('base64');
    await page.getByText('This browser can run it.').waitFor();
    await page.evaluate((text) => {
        const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], 'dropped.gguf'));
        document.body.dispatchEvent(new DragEvent('dragover', { dataTransfer, bubbles: true, cancelable: true }));
        document.body.dispatchEvent(new DragEvent('drop', { dataTransfer, bubbles: true, cancelable: true }));
    }, file);
    const line = page.locator('.model', { hasText: 'dropped.gguf' });
    await line.getByRole('button', { name: 'Use', exact: true }).waitFor();
});

visiting('a model of text gets eyes from its mmproj file, from the server or chosen together', {}, async (page) => {
    const seesAnImage = async () => {
        await page.goto(`${server.url}/#chat`);
        await page.getByLabel('Choose images and sounds').setInputFiles({ name: 'circle.png', mimeType: 'image/png', buffer: Buffer.from(await drawCircle(page)) });
        await page.getByLabel('Attachments').getByText('circle.png').waitFor();
        await page.getByRole('button', { name: 'Remove circle.png' }).click();
        await page.goto(`${server.url}/#models`);
    };
    await page.goto(`${server.url}/#models`);
    await page.locator('.model', { hasText: 'tiny-e2b.Q8_0.gguf' }).getByRole('button', { name: 'Use from the server' }).click();
    await ready(page);
    await page.goto(`${server.url}/#models`);
    await page.locator('.model', { hasText: 'tiny-mm.mmproj-F16.gguf' }).getByRole('button', { name: 'Add to tiny-e2b.Q8_0.gguf' }).click();
    await page.getByText('sees, hears').waitFor();
    await seesAnImage();
    await page.getByRole('button', { name: 'Unload' }).click();
    await page.getByLabel('Choose a GGUF file to use').setInputFiles(['tiny-mm.mmproj-F16.gguf', 'tiny-e2b.Q8_0.gguf'].map((name) => path.join(fixtureModels, name)));
    await ready(page);
    await page.goto(`${server.url}/#models`);
    await page.getByText('sees, hears').waitFor();
    await seesAnImage();
});

visiting('an adapter changes the answers until it is removed', { settings: { max_tokens: 12 } }, async (page) => {
    const adapter = path.join(repository, 'build/fixtures/lora/lora-micro-e2b');
    await page.goto(`${server.url}/#models`);
    await page.locator('.model', { hasText: 'micro-e2b.F32.gguf' }).getByRole('button', { name: 'Use from the server' }).click();
    await ready(page);
    const plain = await ask(page, 'Talk');
    const again = async () => {
        await page.goto(`${server.url}/#chat`);
        await page.getByRole('button', { name: 'Regenerate' }).click();
        await answers(page).last().locator('.stats').waitFor();
        return lastAnswer(page);
    };
    await page.goto(`${server.url}/#models`);
    await page.getByLabel('Choose an adapter').setInputFiles([path.join(adapter, 'adapter_model.safetensors'), path.join(adapter, 'adapter_config.json')]);
    await page.getByText(/changes [1-9]\d* weights/).waitFor();
    assert.notEqual(await again(), plain);
    await page.goto(`${server.url}/#models`);
    await page.getByRole('button', { name: 'Remove all' }).click();
    await page.getByText(/changes \d+ weights/).waitFor({ state: 'detached' });
    assert.equal(await again(), plain);
});

visiting('the settings say what a context costs with the loaded model', {}, async (page) => {
    await loadDemo(page);
    await page.goto(`${server.url}/#settings`);
    const cost = async () => {
        const [, amount, unit, positions] = /takes ([\d.]+) (\w+) for (\d+) positions/.exec(await page.locator('#contextSize-hint').innerText());
        return { bytes: Number(amount) * { kB: 1e3, MB: 1e6 }[unit], positions: Number(positions) };
    };
    const choose = async (n) => {
        await page.getByLabel('Context').fill(String(n));
        await page.keyboard.press('Tab');
        return cost();
    };
    const small = await choose(512), large = await choose(2048), beyond = await choose(8192);
    assert.deepEqual([small.positions, large.positions, beyond.positions], [512, 2048, 2048]);
    assert.ok(large.bytes > small.bytes);
    assert.equal(beyond.bytes, large.bytes);
});

visiting('the benchmark measures reading and writing', {}, async (page) => {
    await loadDemo(page);
    await page.goto(`${server.url}/#bench`);
    await page.getByRole('button', { name: 'Measure' }).click();
    await page.getByText('tg64').waitFor({ timeout: 120_000 }); // each test warms up for seconds
    assert.deepEqual(await page.locator('dt').allInnerTexts(), ['model', 'size', 'params', 'backend', 'adapter', 'loaded']);
    assert.match(await page.locator('dd').last().innerText(), /^[\d.]+ MB of weights .* at [\d.]+ GB\/s$/);
    assert.deepEqual(await page.locator('thead th').allInnerTexts(), ['test', 't/s', 'dispatches', 'memory']);
    const rates = await page.locator('tbody td:nth-child(2)').allInnerTexts();
    assert.equal(rates.length, 3);
    assert.ok(rates.every((text) => Number(/^[\d.]+/.exec(text)[0]) > 0), rates.join());
});
