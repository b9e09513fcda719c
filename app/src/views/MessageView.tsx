// MessageView.tsx: one message: text, thought, calls, attachments, and what can be done with it.

import { signal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { answer, answerFrom, answering } from '../answer';
import { copyText } from '../clipboard';
import { type Attachment, type Conversation, type Message, type Stats } from '../conversations';
import { measuring, modelInfo } from '../engine';
import { type Blocks, cutBlocks, renderMarkdown } from '../markdown';

const editing = signal<string | undefined>(undefined);

function AttachmentView({ attachment }: { attachment: Attachment }) {
    const url = useMemo(() => URL.createObjectURL(attachment.blob), [attachment.blob]);
    useEffect(() => () => URL.revokeObjectURL(url), [url]);
    return attachment.kind === 'image'
        ? <img class="attached" src={url} alt={attachment.name} />
        : <audio class="attached" controls src={url} aria-label={attachment.name} />;
}

// A paragraph, a list, a code block with its Copy button. While an answer grows only its last block is rendered again.
function Block({ text }: { text: string }) {
    const box = useRef<HTMLDivElement>(null);
    const html = useMemo(() => renderMarkdown(text), [text]);
    useLayoutEffect(() => { // before it is painted, so that nothing moves
        box.current?.querySelectorAll('pre').forEach((pre) => {
            pre.tabIndex = 0;
            const button = document.createElement('button');
            button.type = 'button';
            button.className = 'copy';
            button.textContent = 'Copy';
            button.addEventListener('click', () => {
                void copyText(pre.querySelector('code')?.textContent ?? '').then((done) => {
                    button.textContent = done ? 'Copied' : 'Copy';
                    setTimeout(() => { button.textContent = 'Copy'; }, 1500);
                });
            });
            pre.append(button);
        });
    }, [html]);
    return <div ref={box} dir="auto" dangerouslySetInnerHTML={{ __html: html }} />;
}

function Markdown({ text }: { text: string }) {
    const cut = useRef<Blocks>();
    return useMemo(() => {
        cut.current = cutBlocks(text, cut.current);
        return <div class="markdown">{cut.current.blocks.map((block, i) => <Block key={i} text={block} />)}</div>;
    }, [text]);
}

function Editor({ message, onDone }: { message: Message; onDone: (text: string | undefined) => void }) {
    const box = useRef<HTMLTextAreaElement>(null);
    useEffect(() => box.current?.focus(), []);
    return (
        <form class="editor" onSubmit={(e) => { e.preventDefault(); onDone(box.current?.value); }}>
            <textarea ref={box} rows={4} aria-label="Edit the message" defaultValue={message.text} />
            <div class="actions">
                <button type="submit" class="primary">Send again</button>
                <button type="button" onClick={() => onDone(undefined)}>Cancel</button>
            </div>
        </form>
    );
}

function StatsLine({ stats }: { stats: Stats }) {
    return (
        <span class="stats">{stats.tokens} tokens, {stats.tokensPerSecond.toFixed(1)} per second; {stats.promptTokens - stats.cachedTokens} read, {stats.cachedTokens} remembered</span>
    );
}

function Actions({ message, conversation, index, isLast }: { message: Message; conversation: Conversation; index: number; isLast: boolean }) {
    const ready = modelInfo.value !== undefined && answering.value === undefined && !measuring.value;
    return (
        <div class="actions">
            <button type="button" class="quiet" onClick={() => void copyText(message.text)}>Copy</button>
            {message.role === 'user' && <button type="button" class="quiet" disabled={!ready} onClick={() => { editing.value = message.id; }}>Edit</button>}
            {message.role === 'assistant' && <button type="button" class="quiet" disabled={!ready} onClick={() => void answerFrom(conversation, conversation.messages.slice(0, index))}>Regenerate</button>}
            {message.role === 'assistant' && isLast && message.cut && message.text !== '' && (
                <button type="button" class="quiet" disabled={!ready} onClick={() => void answer(conversation, true)}>Continue</button>
            )}
            {message.stats !== undefined && <StatsLine stats={message.stats} />}
        </div>
    );
}

export function MessageView({ message, conversation, index, isLast }: { message: Message; conversation: Conversation; index: number; isLast: boolean }) {
    const busy = isLast && answering.value?.conversation === conversation.id;
    const finishEditing = (text: string | undefined) => {
        editing.value = undefined;
        if (text === undefined || text.trim() === '')
            return;
        void answerFrom(conversation, [...conversation.messages.slice(0, index), { ...message, text }]);
    };
    return (
        <article class={`message ${message.role}`} aria-label={message.role === 'user' ? 'You' : 'carat'}>
            {message.attachments?.map((attachment, i) => <AttachmentView key={i} attachment={attachment} />)}
            {message.reasoning !== undefined && message.reasoning !== '' && (
                <details class="thought"><summary>Thought</summary><div class="thought-text">{message.reasoning}</div></details>
            )}
            {editing.value === message.id ? <Editor message={message} onDone={finishEditing} />
                : message.role === 'user' ? <div class="plain" dir="auto">{message.text}</div> : <Markdown text={message.text} />}
            {message.calls?.map((call, i) => <pre key={i} class="call" tabIndex={0}>{call.name}({call.arguments})</pre>)}
            {!busy && editing.value !== message.id && <Actions message={message} conversation={conversation} index={index} isLast={isLast} />}
        </article>
    );
}
