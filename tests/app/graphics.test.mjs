// Graphics devices that are lost or compute wrongly, in headless Chromium with a software device.
import assert from 'node:assert/strict';
import { ask, lastAnswer, loadDemo } from './app-browser.mjs';
import { goOn, notice, useEndlessModel, visiting } from './visiting.mjs';

const keepDevice = 'const request = GPUAdapter.prototype.requestDevice; GPUAdapter.prototype.requestDevice = async function (...a) { return self.lastDevice = await request.apply(this, a); };';

visiting('a lost graphics device is replaced and the answer goes on, with the conversation kept', {
    gpu: true, settings: { backend: 'webgpu' }, worker: keepDevice,
}, async (page) => {
    page.setDefaultTimeout(120_000);
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
});

visiting('a graphics device that computes wrongly is found before a download, and the processor answers', {
    gpu: true, settings: { backend: 'auto' }, worker: 'GPUQueue.prototype.writeBuffer = () => undefined;',
}, async (page) => {
    await page.getByText(/It computes wrongly/).waitFor();
    await loadDemo(page);
    assert.match(await page.locator('.badge').innerText(), /thread/);
    assert.match(await ask(page, 'What colour is a ruby?'), /red/i);
});
