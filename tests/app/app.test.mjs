// The app in headless Chromium, as a visitor uses it: from the first visit to the answer, and when things are missing.
import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import { createRequire } from 'node:module';
import * as path from 'node:path';
import { after, before, test } from 'node:test';
import { appFolder, ask, fixtureModels, lastAnswer, lastStats, launch, loadDemo, ready, servePlainly, visit } from './app-browser.mjs';
import { repository, serve } from './serve.mjs';

const axeSource = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const serveArguments = ['--app', appFolder, '--models', path.join(repository, 'models'), '--models', fixtureModels];
const phone = { width: 360, height: 740 }, desk = { width: 1280, height: 800 };
const origins = new Set();
const seen = []; // every request of every visitor

let server, browser;
before(async () => {
    server = await serve(...serveArguments);
    origins.add(server.url);
    browser = await launch();
});
after(async () => {
    await browser?.close();
    await server?.stop();
});

// A test of one visitor. Errors that the page does not handle fail it.
function visiting(name, options, run) {
    test(name, async () => {
        const visitor = await visit(browser, `${server.url}/`, options);
        try {
            await run(visitor.page, visitor);
            assert.deepEqual(visitor.problems, []);
        } catch (error) {
            if (process.env.CARAT_SHOTS) // a folder: what the visitor saw
                await visitor.page.screenshot({ path: path.join(process.env.CARAT_SHOTS, `${name.replace(/\W+/g, '-').slice(0, 60)}.png`) });
            throw error;
        } finally {
            seen.push(...visitor.requests);
            await visitor.close();
        }
    });
}

const answers = (page) => page.locator('.message.assistant');
const notice = (page) => page.locator('.notice');

// --- a first visit --------------------------------------------------------------------------------------------------------------

visiting('a first visit says what the browser can do, loads the demo model and answers as the native program does', {
    page: 'window.shift = 0; new PerformanceObserver((list) => list.getEntries().forEach((e) => { if (!e.hadRecentInput) window.shift += e.value; })).observe({ type: "layout-shift", buffered: true });',
}, async (page) => {
    await page.getByText('This browser can run it.').waitFor();
    await loadDemo(page);
    const question = 'What colour is a ruby?';
    const answer = await ask(page, question);
    const native = await fetch(`${server.url}/v1/chat/completions`, {
        method: 'POST', headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ model: 'carat-demo.gguf', temperature: 0, messages: [{ role: 'user', content: question }] }),
    }).then((response) => response.json());
    assert.equal(answer, native.choices[0].message.content.trim());
    assert.match(answer, /red/i);
    assert.ok(await page.evaluate(() => window.shift) < 0.02, 'the layout shifted');
});

visiting('three turns: each goes on from what the cache holds, and what was told is known', {}, async (page) => {
    await loadDemo(page);
    await ask(page, 'My name is Anna.');
    const first = await lastStats(page);
    assert.equal(first.remembered, 0);
    await ask(page, 'What colour is a ruby?');
    const second = await lastStats(page);
    assert.ok(second.remembered >= first.read, `${second.remembered} remembered of at least ${first.read}`);
    const name = await ask(page, 'What is my name?');
    assert.match(name, /Anna/);
    assert.ok((await lastStats(page)).remembered > second.remembered);
});

visiting('a reload keeps the conversation and loads the model again from this device', {}, async (page, visitor) => {
    await loadDemo(page);
    await ask(page, 'My name is Anna.');
    const before = visitor.requests.length;
    await page.reload();
    await ready(page);
    assert.deepEqual(visitor.requests.slice(before).filter((url) => url.endsWith('.gguf')), []);
    assert.equal(await answers(page).count(), 1);
    assert.match(await ask(page, 'What is my name?'), /Anna/);
});

// --- answers ----------------------------------------------------------------------------------------------------------------------

// Asks what that model answers at length; resolves when the answer has begun.
async function goOn(page) {
    await page.getByLabel('Message', { exact: true }).fill('Go on for ever');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => document.querySelector('.message.assistant .markdown')?.textContent.length > 10);
}

