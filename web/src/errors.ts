// errors.ts: what a failing call of the package says: a class and a code to act on, a sentence to read, a remedy to try.

export type ErrorCode =
    // of the C library (carat_error.h)
    | 'bad_argument'
    | 'bad_file'
    | 'unsupported'
    | 'not_found'
    | 'io'
    | 'no_memory'
    | 'no_device'
    | 'device_lost'
    | 'context_full'
    | 'cancelled'
    | 'bad_number'
    // of this package
    | 'no_ranges' // the server ignores Range requests
    | 'changed' // the file on the server is not the one that the download began with
    | 'corrupt' // the bytes do not have the promised sha256
    | 'quota' // the browser gives this site too little storage
    | 'busy' // another tab or call holds the thing
    | 'version_mismatch' // JavaScript and WebAssembly are of different releases
    | 'no_wasm' // WebAssembly or one of the features it needs is missing
    | 'closed'; // used after close()

const remedies: Record<ErrorCode, string> = {
    bad_argument: 'Check the arguments of the call.',
    bad_file: 'Download the file again, or use another one.',
    unsupported: 'Use a Gemma 4 GGUF file of a supported type.',
    not_found: 'Check the name, the address or the path.',
    io: 'Check the connection and try again; what was loaded is kept.',
    no_memory: 'Close other tabs, choose a smaller model or a smaller context.',
    no_device: 'Use backend "cpu", or a browser with WebGPU.',
    device_lost: 'Load the model again; the conversation can be kept.',
    context_full: 'Shorten the conversation or load with a larger contextSize.',
    cancelled: 'Nothing: the caller cancelled.',
    bad_number: 'Try backend "cpu"; the GPU driver may compute wrongly.',
    no_ranges: 'Serve the file from a server that answers 206 to Range requests, or open it as a local file.',
    changed: 'Delete the partial download and start again.',
    corrupt: 'Delete the file and download it again.',
    quota: 'Delete other models or give this site more storage.',
    busy: 'Close the other tab that uses this model, or wait.',
    version_mismatch: 'Reload the page without its cache.',
    no_wasm: 'Use a current browser.',
    closed: 'Load the model again.',
};

// The base of all errors that the package throws.
export class CaratError extends Error {
    readonly code: ErrorCode;
    readonly remedy: string;

    constructor(code: ErrorCode, message: string, options?: { remedy?: string; cause?: unknown }) {
        super(message, options?.cause === undefined ? undefined : { cause: options.cause });
        this.name = 'CaratError';
        this.code = code;
        this.remedy = options?.remedy ?? remedies[code];
    }
}

// The caller's fault, the file's fault, the network's, the device's: catch by class, or look at the code.
export class ArgumentError extends CaratError {
    override name = 'ArgumentError';
}
export class ModelFileError extends CaratError {
    override name = 'ModelFileError';
}
export class NetworkError extends CaratError {
    override name = 'NetworkError';
}
export class StorageError extends CaratError {
    override name = 'StorageError';
}
export class DeviceError extends CaratError {
    override name = 'DeviceError';
}
export class ContextFullError extends CaratError {
    override name = 'ContextFullError';
}
// name is 'AbortError', as code that handles AbortSignal expects.
export class CancelledError extends CaratError {
    override name = 'AbortError';
}

type ErrorClass = new (code: ErrorCode, message: string, options?: { remedy?: string; cause?: unknown }) => CaratError;

const classes: Record<ErrorCode, ErrorClass> = {
    bad_argument: ArgumentError,
    closed: ArgumentError,
    not_found: ArgumentError,
    bad_file: ModelFileError,
    unsupported: ModelFileError,
    corrupt: ModelFileError,
    changed: ModelFileError,
    io: NetworkError,
    no_ranges: NetworkError,
    quota: StorageError,
    busy: StorageError,
    no_memory: DeviceError,
    no_device: DeviceError,
    device_lost: DeviceError,
    bad_number: DeviceError,
    no_wasm: DeviceError,
    version_mismatch: DeviceError,
    context_full: ContextFullError,
    cancelled: CancelledError,
};

// The right class for a code.
export function makeError(code: ErrorCode, message: string, options?: { remedy?: string; cause?: unknown }): CaratError {
    return new classes[code](code, message, options);
}

// The codes of enum carat_code, in its order.
export const codesOfLibrary: readonly ErrorCode[] = [
    'bad_argument' /* CARAT_OK never arrives here */,
    'bad_argument',
    'bad_file',
    'unsupported',
    'not_found',
    'io',
    'no_memory',
    'no_device',
    'device_lost',
    'context_full',
    'cancelled',
    'bad_number',
];

// An error in a form that postMessage can carry, and back.
export interface PlainError {
    code: ErrorCode;
    message: string;
    remedy: string;
}

export function toPlain(error: unknown): PlainError {
    const e = asCaratError(error);
    return { code: e.code, message: e.message, remedy: e.remedy };
}

export function fromPlain(plain: PlainError): CaratError {
    return makeError(plain.code, plain.message, { remedy: plain.remedy });
}

// Whatever was thrown, as a CaratError.
export function asCaratError(error: unknown): CaratError {
    if (error instanceof CaratError) return error;
    const { code, remedy, name } = (error ?? {}) as { code?: ErrorCode; remedy?: string; name?: string };
    const message = error instanceof Error ? error.message : String(error);
    // Of another script of the package, which has classes of its own.
    if (code !== undefined && code in classes && remedy !== undefined) return makeError(code, message, { remedy, cause: error });
    if (name === 'AbortError') return makeError('cancelled', 'the call was cancelled', { cause: error });
    if (name === 'QuotaExceededError')
        return makeError('quota', 'the browser has no more storage for this site', { cause: error });
    if (name === 'NoModificationAllowedError') return makeError('busy', 'the file is open in another tab', { cause: error });
    if (name === 'NotFoundError') return makeError('not_found', message, { cause: error });
    if (error instanceof WebAssembly.RuntimeError)
        return makeError('unsupported', `the engine stopped: ${message}`, {
            cause: error,
            remedy: 'Load the model again and report this.',
        });
    if (error instanceof WebAssembly.LinkError || error instanceof WebAssembly.CompileError)
        return makeError('version_mismatch', `the engine does not fit this script: ${message}`, { cause: error });
    if (error instanceof RangeError) return makeError('no_memory', message, { cause: error });
    return makeError('io', message, { cause: error });
}

// Throws when the signal has fired.
export function throwIfAborted(signal: AbortSignal | undefined | null): void {
    if (signal?.aborted) throw makeError('cancelled', 'the call was cancelled', { cause: signal.reason });
}

export { check, idsOf, jsonOf, need } from './options';
