// numbers.js - every op's worked example: gradients and Jacobians against differences of its
// forward, which the library's own tests compare with definitions; the steps against their
// formulas.
//     node numbers.js WASM_FOLDER
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
require('../page/wasi.js');
const Gradus = require('../page/module.js');
const {example, solve, steps} = require('../page/examples.js');
const worked = require('../page/worked.js');
const {pictures, numbersOf} = require('../page/pictures.js');
const walk = require('../page/walk.js');
const sources = require('../site/sources.js');
const given = sources.table('study/pages/given.md');
const formula = require('../page/formula.js');

const LIMIT = 1e-6;
let compared = 0;
function same(ours, theirs, what) {
    const off = apart(ours, theirs);
    assert.ok(off < LIMIT, `${what}: off by ${off}: ${ours} instead of ${theirs}`);
    compared += ours.length;
}

// The largest difference, as a share of the largest number.
function apart(ours, theirs) {
    if (ours.length !== theirs.length) return Infinity;
    const scale = Math.max(1e-30, ...theirs.map(Math.abs));
    return ours.reduce((most, v, i) => Math.max(most,
        Math.abs(v - theirs[i]) / (scale > 1e-12 ? scale : 1)), 0);
}

// Functions that jump have the slope 0, and where others have a kink, that of one side: [slope,
// places].
const flat = /^(floor|ceil|round|sign)$/,
    limits = {clamp : [ 1, -1, 1.5 ], hardtanh : [ 0, -1, 1.5 ], relu : [ 0, 0 ],
        leaky_relu : [ 0.1, 0 ], elu : [ 0.75, 0 ]};

// {gradients: {input: values}, jacobian(input): [row of an element of the outputs]}, by central
// differences.
function differences(gradus, {op, inputs, cotangents, ...request}, known) {
    const H = 1e-5, dy = cotangents.flat(), gradients = {}, columns = {};
    const outputs = (name, j, v) => gradus
        .run({...request, op, inputs : {...inputs,
            [name] : inputs[name].map((e, i) => (i === j ? v : e))}}).outputs
            .flatMap((t) => (t ? t.values : []));
    for (const name of known) {
        columns[name] = inputs[name].map((v, j) => {
            if (flat.test(op)) return dy.map(() => 0);
            if (op in limits && limits[op].slice(1).includes(v))
                return dy.map((_, o) => (o === j ? limits[op][0] : 0));
            const more = outputs(name, j, v + H), less = outputs(name, j, v - H);
            return more.map((e, o) => (e - less[o]) / (v + H - (v - H)));
        });
        gradients[name] = columns[name]
            .map((column) => column.reduce((total, slope, o) => total + slope * dy[o], 0));
    }
    return {gradients, jacobian : (name) => dy
        .map((_, o) => columns[name].map((column) => column[o]))};
}
const differentiated = (it, result) => it.check.inputs.filter((_, i) => result.gradients[i])
    .map(({name}) => name);

function check(gradus, it, eps) {
    const {request} = it, result = solve(gradus, it), name = request.op;
    assert.equal(result.error, '', name);
    const wanted = differences(gradus, request, differentiated(it, result));
    it.check.inputs.forEach((input, i) => {
        if (result.gradients[i])
            same(result.gradients[i].values, wanted.gradients[input.name],
                `d${input.name} of ${name}`);
    });
    const list = steps(it, result);
    if (it.own.steps) checkSteps(it, result, list, eps);
    // Each gradient is where a list of steps leads.
    it.check.inputs.forEach((input, i) => {
        if (result.gradients[i])
            assert.ok(list.some((step) => step.gradient === input.name && step.mark),
                `${name} has no step to d${input.name}, or it has no mark`);
    });
    for (const step of list) {
        assert.ok(step.value.values.every((v) => !Number.isNaN(v)), `${name}: ${step.name}`);
        if (step.gradient)
            same(step.value.values, wanted.gradients[step.gradient], `${name}, step ${step.name}`);
    }
    const first = it.check.inputs.findIndex((input, i) => result.gradients[i]);
    if (first < 0) return;
    const {jacobians} = worked.compute(gradus, it);
    if (!jacobians) return;
    wanted.jacobian(it.check.inputs[first].name)
        .forEach((row, o) => same(jacobians[first][o], row, `${name}: row ${o} of the Jacobian`));
    // Each element of each gradient is the sum that a reader who points at it is shown.
    it.check.inputs.forEach((input, i) => (jacobians[i] ? result.gradients[i].values : [])
        .forEach((v, j) => {
        const {total} = worked.contributions(jacobians[i], j, request.cotangents);
        same([ total ], [ v ], `${name}: the parts of d${input.name}[${j}]`);
    }));
}

