// The model store in headless Chromium: OPFS with sync handles and its stand-ins, tabs killed while downloading, loading from the
// store and while it fills, quota.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import * as path from 'node:path';
import { after, before, test } from 'node:test';
import { blank, fixtureModels, launch, openPage, serve } from '../helpers/browser.mjs';
import { noise } from '../helpers/range-server.mjs';

const bytes = noise(24 << 20);
const sha256 = createHash('sha256').update(bytes).digest('hex');
let slowMs = 0;
let asked = [];

// Serves `bytes` in ranges, each piece of 256 KiB after slowMs.
function serveBytes(request, response, headers) {
    const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    const start = Number(match[1]),
        end = Math.min(bytes.length, Number(match[2]) + 1);
    asked.push([start, end]);
    response.writeHead(206, {
        ...headers,
        'etag': '"1"',
        'content-length': end - start,
        'content-range': `bytes ${start}-${end - 1}/${bytes.length}`,
    });
    let at = start;
    const next = () => {
        if (response.destroyed) return;
        const upTo = Math.min(end, at + (256 << 10));
        response.write(bytes.subarray(at, upTo));
        at = upTo;
        if (at === end) response.end();
        else setTimeout(next, slowMs);
    };
    next();
}

let server, browser;
before(async () => {
    server = await serve({ folders: [fixtureModels], extra: { ...blank, '/bytes': serveBytes } });
    browser = await launch();
});
after(async () => {
    await browser?.close();
    await server?.close();
});

async function withPage(body) {
    const page = await openPage(browser.context, server.url);
    try {
        return await body(page);
    } finally {
        await page.close();
    }
}

const hashOf = (page, key, options = {}) =>
    page.evaluate(
        async ({ key, options }) => {
            const models = await window.carat.Models.open(options);
            try {
                const blob = await models.blob(key);
                const digest = await crypto.subtle.digest('SHA-256', await blob.arrayBuffer());
                return Array.from(new Uint8Array(digest), (b) => b.toString(16).padStart(2, '0')).join('');
            } finally {
                models.close();
            }
        },
        { key, options },
    );

test('a model is downloaded into OPFS, listed, verified and deleted, with progress', () =>
    withPage(async (page) => {
        const result = await page.evaluate(
            async ({ sha256 }) => {
                const models = await window.carat.Models.open();
                const seen = [];
                const model = await models.download('/bytes', { key: 'a', sha256, onProgress: (p) => seen.push(p) });
                const usage = await models.usage();
                const list = await models.list();
                const good = await models.verify('a');
                await models.delete('a');
                const rest = await models.list();
                models.close();
                return { model, usage, list, good, rest, seen: seen.length, last: seen[seen.length - 1] };
            },
            { sha256 },
        );
        assert.equal(result.usage.kind, 'opfs');
        assert.equal(result.model.state, 'complete');
        assert.equal(result.model.sha256, sha256);
        assert.equal(result.list.length, 1);
        assert.equal(result.good, true);
        assert.deepEqual(result.rest, []);
        assert.ok(result.seen > 0);
        assert.equal(result.last.received, result.last.total);
    }));

test('a tab killed at many points of a download is taken up by the next, which brings only what is missing', async () => {
    slowMs = 50;
    asked = [];
    let kills = 0;
    for (let ms = 400; kills < 40; ms += 150) {
        const page = await openPage(browser.context, server.url);
        const done = page
            .evaluate(async (sha256) => {
                const models = await window.carat.Models.open();
                await models.download('/bytes', { key: 'k', sha256 });
                return true;
            }, sha256)
            .catch(() => false);
        const finished = await Promise.race([done, new Promise((resolve) => setTimeout(() => resolve('late'), ms))]);
        if (finished === 'late') {
            kills++;
            await page.close(); // ends the worker wherever it is
            continue;
        }
        await page.close();
        assert.equal(finished, true);
        break;
    }
    slowMs = 0;
    assert.ok(kills >= 2, `${kills} kills`);
    await withPage(async (page) => assert.equal(await hashOf(page, 'k'), sha256));
});

test('a download goes on when the whole browser was killed', async () => {
    slowMs = 50;
    let other = await launch({ keep: true });
    const page = await openPage(other.context, server.url);
    // Killed when the first of several chunks is safe.
    await page.evaluate(async () => {
        const models = await window.carat.Models.open();
        await new Promise((resolve, reject) => {
            const onProgress = (progress) => progress.received > 0 && resolve();
            models.download('/bytes', { key: 'b', parallel: 1, onProgress }).then(() => reject(new Error('finished')), reject);
        });
    });
    await other.close();
    slowMs = 0;
    other = await launch({ profile: other.profile });
    try {
        const next = await openPage(other.context, server.url);
        const before = await next.evaluate(async () => (await (await window.carat.Models.open()).list())[0]);
        assert.equal(before?.state, 'partial');
        await next.evaluate(
            async (sha256) => (await window.carat.Models.open()).download('/bytes', { key: 'b', sha256 }),
            sha256,
        );
        assert.equal(await hashOf(next, 'b'), sha256);
    } finally {
        await other.close();
    }
});

