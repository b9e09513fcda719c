// session.ts: sequences of one engine: chat, generation on ids, and the original system's token loop.

import type { Engine } from './engine';
import { makeError, throwIfAborted } from './errors';
import { Queue, turnAfter } from './turn';
import type { DecodedMedia, EngineEvent, FinishReason, GenerateOptions } from './types';
import type { Wasm } from './wasm';

// enum carat_status and enum carat_event_kind of include/carat.h; src/wasm/exports_session.c insists on the order.
export const enum Status {
    Done,
    Event,
    Pending,
    Failed,
}

const finishReasons: (FinishReason | undefined)[] = [undefined, 'stop', 'length', 'tool_calls', 'cancelled'];
const enum Kind {
    Encoding,
    Progress,
    Token,
    Content,
    Reasoning,
    ToolCall,
    Finish,
}

// enum carat_state_form
export const enum StateForm {
    Own,
    Original,
}
const statePieceBytes = 1 << 20;

export class EngineSession {
    private busy = false;
    private freed = false;
    private readonly steppers: number[] = [];

    constructor(
        private readonly engine: Engine,
        private readonly handle: number,
        private readonly onFree: () => void,
    ) {}

    get position(): number {
        return this.freed ? 0 : this.engine.wasm.exports.wasm_session_position(this.handle);
    }
    get context(): number {
        return this.freed ? 0 : this.engine.wasm.exports.wasm_session_context(this.handle);
    }

    get bytes(): number {
        return this.freed ? 0 : this.engine.wasm.exports.wasm_session_bytes(this.handle);
    }

    truncate(n: number): number {
        this.check();
        return this.engine.wasm.exports.wasm_session_truncate(this.handle, n);
    }

    // Runs a chat request (OpenAI's body as JSON). The generator ends after the finish event; an abort gives finish 'cancelled'.
    chat(request: string, media: DecodedMedia[], signal?: AbortSignal): AsyncGenerator<EngineEvent> {
        const { wasm } = this.engine;
        return this.withMedia(media, signal, (stored) =>
            this.run(
                () => wasm.withText(request, (p) => wasm.exports.wasm_chat_begin(this.handle, p, stored, media.length)),
                () => wasm.exports.wasm_chat_next(this.handle),
                signal,
            ),
        );
    }

    // Continues ids. A run of media placeholders in them stands for one of the media. Sampling as in a chat request.
    generate(
        ids: ArrayLike<number>,
        options: GenerateOptions,
        media: DecodedMedia[],
        signal?: AbortSignal,
    ): AsyncGenerator<EngineEvent> {
        const { wasm } = this.engine;
        const words = new Uint8Array(Int32Array.from(ids).buffer);
        const { logprobs, ...rest } = options;
        const wanted = logprobs === undefined ? {} : { logprobs: true, top_logprobs: logprobs };
        const request = JSON.stringify({ ...rest, ...wanted, messages: [{ role: 'user', content: '' }] });
        return this.withMedia(media, signal, (stored) =>
            this.run(
                () =>
                    wasm.with(words, (p) =>
                        wasm.withText(request, (o) =>
                            wasm.exports.wasm_generate_begin(this.handle, p, ids.length, o, stored, media.length),
                        ),
                    ),
                () => wasm.exports.wasm_generate_next(this.handle),
                signal,
            ),
        );
    }

    private async *withMedia(
        media: DecodedMedia[],
        signal: AbortSignal | undefined,
        run: (stored: number) => AsyncGenerator<EngineEvent>,
    ): AsyncGenerator<EngineEvent> {
        for (const item of media) await this.engine.loadTower(item.kind === 'image' ? 'vision' : 'audio', undefined, signal);
        const stored = new MediaInMemory(this.engine.wasm, media);
        try {
            yield* run(stored.p);
        } finally {
            stored.free();
        }
    }

    // A token loop on this session, which then generates nothing else.
    stepper(): Stepper {
        this.check();
        const handle = this.engine.wasm.exports.wasm_stepper_new(this.handle);
        if (handle === 0) throw this.engine.wasm.error();
        this.steppers.push(handle);
        return new Stepper(this.engine, handle, this);
    }

    // Another session with the same contents.
    copy(): EngineSession {
        this.check();
        return this.engine.adoptSession(this.engine.wasm.exports.wasm_session_copy(this.handle));
    }