// The pictures of an op: what they show is what the definition says, every step can be drawn, and a
// cell of a gradient is lit from those elements of dy that the Jacobian has it from, no other.
let products = 0, reached = 0;
function checkPictures(gradus, it, eps) {
    const {op} = it.request, result = worked.compute(gradus, it),
        wanted = differences(gradus, it.request, differentiated(it, result)),
        outputs = result.outputs.map(({values}) => values);
    const known = {y : outputs[0], h : outputs[0], dx : wanted.gradients.x,
        dw : wanted.gradients.weight, dtable : wanted.gradients.table,
        dy : it.request.cotangents[0]};
    let words = '';
    for (const [title, make] of pictures[op]) {
        for (const {steps, draw} of make(numbersOf({it, result}), gradus)) {
            const drawn = steps.map((step, at) => draw(at));
            for (const text of [...drawn, ...steps.map(({said}) => said) ])
                assert.doesNotMatch(text, /NaN|undefined|Infinity/, `${op}: ${title}`);
            const shown = (name) => [...drawn[0]
                .matchAll(new RegExp(`data-grid="${name}"[^>]* data-value="([^"]*)"`, 'g')) ]
                .map(([ , v ]) => Number(v));
            for (const [name, values] of Object.entries(known))
                if (shown(name).length) same(shown(name), values, `${op}: ${name} of the picture`);
            for (const name of ['x', 'table'].filter((name) => shown(`d${name}`).length)) {
                const jacobian = wanted.jacobian(name);
                for (const {target, lit} of steps.filter((step) => step.target &&
                    step.target.grid === `d${name}`)) {
                    const met = known.dy.map((_, o) => o)
                        .filter((o) => jacobian[o][target.at] !== 0);
                    assert.deepEqual(lit.dy, met, `${op}: d${name} ${target.at}`);
                    reached++;
                }
            }
            // from the library: the last row forward is h; the last backward, before the gates'
            // functions
            if (/^(lstm|gru)$/.test(op)) {
                const T = outputs[0].length, gates = wanted.gradients.gates, G = gates.length / T;
                same(shown('forward').slice(-T), outputs[0], `${op}: h of the picture`);
                const order = op === 'lstm' ? [ 0, 1, 2, 3 ] : [ 2, 1, 0 ];
                same(shown('backward').slice(-T * G),
                    order.flatMap((k) => gates.filter((_, i) => i % G === k)),
                    `${op}: gates of the picture`);
            }
            // A sum of products that is written out is what it is said to be; its numbers have two
            // decimals.
            for (const {said} of steps)
                for (const [, left, right] of said.replace(/−/g,
                    '-').matchAll(/= ([^=a-z]*×[^=a-z]*(?:\+ bias [^=]*)?)= (-?\d+(?:\.\d+)?)/g)) {
                    if (/ - |\.\.\./.test(left)) continue;
                    const value = left.replace('bias', '').split(' + ')
                        .map((term) => term.split('×').map((v) => Number(v.replace(/[()]/g, ''))));
                    const total = value.reduce((all, factors) => all +
                        factors.reduce((x, y) => x * y, 1), 0);
                    assert.ok(Math.abs(total - right) < 0.03, `${op}: ${said}`);
                    products++;
                }
            // Bars have one scale, and no line goes through a number.
            const tall = [...drawn[drawn.length - 1]
                .matchAll(/<rect class="\w+" data-value="([^"]*)"[^>]*height="([^"]*)"/g) ]
                .filter(([, v ]) => Number(v)).map(([, v, height ]) => height / Math.abs(v));
            same(tall, tall.map(() => tall[0]), `${op}: the scale of the bars`);
            for (const [group] of drawn[drawn.length - 1]
                .matchAll(/<g class="(?:dim)?"><text[^]*?<\/g>/g)) {
                const levels = [...group
                    .matchAll(/x1="([^"]*)" x2="([^"]*)" y1="([^"]*)" y2="[^"]*" class="level"/g) ]
                    .map((found) => found.slice(1).map(Number));
                for (const [, x, y ] of group
                    .matchAll(/<text x="([^"]*)" y="([^"]*)" text-anchor="middle"/g))
                    assert.ok(levels.every(([ from, to, level ]) => x < from || x > to ||
                        level > Number(y) + 1 || level < y - 9), `${op}: a line through a number`);
            }
            const bars = [...drawn[drawn.length - 1]
                .matchAll(/<rect class="\w+" data-value="([^"]*)"/g) ].map(([ , v ]) => Number(v));
            const gradient = wanted.gradients.x || wanted.gradients.logits;
            if (bars.length) same(bars.slice(-gradient.length), gradient, `${op}: the last bars`);
            if (op === 'cross_entropy') {
                const [p, hot] = [ bars.slice(0, 8), bars.slice(8, 16) ];
                same(p.map((v, i) => (v - hot[i]) / 2), gradient, 'p less the targets');
            }
            words += steps.map(({said}) => said).join('\n') + '\n';
        }
    }
    return words;
}

