// expressions.js - expressions of a reader's: the numbers of the library against differences of its
// own loss; the programs in C, which compile without a warning and print the same gradients;
// faults, in sentences.
//     node expressions.js WASM_FOLDER NATIVE_FOLDER
'use strict';
const assert = require('assert');
const fs = require('fs');
const os = require('os');
const path = require('path');
const {execFileSync} = require('child_process');
require('../page/wasi.js');
const formula = require('../page/formula.js');
const {compile, asC, Expressions} = require('../page/expression.js');
const tape = require('../page/tape.js');
const runStep = require('../page/steps.js');
const {steps, program} = require('../site/steps.js');

const root = path.join(__dirname, '../..'), [programs, native] = process.argv.slice(2);

const texts = [
    'w = 0.5\nb = 1\nconst x = [-2, -1, 0, 1, 2]\nconst y = [-5, -3, -1, 1, 3]\nloss = mean((w x + b - y)^2)',
    'w = [0.5, -1, 2]; x = [1, 0.3, -0.7]; b = [0.1, 0, -0.4] // as the 100 lines\nloss = sum((tanh(w x + b) - exp(b))^2)',
    'int_ = 2; int1 = 3; ctx = [1, 2]; gd_x = 0.25; t1 = 4; sum_ = 1\nloss = sum(log(ctx int1) / sqrt(gd_x + int_)) - sigmoid(t1) sum_',
    'a = [0.3, -0.4]; loss = mean(sin(a) cos(a) + relu(a) - abs(a) - -a^3) * 2',
    'a = 1.5; loss = sum(a) a + mean(a / 2)',
    'x = [[1, 2], [0, 1], [-1, 3]]; w = [[0.5, -1], [1, 0]]; b = [1, -1]; loss = sum(softmax(x @ w + b) [[1, 2], [3, 4], [5, 6]])',
    'q = [[1, 0], [0.5, 1]]; k = [[1, 1], [0, 2]]\nloss = logsumexp(matmul(q, transpose(k)))',
    'a = [[1, 2, 3], [4, 5, 6]]; b = [[1, -1], [0.5, 2], [3, 1]]\nc[i][j] += a[i][k] * b[k][j];\nloss = sum(i, mean(j, c[i, j]^2)) / c[1, 0]',
    'x = [0.5, -1, 2]; m[i, k] = x[k] x[i] * (i <= k); m += 1; y = x > 0 ? x^3 : x[1] x\nloss = sum(i, max(k, m[i, k] y[k])) - erf(x[2])^1.5'
];

// One language: what stands in either box, of the same tensors, is y in both.
const both = [
    'y = w x', 'y = 3*x*x*w', 'y = x^2 + w^-1', 'y = a @ b', 'y[i] = w[i] * x[i]', 'y[i] = w[i] x[i];',
    'y[i, j] = sum(k, a[i, k] * b[k, j])', 'double y[i][j] += a[i][k] * b[k][j];',
    's = 0; s += x[i]; y = x / s', 'y[i] = 0; y[i] -= a[i][k] * 2.0f;', 'y[i][k] = a[k][i]',
    'y[i, k] = x[i] * w[k]', 'y[k] = a[1, k] + x[0]', 'y = x > w ? expf(x) : fabsf(w)',
    'y[i] = x[i] == w[i] ? 1 : x[i]', 'y[i] = i * x[i]', 'y = softmax(a) // of rows',
    'y[i, k] = exp(a[i, k]) / sum(j, exp(a[i, j]))', 'y = logsumexp(x) + max(x) - mean(a)',
    'y = sigmoid(x) relu(w) + square(sin(x)) - cos(w) tanh(x)', 'y = pow(x, 2) + sqrt(x) log(x)',
    'y = sign(w) floor(x) + erf(w)', 'y[k] = max(i, a[i, k]) - mean(i, a[i, k])',
    'y = (sum(x)\n  * transpose(a))', '/* C */ float y = -w * +x;', 'y = a @ b [[1, 2], [3, 4]]',
    'y[i] = x[i] <= 1 ? w[i] : x[i] >= 2 ? 0 : x[i] != w[i]', 'y = x^0.5', 'y[i] = sum(i, x[i])', 'y[i, k] = a[k, i] a[i, k]'
];
const inputs = {w : [ 1, -2 ], x : [ 1, 3 ], a : [ [ 1, 2 ], [ 3, -4 ] ],
    b : [ [ 0.5, -1 ], [ 1, 0 ] ]};

function bothBoxes(library, text) {
    const given = Object.fromEntries(Object.entries(inputs).map(([ name, list ]) => [name,
        {shape : list[0].length ? [ 2, 2 ] : [ 2 ], values : list.flat()}]));
    const {y} = formula.run(text, given, {}), list = compile(`${Object.entries(inputs)
        .map(([ name, all ]) => `${name} = ${JSON.stringify(all)}`).join('\n')}\n${text}`);
    const {nodes} = tape.read(library.run([...list, {op : 'sum', args : [ list.length - 1 ],
        more : []} ])), {list : values} = nodes[nodes.length - 2].value;
    assert.equal(values.length, y.values.length, text);
    values.forEach((v, i) => assert.ok(Math.abs(v - y.values[i]) < 1e-12,
        `${text}: ${values} and ${y.values}`));
}

