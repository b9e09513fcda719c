// plan.ts: the way of weights from a stream into the module or onto the GPU.

import { makeError } from './errors';
import type { Wasm } from './wasm';
import { directBase, type GpuBridge } from './webgpu';

const pieceBytes = 4 << 20; // handed over at a time
const inFlightBytes = 64 << 20; // handed to the GPU before waiting for it

// One stretch of a file that has to be brought, as wasm_plan gives it.
export interface PlanItem {
    index: number;
    part: number;
    offset: number;
    bytes: number;
    direct: boolean;
}

// Items in file order, grouped where the gap between them costs less than another request would.
export function joinRuns(items: PlanItem[]): PlanItem[][] {
    const sorted = [...items].sort((a, b) => a.part - b.part || a.offset - b.offset);
    const runs: PlanItem[][] = [];
    for (const item of sorted) {
        const run = runs[runs.length - 1];
        const last = run?.[run.length - 1];
        if (last !== undefined && last.part === item.part && item.offset - (last.offset + last.bytes) < 256 << 10)
            run!.push(item);
        else runs.push([item]);
    }
    return runs;
}

// Cuts the stream of a run into pieces for the module: whole pieces of 4 MiB but for the end of an item, so that few calls are
// made and offsets stay multiples of 4.
export class ItemWriter {
    private readonly piece = new Uint8Array(pieceBytes);
    private n = 0; // bytes in `piece`
    private written = 0; // bytes of the current item that were handed over
    private current = 0;
    private unsettled = 0;
    private staging = 0; // in the module's memory, for items that it must see

    constructor(
        private readonly wasm: Wasm,
        private readonly gpu: GpuBridge | undefined,
        private readonly model: number,
        private readonly plan: number,
        private readonly run: PlanItem[],
        private readonly step: (n: number) => void,
    ) {}

    // The next bytes of the file, from position `at` on.
    async feed(at: number, bytes: Uint8Array): Promise<void> {
        for (let i = 0; i < bytes.length && this.current < this.run.length;) {
            const item = this.run[this.current]!;
            const wanted = item.offset + this.written + this.n;
            if (at + i < wanted) {
                // between two items
                i = Math.min(bytes.length, wanted - at);
                continue;
            }
            const n = Math.min(bytes.length - i, pieceBytes - this.n, item.bytes - this.written - this.n);
            this.piece.set(bytes.subarray(i, i + n), this.n);
            this.n += n;
            i += n;
            if (this.n === pieceBytes || this.written + this.n === item.bytes) await this.flush();
        }
    }

    async finish(): Promise<void> {
        if (this.current < this.run.length) throw makeError('bad_file', 'the file ended before its weights did');
    }

    free(): void {
        if (this.staging !== 0) this.wasm.exports.wasm_free(this.staging);
    }

    private async flush(): Promise<void> {
        const item = this.run[this.current]!,
            bytes = this.piece.subarray(0, this.n);
        if (this.write(item, bytes) === 0) throw this.wasm.error();
        this.written += this.n;
        this.step(this.n);
        this.unsettled += this.n;
        this.n = 0;
        if (this.written === item.bytes) {
            this.current++;
            this.written = 0;
        }
        if (this.gpu !== undefined && this.unsettled >= inFlightBytes) {
            this.unsettled = 0;
            await this.gpu.settled();
        }
    }

    private write(item: PlanItem, bytes: Uint8Array): number {
        const { wasm, gpu } = this;
        if (item.direct && gpu !== undefined) {
            gpu.direct = this.piece;
            try {
                return wasm.exports.wasm_plan_write(this.model, this.plan, item.index, this.written, directBase, bytes.length);
            } finally {
                gpu.direct = undefined;
            }
        }
        if (this.staging === 0) this.staging = wasm.alloc(pieceBytes);
        wasm.refresh();
        wasm.u8.set(bytes, this.staging);
        return wasm.exports.wasm_plan_write(this.model, this.plan, item.index, this.written, this.staging, bytes.length);
    }
}