// A model of random weights goes on until it is stopped.
async function useEndlessModel(page, name = 'tiny-26b.Q4_K_M.gguf') {
    await page.goto(`${server.url}/#models`);
    await page.locator('.model', { hasText: name }).getByRole('button', { name: 'Use from the server' }).click();
    await ready(page);
    await page.getByLabel('Message', { exact: true }).waitFor();
}

visiting('Stop and Escape end an answer, which is kept and can be continued', {}, async (page) => {
    await useEndlessModel(page);
    for (const stop of [() => page.getByRole('button', { name: 'Stop' }).click(), () => page.keyboard.press('Escape')]) {
        await page.getByRole('button', { name: 'New conversation' }).first().click();
        await goOn(page);
        await stop();
        await page.getByRole('button', { name: 'Continue' }).waitFor();
        assert.ok((await lastAnswer(page)).length > 0);
        assert.equal(await page.getByText('The answer was stopped.').count(), 1); // for screen readers
    }
    const length = (await lastAnswer(page)).length;
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.waitForFunction((n) => [...document.querySelectorAll('.message.assistant .markdown')].at(-1).innerText.length > n + 20, length);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Continue' }).waitFor();
});

visiting('a cut answer continued is the answer that was not cut', {}, async (page) => {
    await loadDemo(page);
    const whole = await ask(page, 'Count from 1 to 10.');
    await page.goto(`${server.url}/#settings`);
    await page.getByLabel('Longest answer').fill('6');
    await page.keyboard.press('Tab');
    await page.goto(`${server.url}/#chat`);
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await page.getByRole('button', { name: 'Continue' }).waitFor();
    assert.notEqual(await lastAnswer(page), whole);
    for (let i = 0; i < 20 && await page.getByRole('button', { name: 'Continue' }).count() > 0; i++) {
        await page.getByRole('button', { name: 'Continue' }).click();
        await answers(page).last().locator('.actions').waitFor();
    }
    assert.equal(await lastAnswer(page), whole);
    assert.equal(await answers(page).count(), 1);
});

visiting('an edited message is answered anew, and an answer can be generated again', {}, async (page) => {
    await loadDemo(page);
    const red = await ask(page, 'What colour is a ruby?');
    await page.getByRole('button', { name: 'Edit' }).click();
    await page.getByLabel('Edit the message').fill('What colour is an emerald?');
    await page.getByRole('button', { name: 'Send again' }).click();
    await answers(page).last().locator('.actions').waitFor();
    const green = await lastAnswer(page);
    assert.match(green, /green/i);
    assert.notEqual(green, red);
    await page.getByRole('button', { name: 'Regenerate' }).click();
    await answers(page).last().locator('.stats').waitFor();
    assert.equal(await lastAnswer(page), green);
    assert.equal(await page.locator('.message').count(), 2);
});

