// The package in Node: every text fixture through each WebAssembly module and through npm `webgpu`, judged by the golden
// tokens; the API's shapes and errors.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import * as fs from 'node:fs';
import * as path from 'node:path';
import { after, test } from 'node:test';
import { onGpuInNode } from './helpers/choice.mjs';
import { readTensors } from './helpers/gguf.mjs';
import { gpu } from './helpers/gpu.mjs';
import { root } from './helpers/load.mjs';

const { Carat, CaratError } = await import(path.join(root, 'web/dist/carat.js'));
const models = path.join(root, 'build/fixtures/models'),
    goldens = path.join(root, 'build/fixtures/text');
const model = (name) => path.join(models, `${name}.gguf`);
const goldenOf = (name) => readTensors(path.join(goldens, `text-${name.replace(/^micro-e2b\..*/, 'micro-e2b.F32')}.gguf`));

async function withModel(name, options, body) {
    const carat = await Carat.load(typeof name === 'string' ? model(name) : name, { threads: 1, gpu, ...options });
    try {
        return await body(carat);
    } finally {
        await carat.close();
    }
}

async function argmaxAfter(carat, ids) {
    for await (const event of carat.generate(ids, { temperature: 0, max_tokens: 1, ignore_eos: true }))
        if (event.kind === 'token') return event.id;
    return undefined;
}

// Every golden choice whose margin is above `limit` must be made: prompt and golden tokens before it are given.
async function followsGolden(carat, name, limit) {
    const golden = goldenOf(name);
    const prompt = [...golden['prompt.ids'].values],
        greedy = [...golden['greedy.ids'].values],
        margins = golden['greedy.margin'].values;
    for (let i = 0; i < greedy.length; i++)
        if (margins[i] > limit)
            assert.equal(
                await argmaxAfter(carat, [...prompt, ...greedy.slice(0, i)]),
                greedy[i],
                `token ${i}, margin ${margins[i]}`,
            );
}

// The same in one generation, up to the first choice that the error could turn.
async function generatesGolden(carat, name, limit) {
    const golden = goldenOf(name);
    const greedy = [...golden['greedy.ids'].values],
        margins = [...golden['greedy.margin'].values];
    const unsure = margins.findIndex((m) => m <= limit),
        n = unsure < 0 ? greedy.length : Math.max(1, unsure);
    const ids = [];
    for await (const event of carat.generate(golden['prompt.ids'].values, { temperature: 0, max_tokens: n, ignore_eos: true }))
        if (event.kind === 'token') ids.push(event.id);
    assert.deepEqual(ids, greedy.slice(0, n));
}

// A few random tokens. Backends with f32 activations are within rounding of each other, and these draws lie further from a boundary
// than that.
async function drawnTokens(carat) {
    const sampling = { temperature: 1, repetition_penalty: 1.2, seed: 5 };
    const ids = [];
    for await (const event of carat.generate([2, 17, 301, 45, 9], { ...sampling, max_tokens: 8, ignore_eos: true }))
        if (event.kind === 'token') ids.push(event.id);
    assert.ok(new Set(ids).size > 3, 'chosen at random');
    return ids;
}

const names = fs
    .readdirSync(models)
    .filter((n) => !/mmproj|single/.test(n))
    .map((n) => n.replace(/\.gguf$/, ''));
const quantised = (name) => /Q\d|IQ/.test(name);
// README of the fixtures: f32 arithmetic reproduces all greedy tokens; activations of 8 bits while the margin exceeds 1, rounded to
// 16 bits while it exceeds the error.
const limitOf = (name, exact) => (exact ? 0 : quantised(name) ? 1 : 0.5);

// Node 20 knows relaxed SIMD only behind a flag, and with other products; there Chromium's tests alone judge that module.
const bestVariant = WebAssembly.validate(fs.readFileSync(path.join(root, 'web/dist/carat-relaxed.wasm'))) ? 'relaxed' : 'threads';

