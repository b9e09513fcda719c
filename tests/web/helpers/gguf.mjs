// Reads the golden tensors of a fixture: name -> {shape, values} (F32, I32, I16 and I8 only), and its
// metadata of type text under `texts`. Written for the tests, apart from the C reader.
import * as fs from 'node:fs';

const scalarBytes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];

export function readTensors(path) {
    const bytes = fs.readFileSync(path);
    let at = 8;
    const u32 = () => {
        at += 4;
        return bytes.readUInt32LE(at - 4);
    };
    const u64 = () => {
        at += 8;
        return Number(bytes.readBigUInt64LE(at - 8));
    };
    const text = () => {
        const n = u64();
        at += n;
        return bytes.toString('utf8', at - n, at);
    };
    const skip = (type) => {
        // gives texts, skips the rest
        if (type === 8) return text();
        if (type === 9) {
            const element = u32();
            return Array.from({ length: u64() }, () => skip(element));
        }
        at += scalarBytes[type];
        return undefined;
    };
    const nTensors = u64(),
        nKeys = u64();
    const texts = {};
    for (let i = 0; i < nKeys; i++) {
        const key = text();
        texts[key] = skip(u32());
    }
    const infos = Array.from({ length: nTensors }, () => {
        const name = text();
        const shape = Array.from({ length: u32() }, () => u64());
        return { name, shape, type: u32(), offset: u64() };
    });
    const data = Math.ceil(at / 32) * 32;
    const arrays = { 0: Float32Array, 24: Uint8Array, 25: Int16Array, 26: Int32Array };
    const tensors = Object.fromEntries(
        infos
            .filter((t) => arrays[t.type] !== undefined)
            .map(({ name, shape, type, offset }) => {
                const n = shape.reduce((a, b) => a * b, 1) * arrays[type].BYTES_PER_ELEMENT;
                const start = bytes.byteOffset + data + offset;
                return [name, { shape, values: new arrays[type](bytes.buffer.slice(start, start + n)) }];
            }),
    );
    return { ...tensors, texts };
}
