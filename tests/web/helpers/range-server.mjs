// A small HTTP server for tests: serves byte arrays (and files) with ranges, and misbehaves on request.
import * as fs from 'node:fs';
import * as http from 'node:http';

// files: { '/name': Uint8Array | path }. fault(request info) may return a fault for a request:
//   {status, retryAfter}, {drop: bytes after which the connection dies}, {ignoreRange}, {wrongRange}, {gzip}, {corruptAt: absolute
//   offset}, {stall: true}, {delayMs}, {etag}
export async function rangeServer(files, fault = () => undefined, headers = {}) {
    const log = [];
    const server = http.createServer((request, response) => {
        const name = new URL(request.url, 'http://x').pathname;
        const body = files[name];
        if (body === undefined) return response.writeHead(404).end();
        const size = typeof body === 'string' ? fs.statSync(body).size : body.length;
        const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
        const start = match ? Number(match[1]) : 0;
        const end = match && match[2] !== '' ? Math.min(size, Number(match[2]) + 1) : size;
        const info = { name, start, end, ranged: match !== null, count: log.length };
        log.push(info);
        setTimeout(() => reply(fault(info) ?? {}), 0);

        function reply(f) {
            if (f.delayMs) return setTimeout(() => reply({ ...f, delayMs: 0 }), f.delayMs);
            if (f.stall) return undefined;
            if (f.status) return response.writeHead(f.status, f.retryAfter ? { 'retry-after': f.retryAfter } : {}).end();
            if (start >= size && size > 0) return response.writeHead(416, { 'content-range': `bytes */${size}` }).end();
            const whole = f.ignoreRange || match === null;
            const [a, b] = whole ? [0, size] : [start, end];
            const bytes = Buffer.from(typeof body === 'string' ? readPart(body, a, b) : body.slice(a, b));
            if (f.corruptAt !== undefined && f.corruptAt >= a && f.corruptAt < b) bytes[f.corruptAt - a] ^= 0x10;
            const from = f.wrongRange ? a + 1 : a;
            response.writeHead(whole ? 200 : 206, {
                'content-length': bytes.length,
                'accept-ranges': 'bytes',
                'etag': f.etag ?? '"v1"',
                ...(whole ? {} : { 'content-range': `bytes ${from}-${from + bytes.length - 1}/${size}` }),
                ...(f.gzip ? { 'content-encoding': 'gzip' } : {}),
                ...headers,
            });
            if (f.drop !== undefined && f.drop < bytes.length) {
                response.write(bytes.subarray(0, f.drop), () => response.destroy());
                return undefined;
            }
            return response.end(bytes);
        }
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    return {
        log,
        url: (name) => `http://127.0.0.1:${server.address().port}${name}`,
        close: () => {
            server.closeAllConnections();
            return new Promise((resolve) => server.close(resolve));
        },
    };
}

function readPart(path, start, end) {
    const fd = fs.openSync(path, 'r');
    const bytes = Buffer.alloc(end - start);
    fs.readSync(fd, bytes, 0, bytes.length, start);
    fs.closeSync(fd);
    return bytes;
}

// Bytes that look random and are the same every time.
export function noise(n, seed = 1) {
    const bytes = new Uint8Array(n);
    let x = seed;
    for (let i = 0; i < n; i++) {
        x = (Math.imul(x, 1664525) + 1013904223) >>> 0;
        bytes[i] = x >>> 24;
    }
    return bytes;
}
