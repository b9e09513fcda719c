// main.tsx: starts the app.

import { render } from 'preact';
import { loadConversations } from './conversations';
import { resumeLast } from './engine';
import { resumeDownloads } from './library';
import { startServiceWorker } from './service-worker';
import { App } from './views/App';
import './style.css';

await loadConversations();
render(<App />, document.getElementById('app')!);

resumeLast();
resumeDownloads();
startServiceWorker();