for (const name of names) {
    test(`${name} gives the golden tokens on one thread with f32 activations`, () =>
        withModel(name, { backend: 'cpu', exact: true }, (carat) => followsGolden(carat, name, limitOf(name, true))));
    test(`${name} gives the golden tokens in every WebAssembly module`, async () => {
        for (const variant of ['simd', 'threads', undefined])
            await withModel(name, { backend: 'cpu', threads: 2, variant }, (carat) => {
                assert.equal(carat.info.wasmVariant, variant ?? bestVariant);
                return followsGolden(carat, name, limitOf(name, false));
            });
    });
    if (onGpuInNode(name))
        test(`${name} gives the golden tokens on WebGPU, and draws there what the sampler draws`, async () => {
            const drawn = await withModel(name, { backend: 'cpu', exact: true }, drawnTokens);
            await withModel(name, { backend: 'webgpu' }, async (carat) => {
                const { description, device } = (await gpu.requestAdapter()).info;
                assert.ok(carat.info.device.endsWith(description || device || 'WebGPU'), `the device's name: '${carat.info.device}'`);
                await generatesGolden(carat, name, limitOf(name, false));
                assert.deepEqual(await drawnTokens(carat), drawn);
            });
        });
}

test('a generation in one go is the one in single steps', () =>
    withModel('micro-e2b.F32', { backend: 'cpu', exact: true }, async (carat) => {
        const golden = goldenOf('micro-e2b.F32');
        const ids = [];
        for await (const event of carat.generate(golden['prompt.ids'].values, {
            temperature: 0,
            max_tokens: 32,
            ignore_eos: true,
        }))
            if (event.kind === 'token') ids.push(event.id);
        assert.deepEqual(ids, [...golden['greedy.ids'].values]);
    }));

test('a model loads from bytes, a Blob, a stream and a read function alike', async () => {
    const bytes = fs.readFileSync(model('tiny-e2b.Q8_0'));
    const slice = async (offset, n) => bytes.subarray(offset, offset + n);
    const sources = [
        new Uint8Array(bytes),
        new Blob([bytes]),
        new Blob([bytes]).stream(),
        { stream: new Blob([bytes]).stream(), size: bytes.length },
        { read: slice, size: bytes.length },
    ];
    const answers = [];
    for (const source of sources)
        await withModel(source, { backend: 'cpu' }, async (carat) => {
            const ids = [];
            for await (const event of carat.generate([2, 9, 4], { temperature: 0, max_tokens: 6, ignore_eos: true }))
                if (event.kind === 'token') ids.push(event.id);
            answers.push(ids.join());
        });
    assert.equal(new Set(answers).size, 1, answers.join(' | '));
});

test('a file that is cut off is refused with a sentence', async () => {
    const bytes = fs.readFileSync(model('tiny-e2b.Q8_0'));
    for (const n of [3, 100, 5000, bytes.length - 1])
        await assert.rejects(
            Carat.load(new Uint8Array(bytes.subarray(0, n)), { backend: 'cpu' }),
            (e) => e instanceof CaratError && ['bad_file', 'io'].includes(e.code) && e.message.length > 10 && e.remedy.length > 0,
        );
});

test('a stream that ends within the header is refused, not waited for', async () => {
    const bytes = fs.readFileSync(model('tiny-e2b.Q8_0'));
    for (const n of [0, 100, 5000, bytes.length - 1])
        await assert.rejects(Carat.load(new Blob([bytes.subarray(0, n)]).stream(), { backend: 'cpu' }), CaratError);
});

test('chat.completions.create answers in the shape of OpenAI, streamed and whole alike', () =>
    withModel('tiny-e2b.Q8_0', { backend: 'cpu' }, async (carat) => {
        const request = {
            messages: [
                { role: 'system', content: 'Be brief.' },
                { role: 'user', content: 'Hi' },
            ],
            max_tokens: 12,
            temperature: 0,
        };
        const whole = await carat.chat.completions.create(request);
        assert.equal(whole.object, 'chat.completion');
        assert.equal(whole.choices[0].message.role, 'assistant');
        assert.equal(whole.usage.total_tokens, whole.usage.prompt_tokens + whole.usage.completion_tokens);
        assert.ok(whole.timings.predicted_per_second > 0);
        let text = '',
            last;
        for await (const chunk of await carat.chat.completions.create({
            ...request,
            stream: true,
            stream_options: { include_usage: true },
        })) {
            assert.equal(chunk.object, 'chat.completion.chunk');
            text += chunk.choices[0]?.delta.content ?? '';
            last = chunk;
        }
        assert.equal(text, whole.choices[0].message.content);
        assert.deepEqual(last.usage.completion_tokens, whole.usage.completion_tokens);
        assert.ok(last.usage.prompt_tokens_details.cached_tokens > 0, 'the same prompt again is not computed again');
    }));