    // The contents as bytes, see docs/state.md, with the sampler of a stepper. They pass through the module's memory in pieces.
    async save(form = StateForm.Own, stepper = 0): Promise<Uint8Array> {
        this.check();
        const { wasm } = this.engine;
        this.busy = true;
        try {
            const total = wasm.exports.wasm_state_save_begin(this.handle, stepper, form);
            if (total < 0) throw wasm.error();
            const bytes = new Uint8Array(total);
            for (let at = 0; ;) {
                const status = wasm.exports.wasm_state_save_next(this.handle) as Status;
                if (status === Status.Failed) throw wasm.error();
                if (status === Status.Done) return bytes;
                if (status === Status.Event) {
                    const piece = wasm.bytesOf(wasm.exports.wasm_state_piece(), wasm.exports.wasm_state_piece_size());
                    bytes.set(piece, at);
                    at += piece.length;
                }
                if (status === Status.Pending) await this.engine.news();
                else await turnAfter(8);
                this.engine.check();
            }
        } finally {
            this.endState();
        }
    }

    // Takes what save gave, in either form. What the headers tell is checked before anything changes.
    async restore(bytes: Uint8Array, stepper = 0): Promise<void> {
        this.check();
        const { wasm } = this.engine;
        this.busy = true;
        try {
            if (wasm.exports.wasm_state_restore_begin(this.handle, stepper, bytes.length) === 0) throw wasm.error();
            for (let at = 0; at < bytes.length; at += statePieceBytes) {
                const piece = bytes.subarray(at, at + statePieceBytes);
                const taken = wasm.with(piece, (p) => wasm.exports.wasm_state_restore_write(this.handle, p, piece.length));
                if (taken === 0) throw wasm.error();
                await turnAfter(8);
                this.engine.check();
            }
            if (wasm.exports.wasm_state_restore_end(this.handle) === 0) throw wasm.error();
        } finally {
            this.endState();
        }
    }

    private endState(): void {
        this.busy = false;
        if (!this.freed) this.engine.wasm.exports.wasm_state_end(this.handle); // nothing, unless it was left half way
    }

    free(): void {
        if (this.freed) return;
        this.freed = true;
        for (const stepper of this.steppers) this.engine.wasm.exports.wasm_stepper_free(stepper);
        this.engine.wasm.exports.wasm_session_free(this.handle);
        this.onFree();
    }

    check(): void {
        this.engine.check();
        if (this.freed) throw makeError('closed', 'the session was closed');
        if (this.busy) throw makeError('busy', 'the session is generating');
    }

    private async *run(begin: () => number, next: () => number, signal: AbortSignal | undefined): AsyncGenerator<EngineEvent> {
        this.check();
        throwIfAborted(signal);
        const { wasm } = this.engine;
        const stop = () => {
            if (!this.freed) wasm.exports.wasm_stop(this.handle);
        };
        this.busy = true;
        let ended = false;
        try {
            if (begin() === 0) throw wasm.error();
            signal?.addEventListener('abort', stop, { once: true });
            while (!ended) {
                this.engine.check();
                const status = next() as Status;
                if (status === Status.Failed) {
                    ended = true;
                    throw wasm.error();
                }
                ended = status === Status.Done;
                if (status === Status.Event) yield this.readEvent();
                if (status === Status.Pending) await this.engine.news();
                else await turnAfter(8);
            }
        } finally {
            signal?.removeEventListener('abort', stop);
            if (!ended) await this.drain(next);
            this.busy = false;
        }
    }

    // The caller lost interest: bring the session to rest.
    private async drain(next: () => number): Promise<void> {
        if (this.freed) return;
        this.engine.wasm.exports.wasm_stop(this.handle);
        for (let status = Status.Event as Status; status === Status.Event || status === Status.Pending;) {
            status = next() as Status;
            if (status === Status.Pending) await this.engine.news();
        }
    }

