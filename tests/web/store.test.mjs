import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import * as fs from 'node:fs';
import * as os from 'node:os';
import * as path from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { load } from './helpers/load.mjs';
import { noise, rangeServer } from './helpers/range-server.mjs';

const { ModelStore, fileIdOf } = await load('store');
const { memoryFolder } = await load('files');
const { nodeFolder } = await load('files-node');
const { crc32, Sha256 } = await load('sha256');

const bytes = noise(1_000_000);
const sha256 = createHash('sha256').update(bytes).digest('hex');
const roomy = async () => ({ quota: 1e12, usage: 0 });
const options = { chunkBytes: 65_536, backoffMs: 5 };
const temporary = fs.mkdtempSync(path.join(os.tmpdir(), 'carat-store-'));
after(() => fs.rmSync(temporary, { recursive: true }));
let folders = 0;
const newFolder = () => path.join(temporary, String(folders++));

async function withServer(fault, body) {
    const server = await rangeServer({ '/m.gguf': bytes, '/other.gguf': noise(1_000_000, 2) }, fault);
    try {
        return await body(server.url('/m.gguf'), server);
    } finally {
        await server.close();
    }
}

async function contents(store, key) {
    const file = await store.openFile(key);
    const all = new Uint8Array(await file.size());
    await file.read(0, all);
    await file.close();
    return all;
}

async function fetched(store, url, more = {}) {
    const got = await store.download('m', url, { ...options, ...more });
    return got.finished === undefined ? got : got.finished;
}

test('sha256 and crc32 agree with those of Node for every way of cutting', () => {
    for (const n of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 10_007]) {
        const sha = new Sha256();
        let crc = 0;
        for (let at = 0, k = 1; at < n; at += k, k = ((k * 7 + 3) % 131) + 1) {
            sha.update(bytes.subarray(at, Math.min(n, at + k)));
            crc = crc32(bytes.subarray(at, Math.min(n, at + k)), crc);
        }
        assert.equal(sha.digest(), createHash('sha256').update(bytes.subarray(0, n)).digest('hex'));
        assert.equal(crc, crc32(bytes.subarray(0, n)));
    }
    assert.equal(crc32(new TextEncoder().encode('123456789')), 0xcbf43926); // the check value of CRC-32/ISO-HDLC
});

for (const [kind, make] of [
    ['memory', memoryFolder],
    ['folder', () => nodeFolder(newFolder())],
]) {
    test(`a model is downloaded, verified, listed, read and deleted (${kind})`, () =>
        withServer(undefined, async (url) => {
            const store = new ModelStore(make(), roomy);
            const seen = [];
            const model = await fetched(store, url, { sha256, onProgress: (p) => seen.push(p) });
            assert.equal(model.state, 'complete');
            assert.equal(model.sha256, sha256);
            assert.deepEqual(await contents(store, 'm'), bytes);
            assert.deepEqual(
                (await store.list()).map((m) => [m.key, m.state, m.size, m.label]),
                [['m', 'complete', bytes.length, 'm.gguf']],
            );
            assert.equal(await store.verify('m'), true);
            assert.ok(seen.length > 0 && seen.every((p) => p.received <= p.total));
            assert.ok((await store.usage()).modelBytes >= bytes.length);
            await store.delete('m');
            assert.deepEqual(await store.list(), []);
            assert.deepEqual(await store.folder.list(), []);
        }));
}

test('a download that was paused goes on without bringing what it has', () =>
    withServer(
        () => ({ delayMs: 25 }),
        async (url, server) => {
            const store = new ModelStore(nodeFolder(newFolder()), roomy);
            const stop = new AbortController();
            const transfer = await store.download('m', url, {
                ...options,
                parallel: 1,
                signal: stop.signal,
                onProgress: (p) => {
                    if (p.received > 400_000) stop.abort();
                },
            });
            await assert.rejects(transfer.finished, { name: 'AbortError' });
            const [partial] = await store.list();
            assert.equal(partial.state, 'partial');
            assert.ok(partial.received > 0 && partial.received < bytes.length);
            server.log.length = 0;
            await fetched(store, url, { sha256 });
            const asked = server.log.reduce((n, r) => n + r.end - r.start, 0);
            assert.equal(asked, 1 + bytes.length - partial.received);
            assert.deepEqual(await contents(store, 'm'), bytes);
        },
    ));