test('the same seed gives the same text, logprobs are logarithms of probabilities, max_tokens ends with length', () =>
    withModel('tiny-e2b.Q8_0', { backend: 'cpu' }, async (carat) => {
        const request = {
            messages: [{ role: 'user', content: 'Tell me' }],
            max_tokens: 10,
            seed: 7,
            logprobs: true,
            top_logprobs: 3,
            ignore_eos: true,
        };
        const [a, b] = [await carat.chat.completions.create(request), await carat.chat.completions.create(request)];
        assert.equal(a.choices[0].message.content, b.choices[0].message.content);
        assert.equal(a.choices[0].finish_reason, 'length');
        for (const entry of a.choices[0].logprobs.content) {
            assert.ok(entry.logprob <= 0);
            assert.equal(entry.top_logprobs.length, 3);
        }
    }));

test('generate gives logprobs and the text of markers when asked', () =>
    withModel('tiny-e2b.Q8_0', { backend: 'cpu' }, async (carat) => {
        const marker = (await carat.tokenize('<|turn>', { parseSpecial: true }))[0];
        const options = { temperature: 0, max_tokens: 1, ignore_eos: true, logit_bias: { [marker]: 100 }, logprobs: 2 };
        const token = async (more) => {
            for await (const event of carat.generate([2, 9], { ...options, ...more })) if (event.kind === 'token') return event;
            return undefined;
        };
        const plain = await token({}),
            special = await token({ with_special: true });
        assert.equal(plain.id, marker);
        assert.equal(plain.text, '');
        assert.equal(special.text, '<|turn>');
        assert.equal(JSON.parse(special.logprobs)[0].top_logprobs.length, 2);
    }));

test('an abort ends a stream early and the model goes on working', () =>
    withModel('tiny-e2b.Q8_0', { backend: 'cpu' }, async (carat) => {
        const request = {
            messages: [{ role: 'user', content: 'Hi' }],
            temperature: 0,
            max_tokens: 400,
            ignore_eos: true,
            stream: true,
        };
        const stop = new AbortController();
        let n = 0,
            reason;
        for await (const chunk of await carat.chat.completions.create(request, { signal: stop.signal })) {
            reason = chunk.choices[0]?.finish_reason ?? reason;
            if (++n === 6) stop.abort();
        }
        assert.equal(reason, 'cancelled');
        assert.ok(n < 100);
        for await (const chunk of await carat.chat.completions.create(request)) if (chunk.choices[0]?.delta.content) break; // leaving the loop stops it as well
        const after = await carat.chat.completions.create({ ...request, stream: false, max_tokens: 3 });
        assert.equal(after.usage.completion_tokens, 3);
    }));

test('wrong requests are refused by name', () =>
    withModel('tiny-e2b.Q8_0', { backend: 'cpu' }, async (carat) => {
        const messages = [{ role: 'user', content: 'Hi' }];
        const refuses = (request, pattern) =>
            assert.rejects(carat.chat.completions.create(request), (e) => pattern.test(e.message) && e instanceof CaratError);
        await refuses({}, /messages/);
        await refuses({ messages: [] }, /messages/);
        await refuses({ messages, temperature: 'hot' }, /temperature/);
        await refuses({ messages, n: 2 }, /'n'/);
        await refuses({ messages: [{ role: 'user', content: [{ type: 'smell' }] }] }, /smell/);
        await refuses({ messages, response_format: { type: 'json_object' } }, /response_format/);
    }));

test('a session remembers, streams, clones and is destroyed', () =>
    withModel('tiny-e2b.Q8_0', { backend: 'cpu' }, async (carat) => {
        const session = await carat.session({
            initialPrompts: [{ role: 'system', content: 'Be brief.' }],
            sampling: { temperature: 0 },
        });
        const first = await session.prompt('Hi', { maxTokens: 5 });
        const used = session.contextUsage;
        assert.ok(used > 0 && used < session.contextWindow);
        const copy = await session.clone();
        let streamed = '';
        for await (const piece of session.promptStreaming('And?', { maxTokens: 5 })) streamed += piece;
        assert.equal(await copy.prompt('And?', { maxTokens: 5 }), streamed, 'a clone goes on from the same past');
        // All of the first prompt; a reply that was cut off is read again from its text.
        assert.ok(copy.cachedUsage >= used - 5, `a clone computes its past again: ${copy.cachedUsage} of ${used} were kept`);
        assert.equal(copy.cachedUsage, session.cachedUsage);
        assert.ok(session.contextUsage > used);
        assert.ok((await session.measureContextUsage('one two three')) > 5);
        await session.append([{ role: 'user', content: 'more' }]);
        await session.destroy();
        await assert.rejects(session.prompt('x'), { code: 'closed' });
        assert.equal(typeof first, 'string');
    }));

