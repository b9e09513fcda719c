// server.test.mjs: carat serve, as browsers, phones, OpenAI's client and people with bad intentions use it.
import assert from 'node:assert/strict';
import * as fs from 'node:fs';
import * as http from 'node:http';
import * as net from 'node:net';
import * as os from 'node:os';
import * as path from 'node:path';
import { after, before, describe, test } from 'node:test';
import OpenAI from 'openai';
import { demoModel, repository, serve } from './serve.mjs';

const models = path.dirname(demoModel);
const bytes = fs.readFileSync(demoModel);
const question = [{ role: 'user', content: 'What colour is a ruby?' }];

// A request exactly as written, without a client's help.
function raw(url, text) {
    return new Promise((resolve, reject) => {
        const { hostname, port } = new URL(url);
        const socket = net.connect(Number(port), hostname, () => socket.write(text));
        let answer = '';
        socket.setEncoding('latin1').on('data', (data) => { answer += data; }).on('close', () => resolve(answer)).on('error', reject);
        setTimeout(() => socket.destroy(), 3000).unref();
    });
}

describe('files and models', () => {
    let server;
    const app = fs.mkdtempSync(path.join(os.tmpdir(), 'carat-app-'));
    before(async () => {
        fs.writeFileSync(path.join(app, 'index.html'), '<!doctype html><title>x</title>');
        fs.writeFileSync(path.join(app, 'a.wasm'), 'x');
        fs.symlinkSync('/etc/hostname', path.join(app, 'link.txt'));
        server = await serve('--app', app, '--models', models, demoModel);
    });
    after(async () => {
        await server.stop();
        fs.rmSync(app, { recursive: true });
    });

    test('the app is served isolated, with the right types', async () => {
        const page = await fetch(`${server.url}/`);
        assert.equal(page.headers.get('content-type'), 'text/html; charset=utf-8');
        assert.equal(page.headers.get('cross-origin-opener-policy'), 'same-origin');
        assert.equal(page.headers.get('cross-origin-embedder-policy'), 'require-corp');
        assert.equal(page.headers.get('access-control-allow-origin'), null);
        assert.equal((await fetch(`${server.url}/a.wasm`)).headers.get('content-type'), 'application/wasm');
        const again = await fetch(`${server.url}/`, { headers: { 'if-none-match': page.headers.get('etag') } });
        assert.equal(again.status, 304);
    });

    test('nothing outside the app folder is reachable', async () => {
        for (const target of ['/../../../etc/passwd', '/%2e%2e/%2e%2e/etc/passwd', '/..%2f..%2fetc/passwd', '//etc/passwd', '/link.txt', '/.', '/a.wasm/'])
            assert.match(await raw(server.url, `GET ${target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n`), /^(HTTP\/1.1 40[04]|$)/, target);
        assert.equal((await fetch(`${server.url}/api/blob/..%2f..%2fetc%2fpasswd`)).status, 404);
    });

    test('models are listed', async () => {
        const list = await (await fetch(`${server.url}/api/models`)).json();
        assert.deepEqual(list.models.map((m) => [m.name, m.size]), [['carat-demo.gguf', bytes.length]]);
    });

    test('every form of range gives exactly those bytes', async () => {
        const url = `${server.url}/api/blob/carat-demo.gguf`;
        const n = bytes.length;
        for (const [range, first, last] of [['0-0', 0, 0], ['10-99', 10, 99], [`${n - 5}-`, n - 5, n - 1], ['-7', n - 7, n - 1], [`5-${n + 100}`, 5, n - 1], [`-${2 * n}`, 0, n - 1]]) {
            const answer = await fetch(url, { headers: { range: `bytes=${range}` } });
            assert.equal(answer.status, 206, range);
            assert.equal(answer.headers.get('content-range'), `bytes ${first}-${last}/${n}`);
            assert.equal(answer.headers.get('x-total-size'), String(n));
            assert.ok(bytes.subarray(first, last + 1).equals(Buffer.from(await answer.arrayBuffer())), range);
        }
        for (const range of [`${n}-`, '-0']) {
            const answer = await fetch(url, { headers: { range: `bytes=${range}` } });
            assert.equal(answer.status, 416);
            assert.equal(answer.headers.get('content-range'), `bytes */${n}`);
        }
        for (const range of ['x', 'bytes=5-2', 'bytes=a-b', 'bytes=0-1,3-4', 'lines=0-1', 'bytes=99999999999999999999-'])
            assert.equal((await fetch(url, { method: 'HEAD', headers: { range } })).status, 200, range);
        const head = await fetch(url, { method: 'HEAD' });
        assert.equal(head.headers.get('content-length'), String(n));
        const stale = await fetch(url, { method: 'HEAD', headers: { range: 'bytes=0-1', 'if-range': '"other"' } });
        assert.equal(stale.status, 200);
    });

    test('a file larger than 4 GiB is served at any place', async () => {
        const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'carat-big-'));
        const file = path.join(folder, 'big.gguf');
        const size = 7 * 2 ** 30 + 3;
        const handle = fs.openSync(file, 'w');
        fs.ftruncateSync(handle, size);
        fs.writeSync(handle, 'end', size - 3);
        fs.closeSync(handle);
        const second = await serve('--models', folder);
        const answer = await fetch(`${second.url}/api/blob/big.gguf`, { headers: { range: 'bytes=-4' } });
        assert.equal(answer.headers.get('content-range'), `bytes ${size - 4}-${size - 1}/${size}`);
        assert.equal(await answer.text(), '\0end');
        await second.stop();
        fs.rmSync(folder, { recursive: true });
    });

    test('the log takes small entries only', async () => {
        const data = fs.mkdtempSync(path.join(os.tmpdir(), 'carat-data-'));
        process.env.XDG_DATA_HOME = data;
        const second = await serve();
        assert.equal((await fetch(`${second.url}/api/log`, { method: 'POST', body: 'hello\u001b[31m\nworld' })).status, 204);
        assert.equal((await fetch(`${second.url}/api/log`, { method: 'POST', body: 'x'.repeat(8193) })).status, 413);
        assert.equal((await fetch(`${second.url}/api/log`)).status, 405);
        assert.match(fs.readFileSync(path.join(data, 'carat/client.log'), 'utf8'), /^\d+ hello \[31m world\n$/);
        await second.stop();
        delete process.env.XDG_DATA_HOME;
        fs.rmSync(data, { recursive: true });
    });
});

