// Sidebar.tsx: conversations and pages.

import { signal } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { answering } from '../answer';
import { exportConversation, importConversation } from '../conversation-file';
import { addConversation, conversations, createConversation, deleteConversation, openId, updateConversation, type Conversation } from '../conversations';
import { day } from '../format';
import { say } from '../notice';
import { closeMenu, go, menuOpen, page, type Page } from './App';
import { ModelBadge } from './ModelBadge';

const search = signal('');
const renaming = signal<string | undefined>(undefined);
const actionsOf = signal<string | undefined>(undefined); // the conversation whose actions are shown

function matches(conversation: Conversation, words: string): boolean {
    const text = `${conversation.title} ${conversation.messages.map((m) => m.text).join(' ')}`.toLowerCase();
    return words.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

async function save(conversation: Conversation): Promise<void> {
    const link = document.createElement('a');
    link.href = URL.createObjectURL(await exportConversation(conversation));
    link.download = `${conversation.title.replace(/[^\p{L}\p{N} _-]/gu, '').trim() || 'conversation'}.json`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

function discard(conversation: Conversation): void {
    deleteConversation(conversation.id);
    say(`“${conversation.title}” was deleted.`, { label: 'Undo', run: () => addConversation(conversation) });
}

function Title({ conversation }: { conversation: Conversation }) {
    const finish = (text: string) => {
        if (renaming.value !== conversation.id) // given up with Escape
            return;
        renaming.value = undefined;
        if (text.trim() !== '')
            void updateConversation(conversation.id, { title: text.trim() });
    };
    return (
        <input class="rename" aria-label="Name of the conversation" value={conversation.title} ref={(input) => input?.focus()}
            onBlur={(e) => finish(e.currentTarget.value)}
            onKeyDown={(e) => {
                if (e.key === 'Enter')
                    finish(e.currentTarget.value);
                if (e.key === 'Escape') {
                    e.preventDefault();
                    renaming.value = undefined;
                }
            }} />
    );
}

function Entry({ conversation }: { conversation: Conversation }) {
    const open = openId.value === conversation.id && page.value === 'chat';
    const busy = answering.value?.conversation === conversation.id;
    const actions = actionsOf.value === conversation.id;
    const act = (run: () => void) => () => {
        actionsOf.value = undefined;
        run();
    };
    if (renaming.value === conversation.id)
        return <li><Title conversation={conversation} /></li>;
    return (
        <li class={open ? 'entry open' : 'entry'}>
            <button type="button" class="entry-open" aria-current={open ? 'true' : undefined}
                onClick={() => { openId.value = conversation.id; go('chat'); }}>
                <span class="entry-title">{conversation.title}</span>
                <span class="entry-day">{busy ? 'answering' : day(conversation.changedAt)}</span>
            </button>
            <button type="button" class="quiet more" aria-label={`Actions for ${conversation.title}`} aria-expanded={actions}
                onClick={() => { actionsOf.value = actions ? undefined : conversation.id; }}>⋯</button>
            {actions && (
                <div class="entry-actions">
                    <button type="button" onClick={act(() => { renaming.value = conversation.id; })}>Rename</button>
                    <button type="button" onClick={act(() => void save(conversation))}>Export</button>
                    <button type="button" class="danger" disabled={busy} onClick={act(() => discard(conversation))}>Delete</button>
                </div>
            )}
        </li>
    );
}

function PageLink({ to, children }: { to: Page; children: string }) {
    return <a href={`#${to}`} aria-current={page.value === to ? 'page' : undefined} onClick={() => { menuOpen.value = false; }}>{children}</a>;
}

function Import() {
    const picker = useRef<HTMLInputElement>(null);
    const take = async (input: HTMLInputElement) => {
        const files = [...input.files ?? []];
        input.value = '';
        for (const file of files)
            if (await importConversation(file))
                go('chat');
    };
    return (
        <>
            <input ref={picker} type="file" class="hidden" accept=".json,application/json" multiple tabIndex={-1} aria-label="Choose conversations to import" onChange={(e) => void take(e.currentTarget)} />
            <button type="button" class="quiet import" onClick={() => picker.current?.click()}>Import a conversation</button>
        </>
    );
}

function openMenu(): void {
    menuOpen.value = true;
    requestAnimationFrame(() => document.querySelector<HTMLElement>('#sidebar button')?.focus());
}

export function Sidebar() {
    const words = search.value.trim();
    const shown = words === '' ? conversations.value : conversations.value.filter((c) => matches(c, words));
    return (
        <>
            <header class="bar">
                <button id="menu-button" type="button" class="quiet menu-button" aria-label="Menu" aria-expanded={menuOpen.value} aria-controls="sidebar"
                    onClick={openMenu}>☰</button>
                <ModelBadge />
            </header>
            <nav id="sidebar" class={menuOpen.value ? 'sidebar shown' : 'sidebar'} aria-label="Conversations and pages">
                <div class="brand"><img src="icon.svg" alt="" width="28" height="28" />carat</div>
                <button type="button" class="primary" onClick={() => { createConversation(); go('chat'); }}>New conversation</button>
                <input type="search" placeholder="Search" aria-label="Search conversations" value={search.value}
                    onInput={(e) => { search.value = e.currentTarget.value; }} />
                <ul class="entries">{shown.map((conversation) => <Entry key={conversation.id} conversation={conversation} />)}</ul>
                {shown.length === 0 && <p class="hint">{words === '' ? 'No conversations yet.' : 'Nothing found.'}</p>}
                <Import />
                <div class="pages">
                    <PageLink to="models">Models</PageLink>
                    <PageLink to="settings">Settings</PageLink>
                    <PageLink to="bench">Benchmark</PageLink>
                </div>
            </nav>
            {menuOpen.value && <div class="shade" onClick={closeMenu} />}
        </>
    );
}