    // The layout is struct flat_event of src/wasm/exports.c.
    private readEvent(): EngineEvent {
        const { wasm } = this.engine;
        const p = wasm.exports.wasm_event() >>> 0;
        wasm.refresh();
        const [kind, id, text, nText, toolName, logprobs, done, total, finish, nPrompt, nCached, nGenerated, ids, nIds] =
            new Int32Array(wasm.u8.slice(p, p + 56).buffer);
        const body = () => wasm.textOf(text!, nText!);
        // Always a list, whether the library gives one entry or several.
        const entries = (list: string) => (list.startsWith('[') ? list : `[${list}]`);
        const more = logprobs !== 0 ? { logprobs: entries(wasm.text(logprobs!)) } : {};
        switch (kind as Kind) {
            case Kind.Encoding:
                return { kind: 'encoding', done: done!, total: total! };
            case Kind.Progress:
                return { kind: 'progress', done: done!, total: total! };
            case Kind.Token:
                return { kind: 'token', id: id!, text: body(), ...more };
            case Kind.Content:
                return { kind: 'content', text: body(), ...more };
            case Kind.Reasoning:
                return { kind: 'reasoning', text: body(), ...more };
            case Kind.ToolCall:
                return { kind: 'tool_call', name: wasm.text(toolName!), arguments: body() };
            default: {
                const [promptMs, generateMs, encodeMs, dispatches] = wasm.f64.slice(p / 8 + 7, p / 8 + 11);
                return {
                    kind: 'finish',
                    reason: finishReasons[finish!] ?? 'stop',
                    promptTokens: nPrompt!,
                    cachedTokens: nCached!,
                    generatedTokens: nGenerated!,
                    promptMs: promptMs!,
                    generateMs: generateMs!,
                    encodeMs: encodeMs!,
                    dispatchesPerToken: dispatches!,
                    ids: [...new Int32Array(wasm.bytesOf(ids!, 4 * nIds!).buffer)],
                    text: text === 0 ? '' : body(),
                };
            }
        }
    }
}

// The original system's loop: see src/wasm/step.h.
export class Stepper {
    private readonly queue = new Queue();
    constructor(
        private readonly engine: Engine,
        private readonly handle: number,
        private readonly session: EngineSession,
    ) {}

    reset(): void {
        this.session.check();
        this.engine.wasm.exports.wasm_stepper_reset(this.handle);
    }

    setSampling(temperature: number, topK: number, topP: number, repetition: number, seed: number): void {
        this.engine.check();
        if (this.engine.wasm.exports.wasm_stepper_sampling(this.handle, temperature, topK, topP, repetition, seed) === 0)
            throw this.engine.wasm.error();
    }

    // id -1: the soft token. Calls wait for each other.
    step(id: number, soft?: Float32Array): Promise<number> {
        return this.queue.run(() => this.run(id, soft));
    }

    // The session with this loop's sampler, in the original's form.
    save(): Promise<Uint8Array> {
        return this.queue.run(() => this.session.save(StateForm.Original, this.handle));
    }

    restore(bytes: Uint8Array): Promise<void> {
        return this.queue.run(() => this.session.restore(bytes, this.handle));
    }

    private async run(id: number, soft: Float32Array | undefined): Promise<number> {
        this.engine.check();
        const { wasm, info } = this.engine;
        if (soft !== undefined && soft.length !== info.embedding)
            throw makeError('bad_argument', `a soft token of this model has ${info.embedding} numbers, not ${soft.length}`);
        const begun =
            soft === undefined
                ? wasm.exports.wasm_step_begin(this.handle, id, 0)
                : wasm.with(new Uint8Array(soft.buffer, soft.byteOffset, soft.byteLength), (p) =>
                      wasm.exports.wasm_step_begin(this.handle, -1, p),
                  );
        if (begun === 0) throw wasm.error();
        for (;;) {
            const next = wasm.exports.wasm_step_poll(this.handle);
            if (next >= 0) return next;
            if (next === -2) throw wasm.error();
            await this.engine.news();
            this.engine.check();
        }
    }
}

// Images and sounds in the module's memory, as struct carat_media [n] (include/carat.h).
class MediaInMemory {
    readonly p: number;
    private readonly held: number[] = [];

    constructor(
        private readonly wasm: Wasm,
        media: DecodedMedia[],
    ) {
        const words = new Int32Array(8 * media.length);
        media.forEach((item, i) => {
            if (item.kind === 'image') words.set([0, this.copy(item.rgb), item.width, item.height, item.tokens ?? 0], 8 * i);
            else
                words.set(
                    [
                        1,
                        0,
                        0,
                        0,
                        0,
                        this.copy(new Uint8Array(item.samples.buffer, item.samples.byteOffset, item.samples.byteLength)),
                        item.samples.length,
                        0,
                    ],
                    8 * i,
                );
        });
        this.p = media.length === 0 ? 0 : this.copy(new Uint8Array(words.buffer));
    }

    free(): void {
        for (const p of this.held.splice(0)) this.wasm.exports.wasm_free(p);
    }

    private copy(bytes: Uint8Array): number {
        const p = this.wasm.alloc(bytes.length);
        this.held.push(p);
        this.wasm.u8.set(bytes, p);
        return p;
    }
}