// What C hands out as a step, once more by its formula, in the language of the exercises.
const rms = 'a[i] = mean(k, x[i, k] * x[i, k]); rms[i] = sqrt(a[i] + eps); rstd[i] = 1 / rms[i]; xhat[i, k] = x[i, k] * rstd[i]; h[i, k] = dy[i, k] * weight[k]; m[i] = mean(k, h[i, k] * xhat[i, k]); along[i, k] = xhat[i, k] * m[i]; parts[i, k] = dy[i, k] * xhat[i, k]';
const rows = (m) => `${m}; xhat[i, k] = (x[i, k] - mean[i]) * rstd[i];
h[i, k] = dy[i, k] * weight[k]; mean_h[i] = mean(k, h[i, k]);
mean_hx[i] = mean(k, h[i, k] * xhat[i, k])`;
const scores = (q, k, v, dy) => `lse[i] = log(sum(j, j > i ? 0 : exp(scale * sum(d, ${q} * ${k}))));
p[i, j] = j > i ? 0 : exp(scale * sum(d, ${q} * ${k}) - lse[i]); dp[i, j] = sum(d, ${dy} * ${v});
delta[i] = sum(j, p[i, j] * dp[i, j]); ds[i, j] = p[i, j] * (dp[i, j] - delta[i])`;
const stepFormulas = {
    rms_norm : rms, add_rms_norm : `${rms.replace(/\bx\b/g, 'y1')};
    through[i, k] = rstd[i] * (h[i, k] - along[i, k])`,
    layer_norm : rows('mean[i] = mean(k, x[i, k]); v[i] = mean(k, (x[i, k] - mean[i]) * (x[i, k] - mean[i])); rstd[i] = 1 / sqrt(v[i] + eps)'),
    batch_norm : 'mean[c] = mean(b, x[b, c]); v[c] = mean(b, (x[b, c] - mean[c]) * (x[b, c] - mean[c])); rstd[c] = 1 / sqrt(v[c] + eps); xhat[b, c] = (x[b, c] - mean[c]) * rstd[c]',
    batch_norm_fixed : 'xhat[b, c] = (x[b, c] - mean[c]) / sqrt(var[c] + eps)',
    softmax : 's[i] = sum(k, dy[i, k] * y[i, k]); diff[i, k] = dy[i, k] - s[i]',
    log_softmax : 's[i] = sum(k, dy[i, k]); p[i, k] = exp(y[i, k])',
    cross_entropy : 'm[i] = max(j, logits[i, j]); l[i] = log(sum(j, exp(logits[i, j] - m[i]))); p[i, j] = exp(logits[i, j] - m[i] - l[i]); scale[i] = dy / 2 + 0 * m[i]', nll_loss : 'W = weight[1] + weight[0] + weight[1]',
    linear_cross_entropy : 'l[i, j] = sum(k, x[i, k] * weight[j, k]); d[i, j] = exp(l[i, j]) / sum(k, exp(l[i, k])) - (j == targets[i]); alpha = dy / 2',
    swiglu : 's[i, k] = 1 / (1 + exp(-gate[i, k])); slope[i, k] = s[i, k] * (1 + gate[i, k] * (1 - s[i, k]))', attention : scores('q[0, i, 0, d]', 'k[0, j, 0, d]', 'v[0, j, 0, d]', 'dy[0, i, 0, d]'),
    dropout : 'k[i, j] = y[i, j] == 0 ? 0 : 1',
    rope : 'cos[t] = cos(t) + 0 * x[0, t, 0, 0]; sin[t] = sin(t) + 0 * x[0, t, 0, 0]',
    prod : 'P[i] = i == 0 ? -3 : -3 + 0 * x[i, 0]',
    var : 'd[i, k] = x[i, k] - mean(j, x[i, j]); share[i] = dy[i] * 2 / 4',
    std : 'd[i, k] = x[i, k] - mean(j, x[i, j]); share[i] = dy[i] / (4 * y[i])',
    conv2d : 'U[k, p] = x[0, 0, floor(p / 2) + floor(k / 2), p - 2 * floor(p / 2) + k - 2 * floor(k / 2)] + 0 * square[k, p]; dU[k, p] = weight[0, 0, floor(k / 2), k - 2 * floor(k / 2)] * dy[0, 0, floor(p / 2), p - 2 * floor(p / 2)] + 0 * square[k, p]',
    conv_transpose2d : 'dU[k, p] = dy[0, 0, floor(p / 2) + floor(k / 2), p - 2 * floor(p / 2) + k - 2 * floor(k / 2)] + 0 * square[k, p]'
};
let handed = 0;
function checkSteps({request : {op, inputs, shapes, cotangents}, own}, result, list, eps = 1e-5) {
    const given = {eps : {shape : [], values : [ eps ]}, scale : {shape : [], values : [ 0.5 ]},
        square : {shape : [ 4, 4 ], values : Array(16).fill(0)}},
        lines = (stepFormulas[op] || '').replace(/; /g, '\n');
    const handedOut = own.steps.filter(([ , , , more = {} ]) => !more.of && !more.ones &&
        !more.copies && !more.output).map(([ name ]) => name);
    if (op === 'cross_entropy') delete given.scale;
    for (const [name, values] of Object.entries(inputs))
        given[name] = {shape : shapes[name], values};
    result.outputs.forEach((t, k) => Object.assign(given,
        {[k ? `y${k}` : 'y'] : t, [k ? `dy${k}` : 'dy'] : {shape : t.shape,
            values : cotangents[k]}}));
    const found = lines ? formula.run(lines, given, {}) : {};
    for (const {name, value} of list.filter(({name}) => found[name] && handedOut.includes(name))) {
        same(value.values, found[name].values, `${op}: step ${name} by its formula`);
        handed++;
    }
}

