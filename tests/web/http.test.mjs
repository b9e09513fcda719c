import assert from 'node:assert/strict';
import { test } from 'node:test';
import { load } from './helpers/load.mjs';
import { noise, rangeServer } from './helpers/range-server.mjs';

const { openRemote, readRange } = await load('http');
const bytes = noise(300_000);
const fast = { backoffMs: 5 };

async function withServer(fault, body) {
    const server = await rangeServer({ '/m': bytes }, fault);
    try {
        await body(server.url('/m'), server);
    } finally {
        await server.close();
    }
}

const rejectsWith = (code) => (error) => {
    assert.equal(error.code, code, error.message);
    assert.ok(error.remedy.length > 0);
    return true;
};

test('a range of a file arrives as it is', () =>
    withServer(undefined, async (url) => {
        const file = await openRemote(url);
        assert.equal(file.size, bytes.length);
        assert.deepEqual(await readRange(file, 1000, 250_001), bytes.slice(1000, 250_001));
    }));

test('a connection that breaks again and again is taken up where it broke', () =>
    withServer(
        (r) => (r.end - r.start > 1 ? { drop: 20_000 } : undefined),
        async (url, server) => {
            const file = await openRemote(url);
            assert.deepEqual(await readRange(file, 0, bytes.length, fast), bytes);
            assert.ok(server.log.length >= 15);
        },
    ));

test('an answer of 200 to a range request is refused', () =>
    withServer(
        () => ({ ignoreRange: true }),
        async (url) => {
            await assert.rejects(openRemote(url), rejectsWith('no_ranges'));
        },
    ));

test('a compressed answer is refused', () =>
    withServer(
        (r) => (r.count > 0 ? { gzip: true } : undefined),
        async (url) => {
            await assert.rejects(readRange(await openRemote(url), 0, 100, fast), (e) => ['no_ranges', 'io'].includes(e.code));
        },
    ));

test('an answer with another range than asked for is refused', () =>
    withServer(
        (r) => (r.count > 0 ? { wrongRange: true } : undefined),
        async (url) => {
            await assert.rejects(readRange(await openRemote(url), 0, 100), rejectsWith('no_ranges'));
        },
    ));

test('a file that changes while it is read is refused', () =>
    withServer(
        (r) => (r.count > 0 ? { etag: '"v2"' } : undefined),
        async (url) => {
            await assert.rejects(readRange(await openRemote(url), 0, 100), rejectsWith('changed'));
        },
    ));

test('a server that is busy is asked again later', () =>
    withServer(
        (r) => (r.count < 3 ? { status: 503 } : undefined),
        async (url) => {
            assert.deepEqual(await readRange(await openRemote(url, fast), 5, 10, fast), bytes.slice(5, 10));
        },
    ));

test('a server that stays down gives an error after the last attempt', () =>
    withServer(
        () => ({ status: 503 }),
        async (url, server) => {
            await assert.rejects(openRemote(url, { ...fast, retries: 3 }), rejectsWith('io'));
            assert.equal(server.log.length, 3);
        },
    ));

test('a missing file gives not_found at once', () =>
    withServer(undefined, async (url, server) => {
        await assert.rejects(openRemote(`${url}issing`), rejectsWith('not_found'));
        assert.equal(server.log.length, 0);
    }));

test('a connection without bytes counts as lost', () =>
    withServer(
        (r) => (r.count === 1 ? { stall: true } : undefined),
        async (url) => {
            const file = await openRemote(url);
            assert.deepEqual(await readRange(file, 0, 10, { ...fast, stallMs: 50 }), bytes.slice(0, 10));
        },
    ));

test('an aborted signal ends a read with AbortError', () =>
    withServer(
        (r) => (r.count > 0 ? { delayMs: 2000 } : undefined),
        async (url) => {
            const file = await openRemote(url);
            const stop = new AbortController();
            setTimeout(() => stop.abort(), 20);
            await assert.rejects(readRange(file, 0, 10, { signal: stop.signal }), { name: 'AbortError', code: 'cancelled' });
        },
    ));

// Streams that never settle a read once they have given all their bytes, whatever their signal says: Node 20 has such when a body is
// aborted just after its last byte.
async function withSilentBodies(body) {
    const fetch = globalThis.fetch;
    globalThis.fetch = async (url, { headers }) => {
        const [, start, last] = /^bytes=(\d+)-(\d+)$/.exec(headers.Range).map(Number);
        const pull = (c) => c.enqueue(bytes.slice(start, last)); // all but one
        return new Response(new ReadableStream({ start: pull }), {
            status: 206,
            headers: { 'content-range': `bytes ${start}-${last}/${bytes.length}` },
        });
    };
    try {
        await body(await openRemote('http://silent/m'));
    } finally {
        globalThis.fetch = fetch;
    }
}

test('a read that is aborted ends though its body does not settle', { timeout: 10_000 }, () =>
    withSilentBodies(async (file) => {
        const stop = new AbortController();
        setTimeout(() => stop.abort(), 20);
        await assert.rejects(readRange(file, 0, 1000, { signal: stop.signal }), { name: 'AbortError', code: 'cancelled' });
    }));

test('a connection that falls silent counts as lost though its body does not settle', { timeout: 10_000 }, () =>
    withSilentBodies(async (file) => {
        const options = { ...fast, stallMs: 20, retries: 1 };
        await assert.rejects(readRange(file, 0, 1000, options), { code: 'io', message: /no byte arrived/ });
    }));