test('a context that is too small for the prompt is an error with the numbers', () =>
    withModel('tiny-e2b.Q8_0', { backend: 'cpu', contextSize: 64 }, async (carat) => {
        await assert.rejects(
            carat.chat.completions.create({ messages: [{ role: 'user', content: 'word '.repeat(200) }] }),
            (e) => e.code === 'context_full' && /64/.test(e.message),
        );
    }));

// --- the demo model -------------------------------------------------------------------------------------------------------------

const demo = path.join(root, 'models/carat-demo.gguf');
const withDemo = async (options, body) => {
    const carat = await Carat.load(demo, { threads: 1, gpu, ...options });
    try {
        return await body(carat);
    } finally {
        await carat.close();
    }
};

for (const backend of ['cpu', 'webgpu'])
    if (backend === 'cpu' || onGpuInNode('carat-demo'))
        test(`the demo model remembers, thinks, stops and goes on where it was cut, on ${backend}`, () =>
            withDemo({ backend }, async (carat) => {
                const session = await carat.session({ sampling: { temperature: 0 } });
                await session.prompt('My name is Anna.', { maxTokens: 40 });
                assert.match(await session.prompt('What is my name?', { maxTokens: 40 }), /Anna/);
                const ask = async (messages, more = {}) =>
                    (await carat.chat.completions.create({ messages, temperature: 0, max_tokens: 60, ...more })).choices[0];
                const question = [{ role: 'user', content: 'What is 3 plus 4?' }];
                const thought = (await ask(question, { reasoning: true })).message;
                assert.match(thought.content, /7/);
                assert.ok(thought.reasoning_content.length > 0);
                const whole = await ask(question);
                assert.equal(whole.finish_reason, 'stop');
                const text = whole.message.content,
                    cut = text.lastIndexOf(' ');
                assert.equal((await ask(question, { stop: [text.slice(cut)] })).message.content, text.slice(0, cut));
                const rest = await ask([...question, { role: 'assistant', content: text.slice(0, cut) }], {
                    continue_final_message: true,
                });
                assert.equal(text.slice(0, cut) + rest.message.content, text);
            }));

// --- images, sounds, adapters -----------------------------------------------------------------------------------------------------

const mediaFixture = (name) => readTensors(path.join(root, 'build/fixtures/media', `${name}.gguf`));

// The media that a golden prompt lists, from the pictures and sounds that are stored.
function mediaOf(golden) {
    return golden.texts['golden.media'].map((item) => {
        const [kind, name] = item.split(':');
        if (kind === 'audio')
            return { kind, samples: Float32Array.from(mediaFixture(`audio-tiny-mm-${name}`).pcm.values, (v) => v / 32768) };
        const raw = mediaFixture(`vision-tiny-mm-${name}`).raw;
        return raw && { kind, rgb: raw.values, width: raw.shape[1], height: raw.shape[2], tokens: 70 };
    });
}

for (const name of ['tiny-mm-image', 'tiny-mm-audio', 'tiny-mm-image-audio', 'tiny-mm-two-images', 'tiny-mm-single-image-audio'])
    for (const backend of ['cpu', 'webgpu'])
        if (backend === 'cpu' || onGpuInNode(name))
            test(`the prompt ${name} is answered as the golden logits say on ${backend}`, async () => {
                const golden = mediaFixture(`prompt-${name}`);
                const media = mediaOf(golden);
                assert.ok(!media.includes(undefined), 'every picture is stored');
                const single = name.includes('single');
                const options = { backend, exact: true, ...(!single && { projector: model('tiny-mm.mmproj-F16') }) };
                await withModel(
                    single ? 'tiny-mm.single-Q4_K_M' : golden.texts['golden.file'].replace('.gguf', ''),
                    options,
                    async (carat) => {
                        const row = golden.logits.values.slice(-golden.logits.shape[0]);
                        const ranked = [...row.keys()].sort((a, b) => row[b] - row[a]);
                        assert.ok(row[ranked[0]] - row[ranked[1]] > 0.2, 'the golden choice is clear');
                        const events = [];
                        for await (const event of carat.generate(golden.ids.values, {
                            temperature: 0,
                            max_tokens: 1,
                            ignore_eos: true,
                            media,
                        }))
                            events.push(event);
                        assert.equal(events.find((e) => e.kind === 'token').id, ranked[0]);
                        assert.ok(
                            events.some((e) => e.kind === 'encoding'),
                            'progress of the encoding is told',
                        );
                    },
                );
            });

