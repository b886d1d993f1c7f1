// module.js - the module: its size, its planted bugs, and how it takes what cannot be.
//     node module.js WASM_FOLDER
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const zlib = require('zlib');
require('../page/wasi.js');
const Gradus = require('../page/module.js');
const { example } = require('../page/examples.js');

async function main() {
    const bytes = fs.readFileSync(path.join(process.argv[2], 'study.wasm'));
    const packed = zlib.gzipSync(bytes, { level: 9 }).length;
    console.log(`study.wasm: ${bytes.length} bytes, ${packed} gzipped`);
    assert.ok(packed < 200000, 'the module has 200 kB or more, gzipped');

    const gradus = await Gradus.load(bytes);
    let wrong = 0, right = 0;
    gradus.bugs().forEach((bug, i) => {
        const { report } = gradus.breakIt(i, false);
        assert.equal(report.verdict, bug.right ? 'PASS' : 'FAIL', `${bug.op}: ${bug.what}`);
        const findings = report.inputs.filter((input) => input.finding || input.behaviour);
        if (bug.right) assert.equal(findings.length, 0, `${bug.op} is right, but: ${findings[0]?.finding}`);
        bug.right ? right++ : wrong++;
    });
    assert.ok(wrong >= 153 && right >= 20, `${wrong} bugs, ${right} controls`);
    console.log(`${wrong} planted bugs fail, ${right} correct formulas pass`);

    // The grids: both gradients of every element, which differ where the bug is.
    const at = gradus.bugs().findIndex((bug) => bug.op === 'rms_norm' && bug.what === 'the mean term is missing');
    const { grids } = gradus.breakIt(at, true);
    const off = (grid) => grid.analytic.filter((v, i) => Math.abs(v - grid.numeric[i]) > 1e-6).length;
    assert.equal(grids[0].analytic.length, 256);
    assert.ok(off(grids[0]) > 200);
    assert.equal(off(grids[1]), 0);

    // An error is a sentence, and the next call works.
    const it = example(gradus, 'rms_norm');
    const bad = gradus.run({ ...it.request, shapes: { x: [3, 8], weight: [7] }, inputs: { ...it.request.inputs, weight: [1, 1, 1, 1, 1, 1, 1] } });
    assert.match(bad.error, /^rms_norm: weight has shape \[7\]/);
    assert.equal(gradus.run(it.request).error, '');
}

main().catch((error) => { console.error(error); process.exitCode = 1; });
