// Downloads a model into a folder; store.test.mjs kills it. usage: download.mjs FOLDER URL SHA256
import { load } from './load.mjs';

const [folder, url, sha256] = process.argv.slice(2);
const { ModelStore } = await load('store');
const { nodeFolder } = await load('files-node');
const store = new ModelStore(nodeFolder(folder), async () => ({ quota: 1e12, usage: 0 }));
const got = await store.download('m', url, { sha256, chunkBytes: 65_536, backoffMs: 5 });
await got.finished;
