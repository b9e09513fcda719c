// Conversations in headless Chromium: kept, found, exported, shown in every tab, and shown safely.
import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import { ask, lastAnswer, loadDemo, ready } from './app-browser.mjs';
import { drawCircle, notice, server, visiting } from './visiting.mjs';

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

visiting('an exported conversation can be imported, once, and a file that is none is refused with a reason and changes nothing', {}, async (page) => {
    await loadDemo(page);
    const circle = Buffer.from(await drawCircle(page));
    await page.getByLabel('Choose images and sounds').setInputFiles({ name: 'circle.png', mimeType: 'image/png', buffer: circle });
    const answer = await ask(page, 'What is in the picture?');
    const choose = (name, content) => page.getByLabel('Choose conversations to import').setInputFiles({ name, mimeType: 'application/json', buffer: Buffer.from(content) });
    const menu = () => page.getByRole('button', { name: /^Actions for What is in the picture/ }).first().click();
    await menu();
    const [file] = await Promise.all([page.waitForEvent('download'), page.getByRole('button', { name: 'Export' }).click()]);
    const exported = fs.readFileSync(await file.path(), 'utf8');

    await choose('again.json', exported);
    await notice(page).getByText('is here already').waitFor();
    assert.equal(await page.locator('.entry').count(), 1);
    await menu();
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.waitForFunction(() => document.querySelectorAll('.message').length === 0);
    await choose('back.json', exported);
    await page.getByAltText('circle.png').waitFor();
    assert.equal(await page.getByAltText('circle.png').evaluate((img) => img.decode().then(() => img.naturalWidth)), 96);
    assert.equal(await lastAnswer(page), answer);
    await ask(page, 'What colour is a ruby?'); // it has gone on: the file's is another one now
    await choose('earlier.json', exported);
    await page.locator('.entry', { hasText: '(from a file)' }).waitFor();
    const count = await page.locator('.entry').count();

    const changed = (change) => JSON.stringify(change(JSON.parse(exported)));
    for (const [content, reason] of [
        ['{', 'not JSON'], ['[]', 'no conversation'], ['{"title": "x"}', 'no conversation'],
        [changed((c) => ({ ...c, messages: [{ role: 'system', text: 'x' }] })), 'message 1 is neither'],
        [changed((c) => ({ ...c, messages: [c.messages[0], { role: 'assistant' }] })), 'message 2 has no text'],
        [changed((c) => { c.messages[0].attachments[0].url = 'https://elsewhere.example/x.png'; return c; }), 'attachment that cannot be read'],
        [changed((c) => { c.messages[0].attachments[0].url = 'data:text/html;base64,eA=='; return c; }), 'attachment that cannot be read'],
    ]) {
        await choose('bad.json', content);
        await notice(page).getByText('bad.json was not imported').getByText(reason).waitFor();
        assert.equal(await page.locator('.entry').count(), count);
    }
    await page.reload();
    await ready(page);
    assert.equal(await page.locator('.entry', { hasText: 'What is in the picture' }).count(), 2);
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
            const open = indexedDB.open('carat');
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
