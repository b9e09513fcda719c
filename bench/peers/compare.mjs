// compare.mjs: two systems take turns at the same tests; medians and their ratio. bench/compare starts it and says how.
//
// A turn is one run that warms up and one that counts, on both sides. Who begins changes from round to round, so that neither
// side always follows the other's heat.
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

// Who takes part in a test: prompts run in carat with and without the layers that only the last row needs.
function runnersOf(test, [carat, peer]) {
    const allRows = { name: 'carat, all rows', measure: (t) => carat.measure({ ...t, allRows: true }) };
    return test.kind === 'pp' ? [carat, peer, allRows] : [carat, peer];
}

async function measure(test, runners, rounds) {
    const rates = runners.map(() => []);
    for (let round = 0; round < rounds; round++) {
        const order = runners.map((_, i) => i);
        for (const i of round % 2 === 0 ? order : order.reverse()) {
            rates[i].push(await runners[i].measure(test));
            process.stderr.write(`${test.name}, ${runners[i].name}: ${rates[i].at(-1).toFixed(1)} tokens/s\n`);
        }
    }
    return rates;
}

// --- the table ------------------------------------------------------------------------------------------------------------------

function median(values) {
    const sorted = [...values].sort((a, b) => a - b);
    return (sorted[(sorted.length - 1) >> 1] + sorted[sorted.length >> 1]) / 2;
}

function rateCell(rates) {
    if (rates === undefined) return '-';
    const range = rates.length > 1 ? ` (${Math.min(...rates).toFixed(1)} to ${Math.max(...rates).toFixed(1)})` : '';
    return `${median(rates).toFixed(1)}${range}`;
}

function printTable([, peer], results) {
    const rows = [['test', 'carat', peer.name, 'ratio', 'carat, all rows', 'ratio']];
    for (const { test, rates } of results) {
        const ratio = (ours) => (ours === undefined ? '-' : (median(ours) / median(rates[1])).toFixed(2));
        rows.push([test.name, rateCell(rates[0]), rateCell(rates[1]), ratio(rates[0]), rateCell(rates[2]), ratio(rates[2])]);
    }
    const widths = rows[0].map((_, i) => Math.max(...rows.map((row) => row[i].length)));
    const line = (row) => `| ${row.map((text, i) => text.padEnd(widths[i])).join(' | ')} |`;
    console.log([line(rows[0]), `| ${widths.map((n) => '-'.repeat(n)).join(' | ')} |`, ...rows.slice(1).map(line)].join('\n'));
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
    const { sides, close } = await comparison.contestants(setup);
    try {
        for (const side of sides) console.log(`${side.name}: ${side.about}`);
        const results = [];
        for (const test of tests) results.push({ test, rates: await measure(test, runnersOf(test, sides), Number(values.rounds)) });
        console.log(`\nTokens per second, median of ${values.rounds} (smallest to largest), ${what}:\n`);
        printTable(sides, results);
    } finally {
        await close();
    }
}

try {
    await main();
} catch (error) {
    console.error(`compare: ${error.message}`);
    process.exitCode = 1;
}