// A folder whose every operation after the k-th fails, as if the tab had died there; a write may be torn.
function dyingFolder(inner, k) {
    let left = k;
    const step = () => {
        if (left-- <= 0) throw new Error('dead');
    };
    const wrap = (file) => ({
        size: () => {
            step();
            return file.size();
        },
        read: (o, b) => {
            step();
            return file.read(o, b);
        },
        write: async (o, b) => {
            if (left === 0) {
                left--;
                await file.write(o, b.subarray(0, Math.floor(b.length / 2)));
                throw new Error('dead');
            }
            step();
            return file.write(o, b);
        },
        truncate: (n) => {
            step();
            return file.truncate(n);
        },
        flush: () => {
            step();
            return file.flush();
        },
        close: () => file.close(),
    });
    return {
        kind: inner.kind,
        list: () => inner.list(),
        open: async (n, c, r) => {
            step();
            return wrap(await inner.open(n, c, r));
        },
        remove: (n) => {
            step();
            return inner.remove(n);
        },
        rename: (a, b) => {
            step();
            return inner.rename(a, b);
        },
        dead: () => left < 0,
    };
}

test('a tab killed at any operation of the store leaves a model that can be completed', () =>
    withServer(undefined, async (url) => {
        const big = { ...options, chunkBytes: 262_144, parallel: 2, sha256 };
        let k = 0;
        for (; ; k++) {
            const disk = nodeFolder(newFolder());
            const dying = dyingFolder(disk, k);
            try {
                await fetched(new ModelStore(dying, roomy), url, big);
            } catch {
                // what a dead tab says does not matter
            }
            const store = new ModelStore(disk, roomy);
            for (const model of await store.list())
                assert.ok(model.state === 'partial' || model.state === 'complete', `after ${k} operations: ${model.state}`);
            await fetched(store, url, big);
            assert.deepEqual(await contents(store, 'm'), bytes, `after ${k} operations`);
            if (!dying.dead()) break;
        }
        assert.ok(k > 20);
    }));

test('a process killed with SIGKILL while downloading is taken up by the next', () =>
    withServer(
        () => ({ delayMs: 60 }),
        async (url) => {
            const folder = newFolder();
            const script = fileURLToPath(new URL('helpers/download.mjs', import.meta.url));
            let kills = 0;
            for (let ms = 300; ; ms += 40) {
                const child = spawn(process.execPath, [script, folder, url, sha256], { stdio: 'ignore' });
                const ended = new Promise((resolve) => child.on('exit', (code) => resolve(code)));
                const timer = setTimeout(() => {
                    kills++;
                    child.kill('SIGKILL');
                }, ms);
                const code = await ended;
                clearTimeout(timer);
                if (code === 0) break;
                assert.ok(kills < 100);
            }
            assert.ok(kills > 1);
            const store = new ModelStore(nodeFolder(folder), roomy);
            assert.equal((await store.list())[0].state, 'complete');
            assert.deepEqual(await contents(store, 'm'), bytes);
        },
    ));

test('a byte that rots in the partial file is found and brought again', () =>
    withServer(
        () => ({ delayMs: 25 }),
        async (url, server) => {
            const folder = newFolder();
            const store = new ModelStore(nodeFolder(folder), roomy);
            const stop = new AbortController();
            const transfer = await store.download('m', url, {
                ...options,
                parallel: 1,
                signal: stop.signal,
                onProgress: (p) => {
                    if (p.received > 500_000) stop.abort();
                },
            });
            await assert.rejects(transfer.finished);
            const part = path.join(folder, `${fileIdOf('m')}.part`);
            const disk = fs.readFileSync(part);
            disk[70_000] ^= 1;
            fs.writeFileSync(part, disk);
            server.log.length = 0;
            await fetched(store, url, { sha256 });
            assert.ok(
                server.log.some((r) => r.start === 65_536),
                'the rotten chunk was asked for again',
            );
            assert.deepEqual(await contents(store, 'm'), bytes);
        },
    ));

test('a byte that the server gets wrong is found by the sha256, and nothing of it is kept', () =>
    withServer(
        (r) => (r.end - r.start > 1 ? { corruptAt: 300_000 } : undefined),
        async (url) => {
            const store = new ModelStore(nodeFolder(newFolder()), roomy);
            await assert.rejects(fetched(store, url, { sha256 }), { code: 'corrupt' });
            const [left] = await store.list();
            assert.equal(left.state, 'partial');
            assert.equal(left.received, 0);
        },
    ));

test('a byte that rots in a complete file is found by verify', () =>
    withServer(undefined, async (url) => {
        const folder = newFolder();
        const store = new ModelStore(nodeFolder(folder), roomy);
        await fetched(store, url);
        const file = path.join(folder, `${fileIdOf('m')}.gguf`);
        const disk = fs.readFileSync(file);
        disk[999_999] ^= 128;
        fs.writeFileSync(file, disk);
        assert.equal(await store.verify('m'), false);
    }));

