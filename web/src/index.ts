// index.ts: everything the package offers.

export { Carat, ChatStream } from './carat';
export {
    ArgumentError,
    CancelledError,
    CaratError,
    ContextFullError,
    DeviceError,
    type ErrorCode,
    ModelFileError,
    NetworkError,
    StorageError,
} from './errors';
export { Models, type ModelsOptions } from './models';
export { type Capabilities, probe, selfTest } from './probe';
export {
    PromptSession,
    type PromptInput,
    type PromptMessage,
    type PromptOptions,
    type PromptSessionOptions,
    type SessionState,
} from './prompt-session';
export type { StoredModel, StoreProgress, StoreUsage } from './store';
export type * from './types';
export { version } from './version';
