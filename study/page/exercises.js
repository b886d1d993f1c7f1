// exercises.js - backwards to write: ten, from a power to attention. The library's gradcheck
// answers.
(function(root) {
'use strict';
const practice = root.practice || require('./practice.js');

// op, case: of the library's record. outputs: what they are called, y if nothing is said. numbers:
// its arguments. begin: what the box holds at first; answer: what passes.
const ladder = [
    {
        op : 'pow', case : 'odd', numbers : {exponent : 3},
        says : 'y = x^exponent, for each element; exponent is 3.',
        begin : 'dx = dy', answer : 'dx = exponent x^(exponent - 1) dy'
    },
    {
        op : 'sigmoid', case : 'odd', says : 'y = 1 / (1 + exp(-x)). The result y is given, too.',
        begin : 'dx = dy y', answer : 'dx = dy y (1 - y)'
    },
    {
        op : 'mul', case : 'b_row', says : 'y[i, k] = a[i, k] b[k]: every row uses the same b.',
        begin : 'da[i, k] = dy[i, k] * b[k];\ndb[k] = dy[0, k] * a[0, k];',
        answer : 'da[i, k] = dy[i, k] * b[k];\ndb[k] = sum(i, dy[i, k] * a[i, k]);'
    },
    {
        op : 'mean', case : 'rows', says : 'y[i] is the mean of row i of x; a row has 11 elements.',
        begin : 'dx[i, k] = dy[i];', answer : 'dx[i, k] = dy[i] / 11;'
    },
    {
        op : 'matmul', case : 'rows3_inner5_cols7',
        says : 'c[i, j] = sum(k, a[i, k] * b[k, j]).',
        begin : 'da[i, k] = sum(j, b[k, j]);\ndb[k, j] = sum(i, a[i, k]);',
        mistakes : {'as if every dc were 1' :
            'da[i, k] = sum(j, b[k, j]);\ndb[k, j] = sum(i, a[i, k]);'},
        answer : 'da[i, k] = sum(j, dc[i, j] * b[k, j]);\ndb[k, j] = sum(i, a[i, k] * dc[i, j]);'
    },
    {
        op : 'logsumexp', case : 'rows', says : 'y[i] = log(sum(k, exp(x[i, k]))).',
        begin : 'dx[i, k] = dy[i] * exp(x[i, k]);',
        answer : 'dx[i, k] = dy[i] * exp(x[i, k] - y[i]);'
    },
    {
        op : 'softmax', case : 'rows5_cols17',
        says : 'y[i, k] = exp(x[i, k]) / sum(j, exp(x[i, j])), and y is given.',
        begin : 'dx[i, k] = y[i, k] * dy[i, k];',
        answer : 's[i] = sum(k, dy[i, k] * y[i, k]);\ndx[i, k] = y[i, k] * (dy[i, k] - s[i]);'
    },
    {
        op : 'cross_entropy', case : 'mean_5x11',
        says : 'loss = the mean over the 5 rows of log(sum(j, exp(logits[i, j]))) - logits[i, targets[i]].',
        begin : 'dlogits[i, j] = dloss / 5 * (j == targets[i]);',
        answer : 'z[i] = sum(j, exp(logits[i, j]));\ndlogits[i, j] = dloss / 5 * (exp(logits[i, j]) / z[i] - (j == targets[i]));'
    },
    {
        op : 'rms_norm', case : 'rows4_cols64', numbers : {eps : 1e-5},
        says : 'y[i, k] = x[i, k] * rstd[i] * weight[k], rstd[i] = 1 / sqrt(mean(k, x[i, k] * x[i, k]) + eps).',
        begin : 'rstd[i] = 1 / sqrt(mean(k, x[i, k] * x[i, k]) + eps);\nh[i, k] = dy[i, k] * weight[k];\ndx[i, k] = rstd[i] * h[i, k];\ndweight[k] = sum(i, dy[i, k] * x[i, k] * rstd[i]);',
        answer : 'rstd[i] = 1 / sqrt(mean(k, x[i, k] * x[i, k]) + eps);\nh[i, k] = dy[i, k] * weight[k];\nm[i] = mean(k, h[i, k] * x[i, k] * rstd[i]);\ndx[i, k] = rstd[i] * (h[i, k] - x[i, k] * rstd[i] * m[i]);\ndweight[k] = sum(i, dy[i, k] * x[i, k] * rstd[i]);'
    },
    {
        op : 'attention', case : 'full', numbers : {scale : 0.5},
        says : 'For batch b and head h: s = scale q k^T, p = softmax(s) by row, y = p v. Positions are t and s, features d; p is computed for you.',
        begin : 'e[b, t, h, s] = exp(scale * sum(d, q[b, t, h, d] * k[b, s, h, d]));\np[b, t, h, s] = e[b, t, h, s] / sum(r, e[b, t, h, r]);\ndv[b, s, h, d] = sum(t, p[b, t, h, s] * dy[b, t, h, d]);\ndp[b, t, h, s] = sum(d, dy[b, t, h, d] * v[b, s, h, d]);\nds[b, t, h, s] = p[b, t, h, s] * dp[b, t, h, s];\ndq[b, t, h, d] = scale * sum(s, ds[b, t, h, s] * k[b, s, h, d]);\ndk[b, s, h, d] = scale * sum(t, ds[b, t, h, s] * q[b, t, h, d]);',
        answer : 'e[b, t, h, s] = exp(scale * sum(d, q[b, t, h, d] * k[b, s, h, d]));\np[b, t, h, s] = e[b, t, h, s] / sum(r, e[b, t, h, r]);\ndv[b, s, h, d] = sum(t, p[b, t, h, s] * dy[b, t, h, d]);\ndp[b, t, h, s] = sum(d, dy[b, t, h, d] * v[b, s, h, d]);\ndelta[b, t, h] = sum(s, p[b, t, h, s] * dp[b, t, h, s]);\nds[b, t, h, s] = p[b, t, h, s] * (dp[b, t, h, s] - delta[b, t, h]);\ndq[b, t, h, d] = scale * sum(s, ds[b, t, h, s] * k[b, s, h, d]);\ndk[b, s, h, d] = scale * sum(t, ds[b, t, h, s] * q[b, t, h, d]);'
    }
];

// The case of a lesson itself: a loss of what it reads, {name: shape}, of which `still` do not
// change; and in words what is wrong at first.
const own = (key, op, reads, still, forward, begin, answer, words) => ({
    key,
    op,
    inputs : Object.entries(reads).map(([ name, shape ]) => ({name, shape,
        fixed : still.includes(name)})),
    outputs : [ 'loss' ],
    forward,
    says : `${forward.replace(/\n/g, ', ')}. ${still ? `${still} ${/,/.test(still) ? 'do' : 'does'} not change. `
        : ''}dloss is what arrives at the loss.`,
    begin,
    answer,
    mistakes : {[words] : begin}
});

// Of lessons, where an op's backward is something else as well.
const asides = [
    own('line', 'pow', {w : [], x : [ 5 ], y : [ 5 ]}, 'x, y', 'loss = mean((w x - y)^2)', 'dw = dloss mean(2 (w x - y))',
        'dw = dloss mean(2 (w x - y) x)', 'as if w moved each w x by as much: it moves it by x'),
    own('steps', 'tanh', {w : [], x : []}, 'x', 'p = w x\na = tanh(p)\nloss = a a', 'a = tanh(w x)\nda = 2 a dloss\ndp = da\ndw = dp x',
        'a = tanh(w x)\nda = 2 a dloss\ndp = da (1 - a^2)\ndw = dp x', 'as if tanh had the slope 1: dp needs its own'),
    own('readers', 'mul', {e : []}, '', 's = e e\nt = 3 e\nloss = s + t', 'de = dloss e + dloss 3', 'de = dloss (e + e) + dloss 3',
        'one reader is missing: the product reads e twice'),
    own('walk', 'tanh', {w : [ 3 ], x : [ 3 ], b : [ 3 ]}, '', 'y = tanh(w x + b)\ne = y + b\nloss = sum(e e)',
        'y = tanh(w x + b)\ne = y + b\nde = 2 e dloss\ndp = de (1 - y^2)\ndw = dp x\ndx = dp w\ndb = dp',
        'y = tanh(w x + b)\ne = y + b\nde = 2 e dloss\ndp = de (1 - y^2)\ndw = dp x\ndx = dp w\ndb = dp + de',
        'one reader is missing: e reads b, too'),
    own('shares', 'softmax', {x : [ 3 ], c : [ 3 ]}, 'c', 'p = softmax(x)\nloss = sum(c p)', 'p = softmax(x)\ndp = c dloss\ndx = p dp',
        'p = softmax(x)\ndp = c dloss\ndx = p (dp - sum(dp p))', 'as if each share depended on its own score alone'),
    own('scores', 'cross_entropy', {x : [ 3 ], truth : [ 3 ]}, 'truth', 'loss = logsumexp(x) - sum(truth x)', 'dx = dloss softmax(x)',
        'dx = dloss (softmax(x) - truth)', 'the second reader is missing: what is true is subtracted'),
    {
        ...ladder.find(({op}) => op === 'softmax'), key : 'hessian_vector',
        says : 'For p = softmax(z), which is called y here, and a vector v, called dy: write H v, called dx, in terms of y and dy. H[i, k] = p[i] ([i = k] - p[k]), row by row.'
    }
];
const all = [...ladder, ...practice, ...asides ];

// The lines to choose from, the right one among them, in an order that says nothing; and the
// program with one of them.
const lines = ({answer, at, wrong}) => [answer.split('\n')[at], ...wrong ].sort();
const withLine = ({answer, at}, line) => answer.split('\n')
    .map((each, i) => (i === at ? line : each)).join('\n');

root.exercises = {
    ladder,
    all,
    lines,
    withLine
};
if (typeof module !== 'undefined') {
    module.exports = root.exercises;
    return;
}

// ---- In the page --------------------------------------------------------------------------------

const kept = (name, value) => {
    try {
        if (value === undefined) return localStorage.getItem('exercise ' + name) || '';
        localStorage.setItem('exercise ' + name, value);
    } catch { /* private */
    }
    return '';
};

function say(place, found) {
    const box = place.querySelector('.answer'), line = (text, kind) => {
        const p = document.createElement('p');
        p.className = kind;
        p.textContent = text;
        box.append(p);
    };
    box.replaceChildren();
    if (found.error) return line(found.error, 'bad');
    const passed = found.report.verdict === 'PASS';
    line(passed ? 'PASS: it agrees with finite differences of the forward.' : 'FAIL',
        passed ? 'good' : 'bad');
    for (const input of found.report.inputs) {
        const words = [ input.finding, input.behaviour ].filter(Boolean).join('; ');
        if (input.verdict !== 'PASS')
            line(`d${input.name}: ${input.wrong} of ${input.elements} elements are wrong${
                words ? `; ${words}` : ''}`, 'bad');
        else if (!passed)
            line(`d${input.name}: right`, 'good');
    }
    return passed;
}

// What the reader has made of an exercise: the text of the box, or the program with the chosen
// line.
function written(place, exercise) {
    if (!exercise.wrong) return place.querySelector('textarea').value;
    const chosen = place.querySelector('input:checked');
    return chosen && withLine(exercise, lines(exercise)[chosen.value]);
}

function start(place, count) {
    const exercise = all[Number(place.dataset.exercise)], text = place.querySelector('textarea'),
        answer = place.querySelector('.answer');
    const mark = () => {
        place.dataset.done = '1';
        place.querySelector('.state').textContent = ' done';
    };
    const name = exercise.key || exercise.op;
    if (text) text.value = kept(name) || exercise.begin;
    if (kept(name + ' done')) mark();
    place.querySelector('[data-act=check]').addEventListener('click', async () => {
        const program = written(place, exercise);
        if (program === null) return say(place, {error : 'Choose a line first.'});
        if (text) kept(name, program);
        answer.replaceChildren();
        const found = await root.workers.ask({exercise, text : program},
            place.querySelector('.controls'));
        if (say(place, found) !== true) return;
        kept(name + ' done', '1');
        mark();
        count();
    });
    place.querySelector('[data-act=again]')?.addEventListener('click', () => {
        text.value = exercise.begin;
        answer.replaceChildren();
    });
}

document.addEventListener('DOMContentLoaded', () => {
    const places = [...document.querySelectorAll('.exercise') ];
    const count = () => {
        if (!document.getElementById('done')) return; // an exercise of a lesson
        const done = (list) => list.filter((place) => place.dataset.done).length, n = ladder.length;
        document.getElementById('done').textContent = `${done(places.slice(0, n))} of ${
            n} done, and ${
            done(places.slice(n))} of the ${places.length - n} others`;
    };
    for (const place of places) start(place, count);
    count();
    // A link to an exercise opens the group that it is in.
    const open = () => {
        const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
        const group = target && target.closest('details.group');
        if (!group) return;
        group.open = true;
        target.scrollIntoView();
    };
    addEventListener('hashchange', open);
    open();
    document.getElementById('main').dataset.exercises = '1';
});
})(globalThis);