// Each branch of an op's formula occurs in its example: by x, or by x and the other input, and by
// y.
const branches = {
    dropout : [ (x, _, y) => y === 0 && x !== 0, (x, _, y) => y !== 0 ],
    maximum : [ (a, b) => a > b, (a, b) => a < b, (a, b) => a === b ],
    minimum : [ (a, b) => a > b, (a, b) => a < b, (a, b) => a === b ],
    huber_loss : [ (x, t) => Math.abs(x - t) < 0.75, (x, t) => x - t >= 0.75,
        (x, t) => x - t <= -0.75 ],
    smooth_l1_loss : [ (x, t) => Math.abs(x - t) < 0.75, (x, t) => x - t >= 0.75,
        (x, t) => x - t <= -0.75 ], l1_loss : [ (x, t) => x > t, (x, t) => x < t,
        (x, t) => x === t ],
    clamp : [ (x) => x < -1, (x) => x === -1, (x) => x > -1 && x < 1.5, (x) => x === 1.5,
        (x) => x > 1.5 ], hardtanh : [ (x) => x < -1, (x) => x === -1, (x) => x > -1 && x < 1.5,
        (x) => x === 1.5, (x) => x > 1.5 ],
    ...Object.fromEntries([ 'relu', 'leaky_relu', 'elu', 'abs', 'sign', 'softplus' ]
        .map((op) => [op, [ (x) => x < 0, (x) => x > 0 ]])),
    where : [ (condition) => condition === 1, (condition) => condition === 0 ],
    masked_fill : [ (x, mask) => mask === 1, (x, mask) => mask === 0 ]
};
function checkBranches(gradus) {
    for (const [op, list] of Object.entries(branches)) {
        const {request, check} = example(gradus, op),
            [one, other] = check.inputs.map(({name}) => request.inputs[name]),
            {values} = gradus.run(request).outputs[0];
        list.forEach((branch, i) => assert
            .ok(one.some((v, k) => branch(v, other && other[k % other.length], values[k])),
                `${op}: branch ${i} of its formula does not occur in the example`));
    }
    // The numbers show the point of their op: a tie, p minus one-hot with its own sign, weights
    // that do not hide.
    const inputs = (op) => example(gradus, op).request.inputs;
    assert.ok(new Set(inputs('max').x).size < inputs('max').x.length && example(gradus,
        'cross_entropy').request.cotangents[0][0] > 0 && inputs('layer_norm').weight
        .every(Boolean));
    // What a reader needs besides the tensors is said.
    for (const {name, backward, arguments : some} of gradus.ops())
        assert.ok(!backward || !some || given[name],
            `${name} has arguments that study/site/given.js does not say`);
}

