// service-worker.ts: starts the service worker (public/sw.js), and offers a new release when there is one.

import { say } from './notice';

export function startServiceWorker(): void {
    if (!('serviceWorker' in navigator) || !import.meta.env.PROD)
        return;
    // Without it (forbidden, or no secure page) the app works online only.
    navigator.serviceWorker.register('sw.js').then((registration: ServiceWorkerRegistration | undefined) => {
        if (registration !== undefined)
            watch(registration);
    }, () => undefined);
}

function watch(registration: ServiceWorkerRegistration): void {
    const offer = () => {
        const waiting = registration.waiting;
        if (waiting === null || navigator.serviceWorker.controller === null)
            return;
        say('There is a new release of carat.', {
            label: 'Reload', run: () => {
                navigator.serviceWorker.addEventListener('controllerchange', () => location.reload(), { once: true });
                waiting.postMessage('activate');
            },
        });
    };
    offer();
    registration.addEventListener('updatefound', () => registration.installing?.addEventListener('statechange', offer));
}
