// App.tsx: the frame: sidebar, page, notice.

import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { stop } from '../answer';
import { Bench } from './Bench';
import { Chat } from './Chat';
import { DropTarget } from './DropTarget';
import { Library } from './Library';
import { Notice } from './Notice';
import { SettingsPage } from './SettingsPage';
import { Sidebar } from './Sidebar';

export type Page = 'chat' | 'models' | 'settings' | 'bench';
const pages: readonly Page[] = ['chat', 'models', 'settings', 'bench'];
const titles: Record<Page, string> = { chat: 'carat', models: 'Models · carat', settings: 'Settings · carat', bench: 'Benchmark · carat' };

const fromAddress = (): Page => pages.find((page) => `#${page}` === location.hash) ?? 'chat';

export const page = signal<Page>(fromAddress());
export const menuOpen = signal(false);

export function go(to: Page): void {
    location.hash = to;
    menuOpen.value = false;
}

// Closing gives the focus back to the button that opened it.
export function closeMenu(): void {
    menuOpen.value = false;
    document.getElementById('menu-button')?.focus();
}

function onKey(event: KeyboardEvent): void {
    if (event.key !== 'Escape' || event.defaultPrevented)
        return;
    if (menuOpen.value)
        closeMenu();
    else
        stop();
}

function onHash(): void {
    page.value = fromAddress();
    document.title = titles[page.value];
    document.getElementById('main')?.focus();
}

export function App() {
    useEffect(() => {
        page.value = fromAddress(); // it may have changed before anyone listened
        document.title = titles[page.value];
        addEventListener('hashchange', onHash);
        addEventListener('keydown', onKey);
        return () => {
            removeEventListener('hashchange', onHash);
            removeEventListener('keydown', onKey);
        };
    }, []);
    return (
        <div class="frame">
            <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById('main')?.focus(); }}>Skip to the content</a>
            <Sidebar />
            <main id="main" tabIndex={-1} inert={menuOpen.value}>
                {page.value === 'chat' && <Chat />}
                {page.value === 'models' && <Library />}
                {page.value === 'settings' && <SettingsPage />}
                {page.value === 'bench' && <Bench />}
            </main>
            <Notice />
            <DropTarget />
        </div>
    );
}
