// A file of Ollama's layout and size (about 7 GB) in headless Chromium: into OPFS, and from there onto the GPU, in little memory of
// the module. Slow, so it runs only when CARAT_LARGE names the file: carat synth e2b FILE --ollama
import assert from 'node:assert/strict';
import * as path from 'node:path';
import { after, before, test } from 'node:test';
import { blank, launch, openPage, serve } from '../helpers/browser.mjs';

const file = process.env.CARAT_LARGE;
const options = { skip: file === undefined };
let server, browser, page;
before(async () => {
    if (file === undefined) return;
    server = await serve({ folders: [path.dirname(file)], extra: blank });
    browser = await launch();
    page = await openPage(browser.context, server.url);
});
after(async () => {
    await browser?.close();
    await server?.close();
});

test('a file larger than any memory of the page is downloaded into OPFS and verified', options, async (t) => {
    const { model, seconds } = await page.evaluate(async (name) => {
        const models = await window.carat.Models.open();
        const begun = performance.now();
        const model = await models.download(`/models/${name}`, { key: 'large' });
        models.close();
        return { model, seconds: (performance.now() - begun) / 1000 };
    }, path.basename(file));
    assert.equal(model.state, 'complete');
    t.diagnostic(`${(model.size / 1e9).toFixed(2)} GB in ${seconds.toFixed(0)} s`);
});

for (const backend of ['webgpu', 'cpu'])
    test(`it generates from the store on ${backend}`, options, async (t) => {
        const result = await page.evaluate(async (backend) => {
            const begun = performance.now();
            const model = await window.carat.Carat.load(
                { store: 'large' },
                { backend, contextSize: 512, threads: 2, batch: 64, perLayerTableOnDisk: true },
            );
            const loaded = performance.now();
            const ids = [];
            let finish;
            for await (const event of model.generate([2, 105, 2364, 107, 10979, 106], {
                temperature: 0,
                max_tokens: 3,
                ignore_eos: true,
            })) {
                if (event.kind === 'token') ids.push(event.id);
                if (event.kind === 'finish') finish = event;
            }
            const { wasmBytes } = await model.memory();
            const { info } = model;
            await model.close();
            return { ids, wasmBytes, info, finish, loadSeconds: (loaded - begun) / 1000 };
        }, backend);
        assert.equal(result.ids.length, 3);
        t.diagnostic(
            `loaded in ${result.loadSeconds.toFixed(1)} s, ${(result.wasmBytes / 2 ** 20).toFixed(1)} MiB of module memory, ` +
                `${(result.info.weightBytes / 1e9).toFixed(2)} GB of weights, prompt ${(result.finish.promptMs / 1000).toFixed(1)} s, ids ${result.ids}`,
        );
        if (backend === 'webgpu') assert.ok(result.wasmBytes < 64 << 20, `${result.wasmBytes} bytes`);
        else assert.ok(result.wasmBytes < result.info.weightBytes + (256 << 20), `${result.wasmBytes} bytes`);
    });
