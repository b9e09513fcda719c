// What may be missing: the server, WebGPU, isolation, the private file system, room. Each leads to a clear state.
import assert from 'node:assert/strict';
import { appFolder, ask, loadDemo, ready, servePlainly } from './app-browser.mjs';
import { notice, server, serveApp, visiting } from './visiting.mjs';

visiting('after the first visit the app starts and answers without its server', { own: serveApp, serviceWorkers: 'allow' }, async (page, _visitor, own) => {
    await page.evaluate(() => navigator.serviceWorker.ready);
    await loadDemo(page);
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
    await own.stop();
    await page.reload();
    await ready(page);
    assert.equal(await page.evaluate(() => crossOriginIsolated), true);
    assert.match(await ask(page, 'What colour is a ruby?'), /red/i);
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

const servePlainApp = () => servePlainly(appFolder);

visiting('without isolation the visitor is told, and one thread answers', { own: servePlainApp }, async (page) => {
    await page.getByText(/one thread only/).waitFor();
    await loadDemo(page);
    assert.match(await page.locator('.badge').innerText(), /1 thread$/);
    assert.match(await ask(page, 'What colour is a ruby?'), /red/i);
});

visiting('from the second visit on the service worker isolates the page of a plain file server, so that threads run', {
    own: servePlainApp, serviceWorkers: 'allow',
}, async (page) => {
    await page.waitForFunction(() => navigator.serviceWorker.controller !== null);
    await page.reload();
    assert.equal(await page.evaluate(() => crossOriginIsolated), true);
    await loadDemo(page);
    assert.match(await page.locator('.badge').innerText(), /[2-9] threads$/);
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
