// exercises.js - the ladder of exercises: each answer passes gradcheck, what the box holds at first
// does not, and a mistake in the language is named with its column.
//     node exercises.js WASM_FOLDER
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
require('../page/wasi.js');
const Gradus = require('../page/module.js');
const {ladder, all, lines, withLine} = require('../page/exercises.js');
const check = require('../page/check.js');
const formula = require('../page/formula.js');
const practice = require('../page/practice.js');

// A statement of a tensor with so many axes, each as long as a row of softmax's y.
function axes(count) {
    const names = Array.from({length : count}, (_, i) => `a${i}`);
    return `s[${names}] = ${names.map((name) => `y[0,${name}]`).join('+')}`;
}

async function main() {
    const gradus = await Gradus.load(fs.readFileSync(path.join(process.argv[2], 'study.wasm')));
    assert.equal(ladder.length, 10);
    const wanted = gradus.ops().filter((op) => op.backward).map((op) => op.name);
    assert.deepEqual(wanted.filter((op) => all.filter((e) => e.op === op && !e.key).length !== 1),
        [], 'ops without an exercise in study/page/practice.js');
    assert.equal(all.filter((e) => !e.key).length, wanted.length);
    for (const exercise of all) {
        const right = check(gradus, exercise, exercise.answer);
        assert.ok(!right.error, `${exercise.op}: ${right.error}`);
        assert.equal(right.report.verdict, 'PASS', `${exercise.op}: ${right.words}`);
        const others = exercise.wrong
            ? lines(exercise).filter((line) => withLine(exercise, line) !== exercise.answer)
            .map((line) => withLine(exercise, line))
                                      : [ exercise.begin ];
        assert.equal(others.length, exercise.wrong ? exercise.wrong.length : 1);
        for (const text of others) { // each reaches gradcheck, which has a name for it
            const other = check(gradus, exercise, text);
            assert.ok(!other.error, `${exercise.op}: what it begins with does not run: ${
                other.error}`);
            assert.ok(other.report.verdict === 'FAIL', `${exercise.op}: ${text} passes`);
            assert.ok(other.report.inputs.some((input) => input.finding || input.behaviour),
                `${exercise.op}: ${text} has no name`);
        }
    }
    // By their numbers.
    const norm = ladder.find((e) => e.op === 'rms_norm'),
        eps = check(gradus, norm, norm.answer.replace(' + eps', ''));
    assert.deepEqual(eps.report.inputs.map(({finding}) => finding),
        [ 'as if there were no eps', 'as if there were no eps' ]);
    for (const op of [ 'lstm', 'gru' ]) {
        const exercise = all.find((e) => e.op === op),
            found = check(gradus, exercise, withLine(exercise, exercise.wrong[0])).report.inputs;
        assert.ok(found.some(({finding}) => /^wrong for the gates \w.*, right for the others$/
            .test(finding)), op);
    }
    const softmax = ladder.find((e) => e.op === 'softmax');
    const faults = {
        'dx[i, k] = dy[i, k] +' :
            /^line 1, column 22: expected a number or a name, found the end of the line/,
        'dx[i, k] = $' : /^line 1, column 12: "\$" has no meaning/,
        'dx[i, k] = dy[i]' : /^line 1, column 12: dy has 2 axes, here are 1 indices/,
        'dx[i, k] = z' : /^line 1, column 12: z has no value: .*; known are x, y, dy, i, k$/,
        '\ndx[i, k] = constructor[i]' : /^line 2, column 12: constructor has no value/,
        'dx[i, k] = toString(x[i, k])' : /^line 1, column 12: there is no function toString; there are abs, .*transpose$/,
        'dx[i, k] = sum(j, 1)' : /^line 1, column 12: no tensor is read at j/,
        'dx[i, k] = y[i, 99]' : /^line 1, column 17: index 99 is outside axis 1 of y/,
        'x[i, k] = 1' : /^line 1, column 1: x is given/,
        's[i] = sum(k, dy[i, k])' : /dx is not defined/,
        'dx[i, k] = dy[i, k] = 1' : /^line 1, column 21: expected the end of the line/,
        'dx[i, k] = dy [i, k]' : /an index stands close to its name/,
        'dx = sum(k, dy[0, k] y[0, k]) y @ y' : /matmul of \[5, 17\] and \[5, 17\]/,
        'dx = y[0, k]' : /^line 1, column 1: k has no value/,
        'dx[i, k] = y[i, x + 0]' : /^line 1, column 19: an index is one number/,
        'for (int i = 0; i < 5; i++) dx[i][k] = 1;' : /^line 1, column 1: a line is one formula/,
        'dx[i, k] = sum(a, sum(b, sum(c, sum(d, y[i, a] * y[i, b] * y[k, c] * y[0, d]))))' :
            /takes more than \d+ steps/,
        ['dx[i, k] = ' + '('.repeat(3000)] : /nested too deeply/,
        // an array of 17^14 elements
        [`${axes(14)}\ndx = dy`] : /this takes more than \d+ steps/,
        [`${axes(280)}\ndx = dy`] : /this takes more than \d+ steps/,
        ['dx[i, k] = ' + '-'.repeat(5000) + '1'] : /longer than 4000/,
        ['dx[i, k] = ' + '-'.repeat(3900) + 'z'] : /z has no value/,
        '' : /dx is not defined/
    };
    for (const [text, words] of Object.entries(faults)) {
        const begun = process.cpuUsage(), found = check(gradus, softmax, text);
        assert.match(found.error || 'no error', words, text.slice(0, 80));
        assert.ok(process.cpuUsage(begun).user < 5e6, text);
    }
    // What a C programmer types, and of whole tensors.
    for (const [op, text] of [
             [ 'softmax', 'double s[i] = 0; s[i] += dy[i][k] * y[i][k]; // one a row\ndx[i][k] = y[i][k] * (+dy[i][k] - s[i]);' ],
             [ 'softmax', '/* a sum\n   for each row */ s[i] -= -1.0f * dy[i][k] * y[i][k]; dx[i][k] = y[i][k] * (dy[i][k] - s[i] * expf(0.F))' ],
             [ 'pow', 'dx = 3*x*x*dy' ], [ 'pow', 'dx[i][j][k] += 3 * powf(x[i][j][k], 2) * dy[i][j][k];' ],
             [ 'matmul', 'da = dc @ transpose(b); db = transpose(a) @ dc' ], [ 'mul', 'da = dy b\ndb[k] += dy[i, k] a[i, k]' ],
             [ 'cross_entropy', 'p = softmax(logits)\ndlogits[i, j] = dloss / 5 (p[i, j] - (j == targets[i]))' ] ]) {
        const found = check(gradus, ladder.find((e) => e.op === op), text);
        assert.equal(found.report?.verdict, 'PASS', `${text}: ${found.error}`);
    }
    // The exercise that CONTRIBUTING.md adds for sinh.
    const row = /```exercise\n([^]*?)```/
        .exec(fs.readFileSync(path.join(__dirname, '../../CONTRIBUTING.md'), 'utf8'))[1];
    const [sinh] = practice.written('odd', new Function(`return [${row}]`)());
    const vector = (...values) => ({shape : [ values.length ], values});
    const {dx} = formula.run(sinh.answer,
        {x : vector(0.5, -1), y : vector(Math.sinh(0.5), Math.sinh(-1)), dy : vector(2, 3)},
        {dx : [ 2 ]});
    assert.ok(Math.abs(dx.values[0] - 2 * Math.cosh(0.5)) < 1e-12 &&
        Math.abs(dx.values[1] - 3 * Math.cosh(1)) < 1e-12);
    console.log(`${all.length} exercises, ${
        all.filter((e) => e.wrong).length} of them with lines to choose from, ${
        Object.keys(faults).length} mistakes in the language named`);
}

main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
