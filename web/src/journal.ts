// journal.ts: what is known to be stored of one model: lines "crc32 json", where the first torn one ends the list.

import type { StoreFile } from './files';
import { crc32 } from './sha256';

// How the model was begun.
export interface Begin {
    t: 'begin';
    v: 1;
    key: string;
    label: string;
    url: string | null;
    size: number;
    etag: string | null;
    sha256: string | null;
    chunk: number;
    at: number;
}
export type Entry = Begin | { t: 'chunk'; i: number; crc: number } | { t: 'bad'; i: number } | { t: 'done'; sha256: string };

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export class Journal {
    begin: Begin | undefined;
    readonly crcs = new Map<number, number>(); // of the chunks that are stored
    doneSha256: string | undefined;
    private end = 0;

    private constructor(private readonly file: StoreFile | undefined) {}

    // Reads what is valid and cuts off the rest.
    static async open(file: StoreFile): Promise<Journal> {
        const bytes = new Uint8Array(await file.size());
        await file.read(0, bytes);
        const journal = Journal.parse(bytes, file);
        if (journal.end < bytes.length) await file.truncate(journal.end);
        return journal;
    }

    // To look at only, when there is no file.
    static parse(bytes: Uint8Array, file?: StoreFile): Journal {
        const journal = new Journal(file);
        for (let at = 0; at < bytes.length;) {
            const newline = bytes.indexOf(10, at);
            const entry = newline < 0 ? undefined : parseLine(bytes.subarray(at, newline));
            if (entry === undefined || (journal.begin === undefined) !== (entry.t === 'begin')) break;
            journal.apply(entry);
            at = journal.end = newline + 1;
        }
        return journal;
    }

    async append(entry: Entry): Promise<void> {
        const json = JSON.stringify(entry);
        const line = encoder.encode(`${crc32(encoder.encode(json)).toString(16).padStart(8, '0')} ${json}\n`);
        const at = this.end;
        this.end += line.length;
        this.apply(entry);
        await this.file!.write(at, line);
        await this.file!.flush();
    }

    chunkCount(): number {
        return Math.ceil(this.begin!.size / this.begin!.chunk);
    }
    chunkRange(i: number): [number, number] {
        return [i * this.begin!.chunk, Math.min(this.begin!.size, (i + 1) * this.begin!.chunk)];
    }
    received(): number {
        let n = 0;
        for (const i of this.crcs.keys()) {
            const [start, end] = this.chunkRange(i);
            n += end - start;
        }
        return n;
    }
    async close() {
        await this.file?.close();
    }

    private apply(entry: Entry): void {
        if (entry.t === 'begin') this.begin = entry;
        else if (entry.t === 'chunk') this.crcs.set(entry.i, entry.crc);
        else if (entry.t === 'bad') this.crcs.delete(entry.i);
        else this.doneSha256 = entry.sha256;
    }
}

function parseLine(line: Uint8Array): Entry | undefined {
    if (line.length < 10 || crc32(line.subarray(9)) !== parseInt(decoder.decode(line.subarray(0, 8)), 16)) return undefined;
    try {
        return JSON.parse(decoder.decode(line.subarray(9))) as Entry;
    } catch {
        return undefined;
    }
}
