// expressions.js - expressions of a reader's: the numbers of the library against differences of its own loss; the
// programs in C, which compile without a warning and print the same gradients; faults, in sentences.
//     node expressions.js WASM_FOLDER NATIVE_FOLDER
'use strict';
const assert = require('assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const {execFileSync} = require('child_process');
require('../page/wasi.js');
const formula = require('../page/formula.js');
const {compile, asC, asHundred, Expressions} = require('../page/expression.js');
const tape = require('../page/tape.js');

const root = path.join(__dirname, '../..'), [programs, native] = process.argv.slice(2);
const hundred = fs.readFileSync(path.join(root, 'docs/examples/tape_in_100_lines.c'), 'utf8'), head = hundred.slice(0, hundred.indexOf('/*  y  '));

const texts = {
    'w = 0.5\nb = 1\nconst x = [-2, -1, 0, 1, 2]\nconst y = [-5, -3, -1, 1, 3]\nloss = mean((w x + b - y)^2)' : true,
    'w = [0.5, -1, 2]; x = [1, 0.3, -0.7]; b = [0.1, 0, -0.4] // as the 100 lines\nloss = sum((tanh(w x + b) - exp(b))^2)' : true,
    'int_ = 2; int1 = 3; ctx = [1, 2]; gd_x = 0.25; t1 = 4; sum_ = 1\nloss = sum(log(ctx int1) / sqrt(gd_x + int_)) - sigmoid(t1) sum_' : true,
    'a = [0.3, -0.4]; loss = mean(sin(a) cos(a) + relu(a) - abs(a) - -a^3) * 2' : true,
    'a = 1.5; loss = sum(a) a + mean(a / 2)' : true,
    'x = [[1, 2], [0, 1], [-1, 3]]; w = [[0.5, -1], [1, 0]]; b = [1, -1]; loss = sum(softmax(x @ w + b) [[1, 2], [3, 4], [5, 6]])' : 'the 100 lines have',
    'q = [[1, 0], [0.5, 1]]; k = [[1, 1], [0, 2]]\nloss = logsumexp(matmul(q, transpose(k)))' : 'the 100 lines have'
};

// Each gradient against differences of the loss, by the library itself.
function compare(library, text) {
    const list = compile(text), loss = () => {
        const {nodes} = tape.read(library.run(list));
        return nodes[nodes.length - 1].value.list[0];
    };
    const graph = tape.read(library.run(list)), found = {};
    for (const leaf of list.filter((t) => t.wanted)) {
        const arrivals = graph.edges.filter((edge) => edge.from.name === leaf.name && !edge.from.node && edge.total).sort((a, b) => a.to.id.slice(1) - b.to.id.slice(1) || b.k - a.k);
        found[leaf.name] = arrivals[0].total.list;
        leaf.values.forEach((v, i) => {
            const h = 1e-5, [up, down] = [ h, -h ].map((d) => (leaf.values[i] = v + d, loss()));
            leaf.values[i] = v;
            assert.ok(Math.abs((up - down) / (2 * h) - found[leaf.name][i]) < 1e-7, `${text}: d${leaf.name}[${i}]`);
        });
    }
    // Its picture: every step has a sentence and every number is one.
    const {steps, html} = tape.draw(library.run(list));
    assert.ok(steps.length > graph.nodes.length);
    assert.doesNotMatch(html + steps.map(({said}) => said).join(), /undefined|NaN/);
    return {list, found};
}

// What a program in C prints, compiled with all warnings as errors.
function printed(folder, text, flags) {
    const source = path.join(folder, 'program.c'), program = path.join(folder, 'program');
    fs.writeFileSync(source, text);
    execFileSync('cc', [ '-std=c11', '-Wall', '-Wextra', '-Wpedantic', '-Werror', source, '-o', program, ...flags, '-lm' ], {stdio : [ 'ignore', 'inherit', 'inherit' ]});
    return execFileSync(program).toString().trim().split('\n').map((line) => line.split(' ').slice(1).map(Number));
}

async function main() {
    const library = await Expressions.load(fs.readFileSync(path.join(programs, 'study_expression.wasm')));
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'study-c-')), archive = native && path.join(native, 'lib/libgradus.a');
    const built = archive && fs.existsSync(archive);
    let compiled = 0;
    try {
        for (const [text, whole] of Object.entries(texts)) {
            const {list, found} = compare(library, text), wanted = list.filter((t) => t.wanted).map((t) => found[t.name]);
            const same = (ours) => {
                ours.forEach((values, i) => values.forEach((v, k) => assert.ok(Math.abs(v - wanted[i][k]) < 1e-7 * Math.max(1, Math.abs(v)), `${text}: ${ours} instead of ${wanted}`)));
                assert.equal(ours.length, wanted.length);
                compiled++;
            };
            if (built) same(printed(folder, asC(text, list), [ `-I${root}/include`, archive, '-lpthread', '-ldl' ]));
            if (whole === true)
                same(printed(folder, asHundred(head, list), []));
            else
                assert.throws(() => asHundred(head, list), new RegExp(whole));
        }
    } finally {
        fs.rmSync(folder, {recursive : true, force : true});
    }
    const faults = {
        'loss = w' : /^line 1, column 8: w has no value: a line above gives it one, as in w = 0.5/,
        'w = 1' : /the last line computes the loss/,
        'w = 1; w = 2; loss = w w' : /^line 1, column 8: w has a value already/,
        'w = 2\nloss = w^4' : /a power here is 2 or 3/,
        'w = 2\nloss = foo(w)' : /^line 2, column 11: foo has no value|foo has no value/,
        'w = 2\nloss = tanh(w, w)' : /tanh takes 1 argument, here are 2/,
        'w = [1, [2]]\nloss = sum(w)' : /a list has numbers, or lists of the same length/,
        'w = [[[1]]]\nloss = sum(w)' : /at most 2 axes/,
        [`w = [${Array(65).fill(1)}]\nloss = sum(w)`] : /at most 64 elements/,
        'w = 1e999\nloss = w w' : /a number here is at most 1000000/,
        ['w = 1\n' + Array.from({length : 41}, (_, i) => `a${i} = w w`).join('\n')] : /at most 40 operations/,
        ['loss = ' + '('.repeat(900) + '1'] : /nested too deeply/,
        ['x'.repeat(1001)] : /longer than 1000 characters/,
        'a = [1, 2]\nb = [1, 2, 3]\nloss = sum(a b)' : /^line 3, column 14: mul: a \[2\] and b \[3\] cannot be broadcast together/,
        'a = [1, 2]\nloss = tanh(a)' : /^line 2, column 8: backward: loss is \[2\], wanted one element/,
        'a = [[1, 2]]; b = transpose(a); c = b @ a; d = [[1],[1],[1],[1],[1],[1],[1],[1],[1]]; loss = sum(d @ transpose(d))' : /at most 64|1 to 64 elements/,
        'w = 1; loss = w < 2' : /comparisons have no gradient/,
        'const w = 1\nloss = w w' : /^line 2, column 10: backward: /
    };
    for (const [text, words] of Object.entries(faults))
        assert.throws(() => library.run(compile(text)), (fault) => fault instanceof formula.Fault && words.test(fault.message) || assert.fail(`${text.slice(0, 60)}: ${fault.message}`), text.slice(0, 60));
    console.log(`${Object.keys(texts).length} expressions, ${compiled} programs in C, ${Object.keys(faults).length} faults named${built ? '' : '; the library is not built for this machine, so its programs are left out'}`);
}

main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