test('a picture in a chat counts as its soft tokens, and the same picture again is not computed again', () =>
    withModel('tiny-e2b.Q8_0', { backend: 'cpu', projector: model('tiny-mm.mmproj-F16') }, async (carat) => {
        assert.equal(carat.info.hasVision, true);
        const {
            values,
            shape: [, width, height],
        } = mediaFixture('vision-tiny-mm-landscape').raw;
        const data = new Uint8Array(4 * width * height).fill(255);
        values.forEach((v, i) => {
            data[4 * Math.floor(i / 3) + (i % 3)] = v;
        });
        const content = [
            { type: 'image', image: { data, width, height }, tokens: 70 },
            { type: 'text', text: 'What is it?' },
        ];
        const request = { messages: [{ role: 'user', content }], max_tokens: 3, temperature: 0, ignore_eos: true };
        const [first, second] = [await carat.chat.completions.create(request), await carat.chat.completions.create(request)];
        assert.ok(first.usage.prompt_tokens > 60);
        assert.ok(second.usage.prompt_tokens_details.cached_tokens > 60);
        assert.equal(second.choices[0].message.content, first.choices[0].message.content);
        await carat.releaseTower('vision');
        content[0] = { type: 'image', image: { data: data.slice().fill(9), width, height }, tokens: 70 };
        assert.ok(
            (await carat.chat.completions.create(request)).usage.prompt_tokens > 60,
            'the tower comes again when it is needed',
        );
    }));

test('a sound in a chat may be samples or a WAV file', () =>
    withModel('tiny-e2b.Q8_0', { backend: 'cpu', projector: model('tiny-mm.mmproj-F16') }, async (carat) => {
        const pcm = mediaFixture('audio-tiny-mm-speech').pcm.values;
        const wav = Buffer.alloc(44 + pcm.byteLength);
        wav.write('RIFF', 0);
        wav.writeUInt32LE(36 + pcm.byteLength, 4);
        wav.write('WAVEfmt ', 8);
        wav.writeUInt32LE(16, 16);
        wav.writeUInt16LE(1, 20);
        wav.writeUInt16LE(1, 22);
        wav.writeUInt32LE(16000, 24);
        wav.writeUInt32LE(32000, 28);
        wav.writeUInt16LE(2, 32);
        wav.writeUInt16LE(16, 34);
        wav.write('data', 36);
        wav.writeUInt32LE(pcm.byteLength, 40);
        Buffer.from(pcm.buffer, pcm.byteOffset, pcm.byteLength).copy(wav, 44);
        const ask = async (part) =>
            await carat.chat.completions.create({
                messages: [{ role: 'user', content: [part, { type: 'text', text: 'What is said?' }] }],
                max_tokens: 4,
                temperature: 0,
                ignore_eos: true,
            });
        const answers = [
            await ask({ type: 'audio', audio: Float32Array.from(pcm, (v) => v / 32768) }),
            await ask({ type: 'audio', audio: new Blob([wav]) }),
            await ask({ type: 'input_audio', input_audio: { data: wav.toString('base64'), format: 'wav' } }),
        ];
        assert.ok(answers[0].usage.prompt_tokens > 50);
        for (const answer of answers) assert.equal(answer.choices[0].message.content, answers[0].choices[0].message.content);
    }));

