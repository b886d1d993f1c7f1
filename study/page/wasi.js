// wasi.js - the little of a system that the C library asks for: a place to print to, a clock, and
// no files. It runs in a page as in node.
(function(root) {
'use strict';
const BADF = 8, NOSYS = 52;

class Exit extends Error {
    constructor(status) {
        super('exit ' + status);
        this.status = status;
    }
}

// Starts a module (its bytes, or one that is compiled) and returns { exports, memory }.
// print(text, fd) gets what the program writes; args are its arguments.
function imports(system) {
    const view = () => new DataView(system.memory.buffer);
    const decoder = [ new TextDecoder(), new TextDecoder(), new TextDecoder() ];

    function sizes(list, count, bytes) {
        view().setUint32(count, list.length, true);
        view().setUint32(bytes, list.reduce((n, s) => n + s.length + 1, 0), true);
        return 0;
    }
    function strings(list, pointers, buffer) {
        for (const text of list) {
            view().setUint32(pointers, buffer, true);
            new Uint8Array(system.memory.buffer).set(text, buffer);
            view().setUint8(buffer + text.length, 0);
            pointers += 4;
            buffer += text.length + 1;
        }
        return 0;
    }
    const args = system.args.map((text) => new TextEncoder().encode(text));
    const known = {
        args_sizes_get : (count, bytes) => sizes(args, count, bytes),
        args_get : (pointers, buffer) => strings(args, pointers, buffer),
        environ_sizes_get : (count, bytes) => sizes([], count, bytes),
        environ_get : () => 0,
        clock_time_get(id, precision, at) {
            view().setBigUint64(at, BigInt(Math.round(performance.now() * 1e6)), true);
            return 0;
        },
        fd_write(fd, iovs, count, written) {
            if (fd !== 1 && fd !== 2) return BADF;
            let bytes = 0;
            for (let i = 0; i < count; i++) {
                const at = view().getUint32(iovs + 8 * i, true);
                const size = view().getUint32(iovs + 8 * i + 4, true);
                const piece = new Uint8Array(system.memory.buffer, at, size);
                system.print(decoder[fd].decode(piece, {stream : true}), fd);
                bytes += size;
            }
            view().setUint32(written, bytes, true);
            return 0;
        },
        fd_fdstat_get(fd, at) { // a terminal, so that lines come as they are written
            if (fd > 2) return BADF;
            new Uint8Array(system.memory.buffer).fill(0, at, at + 24);
            view().setUint8(at, 2);
            return 0;
        },
        fd_prestat_get : () => BADF,
        proc_exit(status) { throw new Exit(status); },
    };
    // Whatever else is imported (files, folders) is not there.
    return new Proxy(known, {get : (all, name) => all[name] || (() => NOSYS)});
}

// page: functions of the page that the module calls.
async function start(bytes, {args = [ 'gradus' ], print = () => {}, page = {}} = {}) {
    const system = {memory : null, args, print};
    const module = await WebAssembly.compile(bytes);
    const system_calls = imports(system), wanted = {wasi_snapshot_preview1 : {}, env : {}, page};
    for (const {module : from, name} of WebAssembly.Module.imports(module))
        if (from !== 'page') wanted[from][name] = from === 'env'
            ? () => { throw new Error(`${name} was left out`); }
                                            : system_calls[name];
    const instance = await WebAssembly.instantiate(module, wanted);
    system.memory = instance.exports.memory;
    if (instance.exports._initialize) instance.exports._initialize();
    return instance.exports;
}

// The bytes of a module as a page carries it: gzip, as base64.
function unpack(text) {
    const packed = new Blob([ Uint8Array.from(atob(text), (c) => c.charCodeAt(0)) ]);
    return new Response(packed.stream().pipeThrough(new DecompressionStream('gzip'))).arrayBuffer();
}

// In a page: a script that is not loaded before it is wanted, and the module in it, NAME-wasm.js; a
// page opened from a file may not fetch others.
const loading = {};
function script(src) {
    return loading[src] = loading[src] || new Promise((done, fail) => {
        const element = document.createElement('script');
        element.src = src;
        element.onerror = () => fail(new Error(`${src} cannot be loaded`));
        element.onload = done;
        document.head.append(element);
    });
}
const module = (name) => script(`${name}-wasm.js`).then(() => unpack(root[`${name}Wasm`]));

root.wasi = {
    script,
    module,
    start,
    unpack,
    Exit
};
})(typeof globalThis === 'undefined' ? this : globalThis);
