// Chat.tsx: one conversation.

import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { createConversation, openConversation, openId, conversations, updateConversation, type Conversation } from '../conversations';
import { answer, answering } from '../answer';
import { engine } from '../engine';
import { Composer } from './Composer';
import { LoadAgain } from './LoadState';
import { MessageView } from './MessageView';
import { Welcome } from './Welcome';

const showSystem = signal(false);

function SystemPrompt({ conversation }: { conversation: Conversation }) {
    return (
        <details class="system" open={showSystem.value} onToggle={(e) => { showSystem.value = e.currentTarget.open; }}>
            <summary>System prompt{conversation.system.trim() !== '' && !showSystem.value ? `: ${conversation.system.slice(0, 60)}` : ''}</summary>
            <textarea aria-label="System prompt" rows={3} placeholder="How the model should answer, e.g. “Answer in one sentence.”" value={conversation.system}
                onChange={(e) => void updateConversation(conversation.id, { system: e.currentTarget.value })} />
        </details>
    );
}

function ContextUse({ conversation }: { conversation: Conversation }) {
    const stats = conversation.messages.findLast((m) => m.stats !== undefined)?.stats;
    if (stats === undefined || engine.value.kind !== 'ready')
        return null;
    const size = engine.value.context;
    return (
        <p class="context">
            <meter min={0} max={size} high={size * 0.85} value={stats.contextUsed} aria-label="Context in use" />
            {stats.contextUsed} of {size} positions in use
        </p>
    );
}

// Keeps the end in view whatever grows or shrinks, unless the user has scrolled up.
function useFollow() {
    const list = useRef<HTMLDivElement>(null);
    const follows = useRef(true);
    useEffect(() => {
        const box = list.current!;
        const observer = new ResizeObserver(() => {
            if (follows.current)
                box.scrollTop = box.scrollHeight;
        });
        observer.observe(box);
        observer.observe(box.firstElementChild!);
        return () => observer.disconnect();
    }, []);
    const onScroll = () => {
        const box = list.current!;
        follows.current = box.scrollHeight - box.scrollTop - box.clientHeight < 80;
    };
    return { list, onScroll };
}

function Messages({ conversation }: { conversation: Conversation }) {
    const last = conversation.messages.at(-1);
    const { list, onScroll } = useFollow();
    const busy = answering.value?.conversation === conversation.id;
    const unanswered = last?.role === 'user' && !busy;
    return (
        <div class="messages" ref={list} onScroll={onScroll} role="region" aria-label="Messages" aria-busy={busy} tabIndex={0}>
            <div class="column">
                <SystemPrompt conversation={conversation} />
                {conversation.messages.map((message, i) => (
                    <MessageView key={message.id} message={message} conversation={conversation} index={i} isLast={i === conversation.messages.length - 1} />
                ))}
                {conversation.messages.length === 0 && <p class="hint">Ask something. Nothing you write leaves this device.</p>}
                {unanswered && engine.value.kind === 'ready' && (
                    <p><button type="button" onClick={() => void answer(conversation)}>Answer</button></p>
                )}
                {busy && <p class="working"><span class="spinner" aria-hidden="true" />{answering.value?.note}</p>}
                <ContextUse conversation={conversation} />
            </div>
        </div>
    );
}

export function Chat() {
    useEffect(() => {
        if (openId.value === undefined)
            openId.value = conversations.value[0]?.id ?? createConversation().id;
    }, [openId.value]);
    const conversation = openConversation.value;
    if (conversation === undefined)
        return null;
    const first = engine.value.kind !== 'ready' && conversation.messages.length === 0;
    return (
        <section class="chat" aria-label={conversation.title}>
            {first ? <div class="messages"><Welcome /></div> : <><Messages key={conversation.id} conversation={conversation} /><LoadAgain /></>}
            <Composer conversation={conversation} />
        </section>
    );
}
