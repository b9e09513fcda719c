// version.ts: the release; build.mjs takes it from package.json.

declare const CARAT_VERSION: string;
export const version: string = typeof CARAT_VERSION === 'undefined' ? 'development' : CARAT_VERSION;
