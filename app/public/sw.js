// sw.js: keeps the app's files, so that it starts without a network. Models are kept elsewhere (the page's own storage).
//
// A new release waits until no page of the old one is open, or until the user asks for it: an open page still needs its files.
const files = 'FILES'; // a list, filled in by the build
const cacheName = 'carat-VERSION';

self.addEventListener('install', (event) => {
    // "reload": a file that the HTTP cache holds may be of another build.
    event.waitUntil(caches.open(cacheName)
        .then((cache) => cache.addAll(files.map((name) => new Request(name, { cache: 'reload' })))));
});

self.addEventListener('message', (event) => {
    if (event.data === 'activate')
        self.skipWaiting();
});

self.addEventListener('activate', (event) => {
    event.waitUntil(caches.keys()
        .then((names) => Promise.all(names.filter((name) => name.startsWith('carat-') && name !== cacheName).map((name) => caches.delete(name))))
        .then(() => self.clients.claim()));
});

self.addEventListener('fetch', (event) => {
    const { request } = event;
    const url = new URL(request.url);
    const own = url.origin === location.origin && request.method === 'GET' && !request.headers.has('range');
    if (!own || /\/(api|v1)\//.test(url.pathname) || url.pathname.endsWith('.gguf'))
        return;
    event.respondWith(caches.open(cacheName).then(async (cache) => {
        const kept = await cache.match(request, { ignoreSearch: true }) ?? (request.mode === 'navigate' ? await cache.match('./') : undefined);
        return kept === undefined ? fetch(request) : isolated(kept);
    }));
});

// Threads need these headers, and plain file servers don't send them.
function isolated(response) {
    const headers = new Headers(response.headers);
    headers.set('Cross-Origin-Opener-Policy', 'same-origin');
    headers.set('Cross-Origin-Embedder-Policy', 'require-corp');
    return new Response(response.body, { status: response.status, statusText: response.statusText, headers });
}
