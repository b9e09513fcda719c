// Composer.tsx: writing a message, with attachments and the microphone.

import { signal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { answering, send, stop } from '../answer';
import { type Attachment, type Conversation } from '../conversations';
import { engine, measuring, modelInfo } from '../engine';
import { say } from '../notice';
import { record, type Recording } from '../recorder';
import { change, settings } from '../settings';

const attached = signal<Attachment[]>([]);
const recording = signal<Recording | undefined>(undefined);
const draft = signal('');

// Takes what the model can look at or hear; says so when it cannot.
export function attach(files: Iterable<File>): void {
    for (const file of files) {
        const kind = file.type.startsWith('image/') ? 'image' : file.type.startsWith('audio/') || file.type.startsWith('video/') ? 'audio' : undefined;
        if (kind === undefined)
            say(`${file.name} is neither an image nor a sound.`);
        else if (kind === 'image' ? modelInfo.value?.hasVision === false : modelInfo.value?.hasAudio === false)
            say(`This model has no ${kind === 'image' ? 'eyes: it cannot look at images' : 'ears: it cannot listen to sounds'}. Load one that has, on the Models page.`);
        else
            attached.value = [...attached.value, { kind, name: file.name, blob: file }];
    }
}

async function toggleMicrophone(): Promise<void> {
    const running = recording.value;
    if (running === undefined) {
        try {
            recording.value = await record();
        } catch (error) {
            say(`The microphone cannot be used: ${(error as Error).message}`);
        }
        return;
    }
    recording.value = undefined;
    attached.value = [...attached.value, { kind: 'audio', name: 'Recording', blob: await running.stop() }];
}

function Thumbnail({ blob }: { blob: Blob }) {
    const url = useMemo(() => URL.createObjectURL(blob), [blob]);
    useEffect(() => () => URL.revokeObjectURL(url), [url]);
    return <img class="thumbnail" src={url} alt="" width="32" height="32" />;
}

function Attached() {
    return (
        <ul class="attachments" aria-label="Attachments">
            {attached.value.map((a, i) => (
                <li key={i}>{a.kind === 'image' ? <Thumbnail blob={a.blob} /> : 'Sound: '}{a.name}
                    <button type="button" class="quiet" aria-label={`Remove ${a.name}`}
                        onClick={() => { attached.value = attached.value.filter((_, j) => j !== i); }}>×</button>
                </li>
            ))}
        </ul>
    );
}

export function Composer({ conversation }: { conversation: Conversation }) {
    const box = useRef<HTMLTextAreaElement>(null);
    const picker = useRef<HTMLInputElement>(null);
    const info = modelInfo.value;
    const busy = answering.value !== undefined;
    const canSend = info !== undefined && !busy && !measuring.value && recording.value === undefined && (draft.value.trim() !== '' || attached.value.length > 0);
    const submit = () => {
        if (!canSend)
            return;
        const message = { text: draft.value.trim(), ...(attached.value.length > 0 && { attachments: attached.value }) };
        draft.value = '';
        attached.value = [];
        void send(conversation, message);
        box.current?.focus();
    };
    const onKey = (event: KeyboardEvent) => {
        const touch = matchMedia('(pointer: coarse)').matches; // there Enter begins a new line, and the button sends
        if (event.key === 'Enter' && !event.shiftKey && !event.isComposing && !touch) {
            event.preventDefault();
            submit();
        }
    };
    const onPaste = (event: ClipboardEvent) => {
        const files = [...event.clipboardData?.files ?? []];
        if (files.length > 0) {
            event.preventDefault();
            attach(files);
        }
    };
    const placeholder = info !== undefined ? 'Message' : engine.value.kind === 'loading' ? 'The model is loading' : 'Load a model first';
    return (
        <form class="composer" onSubmit={(e) => { e.preventDefault(); submit(); }}>
            {attached.value.length > 0 && <Attached />}
            <textarea ref={box} rows={1} dir="auto" aria-label="Message" placeholder={placeholder} value={draft.value}
                onInput={(e) => { draft.value = e.currentTarget.value; }} onKeyDown={onKey} onPaste={onPaste} />
            <div class="composer-row">
                <input ref={picker} type="file" class="hidden" accept="image/*,audio/*" multiple tabIndex={-1} aria-label="Choose images and sounds"
                    onChange={(e) => { attach(e.currentTarget.files ?? []); e.currentTarget.value = ''; }} />
                <button type="button" class="quiet" disabled={info === undefined} title="Attach images or sounds" onClick={() => picker.current?.click()}>Attach</button>
                <button type="button" class="quiet" aria-pressed={recording.value !== undefined} disabled={info === undefined || !info.hasAudio}
                    title={info !== undefined && !info.hasAudio ? 'This model has no ears' : 'Record with the microphone'}
                    onClick={() => void toggleMicrophone()}>{recording.value !== undefined ? 'Stop recording' : 'Record'}</button>
                <label class="toggle"><input type="checkbox" checked={settings.value.thinking} onChange={(e) => change({ thinking: e.currentTarget.checked })} />Think first</label>
                <span class="grow" />
                {busy ? <button type="button" class="primary stop" onClick={stop}>Stop</button>
                    : <button type="submit" class="primary" disabled={!canSend}>Send</button>}
            </div>
        </form>
    );
}
