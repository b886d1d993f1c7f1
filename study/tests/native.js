// native.js - the WebAssembly build says what a native one says, to the last bit.
//     node native.js WASM_FOLDER NATIVE_FOLDER
'use strict';
const assert = require('assert');
const {execFileSync} = require('child_process');
const fs = require('fs');
const path = require('path');

const [wasm, native] = process.argv.slice(2);
if (!fs.existsSync(path.join(native, 'study_bits'))) {
    console.log('no native build: scripts/study --test makes it');
    process.exit(77);
}

function both(name) {
    const options = {encoding : 'utf8', maxBuffer : 1 << 26};
    return [
        execFileSync('node',
            [ path.join(__dirname, '../run_wasm.js'), path.join(wasm, `${name}.wasm`) ], options),
        execFileSync(path.join(native, name), [], options)
    ];
}

// y and dweight of RMSNorm. dx is not asked for: natively it is a sum in another order.
const [here, there] = both('study_bits');
assert.equal(here, there);
assert.equal(here.trim().split('\n').length, 5);
process.stdout.write(here);

// Every check of gradcheck, and its verdict.
const last = (text) => text.trim().split('\n').pop();
const [ours, theirs] = both('gradus-gradcheck').map(last);
assert.equal(ours, theirs);
assert.match(ours, /^\d+ ops, \d+ checks, \d+ elements compared: \d+ PASS, \d+ EMPTY$/);
assert.ok(Number(/(\d+) PASS/.exec(ours)[1]) >= 531, ours);
console.log(ours);