async function main() {
    const gradus = await Gradus.load(fs.readFileSync(path.join(process.argv[2], 'study_ops.wasm')));
    const with_backward = gradus.ops().filter((op) => op.backward);
    for (const op of with_backward) check(gradus, example(gradus, op.name));
    checkBranches(gradus);
    for (const op of Object.keys(pictures)) checkPictures(gradus, example(gradus, op));
    assert.ok(products >= 49 && reached >= 42, `${products} sums written out, ${
        reached} elements of gradients lit`);
    // Of dx nothing is along xhat, but where eps is large.
    const angles = (op, more = {}, eps = undefined) => {
        const it = example(gradus, op);
        const words = checkPictures(gradus, {...it, request : {...it.request, ...more}}, eps);
        return [...words.matchAll(/at (\S+)° to x̂\.$/gm) ].map(([ , angle ]) => Number(angle));
    };
    for (const [op, count] of [[ 'rms_norm', 3 ], [ 'layer_norm', 2 ], [ 'batch_norm', 2 ],
        [ 'group_norm', 2 ]]) {
        const found = angles(op);
        assert.equal(found.length, 2 * count, op);
        assert.ok(found.every((angle) => Math.abs(angle - 90) < 0.1), `${op}: ${found}`);
    }
    assert.ok(angles('rms_norm', {case : 'large_eps'},
        100).some((angle) => Math.abs(angle - 90) > 5));
    // The row of four numbers, and the README's table of it.
    const row = example(gradus, 'rms_norm_row'), its = numbersOf({it : row,
        result : solve(gradus, row)});
    check(gradus, row, 0);
    const table = [...sources.read('kernels/rms_norm/README.md')
        .matchAll(/^\| \$(.*?)\$.* ((?:\| -?[\d.]+ ){4})\|/gm) ].map(([, tex, cells ]) => [tex,
        cells.split('|').slice(1).map(Number) ]);
    [its.inputs.x, its.s.xhat, its.y.values, its.dy, its.s.h, its.s.h.map((h, k) => h * its.s.xhat[k]),
        its.s.along, its.s.h.map((h, k) => h - its.s.along[k]), its.gradient.x.values,
        its.gradient.weight.values].forEach((values, i) => same(table[i][1], values, table[i][0]));
    const norm = example(gradus, 'rms_norm');
    for (const [name, eps] of Object.values(norm.own.variants))
        check(gradus, {...norm, request : {...norm.request, case : name}}, eps);

    // The walk's own numbers.
    const {request} = norm, result = solve(gradus, norm),
        {rows, dw} = walk.numbers({it : norm, result});
    assert.deepEqual(rows.map((row) => row.total), [ 21.75, 38.75, 37.25 ]);
    assert.deepEqual(rows.map((row) => row.blocks.map((b) => b.squares)),
        [ [ 14.25, 7.5 ], [ 32.25, 6.5 ], [ 21.75, 15.5 ] ]);
    same(rows.map((row) => row.rstd), result.saves[0].values, 'rstd of the walk');
    same(rows.flatMap((row) => row.y), result.outputs[0].values, 'y of the walk');
    same(rows.flatMap((row) => row.dx), result.gradients[0].values, 'dx of the walk');
    same(dw, result.gradients[1].values, 'dw of the walk');
    // An example hands out numbers of its own, which a page may change.
    const changed = example(gradus, 'rms_norm');
    changed.request.inputs.x[0] = 99;
    assert.notEqual(example(gradus, 'rms_norm').request.inputs.x[0], 99);
    assert.ok(handed >= 70, `only ${handed} steps were compared with their formulas`);
    console.log(`${with_backward.length} ops, ${handed} steps, ${compared} numbers within ${
        LIMIT} of differences and formulas`);
}

main().catch((error) => {
    console.error(error);
    process.exitCode = 1;
});
