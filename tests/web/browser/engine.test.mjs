// The package in headless Chromium: golden tokens on the processor and on WebGPU, the worker, what happens when things are missing.
import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import * as path from 'node:path';
import { after, before, test } from 'node:test';
import { blank, fixtureModels, launch, openPage, serve } from '../helpers/browser.mjs';
import { onGpuInChromium } from '../helpers/choice.mjs';
import { readTensors } from '../helpers/gguf.mjs';
import { root } from '../helpers/load.mjs';

let server, plainServer, browser, page;
before(async () => {
    server = await serve({ folders: [fixtureModels], extra: blank });
    plainServer = await serve({ folders: [fixtureModels], isolated: false, extra: blank });
    browser = await launch();
    page = await openPage(browser.context, server.url);
});
after(async () => {
    await browser?.close();
    await server?.close();
    await plainServer?.close();
});

function goldenOf(name) {
    const t = readTensors(path.join(root, 'build/fixtures/text', `text-${name.replace(/^micro-e2b\..*/, 'micro-e2b.F32')}.gguf`));
    return { prompt: [...t['prompt.ids'].values], greedy: [...t['greedy.ids'].values], margins: [...t['greedy.margin'].values] };
}

// The golden continuation, up to the first choice that rounded activations could turn (the fixtures' README has the limits).
async function generate(target, name, options, golden) {
    const limit = /Q\d|IQ/.test(name) ? 1 : 0.5;
    const unsure = golden.margins.findIndex((m) => m <= limit),
        n = unsure < 0 ? golden.greedy.length : Math.max(1, unsure);
    const result = await target.evaluate(
        async ({ name, options, prompt, n }) => {
            const model = await window.carat.Carat.load(`/models/${name}.gguf`, options);
            try {
                const ids = [];
                for await (const event of model.generate(prompt, { temperature: 0, max_tokens: n, ignore_eos: true }))
                    if (event.kind === 'token') ids.push(event.id);
                return { ids, info: model.info, ...(await model.memory()) };
            } finally {
                await model.close();
            }
        },
        { name, options, prompt: golden.prompt, n },
    );
    assert.deepEqual(result.ids, golden.greedy.slice(0, n));
    return result;
}

const names = fs
    .readdirSync(fixtureModels)
    .filter((n) => !/mmproj|single/.test(n))
    .map((n) => n.replace(/\.gguf$/, ''));
for (const name of names) {
    test(`${name} gives the golden tokens in Chromium on the processor, with threads`, async () => {
        const { info } = await generate(page, name, { backend: 'cpu', threads: 2 }, goldenOf(name));
        assert.equal(info.backend, 'cpu');
        assert.notEqual(info.wasmVariant, 'simd');
    });
    if (onGpuInChromium(name))
        test(`${name} gives the golden tokens in Chromium on WebGPU, in little memory`, async () => {
            const { info, wasmBytes } = await generate(page, name, { backend: 'webgpu' }, goldenOf(name));
            assert.equal(info.backend, 'webgpu');
            assert.notEqual(info.device, '');
            assert.ok(wasmBytes < 64 << 20);
        });
}

const chat = (target, options, request = {}) =>
    target.evaluate(
        async ({ options, request }) => {
            const model = await window.carat.Carat.load('/models/tiny-e2b.Q8_0.gguf', options);
            try {
                const answer = await model.chat.completions.create({
                    messages: [{ role: 'user', content: 'Hi' }],
                    temperature: 0,
                    max_tokens: 8,
                    ignore_eos: true,
                    ...request,
                });
                return { info: model.info, text: answer.choices[0].message.content, usage: answer.usage };
            } finally {
                await model.close();
            }
        },
        { options, request },
    );

test('without cross-origin isolation one thread runs, and gives the same text', async () => {
    const other = await openPage(browser.context, plainServer.url);
    assert.equal(await other.evaluate(() => crossOriginIsolated), false);
    const alone = await chat(other, { backend: 'cpu' });
    assert.equal(alone.info.wasmVariant, 'simd');
    assert.equal(alone.info.threads, 1);
    assert.equal(alone.text, (await chat(page, { backend: 'cpu', threads: 1 })).text);
    await other.close();
});

test('relaxed SIMD is taken where the browser has it', async () => {
    const { info } = await chat(page, { backend: 'cpu', threads: 2 });
    assert.equal(info.wasmVariant, 'relaxed');
    assert.equal(info.threads, 2);
});

