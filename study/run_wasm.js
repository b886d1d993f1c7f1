// run_wasm.js - runs a WebAssembly program under node, as the shell runs one: arguments in, what it
// prints and its exit status out.
//
//     node study/run_wasm.js PROGRAM.wasm [ARGUMENT...]
'use strict';
const fs = require('fs');
require('./page/wasi.js');

async function main() {
    const [program, ...args] = process.argv.slice(2);
    const print = (text, fd) => fs.writeSync(fd, text);
    const exports =
        await wasi.start(fs.readFileSync(program), {args : [ program, ...args ], print});
    try {
        exports._start();
    } catch (stop) {
        if (!(stop instanceof wasi.Exit)) throw stop;
        process.exitCode = stop.status;
    }
}

main();