// Each gradient against differences of the loss, by the library itself.
function compare(library, text) {
    const list = compile(text), loss = () => {
        const {nodes} = tape.read(library.run(list));
        return nodes[nodes.length - 1].value.list[0];
    };
    const graph = tape.read(library.run(list)), found = {};
    for (const leaf of list.filter((t) => t.wanted)) {
        const arrivals = graph.edges.filter((edge) => edge.from.name === leaf.name &&
            !edge.from.node && edge.total).sort((a, b) => a.to.id.slice(1) - b.to.id.slice(1) ||
            b.k - a.k);
        found[leaf.name] = arrivals[0].total.list;
        leaf.values.forEach((v, i) => {
            const h = 1e-5, [up, down] = [ h, -h ].map((d) => (leaf.values[i] = v + d, loss()));
            leaf.values[i] = v;
            assert.ok(Math.abs((up - down) / (2 * h) - found[leaf.name][i]) < 1e-7,
                `${text}: d${leaf.name}[${i}]`);
        });
    }
    // Its picture: every step has a sentence and every number is one.
    const {steps, html} = tape.draw(library.run(list));
    assert.ok(steps.length > graph.nodes.length);
    assert.doesNotMatch(html + steps.map(({said}) => said).join(), /undefined|NaN/);
    return {list, found};
}

// With so many tensors besides the loss.
const many = (count) => `${
    Array.from({length : count}, (_, i) => `n${i} = 1`).join('\n')}\nloss = sum(n0)`;

// Numbers and names that stand side by side: [text, loss].
const products = [
    [ 'l = 3\nm = 2l + 1', 7 ], [ 'f = 3\nm = 2f + 1', 7 ], [ 'f = 3; m = 2.0 f + 1', 7 ], [ 'm = 1; n = 2.0f m', 2 ],
    [ 'e = 3\nm = 2e + 1', 7 ], [ 'x = 3\nm = .5e1 x 2', 30 ],
    [ 'x = 3\nm = 2x(x + 1) [1]', 24 ], [ 'x = 3\nm = --x^2 - +-x', 12 ], [ many(63), 1 ]
];

