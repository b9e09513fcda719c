// types.ts: the shapes that the package's functions take and give.

export type Backend = 'webgpu' | 'cpu' | 'ref';

export interface LoadProgress {
    phase: 'engine' | 'header' | 'weights' | 'ready';
    done: number; // bytes
    total: number;
}

export interface LoadOptions {
    backend?: Backend | 'auto' | undefined; // default 'auto': WebGPU where there is a device, else the processor
    contextSize?: number | undefined; // positions; default 4096 or the model's limit
    threads?: number | undefined; // processor only; default one per core, up to 8
    exact?: boolean | undefined; // f32 activations, slower
    autotune?: boolean | undefined; // GPU: a short trial at the start of which kernels are faster; default true
    textOnly?: boolean | undefined; // leave vision and audio towers alone
    perLayerTableOnDisk?: boolean | undefined; // read its rows when needed: half the memory of E2B and E4B; default: where reads are cheap
    projector?: ModelSource | undefined; // an mmproj file with the towers
    compat?: 'none' | 'ollama' | 'llama.cpp' | undefined;
    kvF32?: boolean | undefined; // keys and values in 32 bits
    batch?: number | undefined; // rows of a prefill chunk
    signal?: AbortSignal | undefined;
    onProgress?: ((progress: LoadProgress) => void) | undefined;
    wasmUrl?: string | undefined; // folder of worker.js and the .wasm files; default: beside the script
    variant?: 'simd' | 'threads' | 'relaxed' | undefined; // of the module, for tests; default: the best one
    worker?: boolean | undefined; // false: run here instead of in a dedicated worker; default true in browsers
    gpu?: GPU | undefined; // Node: the object of npm 'webgpu'; needs worker: false
}

// Where a model comes from. A string is a URL; in Node also a path.
export type ModelSource =
    | string
    | URL
    | Blob
    | ArrayBuffer
    | Uint8Array
    | ReadableStream<Uint8Array>
    | { store: string } // a key of the model store
    | { url: string | URL; headers?: Record<string, string> }
    | { url: string | URL; store: string; sha256?: string } // started from the network while the store fills
    | { read: (offset: number, n: number) => Uint8Array | ArrayBuffer | Promise<Uint8Array | ArrayBuffer>; size: number }
    | { stream: ReadableStream<Uint8Array>; size?: number };

export interface ModelInfo {
    name: string;
    architecture: string;
    quantization: string;
    backend: Backend;
    device: string;
    layers: number;
    embedding: number;
    vocabulary: number;
    contextLength: number; // the model's own limit
    parameters: number;
    fileBytes: number;
    weightBytes: number; // resident
    foldedBytes: number; // of them: products of matrices, made when the model was opened, with which decoding is faster
    loadedBytes: number; // of weights that were copied to where the model computes when it was opened
    loadMs: number; // from the moment that room was made for them until they had arrived
    kvBytes: { fixed: number; perPosition: number }; // of a session: fixed + perPosition * its context
    tableOnDisk: boolean; // rows of the per-layer table are read when they are needed
    hasVision: boolean;
    hasAudio: boolean;
    threads: number;
    wasmVariant: 'simd' | 'threads' | 'relaxed';
}

export interface Sampling {
    temperature?: number;
    top_k?: number;
    top_p?: number;
    min_p?: number;
    repetition_penalty?: number;
    presence_penalty?: number;
    frequency_penalty?: number;
    penalty_window?: number;
    seed?: number;
    logit_bias?: Record<string, number>;
}

// --- chat.completions, as OpenAI's API has it -----------------------------------------------------------------------------------

export type ContentPart =
    | { type: 'text'; text: string }
    | { type: 'image_url'; image_url: { url: string } }
    | { type: 'image'; image: Blob | ArrayBuffer | Uint8Array | ImageBitmapSource | Pixels; tokens?: number } // tokens: 70, 140, 280, 560 or 1120
    | { type: 'input_audio'; input_audio: { data: string; format?: string } }
    | { type: 'audio'; audio: Blob | ArrayBuffer | Uint8Array | Float32Array }; // samples: mono, 16 kHz

export interface ToolCall {
    id?: string;
    type?: 'function';
    function: { name: string; arguments: string };
}

