// The benchmark's table: what `carat bench` and `carat-web bench` print is compared; nothing here judges a speed. And when a
// test has run long enough to begin counting.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import * as path from 'node:path';
import { test } from 'node:test';
import { isWarm, warmUp } from '../../web/dist/bench.js';
import { root } from './helpers/load.mjs';

// Without a per-layer table, which Node leaves in the file.
const model = path.join(root, 'build/fixtures/models/tiny-31b.Q4_K_M.gguf');
const options = ['bench', model, '-p', '24', '-n', '6', '-d', '0,8', '-r', '2', '--backend', 'cpu', '--threads', '1'];
const run = (program, args) => execFileSync(program, args, { encoding: 'utf8' });
const native = (...more) => run(path.join(root, 'build/release/carat'), [...options, ...more]);
const inNode = (...more) => run(process.execPath, [path.join(root, 'web/bin/carat-web.mjs'), ...options, ...more]);

const tableOf = (text) =>
    text
        .split('\n')
        .filter((line) => line.startsWith('| '))
        .map((line) => line.slice(1, -1).split('|'));
const trimmed = (cells) => cells.map((cell) => cell.trim());

test('Node prints the table of the native benchmark: same columns, tests, model and memory', () => {
    const [ours, theirs] = [tableOf(inNode()), tableOf(native())];
    assert.deepEqual(trimmed(ours[0]), ['model', 'size', 'params', 'backend', 'adapter', 'test', 't/s', 'dispatches', 'memory']);
    assert.deepEqual(trimmed(ours[0]), trimmed(theirs[0]));
    assert.deepEqual(
        ours.slice(2).map((row) => row[5].trim()),
        ['pp24', 'tg6', 'pp24 @ d8', 'tg6 @ d8'],
    );
    const [adapter, rate] = [4, 6]; // differ by right
    const same = (row) => row.filter((_, i) => i !== adapter && i !== rate);
    assert.deepEqual(ours.slice(2).map(same), theirs.slice(2).map(same));
    for (const row of ours.slice(2)) assert.match(row[rate].trim(), /^\d+\.\d\d \+- \d+\.\d\d$/);
});

test('the line above the table says how fast the weights came, where they did not stay in a mapped file', () => {
    const amount = /^opened in \d+ ms; [\d.]+ [kM]B of weights to memory at \d+\.\d\d GB\/s; resident weights [\d.]+ [kM]B$/;
    assert.match(inNode().split('\n')[0], amount);
    assert.match(native().split('\n')[0], /^opened in \d+ ms; resident weights [\d.]+ [kM]B$/);
});

test('Node prints the objects of the native benchmark', () => {
    const objects = (text) =>
        text
            .trim()
            .split('\n')
            .map((line) => JSON.parse(line));
    const [ours, theirs] = [objects(inNode('--json')), objects(native('--json'))];
    const fixed = ({ adapter: _a, tokens_per_second: _t, deviation: _d, median: _m, ...rest }) => rest;
    assert.deepEqual(ours.map(Object.keys), theirs.map(Object.keys));
    assert.deepEqual(ours.map(fixed), theirs.map(fixed));
    for (const row of ours) assert.ok(row.tokens_per_second > 0 && row.memory > 0);
});

// --- warming up; tests/bench_warm_up_test.c has the same cases ---

// Runs until it is warm, when they take these times and then the last of them again and again.
function runsUntilWarm(beforeMs, ...times) {
    const runs = [];
    while (!isWarm(runs)) {
        assert.ok(runs.length < 200);
        const countedMs = times[Math.min(runs.length, times.length - 1)];
        runs.push({ countedMs, wholeMs: beforeMs + countedMs });
    }
    return runs.length;
}

test('a run of two seconds warms up alone', () => {
    assert.equal(runsUntilWarm(0, 2000), 1);
    assert.equal(runsUntilWarm(0, 30000), 1);
    assert.equal(runsUntilWarm(0, 1999, 1000), 3);
});

test('equal runs count after two seconds', () => {
    assert.equal(runsUntilWarm(0, 400), 5);
    assert.equal(runsUntilWarm(0, 450, 450, 450, 450, 240), 6);
    assert.equal(runsUntilWarm(0, 100), 20);
});

test('unsteady runs go on for five seconds', () => {
    assert.equal(runsUntilWarm(0, 1000, 971), 3);
    assert.equal(runsUntilWarm(0, 1050, 1018, 500), 4);
    assert.equal(runsUntilWarm(0, 1050, 1081, 500), 2);
    assert.equal(runsUntilWarm(0, 1000, 1100, 1000, 1100, 1000), 5);
    assert.equal(runsUntilWarm(0, 1000, 1100, 1000, 1100, 750, 600), 6);
});

test('the whole run bounds warming up, and the counted part is compared', () => {
    assert.equal(runsUntilWarm(40000, 100, 50), 1);
    assert.equal(runsUntilWarm(1500, 100, 50, 50), 3);
    assert.equal(runsUntilWarm(1500, 100, 50, 20, 20), 4);
    assert.equal(runsUntilWarm(1500, 100, 50, 20, 10, 5), 4);
});

test('short runs end after a hundred', async () => {
    assert.equal(runsUntilWarm(0, 0.5), 100);
    let n = 0;
    await warmUp(async () => (n++, 0));
    assert.equal(n, 100);
});
