// sha256.ts: SHA-256 (FIPS 180-4) of a stream, piece by piece, which WebCrypto cannot do.

const K = new Int32Array(64);
const initial = new Int32Array(8);

// The constants are the first 32 bits of the fractional parts of the cube (square) roots of the first primes.
(function fillConstants() {
    const fraction = (x: number) => ((x - Math.floor(x)) * 4294967296) | 0;
    let n = 0;
    for (let candidate = 2; n < 64; candidate++) {
        let prime = true;
        for (let d = 2; d * d <= candidate; d++) if (candidate % d === 0) prime = false;
        if (!prime) continue;
        if (n < 8) initial[n] = fraction(Math.sqrt(candidate));
        K[n++] = fraction(Math.cbrt(candidate));
    }
})();

export class Sha256 {
    private readonly state = Int32Array.from(initial);
    private readonly w = new Int32Array(64);
    private readonly tail = new Uint8Array(64);
    private nTail = 0;
    private nBytes = 0;

    update(bytes: Uint8Array): this {
        this.nBytes += bytes.length;
        let at = 0;
        if (this.nTail > 0) {
            at = Math.min(64 - this.nTail, bytes.length);
            this.tail.set(bytes.subarray(0, at), this.nTail);
            this.nTail += at;
            if (this.nTail < 64) return this;
            this.block(this.tail, 0);
            this.nTail = 0;
        }
        for (; at + 64 <= bytes.length; at += 64) this.block(bytes, at);
        this.tail.set(bytes.subarray(at));
        this.nTail = bytes.length - at;
        return this;
    }

    // 64 hexadecimal digits. The object is not used afterwards.
    digest(): string {
        const end = new Uint8Array(this.nTail < 56 ? 64 : 128);
        end.set(this.tail.subarray(0, this.nTail));
        end[this.nTail] = 0x80;
        const view = new DataView(end.buffer);
        view.setUint32(end.length - 8, Math.floor(this.nBytes / 0x20000000));
        view.setUint32(end.length - 4, (this.nBytes * 8) >>> 0);
        for (let at = 0; at < end.length; at += 64) this.block(end, at);
        return Array.from(this.state, (word) => (word >>> 0).toString(16).padStart(8, '0')).join('');
    }

    private block(p: Uint8Array, at: number): void {
        const w = this.w,
            s = this.state;
        for (let i = 0; i < 16; i++, at += 4) w[i] = (p[at]! << 24) | (p[at + 1]! << 16) | (p[at + 2]! << 8) | p[at + 3]!;
        for (let i = 16; i < 64; i++) {
            const x = w[i - 15]!,
                y = w[i - 2]!;
            const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
            const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
            w[i] = (w[i - 16]! + s0 + w[i - 7]! + s1) | 0;
        }
        let a = s[0]!,
            b = s[1]!,
            c = s[2]!,
            d = s[3]!,
            e = s[4]!,
            f = s[5]!,
            g = s[6]!,
            h = s[7]!;
        for (let i = 0; i < 64; i++) {
            const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
            const t1 = (h + s1 + (g ^ (e & (f ^ g))) + K[i]! + w[i]!) | 0;
            const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
            const t2 = (s0 + ((a & b) | (c & (a | b)))) | 0;
            h = g;
            g = f;
            f = e;
            e = (d + t1) | 0;
            d = c;
            c = b;
            b = a;
            a = (t1 + t2) | 0;
        }
        s[0] = (s[0]! + a) | 0;
        s[1] = (s[1]! + b) | 0;
        s[2] = (s[2]! + c) | 0;
        s[3] = (s[3]! + d) | 0;
        s[4] = (s[4]! + e) | 0;
        s[5] = (s[5]! + f) | 0;
        s[6] = (s[6]! + g) | 0;
        s[7] = (s[7]! + h) | 0;
    }
}

const crcTable = (() => {
    const tables = Array.from({ length: 4 }, () => new Int32Array(256));
    for (let n = 0; n < 256; n++) {
        let c = n;
        for (let k = 0; k < 8; k++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
        tables[0]![n] = c;
    }
    for (let t = 1; t < 4; t++)
        for (let n = 0; n < 256; n++) {
            const c = tables[t - 1]![n]!;
            tables[t]![n] = (c >>> 8) ^ tables[0]![c & 255]!;
        }
    return tables as [Int32Array, Int32Array, Int32Array, Int32Array];
})();

// CRC-32 (as in zip); pass the last result to continue.
export function crc32(bytes: Uint8Array, crc = 0): number {
    const [t0, t1, t2, t3] = crcTable;
    let c = ~crc,
        at = 0;
    for (; at + 4 <= bytes.length; at += 4) {
        c ^= bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
        c = t3[c & 255]! ^ t2[(c >>> 8) & 255]! ^ t1[(c >>> 16) & 255]! ^ t0[c >>> 24]!;
    }
    for (; at < bytes.length; at++) c = t0[(c ^ bytes[at]!) & 255]! ^ (c >>> 8);
    return ~c >>> 0;
}
