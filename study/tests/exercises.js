// exercises.js - the ladder of exercises: each answer passes gradcheck, what the box holds at first does
// not, and a mistake in the language is named with its column.
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
    assert.deepEqual(wanted.filter((op) => all.filter((e) => e.op === op && !e.key).length !== 1), [], 'ops without an exercise in study/page/practice.js');
    assert.equal(all.filter((e) => !e.key).length, wanted.length);
    for (const exercise of all) {
        const right = check(gradus, exercise, exercise.answer);
        assert.ok(!right.error, `${exercise.op}: ${right.error}`);
        assert.equal(right.report.verdict, 'PASS', `${exercise.op}: ${right.words}`);
        const others = exercise.wrong ? lines(exercise).filter((line) => withLine(exercise, line) !== exercise.answer).map((line) => withLine(exercise, line))
                                      : [ exercise.begin ];
        assert.equal(others.length, exercise.wrong ? exercise.wrong.length : 1);
        for (const text of others) {
            const other = check(gradus, exercise, text);
            assert.ok(exercise.wrong ? !other.error : true, `${exercise.op}: ${other.error}`);
            assert.ok(other.error || other.report.verdict === 'FAIL', `${exercise.op}: ${text} passes`);
        }
    }
    // Every mistake that is offered has a name: a forgotten eps, and which gates are wrong, too.
    const nameless = all.flatMap((exercise) => (exercise.wrong ? lines(exercise).map((line) => withLine(exercise, line)) : [ exercise.begin ]).filter((text) => {
        const {error, report} = text === exercise.answer ? {error : 'none'} : check(gradus, exercise, text);
        return !error && !report.inputs.some((input) => input.finding || input.behaviour);
    }).map(() => exercise.op));
    assert.deepEqual(nameless, [], 'mistakes without a name');
    // By its numbers, however it is written.
    const atan = check(gradus, all.find((e) => e.op === 'atan'), 'dx[i][j][k] = -dy[i][j][k] / (x[i][j][k] * x[i][j][k] - 1.0f)');
    assert.match(atan.report.inputs[0].finding, /^that is the slope of atanh/);
    const norm = ladder.find((e) => e.op === 'rms_norm'), eps = check(gradus, norm, norm.answer.replace(' + eps', ''));
    assert.deepEqual(eps.report.inputs.map(({finding}) => finding), [ 'as if there were no eps', 'as if there were no eps' ]);
    for (const op of [ 'lstm', 'gru' ]) {
        const exercise = all.find((e) => e.op === op), found = check(gradus, exercise, withLine(exercise, exercise.wrong[0])).report.inputs;
        assert.ok(found.some(({finding}) => /^wrong for the gates \w.*, right for the others$/.test(finding)), op);
    }
    // gradcheck names what is wrong.
    const softmax = ladder.find((e) => e.op === 'softmax');
    const twice = check(gradus, softmax, softmax.answer.replace('y[i, k] * (dy', '2 * y[i, k] * (dy'));
    assert.match(twice.report.inputs[0].finding, /2/);

    const faults = {
        'dx[i, k] = dy[i, k] +' : /^line 1, column 22: expected a number or a name, found the end of the line/,
        'dx[i, k] = $' : /^line 1, column 12: "\$" has no meaning/,
        'dx[i, k] = dy[i]' : /^line 1, column 12: dy has 2 axes, here are 1 indices/,
        'dx[i, k] = z' : /^line 1, column 12: z is not known; known are x, y, dy, i, k/,
        '\ndx[i, k] = constructor[i]' : /^line 2, column 12: constructor is not known/,
        'dx[i, k] = toString(x[i, k])' : /^line 1, column 12: there is no function toString/,
        'dx[i, k] = sum(j, 1)' : /^line 1, column 12: no tensor is read at j/,
        'dx[i, k] = y[i, 99]' : /^line 1, column 17: index 99 is outside axis 1 of y/,
        'x[i, k] = 1' : /^line 1, column 1: x is given/,
        's[i] = sum(k, dy[i, k])' : /dx is not defined/,
        'dx[i, k] = dy[i, k] dy[i, k]' : /^line 1, column 21: expected the end of the line/,
        'dx[i, k] = y[i, k]^2' : /^line 1, column 19: in C \^ is no power: write x \* x, or pow\(x, 2\)/,
        'for (int i = 0; i < 5; i++) dx[i][k] = 1;' : /^line 1, column 1: a line is one formula/,
        'dx[i, k] = sum(a, sum(b, sum(c, sum(d, y[0, a] * y[0, b] * y[0, c] * y[0, d]))))' : /takes more than \d+ steps/,
        ['dx[i, k] = ' + '('.repeat(3000)] : /nested too deeply/,
        [axes(14)] : /^line 1, column 1: this takes more than \d+ steps/, // an array of 17^14 elements
        [axes(21)] : /^line 1, column 1: this takes more than \d+ steps/,
        [axes(280)] : /^line 1, column 1: this takes more than \d+ steps/,
        ['dx[i, k] = ' + '-'.repeat(5000) + '1'] : /longer than 4000/,
        ['dx[i, k] = ' + '-'.repeat(3900) + 'z'] : /z is not known/,
        '' : /dx is not defined/
    };
    for (const [text, words] of Object.entries(faults)) {
        const begun = Date.now(), found = check(gradus, softmax, text);
        assert.match(found.error || 'no error', words, text.slice(0, 80));
        assert.ok(Date.now() - begun < 5000, text);
    }
    // What a C programmer types.
    for (const text of [ 'double s[i] = 0; s[i] += dy[i][k] * y[i][k]; // one a row\ndx[i][k] = y[i][k] * (+dy[i][k] - s[i]);',
             '/* a sum\n   for each row */ s[i] -= -1.0f * dy[i][k] * y[i][k]; dx[i][k] = y[i][k] * (dy[i][k] - s[i] * expf(0.F))' ]) {
        const found = check(gradus, softmax, text);
        assert.equal(found.report?.verdict, 'PASS', `${text}: ${found.error}`);
    }
    // The exercise that CONTRIBUTING.md adds for sinh.
    const row = /```exercise\n([^]*?)```/.exec(fs.readFileSync(path.join(__dirname, '../../CONTRIBUTING.md'), 'utf8'))[1];
    const [sinh] = practice.written('i', 'odd', new Function(`return [${row}]`)());
    const vector = (...values) => ({shape : [ values.length ], values});
    const {dx} = formula.run(formula.parse(sinh.answer), {x : vector(0.5, -1), y : vector(Math.sinh(0.5), Math.sinh(-1)), dy : vector(2, 3)}, {dx : [ 2 ]});
    assert.ok(Math.abs(dx.values[0] - 2 * Math.cosh(0.5)) < 1e-12 && Math.abs(dx.values[1] - 3 * Math.cosh(1)) < 1e-12);
    const {y} = formula.run(formula.parse('y[i] = i > 0 ? x[i] - 1 : -x[i] / 2'), {x : {shape : [ 2 ], values : [ 4, 8 ]}}, {y : [ 2 ]});
    assert.deepEqual(y.values, [ -2, 7 ]);
    console.log(`${all.length} exercises, ${all.filter((e) => e.wrong).length} of them with lines to choose from, ${Object.keys(faults).length} mistakes in the language named`);
}

main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
