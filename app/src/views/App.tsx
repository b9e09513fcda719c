// App.tsx: the frame: sidebar, page, notice.

import { signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { stop } from '../engine';
import { Bench } from './Bench';
import { Chat } from './Chat';
import { Library } from './Library';
import { Notice } from './Notice';
import { SettingsPage } from './SettingsPage';
import { Sidebar } from './Sidebar';

export type Page = 'chat' | 'models' | 'settings' | 'bench';
const pages: readonly Page[] = ['chat', 'models', 'settings', 'bench'];

const fromAddress = (): Page => pages.find((page) => `#${page}` === location.hash) ?? 'chat';

export const page = signal<Page>(fromAddress());
export const menuOpen = signal(false);

export function go(to: Page): void {
    location.hash = to;
    menuOpen.value = false;
}

function onKey(event: KeyboardEvent): void {
    if (event.key !== 'Escape')
        return;
    if (menuOpen.value)
        menuOpen.value = false;
    else
        stop();
}

export function App() {
    useEffect(() => {
        const onHash = () => { page.value = fromAddress(); };
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
            <main id="main" tabIndex={-1}>
                <Notice />
                {page.value === 'chat' && <Chat />}
                {page.value === 'models' && <Library />}
                {page.value === 'settings' && <SettingsPage />}
                {page.value === 'bench' && <Bench />}
            </main>
        </div>
    );
}
