// module.js - the module: its size, its planted bugs, and how it takes what cannot be.
//     node module.js WASM_FOLDER
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const zlib = require('zlib');
require('../page/wasi.js');
const Gradus = require('../page/module.js');
const {example} = require('../page/examples.js');
const Training = require('../page/train.js');

// The model learns, the same way every time, and from bad numbers comes to a stop.
async function train(folder) {
    const bytes = fs.readFileSync(path.join(folder, 'study_train.wasm'));
    assert.ok(zlib.gzipSync(bytes, {level : 9}).length < 208000,
        'study_train.wasm has 208 kB or more, gzipped');
    const text = 'a gradient step, and a book to climb by. '.repeat(40);
    const run = async (steps) => {
        const training = await Training.load(bytes, text), begun = training.open(1), losses = [];
        assert.equal(begun.error, '');
        assert.ok(begun.parameters > 90000);
        for (let i = 0; i < steps; i++) losses.push(training.step(0.003).loss);
        return {first : begun.loss, losses, sample : training.sample(60, 0.5)};
    };
    const a = await run(60), b = await run(10);
    assert.deepEqual(a.losses.slice(0, 10), b.losses);
    assert.ok(Math.abs(a.losses[0] - a.first) < 0.3,
        `the first loss is ${a.losses[0]}, a guess has ${a.first}`);
    assert.ok(a.losses[59] < 0.5, `the last loss is ${a.losses[59]}`);
    assert.equal(a.sample.length, 60);
    console.log(`study_train.wasm: loss ${a.losses[0].toFixed(3)} to ${
        a.losses[59].toFixed(3)} in 60 steps: ${JSON.stringify(a.sample)}`);
}

async function main() {
    // bytes, gzipped, at most
    const modules = {study : 251000, study_ops : 198000, study_expression : 90000};
    const [bytes] = Object.entries(modules).map(([ name, most ]) => {
        const module = fs.readFileSync(path.join(process.argv[2], `${name}.wasm`));
        const packed = zlib.gzipSync(module, {level : 9}).length;
        console.log(`${name}.wasm: ${module.length} bytes, ${packed} gzipped`);
        assert.ok(packed <= most, `${name}.wasm has more than ${most} bytes, gzipped`);
        for (const {module : from, name : wanted} of WebAssembly.Module
            .imports(new WebAssembly.Module(module)))
            if (from === 'env') assert.match(wanted,
                /_f32$|^(gd_optimize|gd_muon|[engl][qet]_forward)_f64$/, `${wanted} is not in ${
                    name}.wasm`);
        return module;
    });

    const gradus = await Gradus.load(bytes);
    const bugs = gradus.bugs();
    bugs.forEach((bug, i) => assert.equal(gradus.breakIt(i, false).report.verdict, 'FAIL',
        `${bug.op}: ${bug.what}`));
    assert.ok(bugs.length >= 280);
    console.log(`${bugs.length} planted bugs fail`);

    // The grids: both gradients of every element, which differ where the bug is.
    const at = gradus.bugs().findIndex(
        (bug) => bug.op === 'rms_norm' && bug.what === 'the mean term is missing');
    const {grids} = gradus.breakIt(at, true);
    const off = (grid) =>
        grid.analytic.filter((v, i) => Math.abs(v - grid.numeric[i]) > 1e-6).length;
    assert.equal(grids[0].analytic.length, 256);
    assert.ok(off(grids[0]) > 200);
    assert.equal(off(grids[1]), 0);

    await train(process.argv[2]);

    // An error is a sentence, and the next call works.
    const it = example(gradus, 'rms_norm');
    const bad = gradus.run({
        ...it.request,
        shapes : {x : [ 3, 8 ], weight : [ 7 ]},
        inputs : {...it.request.inputs, weight : [ 1, 1, 1, 1, 1, 1, 1 ]}
    });
    assert.match(bad.error, /^rms_norm: weight has shape \[7\]/);
    assert.equal(gradus.run(it.request).error, '');
}

main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
