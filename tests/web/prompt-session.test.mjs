// PromptSession in Node: states that are saved and gone on from, and sessions that nobody waits for.
import assert from 'node:assert/strict';
import * as path from 'node:path';
import { test } from 'node:test';
import { root } from './helpers/load.mjs';

const { Carat } = await import(path.join(root, 'web/dist/carat.js'));
const model = (name) => path.join(root, `build/fixtures/models/${name}.gguf`);
const greedy = { sampling: { temperature: 0 } };

async function withModel(name, body) {
    const carat = await Carat.load(model(name), { threads: 1, backend: 'cpu' });
    try {
        return await body(carat);
    } finally {
        await carat.close();
    }
}

// Counts the engine sessions that exist.
function counted(carat) {
    const count = { sessions: 0 };
    const call = carat.link.call.bind(carat.link);
    carat.link.call = async (method, ...rest) => {
        const result = await call(method, ...rest);
        count.sessions += { 'session.new': 1, 'session.copy': 1, 'session.free': -1 }[method] ?? 0;
        return result;
    };
    return count;
}

test('a saved session goes on in another load of the model as if it had never stopped, and computes nothing again', async () => {
    const { state, used, expected } = await withModel('tiny-e2b.Q8_0', async (carat) => {
        const session = await carat.session({ ...greedy, initialPrompts: [{ role: 'system', content: 'Be brief.' }] });
        await session.prompt('Hi', { maxTokens: 5 });
        const state = structuredClone(await session.save()); // as IndexedDB would keep it
        const used = session.contextUsage;
        return { state, used, expected: await session.prompt('And?', { maxTokens: 8 }) };
    });
    await withModel('tiny-e2b.Q8_0', async (carat) => {
        const session = await carat.session({ ...greedy, state });
        assert.equal(session.contextUsage, used);
        assert.equal(await session.prompt('And?', { maxTokens: 8 }), expected);
        assert.ok(session.cachedUsage >= used - 5, `${session.cachedUsage} of ${used} were kept`);
    });
    await withModel('tiny-31b.Q4_K_M', async (carat) => {
        const count = counted(carat);
        await assert.rejects(
            carat.session({ state }),
            (error) => error.name === 'ModelFileError' || error.name === 'ArgumentError',
        );
        assert.equal(count.sessions, 0);
    });
});

test('a session whose signal aborts while it is made or cloned leaves nothing in the engine', () =>
    withModel('tiny-e2b.Q8_0', async (carat) => {
        const count = counted(carat);
        const made = new AbortController();
        const making = carat.session({ signal: made.signal });
        made.abort();
        await assert.rejects(making, { name: 'AbortError' });
        assert.equal(count.sessions, 0);

        const session = await carat.session(greedy);
        const cloned = new AbortController();
        const cloning = session.clone({ signal: cloned.signal });
        await Promise.resolve().then(() => cloned.abort());
        await assert.rejects(cloning, { name: 'AbortError' });
        assert.equal(count.sessions, 1);

        const living = new AbortController();
        await carat.session({ signal: living.signal });
        assert.equal(count.sessions, 2);
        living.abort();
        await session.destroy(); // waits its turn behind the other
        assert.equal(count.sessions, 0);
    }));

test('an answer that nobody reads, or that is aborted, does not keep the next waiting', () =>
    withModel('tiny-e2b.Q8_0', async (carat) => {
        const session = await carat.session(greedy);
        session.promptStreaming('Hi', { maxTokens: 20 }); // not read
        const abort = new AbortController();
        const reader = session.promptStreaming('Hi', { maxTokens: 400, signal: abort.signal }).getReader();
        abort.abort();
        assert.ok((await session.prompt('And?', { maxTokens: 3 })).length >= 0);
        await assert.rejects(
            (async () => {
                while (!(await reader.read()).done);
            })(),
            { name: 'AbortError' },
        );
        const whole = await session.prompt('Hi', { maxTokens: 6 });
        const again = await carat.session(greedy);
        await again.prompt('Hi', { maxTokens: 20 });
        await again.prompt('And?', { maxTokens: 3 });
        let text = '';
        for await (const piece of again.promptStreaming('Hi', { maxTokens: 6 })) text += piece;
        assert.equal(text, whole); // what was aborted left nothing behind
        await session.promptStreaming('Hi', { maxTokens: 400 }).cancel();
        await session.prompt('And?', { maxTokens: 1 });
    }));

test('destroy() ends the answer under way', () =>
    withModel('tiny-e2b.Q8_0', async (carat) => {
        const session = await carat.session({ sampling: { temperature: 0, ignore_eos: true } });
        const answer = session.prompt('Hi', { maxTokens: 1500 });
        const ended = assert.rejects(answer, { name: 'AbortError' });
        await new Promise((resolve) => setTimeout(resolve, 50));
        await session.destroy();
        await ended;
        await assert.rejects(session.prompt('x'), { code: 'closed' });
    }));

test('a prefix may come in parts, and a session that cannot begin leaves nothing behind', () =>
    withModel('tiny-e2b.Q8_0', async (carat) => {
        const session = await carat.session(greedy);
        const prefix = [
            { type: 'text', value: 'Hel' },
            { type: 'text', value: 'lo' },
        ];
        await session.prompt(
            [
                { role: 'user', content: 'x' },
                { role: 'assistant', prefix: true, content: prefix },
            ],
            { maxTokens: 3 },
        );
        assert.match((await session.save()).messages.at(-1).content, /^Hello/);
        const count = counted(carat);
        await assert.rejects(carat.session({ initialPrompts: [{ role: 'user', content: [{ type: 'smell', value: 1 }] }] }), {
            code: 'bad_argument',
        });
        assert.equal(count.sessions, 0);
    }));
