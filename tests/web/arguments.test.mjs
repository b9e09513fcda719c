// What callers pass wrongly is refused with a CaratError that names the option, its value and what is allowed: in Node, for every
// public entry point.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import * as path from 'node:path';
import { after, before, test } from 'node:test';
import { root } from './helpers/load.mjs';

const { Carat, CaratError, Models, selfTest } = await import(path.join(root, 'web/dist/carat.js'));
const { bench } = await import(path.join(root, 'web/dist/bench.js'));
const { Model } = await import(path.join(root, 'web/dist/original.js'));
const file = path.join(root, 'build/fixtures/models/tiny-e2b.Q8_0.gguf');
const options = { backend: 'cpu', threads: 1 };

let carat;
before(async () => {
    carat = await Carat.load(file, options);
});
after(() => carat.close());

// The call fails as the caller's fault, with a message that holds all of the words.
async function refused(call, ...words) {
    const error = await Promise.resolve()
        .then(call)
        .then(
            () => assert.fail(`accepted: ${call}`),
            (e) => e,
        );
    assert.ok(error instanceof CaratError && error.name === 'ArgumentError', `${call}: ${error.stack}`);
    for (const word of words) assert.ok(error.message.includes(word), `${call}: '${error.message}' lacks '${word}'`);
}

async function drain(events) {
    for await (const event of events) void event;
}

test('options of Carat.load', async () => {
    const wrong = [
        ['backend', 'gpu', 'webgpu'],
        ['contextSize', 0, '1..'],
        ['contextSize', NaN, '1..'],
        ['contextSize', '4096', '1..'],
        ['contextSize', 2 ** 40, '1..'],
        ['threads', 0, '1..256'],
        ['threads', -1, '1..256'],
        ['threads', 2.5, '1..256'],
        ['threads', 'four', '1..256'],
        ['threads', 257, '1..256'],
        ['exact', 'yes', 'boolean'],
        ['exact', 'boolean', 'boolean'],
        ['textOnly', 1, 'boolean'],
        ['perLayerTableOnDisk', null, 'boolean'],
        ['compat', 'llamacpp', 'llama.cpp'],
        ['kvF32', 0, 'boolean'],
        ['batch', -512, '1..'],
        ['signal', {}, 'AbortSignal'],
        ['onProgress', 'log', 'function'],
        ['wasmUrl', 7, 'string'],
        ['variant', 'fast', 'relaxed'],
        ['worker', 'no', 'boolean'],
        ['gpu', 'mine', 'object'],
        ['projector', 7, 'object'],
    ];
    for (const [name, value, allowed] of wrong)
        await refused(() => Carat.load(file, { ...options, [name]: value }), `'${name}'`, allowed, 'load');
    await refused(() => Carat.load(file, { ...options, thread: 2 }), "'thread'", 'threads');
    await refused(() => Carat.load(file, null), 'null', 'object');
    const same = await Carat.load(file, { ...options, contextSize: undefined, compat: 'none' });
    await same.close();
});

test('sources of Carat.load', async () => {
    for (const source of [null, undefined, 5, true, {}, [], [null], { url: 7 }, { store: 7 }, { stream: 'x' }, 'http://['])
        await refused(() => Carat.load(source, options));
    await refused(() => Carat.load({ read: () => new Uint8Array(1), size: NaN }, options), "'size'", 'NaN');
    await refused(() => Carat.load({ read: () => new Uint8Array(1) }, options), 'size', 'undefined');
    await refused(() => Carat.load({ read: 'me', size: 1 }, options), "'read'", 'function');
    await refused(() => Carat.load({ url: file, headers: 'x' }, options), "'headers'", 'object');
    // A source may be an object of the caller's own, with more in it.
    const bytes = await readFile(file);
    class Own {
        cache = new Map();
        size = bytes.length;
        read(offset, n) {
            this.cache.set(offset, n);
            return bytes.subarray(offset, offset + n);
        }
    }
    const own = new Own();
    await (await Carat.load(own, options)).close();
    assert.ok(own.cache.size > 0);
});