test('from another origin, as from a CDN, the worker and its threads start all the same', async () => {
    const other = await browser.context.newPage();
    await other.goto(`${server.url}/blank`);
    const info = await other.evaluate(async (cdn) => {
        const { Carat } = await import(`${cdn}/dist/carat.js`);
        const model = await Carat.load('/models/tiny-e2b.Q8_0.gguf', { backend: 'cpu', threads: 2 });
        await model.close();
        return model.info;
    }, plainServer.url);
    assert.equal(info.threads, 2);
    await other.close();
});

test('without a worker the engine runs in the page', async () => {
    const { info, usage } = await chat(page, { backend: 'cpu', worker: false });
    assert.equal(info.threads, 1);
    assert.equal(usage.completion_tokens, 8);
});

test('without WebGPU "auto" takes the processor and "webgpu" says what is missing', async () => {
    const other = await launch({ gpu: false });
    try {
        const bare = await openPage(other.context, server.url);
        await bare.evaluate(() => Object.defineProperty(navigator, 'gpu', { value: undefined, configurable: true }));
        const found = await bare.evaluate(() => window.carat.probe());
        assert.equal(found.webgpu.available, false);
        assert.equal(found.usable, true);
        assert.match(found.problems.join(' '), /GPU/);
        const error = await bare.evaluate(() =>
            window.carat.Carat.load('/models/tiny-e2b.Q8_0.gguf', { backend: 'webgpu', worker: false }).then(
                () => null,
                (e) => ({ code: e.code, remedy: e.remedy }),
            ),
        );
        assert.equal(error.code, 'no_device');
        assert.ok(error.remedy.length > 0);
        assert.equal((await chat(bare, { backend: 'auto', worker: false })).info.backend, 'cpu');
    } finally {
        await other.close();
    }
});

test('the page is not blocked while a model loads and answers in its worker', async () => {
    const waits = await page.evaluate(async () => {
        const waits = [],
            channel = new MessageChannel();
        let last,
            running = true;
        channel.port1.onmessage = () => {
            const now = performance.now();
            waits.push(now - last);
            last = now;
            if (running) channel.port2.postMessage(0);
        };
        last = performance.now();
        channel.port2.postMessage(0);
        const model = await window.carat.Carat.load('/models/micro-26b.BF16.gguf', { backend: 'cpu', threads: 1 });
        for await (const event of model.generate(
            Array.from({ length: 200 }, (_, i) => i + 3),
            { temperature: 0, max_tokens: 20, ignore_eos: true },
        ))
            void event;
        running = false;
        await model.close();
        return waits.sort((a, b) => a - b);
    });
    // On a shared machine the system itself takes the page's turn now and then; an engine in the page would take all of them.
    const late = waits.filter((ms) => ms > 16).length / waits.length;
    assert.ok(late < 0.01, `${(100 * late).toFixed(2)} % of ${waits.length} turns came late`);
});

test('a lost device ends a generation with device_lost, and the model can be loaded again', async () => {
    const result = await page.evaluate(async () => {
        const model = await window.carat.Carat.load('/models/tiny-e2b.Q8_0.gguf', { backend: 'webgpu' });
        const ids = [2, 9, 4];
        let code = 'none';
        try {
            let n = 0;
            for await (const event of model.generate(ids, { temperature: 0, max_tokens: 200, ignore_eos: true }))
                if (event.kind === 'token' && ++n === 3) await model.link.call('loseDevice', null);
        } catch (error) {
            code = error.code;
        }
        await model.close();
        const again = await window.carat.Carat.load('/models/tiny-e2b.Q8_0.gguf', { backend: 'webgpu' });
        let tokens = 0;
        for await (const event of again.generate(ids, { temperature: 0, max_tokens: 3, ignore_eos: true }))
            tokens += event.kind === 'token';
        await again.close();
        return { code, tokens };
    });
    assert.deepEqual(result, { code: 'device_lost', tokens: 3 });
});

test('a stream loads a model, also where a browser cannot pass streams to workers', async () => {
    const texts = await page.evaluate(async () => {
        const post = MessagePort.prototype.postMessage;
        const texts = [];
        for (let i = 0; i < 2; i++) {
            const response = await fetch('/models/tiny-e2b.Q8_0.gguf');
            const model = await window.carat.Carat.load(response.body, { backend: 'cpu', threads: 1 });
            const ids = [];
            for await (const event of model.generate([2, 9], { temperature: 0, max_tokens: 3, ignore_eos: true }))
                if (event.kind === 'token') ids.push(event.id);
            texts.push(ids.join());
            await model.close();
            MessagePort.prototype.postMessage = function (message, transfer) {
                if (message instanceof ReadableStream) throw new DOMException('no', 'DataCloneError');
                return post.call(this, message, transfer);
            };
        }
        MessagePort.prototype.postMessage = post;
        return texts;
    });
    assert.equal(texts[0], texts[1]);
    assert.equal(texts[0].split(',').length, 3);
});