test('an adapter changes the logits as the goldens say, and clearing it brings the model back', () =>
    withModel('micro-e2b.F32', { backend: 'cpu', exact: true }, async (carat) => {
        const golden = readTensors(path.join(root, 'build/fixtures/lora/lora-micro-e2b.gguf'));
        const last = (tensor) => {
            const row = tensor.values.slice(-tensor.shape[0]);
            return row.indexOf(Math.max(...row));
        };
        const ids = golden['prompt.ids'].values;
        assert.equal(await argmaxAfter(carat, ids), last(golden['prompt.logits_base']));
        const n = await carat.loadAdapter(
            fs.readFileSync(path.join(root, 'build/fixtures/lora/lora-micro-e2b.adapter-F32.gguf')),
        );
        assert.ok(n > 0);
        assert.equal(await argmaxAfter(carat, ids), last(golden['prompt.logits']));
        await carat.clearAdapters();
        assert.equal(await argmaxAfter(carat, ids), last(golden['prompt.logits_base']));
        const peft = path.join(root, 'build/fixtures/lora/lora-micro-e2b');
        await carat.loadAdapter(fs.readFileSync(path.join(peft, 'adapter_model.safetensors')), {
            config: fs.readFileSync(path.join(peft, 'adapter_config.json'), 'utf8'),
        });
        assert.equal(await argmaxAfter(carat, ids), last(golden['prompt.logits']));
    }));

test('a model of the text fixtures refuses an image politely', () =>
    withModel('tiny-e2b.Q8_0', { backend: 'cpu' }, async (carat) => {
        const image = { data: new Uint8Array(4 * 48 * 48), width: 48, height: 48 };
        await assert.rejects(
            carat.chat.completions.create({ messages: [{ role: 'user', content: [{ type: 'image', image }] }] }),
            (e) => e.code === 'unsupported' && e.remedy.length > 0,
        );
    }));

test('the memory of the module stays small while a model goes to the GPU', () =>
    withModel('tiny-26b.Q4_K_M', { backend: 'webgpu' }, async (carat) => {
        assert.ok((await carat.memory()).wasmBytes < 64 << 20);
    }));

test('with a GPU that fails its test "auto" takes the processor and "webgpu" says so', async () => {
    const adapter = await gpu.requestAdapter();
    const broken = {
        wgslLanguageFeatures: gpu.wgslLanguageFeatures,
        requestAdapter: async () => ({
            info: adapter.info,
            limits: adapter.limits,
            features: adapter.features,
            requestDevice: async (wish) => {
                const device = await (await gpu.requestAdapter()).requestDevice(wish);
                device.destroy();
                return device;
            },
        }),
    };
    await assert.rejects(
        withModel('micro-e2b.F32', { backend: 'webgpu', gpu: broken }, () => undefined),
        CaratError,
    );
    await withModel('micro-e2b.F32', { backend: 'auto', gpu: broken }, async (carat) => {
        assert.equal(carat.info.backend, 'cpu');
        await generatesGolden(carat, 'micro-e2b.F32', 1e-3);
    });
});

test('the program carat-web answers on the processor and on WebGPU alike', () => {
    const program = path.join(root, 'web/bin/carat-web.mjs');
    const answers = ['cpu', 'webgpu'].map((backend) =>
        spawnSync(
            process.execPath,
            [program, model('micro-e2b.F32'), '-p', 'Hi', '-n', '4', '--temp', '0', '--backend', backend],
            { encoding: 'utf8' },
        ),
    );
    for (const { status, stderr } of answers) assert.equal(status, 0, stderr);
    assert.match(answers[1].stderr, /webgpu/);
    const wrong = spawnSync(process.execPath, [program, 'missing.gguf', '--backend', 'cpu'], { encoding: 'utf8' });
    assert.equal(wrong.status, 1);
    assert.match(wrong.stderr, /missing\.gguf/);
});

test('the modules import nothing but what the package gives them', async () => {
    for (const variant of ['simd', 'threads', 'relaxed']) {
        const bytes = fs.readFileSync(path.join(root, 'web/dist', `carat-${variant}.wasm`));
        if (!WebAssembly.validate(bytes)) continue; // relaxed SIMD is newer than this Node
        for (const { module, name } of WebAssembly.Module.imports(new WebAssembly.Module(bytes)))
            assert.ok(
                module === 'carat' || (module === 'env' && /^(memory|wgpu|gpu_)/.test(name)),
                `${variant}: ${module}.${name}`,
            );
    }
});

after(() => setTimeout(() => process.exit(), 500).unref()); // Dawn keeps threads