// Each name that a program has itself, or that C or a header has, may be a tensor's.
function anyName(folder) {
    const text = 'w = 1\nloss = w w', list = compile(text),
        words = new Set([ 'register', 'constexpr', 'nullptr', 'linux' ]);
    const macros = execFileSync('cc', [ '-dM', '-E', '-include', 'stdlib.h', '-include', 'math.h',
        `-I${root}/include`, `${root}/include/gradus/gradus.h` ]);
    for (const [ , name ] of String(macros).matchAll(/^#define ([A-Za-z]\w*) /gm)) words.add(name);
    for (const [ name ] of asC(text, list).matchAll(/\b[A-Za-z]\w*/g)) words.add(name);
    const all = [...words].filter((name) => name.length < 20 && !formula.names
        .includes(name) && !formula.types.has(name) && !/^(for|if|while)$/.test(name));
    for (let i = 0; i < all.length; i += 30) {
        const names = all.slice(i, i + 30),
            text = `${names.map((name) => `${name} = 2`).join('\n')}\nof_all = ${names[0]} ${
                names[0]}`;
        fs.writeFileSync(path.join(folder, 'names.c'), asC(text, compile(text)));
        execFileSync('cc', [ '-w', '-fsyntax-only', `-I${root}/include`,
            path.join(folder, 'names.c') ], {stdio : [ 'ignore', 'inherit', 'inherit' ]});
    }
    return all.length;
}

// What a program in C prints, compiled with all warnings as errors.
function outputOf(folder, text, flags) {
    const source = path.join(folder, 'program.c'), program = path.join(folder, 'program');
    fs.writeFileSync(source, text);
    execFileSync('cc', [ '-std=c11', '-Wall', '-Wextra', '-Wpedantic', '-Werror', source, '-o',
        program, ...flags, '-lm' ], {stdio : [ 'ignore', 'inherit', 'inherit' ]});
    return execFileSync(program).toString();
}
const printed = (...of) => outputOf(...of).trim().split('\n')
    .map((line) => line.split(' ').slice(1).map(Number));

async function main() {
    const library = await Expressions
        .load(fs.readFileSync(path.join(programs, 'study_expression.wasm')));
    const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'study-c-')),
        archive = native && path.join(native, 'lib/libgradus.a');
    const built = archive && fs.existsSync(archive);
    let compiled = 0, names;
    for (const [text, loss] of products) {
        const {nodes} = tape.read(library.run(compile(text)));
        assert.equal(nodes[nodes.length - 1].value.list[0], loss, text);
    }
    for (const text of both) bothBoxes(library, text);
    const leaf = {name : 'w', shape : [], values : [ 1 ]};
    // the module's own limit
    assert.throws(() => library.run(Array(65).fill(leaf)), /at most 64 tensors/);
    try {
        names = anyName(folder);
        // Each step of the hundred lines is a program; the page's module prints what it prints.
        const hundred = fs.readFileSync(path.join(programs, 'study_hundred.wasm'));
        assert.equal(steps.length, 6);
        for (const [i, step] of steps.entries())
            assert.equal(await runStep(hundred, i), outputOf(folder, program(step), []));
        for (const text of texts) {
            const {list, found} = compare(library, text),
                wanted = list.filter((t) => t.wanted).map((t) => found[t.name]);
            if (!built) continue;
            const ours = printed(folder, asC(text, list),
                [ `-I${root}/include`, archive, '-lpthread', '-ldl' ]);
            ours.forEach((values, i) => values.forEach((v, k) => assert.ok(Math.abs(v -
                wanted[i][k]) < 1e-7 * Math.max(1, Math.abs(v)), `${text}: ${ours} instead of ${
                wanted}`)));
            assert.equal(ours.length, wanted.length);
            compiled++;
        }
    } finally {
        fs.rmSync(folder, {recursive : true, force : true});
    }
    const faults = {
        'loss = w' : /^line 1, column 8: w has no value: a line above gives it one, as in w = 0.5/,
        'w = 1' : /the last line computes the loss/,
        'w = 1; w = 2; loss = w w' : /^line 1, column 8: w has a value already/,
        'f = 3; loss = 2.0f f' : /^line 1, column 15: 2.0f is a number, or a product with f/,
        'w = 2\nloss = exp w' : /^line 2, column 8: exp is a function, as in exp\(x\)/,
        'x = [1, 2]\nloss = x[2]' : /^line 2, column 10: index 2 is outside axis 0 of x, which has 2/,
        'x = [1, 2]\nloss = (x x)[1]' : /^line 2, column 13: a name alone takes an index/,
        'x = [1, 2]; x[0] = 3\nloss = sum(x)' : /^line 1, column 15: on the left an index is a name/,
        'x = [1, 2]; y = x[k]; loss = sum(y)' : /^line 1, column 13: k has no value/,
        'x = [1, 2]; y[k] = x; loss = sum(y)' : /^line 1, column 13: in a line with indices/,
        'x = [1, 2]; y[k] = x[k + 0]; loss = sum(y)' : /an index here is a name or a number/,
        'x = [1, 2]; loss = sum(x [k])' : /an index stands close to its name, as in x\[i\]/,
        'x = 3\nloss = x + 10 000' :
            /^line 2, column 15: a sign or a comma is missing between "10" and "000"/,
        'e = 3\nloss = e 2e-1' :
            /^line 2, column 10: 2e-1 is a number, or a product with e: write a space before the e, or 0.2/,
        '/* 😀 */ w = 1; loss = 😀' : /^line 1, column 23: "😀" has no meaning here/,
        [many(65)] : /^line 65, column 7: an expression here has at most 64 tensors/,
        'w = [1, [2]]\nloss = sum(w)' : /a list has numbers, or lists of the same length/,
        'w = [[[1]]]\nloss = sum(w)' : /at most 2 axes/,
        [`w = [${Array(65).fill(1)}]\nloss = sum(w)`] : /at most 64 elements/,
        'w = 1e999\nloss = w w' : /a number here is at most 1000000/,
        ['w = 1\n' + Array.from({length : 41}, (_, i) => `a${i} = w w`).join('\n')] :
            /at most 40 operations/,
        ['x'.repeat(1001)] : /longer than 1000 characters/,
        'a = [1, 2]\nb = [1, 2, 3]\nloss = sum(a b)' :
            /^line 3, column 14: mul: b is float64 \[3\], wanted a shape that broadcasts/,
        'a = [1, 2]\nloss = tanh(a)' :
            /^line 2, column 8: backward: loss is \[2\], wanted one element/,
        'a = [[1, 2]]; b = transpose(a); c = b @ a; d = [[1],[1],[1],[1],[1],[1],[1],[1],[1]]; loss = sum(d @ transpose(d))' : /at most 64|1 to 64 elements/,
        'const w = 1\nloss = w w' : /^line 2, column 10: backward: /
    };
    for (const [text, words] of Object.entries(faults))
        assert.throws(() => library.run(compile(text)), (fault) => fault instanceof formula.Fault &&
            words.test(fault.message) || assert.fail(`${text.slice(0, 60)}: ${fault.message}`),
            text.slice(0, 60));
    console.log(`${texts.length} expressions, ${both.length} in both boxes, ${compiled} programs in C, ${
        names} names, ${Object.keys(faults).length} faults named${
        built ? '' : '; the library is not built for this machine, so its programs are left out'}`);
}

main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