test('chat.completions.create', async () => {
    const messages = [{ role: 'user', content: 'Hi' }];
    const create = (request, o) => carat.chat.completions.create(request, o);
    for (const request of [null, undefined, 'Hi', []]) await refused(() => create(request), 'request');
    const wrong = [
        ['temperature', NaN],
        ['temperature', -1],
        ['temperature', 'hot'],
        ['top_k', -1],
        ['top_k', Infinity],
        ['top_p', 1.5],
        ['min_p', -0.5],
        ['repetition_penalty', 0],
        ['penalty_window', 1e9],
        ['seed', NaN],
        ['max_tokens', 0],
        ['max_tokens', '9'],
        ['top_logprobs', 99],
        ['logprobs', 'yes'],
        ['ignore_eos', 1],
    ];
    for (const [name, value] of wrong) await refused(() => create({ messages, [name]: value }), `'${name}'`, String(value));
    await refused(() => create({ messages, logit_bias: { 5: NaN } }), "'5'", 'NaN');
    await refused(() => create({ messages, seed: 5n }), 'BigInt');
    await refused(() => create({ messages, stream: 'yes' }), "'stream'", 'yes', 'boolean');
    await refused(() => create({ messages, stream_options: 1 }), "'stream_options'");
    await refused(() => create({ messages, model: 5 }), "'model'");
    await refused(() => create({ messages }, { signal: 'stop' }), "'signal'", 'AbortSignal');
    await refused(() => create({ messages: [null] }), 'message');
    await refused(() => create({ messages: [{ role: 'chef', content: 'Hi' }] }), 'chef');
    const part = (content) => create({ messages: [{ role: 'user', content: [content] }] });
    await refused(() => part(null), 'part');
    await refused(() => part({ type: 'image_url' }), 'image_url');
    await refused(() => part({ type: 'image_url', image_url: { url: 5 } }), 'url', '5');
    await refused(() => part({ type: 'image', image: null }), "'image'");
    const pixels = { data: new Uint8Array(4), width: 1, height: 1 };
    await refused(() => part({ type: 'image', image: pixels, tokens: 100 }), "'tokens'", '100', '70|140|280');
    await refused(() => part({ type: 'image', image: pixels, tokens: NaN }), "'tokens'", 'NaN');
    await refused(() => part({ type: 'image', image: { ...pixels, width: NaN } }), 'NaN');
    await refused(() => part({ type: 'input_audio', input_audio: { data: '***' } }), 'base64');
    await refused(() => part({ type: 'input_audio', input_audio: {} }), 'data');
    await refused(() => part({ type: 'audio', audio: 'la la' }), "'audio'", 'Float32Array');
    assert.equal((await create({ messages, max_tokens: 1 })).usage.completion_tokens, 1);
});

test('generate, tokenize, detokenize, adapters and towers', async () => {
    const generate = (ids, o) => drain(carat.generate(ids, o));
    await refused(() => generate([2, NaN]), 'ids[1]', 'NaN');
    await refused(() => generate(['a']), 'ids[0]', "'a'");
    await refused(() => generate([2, -5]), 'ids[1]', '-5');
    for (const ids of ['2 9', undefined, null, 5]) await refused(() => generate(ids), 'ids');
    const wrong = [
        ['temperature', NaN],
        ['temperature', -1],
        ['top_k', 1.5],
        ['max_tokens', -3],
        ['logprobs', -1],
        ['logprobs', 21],
        ['seed', Infinity],
        ['with_special', 'yes'],
        ['ignore_eos', 'no'],
        ['signal', 1],
        ['media', {}],
    ];
    for (const [name, value] of wrong) await refused(() => generate([2, 9], { [name]: value }), name);
    await refused(() => generate([2, 9], { temprature: 1 }), 'temprature', 'temperature');
    await refused(() => generate([2, 9], { logit_bias: { 5: Infinity } }), 'Infinity');
    await refused(() => generate([2, 9], { media: [{ kind: 'film' }] }), "'kind'", 'film', 'image');
    await refused(() => generate([2, 9], { media: [{ kind: 'image', rgb: new Uint8Array(2), width: 1, height: 1 }] }), 'size');
    await refused(() => generate([2, 9], { media: [{ kind: 'audio' }] }), 'audio');
    await refused(() => carat.tokenize(5), 'text', '5', 'string');
    await refused(() => carat.tokenize('Hi', { addBos: 1 }), "'addBos'", 'boolean');
    await refused(() => carat.detokenize('Hi'), 'ids');
    await refused(() => carat.detokenize([2], { withSpecial: 'yes' }), "'withSpecial'");
    await refused(() => carat.loadAdapter('adapter.gguf'), 'adapter', 'Uint8Array');
    await refused(() => carat.loadAdapter(new Uint8Array(1), { scale: NaN }), "'scale'", 'NaN');
    await refused(() => carat.loadAdapter(new Uint8Array(1), { config: {} }), "'config'");
    await refused(() => carat.releaseTower('smell'), 'smell', 'vision');
    await generate(Uint32Array.of(2, 9), { max_tokens: 1, temperature: undefined });
});