describe('who may ask', () => {
    test('another host name or origin is refused while only localhost is served', async () => {
        const server = await serve('--models', models);
        assert.match(await raw(server.url, 'GET /api/models HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n'), /^HTTP\/1.1 403/);
        const answer = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', headers: { origin: 'https://evil.example' }, body: '{}' });
        assert.equal(answer.status, 403);
        await server.stop();
    });

    test('an API key is asked for, and a named origin may call', async () => {
        const server = await serve('--models', models, '--api-key', 'secret', '--cors', 'https://friend.example');
        assert.equal((await fetch(`${server.url}/v1/models`)).status, 401);
        assert.equal((await fetch(`${server.url}/v1/models`, { headers: { authorization: 'Bearer secre' } })).status, 401);
        const answer = await fetch(`${server.url}/v1/models`, { headers: { authorization: 'Bearer secret', origin: 'https://friend.example' } });
        assert.equal(answer.status, 200);
        assert.equal(answer.headers.get('access-control-allow-origin'), 'https://friend.example');
        await server.stop();
    });

    test('giant headers, half requests and nonsense end with an error, and the server lives on', async () => {
        const server = await serve('--models', models);
        await Promise.all([
            `GET / HTTP/1.1\r\nHost: localhost\r\nX: ${'y'.repeat(1 << 20)}\r\n\r\n`,
            'POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n{',
            '\x16\x03\x01\x02\x00',
            'GET',
        ].map((text) => raw(server.url, text).catch(() => undefined)));
        assert.equal((await fetch(`${server.url}/v1/models`)).status, 200);
        await server.stop();
    });

    test('the body of a request without the key is not kept', async () => {
        const server = await serve('--models', models, '--api-key', 'secret');
        const rss = () => Number(/VmRSS:\s+(\d+)/.exec(fs.readFileSync(`/proc/${server.child.pid}/status`, 'utf8'))[1]);
        const before = rss();
        const answer = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body: 'x'.repeat(48 << 20) });
        assert.equal(answer.status, 401);
        if (fs.existsSync('/proc'))
            assert.ok(rss() - before < 16 << 10, `${rss() - before} KiB more`);
        await server.stop();
    });

    test('HTTPS works with the certificate made on first use, which is kept', async () => {
        const data = fs.mkdtempSync(path.join(os.tmpdir(), 'carat-tls-'));
        process.env.XDG_DATA_HOME = data;
        const get = (url) => new Promise((resolve, reject) => import('node:https').then((https) =>
            https.get(`${url}/api/models`, { rejectUnauthorized: false }, (answer) => resolve([answer.statusCode, answer.socket.getPeerCertificate().fingerprint256])).on('error', reject)));
        const fingerprints = [];
        for (let i = 0; i < 2; i++) {
            const server = await serve('--tls', '--models', models);
            assert.match(server.url, /^https:/);
            const [status, fingerprint] = await get(server.url);
            assert.equal(status, 200);
            fingerprints.push(fingerprint);
            await server.stop();
        }
        assert.equal(fingerprints[0], fingerprints[1]);
        assert.equal(fs.statSync(path.join(data, 'carat/server-key.pem')).mode & 0o77, 0);
        delete process.env.XDG_DATA_HOME;
        fs.rmSync(data, { recursive: true });
    });
});

