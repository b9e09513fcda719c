// node.ts: what the host needs in Node: files by path, the model store in a folder.

import * as os from 'node:os';
import * as path from 'node:path';

import { nodeFolder } from './files-node';
import type { HostOptions } from './host';
import { fileSource, type Source } from './source';

// The store is in CARAT_STORE, or in carat/models of the user's data folder.
export async function nodeHostOptions(): Promise<HostOptions> {
    const data = process.env.XDG_DATA_HOME ?? path.join(os.homedir(), '.local/share');
    const store = process.env.CARAT_STORE ?? path.join(data, 'carat/models');
    return { storeFolder: async () => nodeFolder(store), openPath };
}

async function openPath(file: string): Promise<Source> {
    const full = path.resolve(file);
    return fileSource(await nodeFolder(path.dirname(full)).open(path.basename(full), false, true), file);
}