test('sessions', async () => {
    const wrong = [
        ['initialPrompts', 'Hi'],
        ['temperature', NaN],
        ['topK', -1],
        ['sampling', 5],
        ['sampling', { temperature: NaN }],
        ['contextSize', -1],
        ['thinking', 'yes'],
        ['state', 'x'],
        ['signal', 7],
        ['maxTokens', 7],
    ];
    for (const [name, value] of wrong) await refused(() => carat.session({ [name]: value }));
    await refused(() => carat.session({ initialPrompts: [{ role: 'chef', content: 'Hi' }] }), "'role'", 'chef', 'user');
    await refused(() => carat.session({ state: { messages: [], contextUsage: 0, cache: 'x' } }), "'cache'", 'Uint8Array');
    const session = await carat.session();
    for (const input of [undefined, null, 5, [5], [{ role: 'user' }]]) {
        await refused(() => session.prompt(input));
        await refused(() => session.append(input));
        await refused(() => session.measureContextUsage(input));
    }
    await refused(() => session.prompt('Hi', { maxTokens: 0 }), "'maxTokens'", '0', '1..');
    await refused(() => session.prompt('Hi', { stop: 5 }), "'stop'", 'string');
    await refused(() => session.prompt('Hi', { temperature: 1 }), 'temperature');
    await refused(() => session.clone({ signal: true }), "'signal'");
    await session.prompt('Hi', { maxTokens: 1 });
    await session.destroy();
});

test('the model store, the benchmark and the self-test', async () => {
    await refused(() => Models.open({ kind: 'disk' }), "'kind'", 'disk', 'opfs');
    await refused(() => Models.open({ worker: 0 }), "'worker'");
    const models = await Models.open({ worker: false });
    await refused(() => models.download('http://['), 'http://[');
    await refused(() => models.download('http://localhost/a', { parallel: 0 }), "'parallel'", '1..64');
    await refused(() => models.download('http://localhost/a', { retries: NaN }), "'retries'", 'NaN');
    await refused(() => models.download('http://localhost/a', { sha256: 5 }), "'sha256'");
    await refused(() => models.import('a.gguf'), 'file', 'Blob');
    for (const method of ['pause', 'verify', 'delete', 'blob']) await refused(() => models[method](5), 'key', 'string');
    models.close();
    await refused(() => drain(bench(carat, { prompts: 512 })), "'prompts'");
    await refused(() => drain(bench(carat, { depths: [-1] })), "'depths'");
    await refused(() => drain(bench(carat, { repetitions: 0 })), "'repetitions'", '1..1000');
    await refused(() => selfTest({ wasmUrl: 5 }), "'wasmUrl'");
});

test('the interface of the original', async () => {
    Model.settings = { threads: 'all' };
    await refused(async () => Model.load(await readFile(file)), "'threads'", 'all');
    Model.settings = { backend: 'cpu', threads: 1 };
    await refused(() => Model.load(file), 'model', 'Uint8Array');
    await refused(() => Model.loadFromUrl(5), 'address');
    await refused(() => Model.loadFromOpfs('read', 5), 'function');
    await refused(() => Model.loadFromOpfs(() => new Uint8Array(1), NaN), 'size', 'NaN');
    await refused(() => Model.loadFromOpfsTextOnly(() => new Uint8Array(1), 9, -1), 'context', '-1');
    const model = await Model.load(await readFile(file));
    await refused(() => model.encode(5), 'text');
    await refused(() => model.tokenStr(NaN), 'token', 'NaN');
    await refused(() => model.isEos('a'), 'token');
    await refused(() => model.renderChat('Hi'), 'messages');
    await refused(() => model.step(-1), 'token', '-1');
    await refused(() => model.stepWithEmbedding([1]), 'soft token');
    await refused(() => model.setSampling({ temperature: NaN }), "'temperature'", 'NaN');
    await refused(() => model.setSampling({ top_k: -1 }), "'top_k'", '-1');
    await refused(() => model.setSampling({ topK: 1 }), 'topK');
    await refused(() => model.loadAdapter('x'), 'adapter');
    await refused(() => model.encodeImage(new Float32Array(3), 0.5, 1), 'height', '0.5');
    await refused(() => model.encodeAudio([0]), 'samples');
    await refused(() => model.decodeWav('RIFF'), 'file');
    await refused(() => model.restoreKvState('x'), 'state');
    model.setSampling({ temperature: 0, seed: 5n });
    assert.ok((await model.step(2)) >= 0);
    model.free();
});
