// main.tsx: starts the app.

import { render } from 'preact';
import { loadConversations } from './conversations';
import { App } from './views/App';
import './style.css';

await loadConversations();
render(<App />, document.getElementById('app')!);

if ('serviceWorker' in navigator && import.meta.env.PROD)
    navigator.serviceWorker.register('sw.js').catch(() => undefined); // without it the app works online only
