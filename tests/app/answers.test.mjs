// Answers in headless Chromium, from the first visit on: three turns, stopping, going on, editing, thinking, attachments.
import assert from 'node:assert/strict';
import { ask, lastAnswer, lastStats, loadDemo, ready } from './app-browser.mjs';
import { answers, drawCircle, goOn, notice, server, useEndlessModel, visiting } from './visiting.mjs';

visiting('a first visit says what the browser can do, loads the demo model and answers within 10 s as the native program does', {
    page: 'window.shift = 0; new PerformanceObserver((list) => list.getEntries().forEach((e) => { if (!e.hadRecentInput) window.shift += e.value; })).observe({ type: "layout-shift", buffered: true });',
}, async (page) => {
    await page.getByText('This browser can run it.').waitFor();
    await loadDemo(page);
    const question = 'What colour is a ruby?';
    const answer = await ask(page, question);
    assert.ok(await page.evaluate(() => performance.now()) < 10_000); // since the address was opened
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
    await page.waitForTimeout(300);
    const paused = await length();
    await page.waitForTimeout(300);
    assert.equal(await length(), paused);
    await hide(false);
    await page.waitForFunction((n) => document.querySelector('.message.assistant .markdown').textContent.length > n, paused);
    await page.keyboard.press('Escape');
});

// --- attachments ------------------------------------------------------------------------------------------------------------------

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
    await page.waitForTimeout(600); // the browser's false microphone beeps
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