test('a complete file of the wrong size is broken and downloaded anew', () =>
    withServer(undefined, async (url) => {
        const folder = newFolder();
        const store = new ModelStore(nodeFolder(folder), roomy);
        await fetched(store, url);
        fs.truncateSync(path.join(folder, `${fileIdOf('m')}.gguf`), 12);
        assert.equal((await store.list())[0].state, 'broken');
        await fetched(store, url, { sha256 });
        assert.deepEqual(await contents(store, 'm'), bytes);
    }));

test('a download does not go on with a file that changed on the server', () =>
    withServer(
        (r) => (r.count > 6 ? { etag: '"v2"' } : undefined),
        async (url) => {
            const store = new ModelStore(nodeFolder(newFolder()), roomy);
            await assert.rejects(fetched(store, url, { parallel: 1 }), { code: 'changed' });
            await assert.rejects(fetched(store, url), { code: 'changed' });
            await store.delete('m');
        },
    ));

test('a model too large for the quota is refused before a byte of it is brought, with the numbers', () =>
    withServer(undefined, async (url, server) => {
        const store = new ModelStore(memoryFolder(), async () => ({ quota: 2_000_000, usage: 1_500_000 }));
        await assert.rejects(fetched(store, url), (e) => e.code === 'quota' && /1 MB/.test(e.message));
        assert.equal(server.log.filter((r) => r.end - r.start > 1).length, 0);
    }));

test('bytes can be read while the model is still arriving, and come first', () =>
    withServer(
        (r) => ({ delayMs: r.end - r.start > 1 ? 20 : 0 }),
        async (url, server) => {
            const store = new ModelStore(memoryFolder(), roomy);
            const transfer = await store.download('m', url, { ...options, parallel: 1 });
            const into = new Uint8Array(1000);
            await transfer.read(900_000, into);
            assert.deepEqual(into, bytes.slice(900_000, 901_000));
            assert.ok(server.log.length < 6, 'it did not wait for the chunks before it');
            await transfer.finished;
            assert.deepEqual(await contents(store, 'm'), bytes);
        },
    ));

test('a local file is imported and verified like a download', async () => {
    const store = new ModelStore(nodeFolder(newFolder()), roomy);
    const transfer = await store.import('local', new Blob([bytes]), { chunkBytes: 100_000, sha256 });
    assert.equal((await transfer.finished).state, 'complete');
    assert.deepEqual(await contents(store, 'local'), bytes);
});

// Every operation on the folder or its files takes some turns of the event loop before and after it, by chance.
function slowFolder(inner, seed) {
    let state = seed;
    const someTurns = async () => {
        state = (state * 1103515245 + 12345) % 2147483648;
        for (let n = (state >> 16) % 12; n > 0; n--) await new Promise(setImmediate);
    };
    const slow = (object) =>
        new Proxy(object, {
            get: (_, name) =>
                typeof object[name] !== 'function'
                    ? object[name]
                    : async (...args) => {
                          await someTurns();
                          const result = await object[name](...args);
                          await someTurns();
                          return name === 'open' ? slow(result) : result;
                      },
        });
    return slow(inner);
}

for (const [kind, make] of [
    ['memory', memoryFolder],
    ['folder', () => nodeFolder(newFolder())],
])
    test(`looking at the models while one is imported harms neither (${kind})`, async () => {
        const small = bytes.slice(0, 3000);
        for (let seed = 1; seed <= 150; seed++) {
            const store = new ModelStore(slowFolder(make(), seed), roomy);
            let imported = false;
            const look = async () => {
                while (!imported) assert.ok((await store.list()).every((m) => m.key === 'm' && m.state !== 'broken'), `seed ${seed}`);
            };
            const importing = store.import('m', new Blob([small]), { chunkBytes: 1000 }).then((transfer) => transfer.finished);
            await Promise.all([look(), look(), importing.finally(() => (imported = true))]);
            assert.deepEqual(await store.list().then((all) => all.map((m) => [m.key, m.state])), [['m', 'complete']], `seed ${seed}`);
            assert.deepEqual(await contents(store, 'm'), small);
        }
    });

test('two models with similar keys do not share files', () =>
    withServer(undefined, async (url, server) => {
        const store = new ModelStore(nodeFolder(newFolder()), roomy);
        await (
            await store.download('a/b', url, options)
        ).finished;
        await (
            await store.download('a?b', server.url('/other.gguf'), options)
        ).finished;
        assert.deepEqual(await contents(store, 'a/b'), bytes);
        assert.notDeepEqual(await contents(store, 'a?b'), bytes);
        assert.equal((await store.list()).length, 2);
    }));