test('a PNG, a canvas and a WAV file in a message become soft tokens', async () => {
    const counts = await page.evaluate(async () => {
        const model = await window.carat.Carat.load('/models/tiny-e2b.Q8_0.gguf', {
            backend: 'cpu',
            threads: 1,
            projector: '/models/tiny-mm.mmproj-F16.gguf',
        });
        const canvas = new OffscreenCanvas(200, 120);
        const context = canvas.getContext('2d');
        context.fillStyle = 'teal';
        context.fillRect(20, 20, 100, 60);
        const png = await canvas.convertToBlob({ type: 'image/png' });
        const url = await new Promise((resolve) => {
            const reader = new FileReader();
            reader.onload = () => resolve(reader.result);
            reader.readAsDataURL(png);
        });
        const wav = new DataView(new ArrayBuffer(44 + 32000));
        [0x46464952, 36 + 32000, 0x45564157, 0x20746d66, 16, 0x10001, 16000, 32000, 0x100002, 0x61746164, 32000].forEach(
            (word, i) => wav.setUint32(4 * i, word, true),
        );
        for (let i = 0; i < 16000; i++) wav.setInt16(44 + 2 * i, 8000 * Math.sin(i / 5), true);
        const counts = [];
        for (const part of [
            { type: 'image', image: png, tokens: 70 },
            { type: 'image', image: canvas, tokens: 70 },
            { type: 'image_url', image_url: { url } },
            { type: 'audio', audio: new Blob([wav.buffer]) },
        ]) {
            const messages = [{ role: 'user', content: [part, { type: 'text', text: 'What?' }] }];
            const answer = await model.chat.completions.create({ messages, max_tokens: 2, temperature: 0, ignore_eos: true });
            counts.push(answer.usage.prompt_tokens);
        }
        await model.close();
        return counts;
    });
    assert.ok(
        counts.every((n) => n > 30),
        counts.join(),
    );
    assert.equal(counts[0], counts[1]);
    assert.ok(counts[2] > counts[0], 'without a budget more tokens are spent on an image');
});

test('a stale WebAssembly module is refused', async (context) => {
    const stale = await serve({
        folders: [fixtureModels],
        extra: {
            ...blank,
            '/dist/carat-simd.wasm': (_q, response, headers) => {
                // (module (func (export "wasm_interface") (result i32) i32.const 999))
                const bytes = [
                    0,
                    97,
                    115,
                    109,
                    1,
                    0,
                    0,
                    0,
                    1,
                    5,
                    1,
                    96,
                    0,
                    1,
                    127,
                    3,
                    2,
                    1,
                    0,
                    7,
                    18,
                    1,
                    14,
                    ...Buffer.from('wasm_interface'),
                    0,
                    0,
                    10,
                    7,
                    1,
                    5,
                    0,
                    65,
                    231,
                    7,
                    11,
                ];
                response.writeHead(200, { ...headers, 'content-type': 'application/wasm' }).end(Buffer.from(bytes));
            },
        },
    });
    context.after(() => stale.close());
    const other = await openPage(browser.context, stale.url);
    const code = await other.evaluate(() =>
        window.carat.Carat.load('/models/tiny-e2b.Q8_0.gguf', { backend: 'cpu', variant: 'simd' }).then(
            () => 'loaded',
            (e) => e.code,
        ),
    );
    assert.equal(code, 'version_mismatch');
    await other.close();
});

test('the demo page loads a model by URL and streams an answer', async () => {
    const demo = await browser.context.newPage();
    await demo.goto(server.url);
    await demo.fill('#url', 'models/tiny-e2b.Q8_0.gguf');
    await demo.selectOption('#backend', 'cpu');
    await demo.click('#open');
    await demo.waitForFunction(() => !document.getElementById('asking').disabled, undefined, { timeout: 60_000 });
    await demo.fill('#message', 'Hi');
    await demo.click('#send');
    await demo.waitForFunction(() => document.getElementById('speed').textContent.includes('tokens'), undefined, {
        timeout: 60_000,
    });
    await demo.close();
});