visiting('messages that an edit further up removes can be brought back', {}, async (page) => {
    await loadDemo(page);
    await ask(page, 'What colour is a ruby?');
    await ask(page, 'What colour is an emerald?');
    await page.getByRole('button', { name: 'Edit' }).first().click();
    await page.getByLabel('Edit the message').fill('Hello');
    await page.getByRole('button', { name: 'Send again' }).click();
    await notice(page).getByText('2 later messages were removed.').waitFor();
    await page.getByRole('button', { name: 'Undo' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.message').length === 4);
    assert.match(await lastAnswer(page), /green/i);
});

visiting('a thought is shown folded', {}, async (page) => {
    await loadDemo(page);
    await page.getByLabel('Think first').check();
    await ask(page, 'What is 12 plus 30?');
    const thought = page.locator('.thought');
    assert.equal(await thought.evaluate((details) => details.open), false);
    await thought.locator('summary').click();
    assert.ok((await page.locator('.thought-text').innerText()).length > 0);
});

visiting('a hidden page pauses an answer and goes on when it is seen again', { settings: { pauseHidden: true } }, async (page) => {
    await useEndlessModel(page);
    const hide = (hidden) => page.evaluate((value) => {
        Object.defineProperty(document, 'hidden', { value, configurable: true });
        document.dispatchEvent(new Event('visibilitychange'));
    }, hidden);
    const length = () => page.locator('.message.assistant .markdown').last().evaluate((e) => e.textContent.length);
    await goOn(page);
    await hide(true);
    await page.waitForTimeout(700);
    const paused = await length();
    await page.waitForTimeout(400);
    assert.equal(await length(), paused);
    await hide(false);
    await page.waitForFunction((n) => document.querySelector('.message.assistant .markdown').textContent.length > n, paused);
    await page.keyboard.press('Escape');
});

// --- attachments ------------------------------------------------------------------------------------------------------------------

// A red circle on white.
const drawCircle = (page) => page.evaluate(async () => {
    const canvas = new OffscreenCanvas(96, 96), context = canvas.getContext('2d');
    context.fillStyle = '#fff';
    context.fillRect(0, 0, 96, 96);
    context.fillStyle = '#f00';
    context.arc(48, 48, 30, 0, 7);
    context.fill();
    return [...new Uint8Array(await (await canvas.convertToBlob()).arrayBuffer())];
});

visiting('the demo model answers about a picture, which is kept with the conversation', {}, async (page) => {
    await loadDemo(page);
    const buffer = Buffer.from(await drawCircle(page));
    await page.getByLabel('Choose images and sounds').setInputFiles({ name: 'circle.png', mimeType: 'image/png', buffer });
    assert.equal(await page.getByLabel('Attachments').getByText('circle.png').count(), 1);
    const answer = await ask(page, 'What is in the picture?');
    assert.match(answer, /red|circle/i);
    await page.reload();
    await ready(page);
    const picture = page.getByAltText('circle.png');
    await picture.waitFor();
    assert.equal(await picture.evaluate((img) => img.decode().then(() => img.naturalWidth)), 96);
});

visiting('a recording of the microphone can be sent and is answered', { permissions: ['microphone'] }, async (page) => {
    await loadDemo(page);
    await page.getByRole('button', { name: 'Record' }).click();
    await page.getByRole('button', { name: 'Stop recording' }).waitFor();
    await page.waitForTimeout(1500); // the browser's false microphone beeps
    await page.getByRole('button', { name: 'Stop recording' }).click();
    await page.getByLabel('Attachments').getByText('Recording').waitFor();
    assert.notEqual(await ask(page, 'What do you hear?'), '');
    assert.equal(await notice(page).count(), 0);
});

visiting('a model for text refuses a picture politely and goes on answering', {}, async (page) => {
    await page.goto(`${server.url}/#models`);
    await page.locator('.model', { hasText: 'tiny-e2b.Q4_K_M.gguf' }).getByRole('button', { name: 'Use from the server' }).click();
    await ready(page);
    await page.getByLabel('Choose images and sounds').setInputFiles({ name: 'circle.png', mimeType: 'image/png', buffer: Buffer.from(await drawCircle(page)) });
    await notice(page).getByText(/cannot look at images/).waitFor();
    assert.equal(await page.getByLabel('Attachments').count(), 0);
    assert.equal(await page.getByRole('button', { name: 'Record' }).isDisabled(), true);
    await goOn(page);
    await page.keyboard.press('Escape');
});

// --- the library ------------------------------------------------------------------------------------------------------------------

visiting('a download can be paused, goes on from what is kept, and can be used and deleted', {}, async (page) => {
    const ranges = [];
    let release, arrive, holding = true;
    const held = new Promise((resolve) => { release = resolve; }), arrived = new Promise((resolve) => { arrive = resolve; });
    await page.route(/\/api\/blob\/carat-demo\.gguf/, async (route) => { // the second part stays away for a while
        const start = Number(/bytes=(\d+)-/.exec(route.request().headers().range ?? '')?.[1] ?? 0);
        ranges.push(start);
        if (holding && start > 0)
            await held;
        const response = await route.fetch().catch(() => undefined);
        await route.fulfill({ response }).catch(() => undefined); // the page may not wait for it any more
        if (/=0-8388607$/.test(route.request().headers().range))
            arrive();
    });
    await page.goto(`${server.url}/#models`);
    const line = page.locator('.model', { hasText: 'carat-demo.gguf' });
    await line.getByRole('button', { name: 'Download' }).click();
    await arrived;
    await page.waitForTimeout(1000); // for the disk
    await line.getByRole('button', { name: 'Pause' }).click();
    await line.getByRole('button', { name: 'Resume' }).waitFor();
    assert.match(await line.innerText(), /8\.39 MB of 1\d\.\d MB/);
    holding = false;
    release();
    ranges.length = 0;
    await line.getByRole('button', { name: 'Resume' }).click();
    await line.getByRole('button', { name: 'Use', exact: true }).waitFor();
    assert.ok(ranges.filter((start) => start !== 0).length > 0 && ranges.filter((start) => start > 0).every((start) => start >= 8 << 20), `asked for ${ranges}`);
    await line.getByRole('button', { name: 'Use', exact: true }).click();
    await ready(page);
    assert.match(await ask(page, 'What colour is a ruby?'), /red/i);
    await page.goto(`${server.url}/#models`);
    await page.getByRole('button', { name: 'Unload' }).click();
    await line.getByRole('button', { name: 'Delete' }).click();
    await line.getByRole('button', { name: /Delete .* now/ }).click();
    await line.getByRole('button', { name: 'Download' }).waitFor(); // offered by the server again
});

visiting('a model dropped on the page is copied into the browser', {}, async (page) => {
    const file = fs.readFileSync(path.join(fixtureModels, 'micro-31b.F16.gguf')).toString('base64');
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

// --- conversations ----------------------------------------------------------------------------------------------------------------

visiting('conversations can be renamed, searched, exported, deleted and brought back', {}, async (page) => {
    await loadDemo(page);
    await ask(page, 'What colour is a ruby?');
    await page.getByRole('button', { name: 'New conversation' }).first().click();
    await ask(page, 'What colour is an emerald?');
    const entries = page.locator('.entry');
    assert.equal(await entries.count(), 2);
    const actions = () => page.getByRole('button', { name: /Actions for What colour is a ruby/ });
    await actions().click();
    await page.getByRole('button', { name: 'Rename' }).click();
    await page.getByLabel('Name of the conversation').fill('Red stones');
    await page.keyboard.press('Enter');
    await page.getByText('Red stones').waitFor();
    await page.getByLabel('Search conversations').fill('emerald');
    await page.waitForFunction(() => document.querySelectorAll('.entry').length === 1);
    await page.getByLabel('Search conversations').fill('');
    await page.getByRole('button', { name: 'Actions for Red stones' }).click();
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export' }).click()]);
    const exported = JSON.parse(fs.readFileSync(await file.path(), 'utf8'));
    assert.equal(exported.title, 'Red stones');
    assert.deepEqual(exported.messages.map((m) => m.role), ['user', 'assistant']);
    await page.getByRole('button', { name: 'Actions for Red stones' }).click();
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.entry').length === 1);
    await page.getByRole('button', { name: 'Undo' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.entry').length === 2);
});

visiting('what one tab writes the other shows', {}, async (page, visitor) => {
    const other = await visitor.context.newPage();
    await other.goto(`${server.url}/`);
    await loadDemo(page);
    await ask(page, 'What colour is a ruby?');
    await other.locator('.entry', { hasText: 'What colour is a ruby?' }).getByText('What colour').click();
    assert.equal(await lastAnswer(other), await lastAnswer(page));
});

visiting('hostile Markdown of a model runs nothing and fetches nothing', {}, async (page, visitor) => {
    await page.evaluate(async () => {
        const text = '<img src="https://elsewhere.example/x.png" onerror="window.hit = 1">\n\n[a](javascript:window.hit=1)\n\n<script>window.hit = 1</script>\n\n<a href="https://ok.example" onclick="window.hit = 1" style="position:fixed">b</a>\n\n![i](https://elsewhere.example/y.png)';
        await new Promise((resolve) => {
            const open = indexedDB.open('carat', 1);
            open.onsuccess = () => {
                const change = open.result.transaction('conversations', 'readwrite');
                change.objectStore('conversations').put({ id: 'h', title: 'Hostile', system: '', createdAt: 1, changedAt: Date.now(), messages: [{ id: 'm', role: 'assistant', text }] });
                change.oncomplete = () => { open.result.close(); resolve(); };
            };
        });
    });
    await page.reload();
    await page.locator('.message.assistant').waitFor();
    for (const link of await page.locator('.markdown a').all())
        assert.doesNotMatch(await link.evaluate((a) => a.outerHTML), /javascript:|onclick|style/);
    assert.equal(await page.locator('.markdown img, .markdown script').count(), 0);
    assert.equal(await page.evaluate(() => window.hit), undefined);
    assert.deepEqual(visitor.requests.filter((url) => url.includes('.example')), []);
});

// --- what may be missing ------------------------------------------------------------------------------------------------------------

test('after the first visit the app starts and answers without its server', async () => {
    const own = await serve(...serveArguments);
    origins.add(own.url);
    const visitor = await visit(browser, `${own.url}/`, { serviceWorkers: 'allow' });
    const { page } = visitor;
    try {
        await page.evaluate(() => navigator.serviceWorker.ready);
        await loadDemo(page);
        await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
        await page.goto(`${own.url}/#models`);
        await page.waitForTimeout(300);
        await page.goto(`${own.url}/#chat`);
        await own.stop();
        await page.reload();
        await ready(page);
        assert.equal(await page.evaluate(() => crossOriginIsolated), true);
        assert.match(await ask(page, 'What colour is a ruby?'), /red/i);
    } finally {
        seen.push(...visitor.requests);
        await visitor.close();
        await own.stop();
    }
});

visiting('without WebGPU the visitor is told, and the processor answers', { settings: { backend: 'auto' } }, async (page) => {
    await page.getByText(/No GPU can be used.*Models run on the processor/).waitFor();
    await loadDemo(page);
    assert.match(await page.locator('.badge').innerText(), /thread/);
    await page.goto(`${server.url}/#settings`);
    await page.getByLabel('Compute on').selectOption('webgpu');
    await page.getByRole('button', { name: 'Load again' }).click();
    await page.locator('.badge[data-state="failed"]').waitFor();
    await page.goto(`${server.url}/#models`);
    await page.getByRole('alert').getByText(/could not be loaded/).waitFor();
});

test('without isolation the visitor is told, and one thread answers', async () => {
    const plain = await servePlainly(appFolder);
    origins.add(plain.url);
    const visitor = await visit(browser, `${plain.url}/`);
    try {
        await visitor.page.getByText(/one thread only/).waitFor();
        await loadDemo(visitor.page);
        assert.match(await visitor.page.locator('.badge').innerText(), /1 thread$/);
        assert.match(await ask(visitor.page, 'What colour is a ruby?'), /red/i);
        assert.deepEqual(visitor.problems, []);
    } finally {
        seen.push(...visitor.requests);
        await visitor.close();
        await plain.stop();
    }
});

test('from the second visit on the service worker isolates the page of a plain file server, so that threads run', async () => {
    const plain = await servePlainly(appFolder);
    origins.add(plain.url);
    const visitor = await visit(browser, `${plain.url}/`, { serviceWorkers: 'allow' });
    const { page } = visitor;
    try {
        await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
        await page.reload();
        assert.equal(await page.evaluate(() => crossOriginIsolated), true);
        await loadDemo(page);
        assert.match(await page.locator('.badge').innerText(), /[2-9] threads$/);
    } finally {
        seen.push(...visitor.requests);
        await visitor.close();
        await plain.stop();
    }
});

const withoutOpfs = 'delete StorageManager.prototype.getDirectory;';
visiting('without a private file system the visitor is told, and models are kept in a database', { page: withoutOpfs, worker: withoutOpfs }, async (page) => {
    await page.getByText(/no private file system/).waitFor();
    await loadDemo(page);
    assert.match(await ask(page, 'What colour is a ruby?'), /red/i);
    await page.reload();
    await ready(page);
});

visiting('when the quota is exceeded the library says how much is missing, and the demo model comes from the network', {}, async (page, visitor) => {
    const devtools = await visitor.context.newCDPSession(page);
    await devtools.send('Storage.overrideQuotaForOrigin', { origin: server.url, quotaSize: 1 << 20 });
    await page.goto(`${server.url}/#models`);
    await page.locator('.model', { hasText: 'carat-demo.gguf' }).getByRole('button', { name: 'Download' }).click();
    await page.getByRole('alert').waitFor();
    assert.match(await page.getByRole('alert').innerText(), /Delete other models/);
    await page.goto(`${server.url}/#chat`);
    await loadDemo(page);
    await notice(page).getByText(/no room to keep this model/).waitFor();
    assert.match(await ask(page, 'What colour is a ruby?'), /red/i);
});

test('a lost graphics device is replaced and the answer goes on, with the conversation kept', async () => {
    const gpuBrowser = await launch({ gpu: true });
    const keepDevice = 'const request = GPUAdapter.prototype.requestDevice; GPUAdapter.prototype.requestDevice = async function (...a) { return self.lastDevice = await request.apply(this, a); };';
    const visitor = await visit(gpuBrowser, `${server.url}/`, { settings: { backend: 'webgpu' }, worker: keepDevice });
    const { page } = visitor;
    page.setDefaultTimeout(120_000);
    try {
        await page.getByText(/It computes correctly/).waitFor();
        await useEndlessModel(page, 'micro-31b.F16.gguf');
        assert.match(await page.locator('.badge').innerText(), /GPU/);
        await goOn(page);
        const before = await lastAnswer(page);
        for (const worker of page.workers())
            await worker.evaluate(() => self.lastDevice?.destroy()).catch(() => undefined);
        await notice(page).getByText(/was lost, and the model was loaded again/).waitFor();
        await page.waitForFunction((n) => document.querySelector('.message.assistant .markdown').textContent.length > n, before.length + 5);
        assert.ok((await lastAnswer(page)).startsWith(before.slice(0, 10)));
        await page.keyboard.press('Escape');
        await page.getByRole('button', { name: 'Continue' }).waitFor();
    } finally {
        seen.push(...visitor.requests);
        await gpuBrowser.close();
    }
});

test('a graphics device that computes wrongly is found before a download, and the processor answers', async () => {
    const gpuBrowser = await launch({ gpu: true });
    const visitor = await visit(gpuBrowser, `${server.url}/`, { settings: { backend: 'auto' }, worker: 'GPUQueue.prototype.writeBuffer = () => undefined;' });
    try {
        await visitor.page.getByText(/It computes wrongly/).waitFor();
        await loadDemo(visitor.page);
        assert.match(await visitor.page.locator('.badge').innerText(), /thread/);
        assert.match(await ask(visitor.page, 'What colour is a ruby?'), /red/i);
    } finally {
        seen.push(...visitor.requests);
        await gpuBrowser.close();
    }
});

visiting('the benchmark measures reading and writing', {}, async (page) => {
    await loadDemo(page);
    await page.goto(`${server.url}/#bench`);
    await page.getByRole('button', { name: 'Measure' }).click();
    await page.getByText('tg64').waitFor();
    const rates = await page.locator('tbody td:nth-child(2)').allInnerTexts();
    assert.equal(rates.length, 3);
    assert.ok(rates.every((text) => Number(/^[\d.]+/.exec(text)[0]) > 0), rates.join());
});

// --- everyone can use it ----------------------------------------------------------------------------------------------------------

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

test('no request of all these visits left the origin', () => {
    assert.ok(seen.length > 100);
    assert.deepEqual(seen.filter((url) => !/^(blob|data):/.test(url) && !origins.has(new URL(url).origin)), []);
});
