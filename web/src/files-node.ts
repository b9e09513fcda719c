// files-node.ts: the model store in a folder of the local disk, for Node.

import * as fs from 'node:fs';
import * as path from 'node:path';

import type { StoreFile, StoreFolder } from './files';
import { makeError } from './errors';

class NodeFile implements StoreFile {
    constructor(
        private readonly fd: number,
        private readonly release: () => void,
    ) {}
    async size() {
        return fs.fstatSync(this.fd).size;
    }
    async read(offset: number, into: Uint8Array) {
        return this.readSync(offset, into);
    }
    readSync(offset: number, into: Uint8Array) {
        let done = 0;
        while (done < into.length) {
            const n = fs.readSync(this.fd, into, done, into.length - done, offset + done);
            if (n === 0) break;
            done += n;
        }
        return done;
    }
    async write(offset: number, bytes: Uint8Array) {
        for (let done = 0; done < bytes.length;) done += fs.writeSync(this.fd, bytes, done, bytes.length - done, offset + done);
    }
    async truncate(size: number) {
        fs.ftruncateSync(this.fd, size);
    }
    async flush() {
        fs.fdatasyncSync(this.fd);
    }
    async close() {
        fs.closeSync(this.fd);
        this.release();
    }
}

const held = new Set<string>();

// Files of one folder; a file is open at most once for writing within this process.
export function nodeFolder(folder: string): StoreFolder {
    fs.mkdirSync(folder, { recursive: true });
    return {
        kind: 'folder',
        async list() {
            return fs.readdirSync(folder).map((name) => ({ name, size: fs.statSync(path.join(folder, name)).size }));
        },
        async open(name, create, readOnly = false) {
            const full = path.join(folder, name);
            if (!readOnly && held.has(full)) throw makeError('busy', `'${name}' is in use`);
            if (!create && !fs.existsSync(full)) throw makeError('not_found', `there is no file '${name}' in the store`);
            const flags = readOnly ? 'r' : fs.existsSync(full) ? 'r+' : 'w+';
            const fd = fs.openSync(full, flags);
            if (!readOnly) held.add(full);
            return new NodeFile(fd, () => {
                if (!readOnly) held.delete(full);
            });
        },
        async remove(name) {
            if (held.has(path.join(folder, name))) throw makeError('busy', `'${name}' is in use`);
            fs.rmSync(path.join(folder, name), { force: true });
        },
        async rename(from, to) {
            fs.renameSync(path.join(folder, from), path.join(folder, to));
        },
    };
}
