// demo.ts: the small model that comes with the app. It is kept in the store while it is used, so that it works offline.

declare const DEMO_SHA256: string; // both filled in by the build
declare const DEMO_BYTES: number;

export const demoName = 'carat demo';
export const demoBytes = DEMO_BYTES;
const prefix = 'carat-demo-';
export const demoKey = prefix + DEMO_SHA256.slice(0, 12);
export const demoSource = { url: new URL('models/carat-demo.gguf', document.baseURI).href, store: demoKey, sha256: DEMO_SHA256 };

export const isDemo = (key: string): boolean => key.startsWith(prefix);
