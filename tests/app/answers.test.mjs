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
    await page.getByRole('button', { name: 'Stop' }).waitFor(); // the text may still have been growing from before
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

visiting('an answer whose page is killed is kept as far as it came, and can be continued', {}, async (page, visitor) => {
    await useEndlessModel(page);
    await goOn(page);
    await page.waitForFunction(() => Object.entries(localStorage).some(([key, text]) => key.startsWith('carat.answer.') && text.length > 1000));
    const seen = await lastAnswer(page);
    const devtools = await visitor.context.newCDPSession(page);
    const crash = page.waitForEvent('crash');
    devtools.send('Page.crash').catch(() => undefined); // no handler of the page runs
    await crash;

    const next = await visitor.context.newPage();
    await next.goto(`${server.url}/`);
    await answers(next).waitFor();
    const kept = await lastAnswer(next);
    assert.ok(kept.length > 100, `${kept.length} characters`);
    assert.equal(kept.slice(0, 100), seen.slice(0, 100));
    await next.reload(); // it is in the conversation now
    await answers(next).waitFor();
    assert.equal(await lastAnswer(next), kept);
    await next.getByRole('button', { name: /^Load tiny-26b/ }).click();
    await next.getByRole('button', { name: 'Continue' }).click();
    await next.waitForFunction((n) => document.querySelector('.message.assistant .markdown').textContent.length > n + 20, kept.length);
    await next.keyboard.press('Escape');
    await next.getByRole('button', { name: 'Continue' }).waitFor();
    assert.equal(await answers(next).count(), 1);
});

// The engine's events with this text instead of the model's.
const saying = (text, piece) => `{
    const post = self.postMessage.bind(self), text = ${JSON.stringify(text)};
    let at = 0;
    self.postMessage = (message, transfer) => {
        if (message.event?.kind === 'content')
            message.event.text = text.slice(at, at += ${piece});
        post(message, transfer ?? []);
    };
}`;

// What a model writes when it writes a lot.
const section = (i) => `## Part ${i}

A paragraph with **bold** words, \`code\` and a [link](https://example.org/${i}) in it. ${'It goes on for a while. '.repeat(12)}

1. first
2. second, with a longer text behind it

| name | value |
|---|---|
| a | ${i} |

\`\`\`c
int part_${i}(int x)
{
    return x + ${i};
}
\`\`\`

`;
const longText = Array.from({ length: 150 }, (_, i) => section(i)).join('');

// Rendering all that has come whenever more comes would make the elements of the last forty parts more than a hundred times each.
visiting('what is complete of a long answer is rendered once, and what comes late costs no more than what comes early', {
    worker: saying(longText, 40),
}, async (page) => {
    await useEndlessModel(page);
    await page.evaluate(() => { // counts the elements that are made; made[n]: until part n appeared
        const elements = (node) => node.nodeType === Node.ELEMENT_NODE ? 1 + node.querySelectorAll('*').length : 0;
        window.made = [];
        let n = 0;
        new MutationObserver((records) => {
            for (const record of records)
                for (const node of record.addedNodes)
                    n += elements(node);
            window.made[document.querySelectorAll('.markdown h2').length] ??= n;
        }).observe(document.querySelector('.messages') ?? document.body, { childList: true, subtree: true });
    });
    const until = (part) => page.locator('.markdown h2', { hasText: new RegExp(`^Part ${part}$`) }).waitFor({ state: 'attached', timeout: 60_000 });
    await goOn(page);
    await until(10);
    await page.evaluate(() => { // the blocks of the first parts as they are now
        window.early = [...document.querySelectorAll('.message.assistant .markdown > div')].slice(0, 30);
        window.changes = 0;
        const observer = new MutationObserver((records) => { window.changes += records.length; });
        for (const block of window.early)
            observer.observe(block, { childList: true, subtree: true, characterData: true });
    });
    await until(130);
    assert.ok(await page.evaluate(() => window.early.length === 30 && window.changes === 0 && window.early.every((block) => block.isConnected)), 'earlier blocks were touched');
    const { made, present } = await page.evaluate(() => ({ // per part: made, and there in the end
        made: (window.made.findLast((n) => n != null) - window.made.find((n, part) => part >= 90 && n != null)) / (window.made.length - 91),
        present: document.querySelectorAll('.markdown *').length / document.querySelectorAll('.markdown h2').length,
    }));
    assert.ok(made < 6 * present, `${made.toFixed(0)} elements were made for each part of ${present.toFixed(0)}`);
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Continue' }).waitFor();
});

visiting('a text that comes in pieces looks as the same text at once', { worker: saying(`${section(1)}1. one\n\n2. two\n\n   inside\n\ntext\n#tag\nSetext\n---\n\n> quote\n> more\n\n- a\n- b\n\n* * *\n`, 1) }, async (page) => {
    await useEndlessModel(page);
    await goOn(page);
    await page.locator('.markdown hr').waitFor();
    const grown = await page.locator('.markdown').innerHTML();
    await page.keyboard.press('Escape');
    await page.getByRole('button', { name: 'Continue' }).waitFor();
    await page.reload();
    await page.locator('.markdown hr').waitFor();
    assert.equal(await page.locator('.markdown').innerHTML(), grown);
    for (const element of ['h2', 'ol', 'table', 'pre', 'blockquote', 'ul'])
        assert.ok(await page.locator(`.markdown ${element}`).count() > 0, element);
    assert.equal(await page.locator('.markdown ol').last().locator('> li').count(), 2);
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
