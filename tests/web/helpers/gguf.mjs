// Reads the golden tensors of a fixture: name -> {shape, values} (F32 and I32 only). Written for the tests, apart from the C reader.
import * as fs from 'node:fs';

const scalarBytes = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];

export function readTensors(path) {
    const bytes = fs.readFileSync(path);
    let at = 8;
    const u32 = () => { at += 4; return bytes.readUInt32LE(at - 4); };
    const u64 = () => { at += 8; return Number(bytes.readBigUInt64LE(at - 8)); };
    const text = () => { const n = u64(); at += n; return bytes.toString('utf8', at - n, at); };
    const skip = (type) => {
        if (type === 8) {
            text();
        } else if (type === 9) {
            const element = u32();
            for (let n = u64(); n > 0; n--)
                skip(element);
        } else {
            at += scalarBytes[type];
        }
    };
    const nTensors = u64(), nKeys = u64();
    for (let i = 0; i < nKeys; i++) {
        text();
        skip(u32());
    }
    const infos = Array.from({ length: nTensors }, () => {
        const name = text();
        const shape = Array.from({ length: u32() }, () => u64());
        return { name, shape, type: u32(), offset: u64() };
    });
    const data = Math.ceil(at / 32) * 32;
    return Object.fromEntries(infos.filter((t) => t.type === 0 || t.type === 26).map(({ name, shape, type, offset }) => {
        const n = shape.reduce((a, b) => a * b, 1);
        const raw = bytes.buffer.slice(bytes.byteOffset + data + offset, bytes.byteOffset + data + offset + 4 * n);
        return [name, { shape, values: type === 0 ? new Float32Array(raw) : new Int32Array(raw) }];
    }));
}
