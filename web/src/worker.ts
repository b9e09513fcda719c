// worker.ts: the dedicated worker in which the engine lives. Its name may say which storage the model store has to use.

import type { StoreKind } from './files';
import { Host, type ToHost } from './host';

const scope = self as unknown as DedicatedWorkerGlobalScope;
const asked = new URLSearchParams(scope.name).get('store');
const host = new Host((message, transfer) => scope.postMessage(message, transfer ?? []), {
    storeKind: asked === null ? undefined : (asked as StoreKind),
});
scope.addEventListener('message', (event: MessageEvent<ToHost>) => host.receive(event.data));
