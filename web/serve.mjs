// serve.mjs: a static server with ranges for trying the demo page. usage: node serve.mjs [PORT] [FOLDER...]
// "/" is the demo, "/dist/" the package; the *.gguf files of the folders are offered under "/models/".
import * as fs from 'node:fs';
import * as http from 'node:http';
import * as path from 'node:path';
import { fileURLToPath } from 'node:url';

const here = path.dirname(fileURLToPath(import.meta.url));
const types = {
    '.html': 'text/html; charset=utf-8',
    '.js': 'text/javascript',
    '.map': 'application/json',
    '.wasm': 'application/wasm',
    '.css': 'text/css',
};

// isolated: send the headers that allow threads.
export function serve({ port = 0, folders = [], isolated = true, extra = {} } = {}) {
    const models = new Map(
        folders.flatMap((f) =>
            fs
                .readdirSync(f)
                .filter((n) => n.endsWith('.gguf'))
                .map((n) => [n, path.join(f, n)]),
        ),
    );
    const server = http.createServer((request, response) => {
        const name = decodeURIComponent(new URL(request.url, 'http://x').pathname);
        const headers = {
            'cross-origin-resource-policy': 'cross-origin',
            'access-control-allow-origin': '*',
            'access-control-expose-headers': 'Content-Range',

            'cache-control': 'no-cache',
            'accept-ranges': 'bytes',
            ...(isolated && { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' }),
        };
        if (extra[name] !== undefined) return extra[name](request, response, headers);
        if (name === '/models')
            return response
                .writeHead(200, { ...headers, 'content-type': 'application/json' })
                .end(JSON.stringify([...models.keys()]));
        const file = fileFor(name, models);
        if (file === undefined || !fs.existsSync(file) || !fs.statSync(file).isFile())
            return response.writeHead(404, headers).end();
        return sendFile(request, response, file, headers);
    });
    return new Promise((resolve) =>
        server.listen(port, '127.0.0.1', () => {
            const url = `http://127.0.0.1:${server.address().port}`;
            resolve({
                url,
                close: () => {
                    server.closeAllConnections();
                    return new Promise((done) => server.close(done));
                },
            });
        }),
    );
}

function fileFor(name, models) {
    if (name.startsWith('/models/')) return models.get(name.slice('/models/'.length));
    const [folder, rest] = name.startsWith('/dist/')
        ? ['dist', name.slice('/dist/'.length)]
        : ['demo', name === '/' ? 'index.html' : name.slice(1)];
    const full = path.resolve(here, folder, rest);
    return full.startsWith(path.join(here, folder) + path.sep) ? full : undefined;
}

function sendFile(request, response, file, headers) {
    const { size } = fs.statSync(file);
    const type = types[path.extname(file)] ?? 'application/octet-stream';
    const match = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '');
    if (match === null) {
        response.writeHead(200, { ...headers, 'content-type': type, 'content-length': size });
        return fs.createReadStream(file).pipe(response);
    }
    const start = Number(match[1]),
        end = match[2] === '' ? size : Math.min(size, Number(match[2]) + 1);
    if (start >= end) return response.writeHead(416, { ...headers, 'content-range': `bytes */${size}` }).end();
    response.writeHead(206, {
        ...headers,
        'content-type': type,
        'content-length': end - start,
        'content-range': `bytes ${start}-${end - 1}/${size}`,
    });
    return fs.createReadStream(file, { start, end: end - 1 }).pipe(response);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
    const [port, ...folders] = process.argv.slice(2);
    const { url } = await serve({ port: Number(port ?? 8080), folders });
    console.log(url);
}