describe('the OpenAI-compatible API', () => {
    let server, client;
    before(async () => {
        server = await serve('--models', models);
        client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 });
    });
    after(() => server.stop());

    test("OpenAI's client lists models and gets an answer", async () => {
        const list = await client.models.list();
        assert.deepEqual(list.data.map((m) => m.id), ['carat-demo']);
        const answer = await client.chat.completions.create({ model: 'carat-demo', messages: question, temperature: 0 });
        assert.equal(answer.model, 'carat-demo');
        assert.equal(answer.choices[0].message.content, 'Ruby is red.');
        assert.equal(answer.choices[0].finish_reason, 'stop');
        assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
    });

    test('a streamed answer is the same text', async () => {
        const stream = await client.chat.completions.create({ model: 'carat-demo.gguf', messages: question, temperature: 0, stream: true, stream_options: { include_usage: true } });
        let text = '', usage, finish;
        for await (const chunk of stream) {
            text += chunk.choices[0]?.delta.content ?? '';
            finish = chunk.choices[0]?.finish_reason ?? finish;
            usage = chunk.usage ?? usage;
        }
        assert.equal(text, 'Ruby is red.');
        assert.equal(finish, 'stop');
        assert.ok(usage.completion_tokens > 0);
    });

    test('stop strings, limits and log-probabilities are honoured', async () => {
        const ask = (more) => client.chat.completions.create({ model: 'carat-demo.gguf', messages: question, temperature: 0, ...more });
        const stopped = await ask({ stop: [' red'] });
        assert.deepEqual([stopped.choices[0].message.content, stopped.choices[0].finish_reason], ['Ruby is', 'stop']);
        const cut = await ask({ max_tokens: 2 });
        assert.deepEqual([cut.choices[0].finish_reason, cut.usage.completion_tokens], ['length', 2]);
        const logged = await ask({ logprobs: true, top_logprobs: 2 });
        const entries = logged.choices[0].logprobs.content;
        assert.equal(entries.map((e) => e.token).join(''), 'Ruby is red.');
        for (const entry of entries) {
            assert.equal(entry.top_logprobs.length, 2);
            assert.ok(Math.abs(entry.logprob - entry.top_logprobs[0].logprob) < 1e-3 && entry.logprob <= 0);
        }
    });

    test('requests that cannot be served say what is wrong', async () => {
        const send = async (body) => {
            const answer = await fetch(`${server.url}/v1/chat/completions`, { method: 'POST', body: typeof body === 'string' ? body : JSON.stringify(body) });
            return [answer.status, (await answer.json()).error];
        };
        for (const [body, status, word] of [
            ['{', 400, 'JSON'], ['[]', 400, 'object'], [{}, 400, 'messages'], [{ messages: [] }, 400, 'messages'],
            [{ messages: question, temperature: -1 }, 400, 'temperature'], [{ messages: question, n: 3 }, 501, "'n'"],
            [{ messages: question, model: 'absent' }, 404, 'absent'],
            [{ messages: [{ role: 'user', content: 'word '.repeat(5000) }] }, 400, 'context'],
            [{ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'https://example.org/a.png' } }] }] }, 400, 'data URL'],
            [{ messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'data:image/png;base64,!!!' } }] }] }, 400, 'base64'],
            ['['.repeat(100000), 400, 'JSON'],
        ]) {
            const [got, error] = await send(body);
            assert.equal(got, status, JSON.stringify(error));
            assert.ok(error.message.includes(word), `${error.message} names ${word}`);
        }
        const [status] = await send({ messages: question, stream: true, temperature: 'warm' });
        assert.equal(status, 400);
    });

    test('a client that goes away frees the engine for the next one', async () => {
        const abort = new AbortController();
        const long = await fetch(`${server.url}/v1/chat/completions`, {
            method: 'POST', signal: abort.signal, body: JSON.stringify({ messages: question, ignore_eos: true, stream: true, temperature: 0 }),
        });
        await long.body.getReader().read();
        abort.abort();
        const start = Date.now();
        const answer = await client.chat.completions.create({ model: 'carat-demo.gguf', messages: question, temperature: 0 });
        assert.equal(answer.choices[0].message.content, 'Ruby is red.');
        assert.ok(Date.now() - start < 30_000);
    });

    test('a client that goes away before an answer without a stream frees the engine too', async () => {
        const stop = new AbortController();
        const ask = (more, signal) => fetch(`${server.url}/v1/chat/completions`, {
            method: 'POST', signal, body: JSON.stringify({ messages: question, temperature: 0, ...more }),
        });
        const long = ask({ ignore_eos: true, max_tokens: 3500 }, stop.signal).catch(() => undefined);
        const begun = Date.now();
        await new Promise((resolve) => setTimeout(resolve, 300));
        stop.abort();
        await long;
        const asked = Date.now();
        assert.equal((await (await ask({})).json()).choices[0].message.content, 'Ruby is red.');
        const waited = Date.now() - asked;
        // Without a stop the rest of the first answer would have been waited for.
        const whole = await (await ask({ ignore_eos: true, max_tokens: 3500 })).json();
        const rest = whole.timings.predicted_ms - (asked - begun);
        assert.ok(waited < 0.7 * rest, `${waited} ms were waited, the rest takes ${rest} ms`);
    });

    test('a model is named by its file, and found by its name with and without the extension', async () => {
        const one = await serve('--models', '/tmp', demoModel);
        try {
            const list = await (await fetch(`${one.url}/v1/models`)).json();
            assert.deepEqual(list.data.map((m) => m.id), ['carat-demo']);
            const answer = await (await fetch(`${one.url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify({ messages: question, max_tokens: 1 }) })).json();
            assert.equal(answer.model, 'carat-demo');
        } finally {
            await one.stop();
        }
        for (const model of ['carat-demo.gguf', 'carat-demo']) {
            const answer = await client.chat.completions.create({ model, messages: question, max_tokens: 1 });
            assert.equal(answer.model, 'carat-demo');
        }
    });

    test('pictures and sounds that cannot be taken are the request\'s fault, in words', async () => {
        const png = fs.readFileSync(path.join(repository, 'app/public/icon-192.png'));
        const wav = (format, bits, samples) => {
            const head = Buffer.alloc(44);
            head.write('RIFF', 0); head.writeUInt32LE(36 + samples.length, 4); head.write('WAVEfmt ', 8); head.writeUInt32LE(16, 16);
            head.writeUInt16LE(format, 20); head.writeUInt16LE(1, 22); head.writeUInt32LE(16000, 24); head.writeUInt32LE(16000 * bits / 8, 28);
            head.writeUInt16LE(bits / 8, 32); head.writeUInt16LE(bits, 34); head.write('data', 36); head.writeUInt32LE(samples.length, 40);
            return Buffer.concat([head, samples]);
        };
        const image = (data) => ({ type: 'image_url', image_url: { url: `data:image/png;base64,${Buffer.from(data).toString('base64')}` } });
        const sound = (data) => ({ type: 'input_audio', input_audio: { data: Buffer.from(data).toString('base64'), format: 'wav' } });
        const nan = Buffer.alloc(4000);
        nan.writeFloatLE(NaN, 400);
        for (const [part, word] of [
            [image('no picture'), 'image'], [image(''), 'empty'], [image(png.subarray(0, 60)), 'image'], [image('RIFF\0\0\0\0WEBPVP8 '), 'WebP'],
            [sound('no sound'), 'sound'], [sound(wav(1, 16, Buffer.alloc(0))), 'empty'], [sound(wav(85, 16, Buffer.alloc(4000))), 'compressed'],
            [sound(wav(3, 32, nan)), 'sample 100'], [sound(wav(1, 16, Buffer.alloc(200))), 'too few'],
            [{ type: 'image_url' }, 'image_url'], [{ type: 'input_audio', input_audio: {} }, 'input_audio'],
        ]) {
            for (const stream of [false, true]) {
                const answer = await fetch(`${server.url}/v1/chat/completions`, {
                    method: 'POST', body: JSON.stringify({ stream, messages: [{ role: 'user', content: [part, { type: 'text', text: '?' }] }] }),
                });
                const { error } = await answer.json();
                assert.equal(answer.status, 400, JSON.stringify(error));
                assert.equal(error.type, 'invalid_request_error');
                assert.ok(error.message.includes(word), `'${error.message}' says '${word}'`);
            }
        }
    });

    test('several requests at once are answered one after the other', async () => {
        const answers = await Promise.all(Array.from({ length: 6 }, () => client.chat.completions.create({ model: 'carat-demo.gguf', messages: question, temperature: 0 })));
        assert.deepEqual(new Set(answers.map((a) => a.choices[0].message.content)), new Set(['Ruby is red.']));
    });

    test('images and sounds come as data', async () => {
        const item = JSON.parse(fs.readFileSync(path.join(repository, 'tools/demo-model/eval/image-plain.jsonl'), 'utf8').split('\n')[0]);
        const [image, text] = item.messages[0].content;
        const data = fs.readFileSync(path.join(repository, 'tools/demo-model/eval', image.image)).toString('base64');
        const answer = await client.chat.completions.create({
            model: 'carat-demo.gguf', temperature: 0,
            messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } }, text] }],
        });
        assert.ok(answer.usage.prompt_tokens > 60, 'the image takes tokens');
    });

    test('stopping the server ends what is under way', async () => {
        const second = await serve('--models', models);
        const long = fetch(`${second.url}/v1/chat/completions`, { method: 'POST', body: JSON.stringify({ messages: question, ignore_eos: true, temperature: 0 }) }).catch(() => undefined);
        await new Promise((resolve) => setTimeout(resolve, 1500));
        const start = Date.now();
        assert.equal(await second.stop(), 0);
        assert.ok(Date.now() - start < 10_000);
        await long;
        http.globalAgent.destroy();
    });
});
