// A file of Ollama's layout and size (about 7 GB) in headless Chromium: into OPFS, and from there onto the GPU, in little memory of
// the module. Takes minutes and 7 GB of disk, so it is no part of the whole: `CARAT_LARGE=FILE npm run test:large` in web/, with a FILE
// made by `carat synth e2b FILE --ollama`.
import assert from 'node:assert/strict';
import * as path from 'node:path';
import { after, before, test } from 'node:test';
import { blank, launch, openPage, serve } from '../helpers/browser.mjs';

const file = process.env.CARAT_LARGE;
if (file === undefined) throw new Error('CARAT_LARGE must name the file');
let server, browser, page;
before(async () => {
    server = await serve({ folders: [path.dirname(file)], extra: blank });
    browser = await launch();
    page = await openPage(browser.context, server.url);
});
after(async () => {
    await browser?.close();
    await server?.close();
});

test('a file larger than any memory of the page is downloaded into OPFS and verified', async (t) => {
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

for (const backend of ['cpu', 'webgpu'])
    test(`it generates from the store on ${backend}`, async (t) => {
        const loaded = await page.evaluate(async (backend) => {
            const begun = performance.now();
            const options = { backend, contextSize: 512, threads: 2, batch: 64, perLayerTableOnDisk: true };
            window.model = await window.carat.Carat.load({ store: 'large' }, options);
            await window.model.tokenize('a');
            const { wasmBytes } = await window.model.memory();
            return { wasmBytes, info: window.model.info, seconds: (performance.now() - begun) / 1000 };
        }, backend);
        const { weightBytes } = loaded.info;
        t.diagnostic(`${(weightBytes / 1e9).toFixed(2)} GB of weights loaded in ${loaded.seconds.toFixed(1)} s`);
        const result = await page.evaluate(async () => {
            const begun = performance.now();
            const ids = [];
            for await (const event of window.model.generate([2], { temperature: 0, max_tokens: 1, ignore_eos: true }))
                if (event.kind === 'token') ids.push(event.id);
            const { wasmBytes } = await window.model.memory();
            await window.model.close();
            return { ids, wasmBytes, seconds: (performance.now() - begun) / 1000 };
        });
        t.diagnostic(
            `${(result.wasmBytes / 2 ** 20).toFixed(1)} MiB of module memory, one token in ${result.seconds.toFixed(1)} s`,
        );
        assert.equal(result.ids.length, 1);
        // On the processor the weights are in the module's memory; on the GPU they never are.
        const limit = backend === 'webgpu' ? 64 << 20 : weightBytes + (256 << 20);
        assert.ok(result.wasmBytes < limit, `${result.wasmBytes} bytes`);
    });
