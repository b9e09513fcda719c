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
        await assert.rejects(carat.session({ state }), (error) => error.name === 'ModelFileError' || error.name === 'ArgumentError');
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