export interface ChatMessage {
    role: 'system' | 'developer' | 'user' | 'assistant' | 'model' | 'tool';
    content?: string | ContentPart[] | null;
    reasoning_content?: string;
    tool_calls?: ToolCall[];
    tool_call_id?: string;
    name?: string;
}

export interface ChatRequest extends Sampling {
    messages: ChatMessage[];
    model?: string;
    stream?: boolean;
    stream_options?: { include_usage?: boolean };
    max_tokens?: number;
    max_completion_tokens?: number;
    stop?: string | string[];
    logprobs?: boolean;
    top_logprobs?: number;
    tools?: unknown[];
    tool_choice?: 'auto' | 'none';
    reasoning?: boolean; // let the model think first
    reasoning_effort?: string;
    continue_final_message?: boolean; // the last message is an unfinished reply
    n?: 1;
    response_format?: { type: 'text' };
    ignore_eos?: boolean;
}

export type FinishReason = 'stop' | 'length' | 'tool_calls' | 'cancelled';

export interface Usage {
    prompt_tokens: number;
    completion_tokens: number;
    total_tokens: number;
    prompt_tokens_details: { cached_tokens: number };
}

export interface Timings {
    prompt_n: number; // positions that were computed
    prompt_ms: number;
    prompt_per_second: number;
    predicted_n: number;
    predicted_ms: number;
    predicted_per_second: number;
    encode_ms: number; // images and sounds
}

export interface TokenLogprob {
    token: string;
    logprob: number;
    bytes: number[] | null;
    top_logprobs: { token: string; logprob: number; bytes: number[] | null }[];
}

export interface ChatCompletion {
    id: string;
    object: 'chat.completion';
    created: number;
    model: string;
    choices: [
        {
            index: 0;
            message: { role: 'assistant'; content: string | null; reasoning_content?: string; tool_calls?: ToolCall[] };
            finish_reason: FinishReason;
            logprobs: { content: TokenLogprob[] } | null;
        },
    ];
    usage: Usage;
    timings: Timings;
}

export interface ChatChunk {
    id: string;
    object: 'chat.completion.chunk';
    created: number;
    model: string;
    choices: {
        index: 0;
        delta: {
            role?: 'assistant';
            content?: string;
            reasoning_content?: string;
            tool_calls?: (ToolCall & { index: number })[];
        };
        finish_reason: FinishReason | null;
        logprobs: { content: TokenLogprob[] } | null;
    }[];
    usage?: Usage;
    timings?: Timings;
    prompt_progress?: { done: number; total: number }; // positions of the prompt
    encoding_progress?: { done: number; total: number }; // steps of an image or a sound
}

// --- what the engine reports, one by one ----------------------------------------------------------------------------------------

export type EngineEvent =
    | { kind: 'encoding'; done: number; total: number } // steps of an image or a sound
    | { kind: 'progress'; done: number; total: number }
    | { kind: 'token'; id: number; text: string; logprobs?: string }
    | { kind: 'content'; text: string; logprobs?: string }
    | { kind: 'reasoning'; text: string; logprobs?: string }
    | { kind: 'tool_call'; name: string; arguments: string }
    | {
          kind: 'finish';
          reason: FinishReason;
          promptTokens: number;
          cachedTokens: number;
          generatedTokens: number;
          promptMs: number;
          generateMs: number;
          encodeMs: number;
          dispatchesPerToken: number;
          ids: number[];
          text: string;
      };

// RGBA, as in ImageData: [height, width, 4].
export interface Pixels {
    data: Uint8Array | Uint8ClampedArray;
    width: number;
    height: number;
}

// Images and sounds: decoded, or as files that are decoded in the worker.
export interface ImageMedia {
    kind: 'image';
    rgb: Uint8Array;
    width: number;
    height: number;
    tokens?: number;
}
export interface AudioMedia {
    kind: 'audio';
    samples: Float32Array;
}
export interface MediaFile {
    kind: 'image-file' | 'audio-file';
    bytes: Uint8Array;
    tokens?: number;
}
export type DecodedMedia = ImageMedia | AudioMedia;
export type Media = DecodedMedia | MediaFile;

export interface GenerateOptions extends Sampling {
    max_tokens?: number;
    ignore_eos?: boolean;
    with_special?: boolean;
    logprobs?: number; // alternatives per token; absent: none
}