test('a model loads from the store, by its rows too, and while it is still being stored', () =>
    withPage(async (page) => {
        const result = await page.evaluate(async () => {
            const models = await window.carat.Models.open();
            const onDisk = [];
            const answer = async (source) => {
                const model = await window.carat.Carat.load(source, { backend: 'cpu', threads: 1 });
                onDisk.push(model.info.tableOnDisk);
                const ids = [];
                for await (const event of model.generate([2, 9, 4], { temperature: 0, max_tokens: 6, ignore_eos: true }))
                    if (event.kind === 'token') ids.push(event.id);
                await model.close();
                return ids.join();
            };
            const direct = await answer('/models/tiny-e2b.Q8_0.gguf');
            const filling = await answer({ url: '/models/tiny-e2b.Q8_0.gguf', store: 'tiny' });
            for (let i = 0; i < 100 && (await models.list()).find((m) => m.key === 'tiny')?.state !== 'complete'; i++)
                await new Promise((resolve) => setTimeout(resolve, 50));
            const stored = await answer({ store: 'tiny' });
            return { direct, filling, stored, onDisk, list: await models.list() };
        });
        assert.equal(result.filling, result.direct);
        assert.equal(result.stored, result.direct);
        assert.deepEqual(result.onDisk, [false, true, true], 'rows are read from the store, not over the network');
        assert.equal(result.list.find((m) => m.key === 'tiny').state, 'complete');
    }));

test('a model of the store that another tab uses loads all the same', () =>
    withPage(async (page) => {
        const load = () =>
            page.evaluate(async () => {
                const a = await window.carat.Carat.load(
                    { url: '/models/tiny-e2b.Q8_0.gguf', store: 'shared' },
                    { backend: 'cpu', threads: 1 },
                );
                await new Promise((resolve) => setTimeout(resolve, 500));
                const b = await window.carat.Carat.load({ store: 'shared' }, { backend: 'cpu', threads: 1 });
                const c = await window.carat.Carat.load({ store: 'shared' }, { backend: 'cpu', threads: 1 });
                const counts = [];
                for (const model of [a, b, c])
                    for await (const event of model.generate([2, 9], { temperature: 0, max_tokens: 2, ignore_eos: true }))
                        if (event.kind === 'finish') counts.push(event.generatedTokens);
                for (const model of [a, b, c]) await model.close();
                return counts;
            });
        assert.deepEqual(await load(), [2, 2, 2]);
    }));

for (const kind of ['opfs-segments', 'indexeddb', 'memory'])
    test(`without sync handles the store works in ${kind}, and says so`, () =>
        withPage(async (page) => {
            const result = await page.evaluate(
                async ({ kind, sha256 }) => {
                    const models = await window.carat.Models.open({ kind });
                    const model = await models.download('/bytes', { key: `in ${kind}`, sha256 });
                    const { kind: said } = await models.usage();
                    const good = await models.verify(`in ${kind}`);
                    await models.delete(`in ${kind}`);
                    models.close();
                    return { model, said, good };
                },
                { kind, sha256 },
            );
            assert.equal(result.said, kind);
            assert.equal(result.model.sha256, sha256);
            assert.equal(result.good, true);
        }));

test('without OPFS the store takes IndexedDB, without that memory, and says so aloud', () =>
    withPage(async (page) => {
        const result = await page.evaluate(async () => {
            Object.defineProperty(navigator.storage, 'getDirectory', { value: undefined });
            const kinds = [];
            for (let i = 0; i < 2; i++) {
                const models = await window.carat.Models.open({ worker: false });
                kinds.push((await models.usage()).kind);
                kinds.push((await window.carat.probe()).problems.filter((p) => /private file system|no storage/.test(p)).length);
                Object.defineProperty(window, 'indexedDB', { value: undefined });
            }
            return kinds;
        });
        assert.deepEqual(result, ['indexeddb', 1, 'memory', 1]);
    }));

test('a model that was used while it arrived is refused once its sha256 turns out wrong', () =>
    withPage(async (page) => {
        const code = await page.evaluate(async () => {
            // no per-layer table: nothing waits for the end of the download
            const source = { url: '/models/micro-31b.F16.gguf', store: 'wrong', sha256: '0'.repeat(64) };
            try {
                const model = await window.carat.Carat.load(source, { backend: 'cpu', threads: 1 });
                for (let i = 0; i < 100; i++) {
                    for await (const event of model.generate([2, 9], { temperature: 0, max_tokens: 1 })) void event;
                    await new Promise((resolve) => setTimeout(resolve, 50));
                }
            } catch (error) {
                return error.code; // of the load, where the end came before it
            }
            return 'never';
        });
        assert.equal(code, 'corrupt');
    }));

test('a local file is imported', () =>
    withPage(async (page) => {
        const sum = await page.evaluate(async () => {
            const file = new File([new Uint8Array(3_000_000).fill(7)], 'local.gguf');
            const models = await window.carat.Models.open();
            const model = await models.import(file);
            models.close();
            return { key: model.key, sha256: model.sha256, url: model.url };
        });
        assert.deepEqual(sum, {
            key: 'local.gguf',
            sha256: createHash('sha256').update(new Uint8Array(3_000_000).fill(7)).digest('hex'),
            url: null,
        });
    }));

test('a model larger than the quota is refused before it is brought', () =>
    withPage(async (page) => {
        const session = await browser.context.newCDPSession(page);
        await session.send('Storage.overrideQuotaForOrigin', { origin: server.url, quotaSize: 8 << 20 });
        asked = [];
        const error = await page.evaluate(async () => {
            const models = await window.carat.Models.open();
            return models.download('/bytes', { key: 'too large' }).then(
                () => null,
                (e) => ({ code: e.code, message: e.message, remedy: e.remedy }),
            );
        });
        await session.send('Storage.overrideQuotaForOrigin', { origin: server.url });
        assert.equal(error.code, 'quota');
        assert.match(error.message, /MB/);
        assert.ok(asked.every(([start, end]) => end - start === 1));
    }));
