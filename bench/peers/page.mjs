// page.mjs: runs in the browser: one function a side, which loads the model and gives {about, measure(test)}. A measurement is a run
// that counts, after those that carat's bench warms up with; its result is in tokens per second.

// The graphics process of a headless browser may need a second before there is an adapter.
async function waitForAdapter() {
    for (let i = 0; i < 50; i++) {
        const adapter = await navigator.gpu?.requestAdapter();
        if (adapter) return;
        await new Promise((resolve) => setTimeout(resolve, 200));
    }
    throw new Error('this browser has no WebGPU adapter');
}

export async function carat({ backend, threads }) {
    const { Carat } = await import('/carat/carat.js');
    const { bench } = await import('/carat/bench.js');
    if (backend === 'webgpu') await waitForAdapter();
    const model = await Carat.load(`${location.origin}/model.gguf`, { backend, threads });
    const { info } = model;
    return {
        about: `${info.name} ${info.quantization}, ${info.backend}: ${info.device} (${info.wasmVariant} module)`,
        measure: async (test) => {
            const lengths = test.kind === 'pp' ? { prompts: [test.n], generations: [] } : { prompts: [], generations: [test.n] };
            const options = { ...lengths, depths: [test.depth], repetitions: 1, noPrefillSkip: test.allRows };
            for await (const row of bench(model, options)) return row.mean;
        },
    };
}

// wllama takes no ids. A text of n tokens: letters and newlines by turns, which are tokens and never join.
function textOf(n) {
    return Array.from({ length: n }, (_, i) => (i % 2 === 0 ? String.fromCharCode(97 + ((i * 7) % 26)) : '\n')).join('');
}

export async function wllama({ backend, threads, positions }) {
    const { Wllama } = await import('/wllama/index.js');
    const { warmUp } = await import('/carat/bench.js');
    if (backend === 'webgpu') await waitForAdapter();
    // Where there is no WebGPU that it can use, wllama quietly computes on the processor: its log tells.
    const log = [];
    const errors = [];
    const keep = (...words) => {
        log.push(words.join(' '));
        console.debug(...words);
    };
    const keepError = (...words) => {
        errors.push(words.join(' '));
        keep(...words);
    };
    const logger = { debug: keep, log: keep, warn: keep, error: keepError };
    // When its C++ throws, wllama answers with the length of something else ("Invalid typed array length: 1163217991") and the
    // reason is in its log alone.
    const withReason = async (promise) => {
        errors.length = 0;
        try {
            return await promise;
        } catch (error) {
            throw new Error([errors[0], error.message].filter(Boolean).join('; '), { cause: error });
        }
    };
    const instance = new Wllama({ default: '/wllama/wasm/wllama.wasm' }, { logger });
    const file = await (await fetch('/model.gguf')).blob();
    const options = { n_ctx: positions, n_batch: 512, n_ubatch: 512, n_parallel: 1, n_threads: threads };
    await withReason(instance.loadModel([file], { ...options, n_gpu_layers: backend === 'webgpu' ? 999 : 0 }));
    const layers = /offloaded \d+\/\d+ layers to GPU/.exec(log.join('\n'))?.[0] ?? 'no layer on a GPU by its log';
    // Its timings count as carat's: the prompt until the first token is there, the tokens from there on. A completion is all that
    // wllama 3 offers for both. Every token is made an "a": wllama fails at texts that are no UTF-8, and random weights choose
    // bytes. The bias is one addition a token; the pass and the choice among all tokens are what they would be.
    const run = async (test) => {
        const prompt = textOf(test.depth + (test.kind === 'pp' ? test.n : 1));
        const max_tokens = test.kind === 'pp' ? 1 : test.n + 1;
        const choice = { temperature: 0, ignore_eos: true, logit_bias: { a: 1000 } };
        const answer = await withReason(instance.createCompletion({ prompt, max_tokens, cache_prompt: false, ...choice }));
        const { prompt_n, prompt_ms, predicted_n, predicted_ms } = answer.timings;
        if (Math.abs(prompt_n - prompt.length) > 1 || predicted_n !== max_tokens)
            throw new Error(`wllama ran ${prompt_n} + ${predicted_n} positions instead of ${prompt.length} + ${max_tokens}`);
        return test.kind === 'pp' ? { n: prompt_n, ms: prompt_ms } : { n: test.n, ms: predicted_ms };
    };
    return {
        about: `llama.cpp ${Wllama.getLibllamaVersion()}, ${instance.getNumThreads()} threads, ${layers}`,
        measure: async (test) => {
            await warmUp(async () => (await run(test)).ms);
            const { n, ms } = await run(test);
            return (n * 1000) / ms;
        },
    };
}
