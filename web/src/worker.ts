// worker.ts: the engine's script, complete in itself: a dedicated worker's, or imported where the engine runs in the caller's thread.
// As a worker its address ends with workerMark, and its name may say which storage the model store has to use.

import { workerMark } from './assets';
import type { StoreKind } from './files';
import { Host, type ToHost } from './host';

export { Host };

if (import.meta.url.endsWith(workerMark)) {
    const scope = self as unknown as DedicatedWorkerGlobalScope;
    const asked = new URLSearchParams(scope.name).get('store');
    const host = new Host((message, transfer) => scope.postMessage(message, transfer ?? []), {
        storeKind: asked === null ? undefined : (asked as StoreKind),
    });
    scope.addEventListener('message', (event: MessageEvent<ToHost>) => host.receive(event.data));
}
