// compare.mjs: two systems take turns at the same tests; medians and their ratio. bench/compare starts it and says how.
//
// A turn is one run that counts, after runs that warm up by the rule of carat's bench (cli/bench_warm_up.h), on both sides. Who
// begins changes from round to round, so that neither side always follows the other's heat. A side that fails at a test begins
// anew at the next: the table says so, and has all other rows.
import { parseArgs } from 'node:util';
import { browserContestants } from './browser.mjs';
import { nativeContestants, nodeContestants } from './native.mjs';

const comparisons = {
    'cpu': { contestants: nativeContestants, backend: 'cpu', tests: 'pp256,pp1024,tg64,tg64@4096' },
    'vulkan': { contestants: nativeContestants, backend: 'webgpu', tests: 'pp512,pp2048,tg128,tg128@4096' },
    'node-cpu': { contestants: nodeContestants, backend: 'cpu', tests: 'pp256,tg64' },
    'node-webgpu': { contestants: nodeContestants, backend: 'webgpu', tests: 'pp512,pp2048,tg128' },
    'chromium-cpu': { contestants: browserContestants, backend: 'cpu', tests: 'pp128,tg32' },
    'chromium-webgpu': { contestants: browserContestants, backend: 'webgpu', tests: 'pp512,tg64' },
};

// "pp256", "tg64@4096": what is to be measured.
function parseTest(text) {
    const match = /^(pp|tg)(\d+)(?:@(\d+))?$/.exec(text);
    if (match === null || Number(match[2]) === 0) throw new Error(`'${text}' is no test; pp256, tg64 and tg64@4096 are some`);
    return { name: text, kind: match[1], n: Number(match[2]), depth: Number(match[3] ?? 0) };
}

// A program's words or a page's, without what follows them.
const firstLine = (error) => (error.stderr || error.message).split('\n')[0];

// {name, about, measure, close}; what contestants give is opened here and, once something has failed, opened again.
async function openSide({ name, open }) {
    let side, about;
    try {
        side = await open();
        about = side.about;
    } catch (error) {
        about = `did not start: ${firstLine(error)}`;
    }
    const measure = async (test) => {
        side ??= await open();
        try {
            return await side.measure(test);
        } catch (error) {
            await side.close().catch(() => undefined);
            side = undefined;
            throw error;
        }
    };
    return { name, about, measure, close: async () => side?.close() };
}

// Who takes part in a test: prompts run in carat with and without the layers that only the last row needs.
function runnersOf(test, [carat, peer]) {
    const allRows = { name: 'carat, all rows', measure: (t) => carat.measure({ ...t, allRows: true }) };
    return test.kind === 'pp' ? [carat, peer, allRows] : [carat, peer];
}

// For each runner its rates and, where it could not finish its rounds, why.
async function measure(test, runners, rounds) {
    const results = runners.map(({ name }) => ({ name, rates: [], failure: undefined }));
    for (let round = 0; round < rounds; round++) {
        const order = runners.map((_, i) => i);
        for (const i of round % 2 === 0 ? order : order.reverse()) {
            const { name, rates, failure } = results[i];
            if (failure !== undefined) continue;
            try {
                rates.push(await runners[i].measure(test));
                process.stderr.write(`${test.name}, ${name}: ${rates.at(-1).toFixed(1)} tokens/s\n`);
            } catch (error) {
                results[i].failure = firstLine(error);
                process.stderr.write(`${test.name}, ${name}: ${error.message}\n`);
            }
        }
    }
    return results;
}

// --- the table ------------------------------------------------------------------------------------------------------------------

function median(values) {
    const sorted = [...values].sort((a, b) => a - b);
    return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
}

function rateCell(result) {
    if (result === undefined) return '-';
    const { rates, failure } = result;
    const range = rates.length > 1 ? ` (${Math.min(...rates).toFixed(1)} to ${Math.max(...rates).toFixed(1)})` : '';
    return [rates.length > 0 && `${median(rates).toFixed(1)}${range}`, failure !== undefined && 'failed'].filter(Boolean).join(', ');
}

function ratioCell(ours, peers) {
    if (ours === undefined || ours.rates.length === 0 || peers.rates.length === 0) return '-';
    return (median(ours.rates) / median(peers.rates)).toFixed(2);
}

function printTable([, peer], rows) {
    const cells = [['test', 'carat', peer.name, 'ratio', 'carat, all rows', 'ratio']];
    for (const { test, results } of rows) {
        const [carat, peers, allRows] = results;
        const ratios = [ratioCell(carat, peers), ratioCell(allRows, peers)];
        cells.push([test.name, rateCell(carat), rateCell(peers), ratios[0], rateCell(allRows), ratios[1]]);
    }
    const widths = cells[0].map((_, i) => Math.max(...cells.map((row) => row[i].length)));
    const line = (row) => `| ${row.map((text, i) => text.padEnd(widths[i])).join(' | ')} |`;
    console.log([line(cells[0]), `| ${widths.map((n) => '-'.repeat(n)).join(' | ')} |`, ...cells.slice(1).map(line)].join('\n'));
}

async function main() {
    const { values, positionals } = parseArgs({
        allowPositionals: true,
        options: {
            rounds: { type: 'string', default: '3' },
            threads: { type: 'string', default: '2' },
            tests: { type: 'string' },
            carat: { type: 'string' },
        },
    });
    const [what, model] = positionals;
    const comparison = comparisons[what];
    if (comparison === undefined || model === undefined) throw new Error('name a comparison and a model; bench/compare says which');
    const tests = (values.tests ?? comparison.tests).split(',').map(parseTest);
    const setup = { model, tests, backend: comparison.backend, threads: Number(values.threads), carat: values.carat };
    const contestants = await comparison.contestants(setup);
    const sides = [];
    try {
        for (const contestant of contestants.sides) sides.push(await openSide(contestant));
        for (const side of sides) console.log(`${side.name}: ${side.about}`);
        const rows = [];
        for (const test of tests)
            rows.push({ test, results: await measure(test, runnersOf(test, sides), Number(values.rounds)) });
        console.log(`\nTokens per second, median of ${values.rounds} (smallest to largest), ${what}:\n`);
        printTable(sides, rows);
        for (const { test, results } of rows)
            for (const { name, failure } of results)
                if (failure !== undefined) {
                    console.log(`${test.name}, ${name}: ${failure}`);
                    process.exitCode = 1;
                }
    } finally {
        for (const side of sides) await side.close();
        await contestants.close();
    }
}

try {
    await main();
} catch (error) {
    console.error(`compare: ${error.message}`);
    process.exitCode = 1;
}
