// pictures.js - the picture of an op, beside its worked example and from the same numbers: what the
// library computes, step by step. A picture is a list of stories, one a row or so: {name, steps:
// [{said, target, lit}], draw(at)}; the target of a step is the cell that it computes, {grid, at},
// and lit are the cells that it is computed from, {grid: [at]}.
(function(root) {
'use strict';
const {bars, plane, circles, grids, lighting, short, escape, sum, dot, size, of} = root.drawings ||
    require('./drawings.js');
const {steps : stepsOf} = root.examples || require('./examples.js');
const {placeOf} = root.worked || require('./worked.js');
const player = root.player || require('./player.js');

const rowsOf = (values, N) => of(values.length / N, (i) => values.slice(i * N, (i + 1) * N));
const list = (values) => values.map(short).join(', ');
const signed = (v) => (v < 0 ? `(${short(v)})` : short(v));
const degrees = (a, b) =>
    short(Math.acos(Math.max(-1, Math.min(1, dot(a, b) / (size(a) * size(b) || 1)))) * 180 / Math
        .PI);

// What a picture is made of: the steps' values by name, the inputs, the output, dy, the gradients.
function numbersOf({it, result}) {
    const s = Object.fromEntries(stepsOf(it, result).map((step) => [step.name, step.value.values]));
    const gradient = Object.fromEntries(it.check.inputs.map(({name}, i) => [name,
        result.gradients[i]]).filter(([ , g ]) => g));
    const {inputs, shapes, cotangents} = it.request;
    const output = it.own.outputs[0], names = it.check.inputs.map(({name}) => name);
    return {s, gradient, inputs, shapes, op : it.request.op, y : result.outputs[0],
        dy : cotangents[0], output, names, jacobians : result.jacobians};
}

// ---- Rows that add up to something: bars --------------------------------------------------------

const lanesOf = (label, list_of) => ({
    pace : 2400,
    steps : list_of.map(({said}) => ({said})),
    draw : (at) => bars(list_of.map((lane, l) => ({...lane, later : l > at})), label)
});

function softmax(v) {
    const N = v.shapes.x[v.shapes.x.length - 1], {y, dy, s} = v,
        rows = (values) => rowsOf(values, N);
    return [lanesOf('bars of p, of dy, of what dy has above its mean, and of dx', [
        {name : 'p = softmax(x)', rows : rows(y.values),
            said : 'Forward: p is what the library calls y. No bar is below 0, and those of a ' +
                'row add up to 1.'},
        {
            name : 'dy, and s = Σ p dy (dashed)',
            rows : rows(dy),
            lines : s.s,
            said : `dy arrives. The dashed line is s, the mean of dy weighted by p: ${list(s.s)}.`
        },
        {name : 'dy − s', rows : rows(s.diff),
            said : 'dy from the dashed line on: above the mean is worth more of p, below it less.'},
        {
            name : 'dx = p (dy − s)',
            rows : rows(v.gradient.x.values),
            said : 'Times p. The bars of a row add up to 0: a constant that is added to all of x ' +
                'changes no p.'
        }
    ])];
}

function logSoftmax(v) {
    const N = v.shapes.x[v.shapes.x.length - 1], rows = (values) => rowsOf(values, N);
    const taken = v.s.p.map((p, i) => p * v.s.s[Math.floor(i / N)]);
    return [lanesOf('bars of p, of dy, of what is taken away, and of dx', [
        {name : 'p = exp(y)', rows : rows(v.s.p),
            said : 'Forward: y is the logarithm of p. Those of a row add up to 1.'},
        {name : 'dy', rows : rows(v.dy), said : `dy arrives. Its rows add up to s = ${
            list(v.s.s)}.`},
        {name : 'p s', rows : rows(taken),
            said : 's is distributed by p: this is what is taken away.'},
        {name : 'dx = dy − p s', rows : rows(v.gradient.x.values),
            said : 'As much is taken away as there was: the bars of a row add up to 0.'}
    ])];
}

function crossEntropy(v) {
    const V = v.shapes.logits[1], rows = (values) => rowsOf(values, V),
        hot = v.s.p.map((_, i) => Number(i % V === v.inputs.targets[Math.floor(i / V)]));
    return [lanesOf('bars of p, of the targets, and of the gradient', [
        {name : 'p = softmax(x)', rows : rows(v.s.p),
            said : 'Forward: what the model holds likely, row by row.'},
        {name : '[j = t]', rows : rows(hot), said : `The truth: all of it at the target, ${
            list(v.inputs.targets)}.`},
        {
            name : 'dx = (p − [j = t]) dloss / rows',
            rows : rows(v.gradient.logits.values),
            said : 'The difference, over the number of rows: the target has to rise, all others ' +
                'have to fall, the likely ones most. A row adds up to 0.'
        }
    ])];
}

// ---- Norms: an arrow and its projection ---------------------------------------------------------

// Each vector that is normalised: {name, xhat, h, dx, rstd, where: the places of its elements, by:
// what dy is multiplied by in h}.
function vectors({s, gradient, shapes, inputs, dy, op}) {
    const count = s.rstd.length, N = s.xhat.length / count, columns = op === 'batch_norm';
    const weights = dy.map((_, i) => inputs.weight[columns ? i % count : op === 'group_norm'
        ? Math.floor(i / shapes.x[2]) % shapes.x[1] : i % N]);
    const h = dy.map((v, i) => v * weights[i]), dx = s.through || gradient.x.values;
    const name = columns ? 'channel' : shapes.x.length > 2 ? 'group' : 'row';
    return of(count, (c) => {
        const where = of(N, (k) => (columns ? k * count + c : c * N + k)),
            pick = (values) => where.map((i) => values[i]);
        return {name : `${name} ${c}`, N, xhat : pick(s.xhat), h : pick(h), dx : pick(dx),
            rstd : s.rstd[c], where, by : pick(weights)};
    });
}

function normStory(centred, {name, N, xhat, h : given, dx, rstd, where, by}) {
    const mean = centred ? sum(given) / N : 0, h = given.map((v) => v - mean), m = dot(h, xhat) / N,
        long = size(xhat);
    const along = dot(h, xhat) / (long || 1),
        across = h.map((v, k) => v - along * xhat[k] / (long || 1)), high = size(across);
    const left = [ along - m * long, high ],
        to = [ dot(dx, xhat) / (long || 1), high ? dot(dx, across) / high : 0 ];
    const what = centred ? 'h′' : 'h', rest = h.map((v, k) => v - m * xhat[k]);
    const steps = [
        {
            said : `${name}: ${N} numbers are an arrow with ${
                N} components, and two arrows lie in a plane: this one. ${
                centred ? `h had the length ${short(size(given))}; its mean, ${
                    short(mean)}, is taken away first, as a constant that is added to x changes nothing: h′ = h − mean(h). ` : ''}x̂ has the length ${
                short(long)}, ${what} ${short(size(h))}; the angle between them is ${
                    degrees(h, xhat)}°.`
        },
        {said : `The part of ${what} along x̂ is x̂ m, where m = mean(h x̂) = ${
            short(m)}. A longer or shorter x leaves x̂ where it is, so no gradient may point that way.`},
        {said : `It is taken away. What remains is at ${degrees(rest, xhat)}° to x̂${
            Math.abs(left[0]) > 0.01 * size(h)
                ? ', not 90°: eps is not small here, and x̂ shorter than √N' : ''}.`},
        {said : `Times rstd = ${short(rstd)} it is dx, as the library has it: ${
            what} without its projection on x̂, at ${degrees(dx, xhat)}° to x̂.`}
    ];
    const arrows = [
        {from : [ 0, 0 ], to : [ long, 0 ], kind : 'base', name : 'x̂', side : 'end'},
        {from : [ 0, 0 ], to : [ along, high ], kind : 'given', name : what, side : 'tip'},
        {from : [ 0, 0 ], to : [ m * long, 0 ], kind : 'taken', name : 'x̂ m', side : 'below',
            by : [ 0, 4 ]},
        {from : [ 0, 0 ], to : left, kind : 'rest', name : `${what} − x̂ m`, side : 'right',
            by : [ 4, 0 ]},
        {from : [ 0, 0 ], to, kind : 'result', name : 'dx', side : 'left', by : [ -4, 0 ]}
    ];
    return {
        name,
        pace : 3000,
        steps,
        angle : Math.atan2(high, along) * 180 / Math.PI,
        // dy for which h is at that angle to x̂, as long as it is: [place, value]. A weight of 0
        // hides its dy.
        aim : (degrees) => where.flatMap((i, k) => {
            const angle = degrees * Math.PI / 180;
            const v = mean + size(h) * (Math.cos(angle) * xhat[k] / (long || 1) +
                Math.sin(angle) * across[k] / (high || 1));
            return by[k] ? [ [ i, Math.round(v / by[k] * 1e4) / 1e4 ] ] : [];
        }),
        draw : (at) => plane(arrows.map((one, i) => ({...one, later : i > at + 1})),
            `x̂, ${what}, and the projection that is taken away, as arrows`)
    };
}
const norm = (centred) => (v) => vectors(v).map((one) => normStory(centred, one));

// ---- rope: rotations ----------------------------------------------------------------------------

function rope(v) {
    const pairs = (values) => rowsOf(values, 2), [x, y, dy, dx] = [ v.inputs.x, v.y.values, v.dy,
        v.gradient.x.values ].map(pairs);
    const parts = 10, half = parts + 1;
    const rotated = ([a, b], angle) => [a * Math.cos(angle) - b * Math.sin(angle),
        a * Math.sin(angle) + b * Math.cos(angle)];
    const angles = v.s.cos.map((c, t) => Math.atan2(v.s.sin[t], c) + 2 * Math.PI * Math
        .round((t - Math.atan2(v.s.sin[t], c)) / (2 * Math.PI)));
    const steps = of(2 * half + 1, (at) => {
        if (at === 2 * half) return {said :
            'x is rotated to y, by the angle of its position; dy is rotated back, by as much, to ' +
                'dx. No length changes.'};
        const back = at >= half, f = (at % half) / parts;
        return {said : `${back ? 'Backward: dy is rotated back' : 'Forward: x is rotated'} by ${
            short(f)} of its angle, ${list(angles)} radians${
            f === 1 ? `: this is ${back ? 'dx' : 'y'}` : ''}.`};
    });
    return [{
        pace : 140,
        steps,
        draw : (at) => {
            const back = at >= half && at < 2 * half, f = (at % half) / parts;
            return circles(x.map((_, t) => ({
                                     name : `position ${t}`,
                                     radius : size(x[t]),
                                     most : Math.max(size(x[t]), size(dy[t])),
                                     hands : at === 2 * half ? [ {to : x[t], kind : 'axis'},
                                         {to : y[t], kind : 'given'}, {to : dy[t], kind : 'base'},
                                         {to : dx[t], kind : 'result'} ]
                                             : back          ? [ {to : dy[t], kind : 'base'},
                                                 {to : rotated(dy[t], -f * angles[t]),
                                                     kind : 'result'} ]
                                                             : [ {to : x[t], kind : 'axis'},
                                                                 {to : rotated(x[t], f * angles[t]),
                                                                     kind : 'given'} ]
                                 })),
                'x grey, y blue, dy black, dx red, as hands of a clock at each position');
        }
    }];
}

// One vector of four pairs (1, 0), as the library rotates it at 33 positions.
function clocks(v, gradus) {
    const T = 33, D = 8, x = of(T * D, (i) => Number(i % D < D / 2));
    const {outputs : [ {values} ]} = gradus.run({op : 'rope', case : 'one_pair',
        shapes : {x : [ 1, T, 1, D ]}, inputs : {x}});
    const steps = of(T, (t) =>
        ({said : `Position ${t}: the four pairs of a vector of eight are rotated by ${
                                     list(of(4, (i) => t * 10000 ** (
                                         -2 * i / D)))} radians. The first is fast and tells neighbours apart, the last is slow and tells far from near.`}));
    return [{
        pace : 250,
        steps,
        draw : (t) => circles(of(4, (i) => ({
                                        name : `pair ${i}`,
                                        radius : 1,
                                        most : 1,
                                        hands : [ {to : [ values[t * D + i],
                                            values[t * D + i + D / 2] ], kind : 'given'} ]
                                    })),
            'four hands that are rotated at four speeds')
    }];
}

// ---- Grids, cell by cell ------------------------------------------------------------------------

function story(tables, steps, last, pace = 1400) {
    const html = grids(tables);
    return [{pace, steps : [...steps, {said : last, lit : {}}], draw : () => html}];
}
const sumOf = (terms) => terms.map(([ a, b ]) => `${signed(a)} × ${signed(b)}`).join(' + ');

// p, dp and ds of one head, T x S.
function attention(v) {
    const [, T] = v.shapes.q || v.shapes.qkv, {p, dp, delta, ds} = v.s, S = p.length / T,
        shape = [ T, S ];
    const row = (i) => of(S, (j) => i * S + j), at = (i, j) => `[${i}, ${j}]`, steps = [];
    const add = (grid, cell, lit, said) => steps.push({target : {grid, at : cell}, lit, said});
    for (let i = 0; i < T; i++) {
        for (let j = 0; j < S; j++)
            add('p', i * S + j, {}, `p${at(i, j)} = exp(s − L) = ${short(p[i * S + j])}: ${
                p[i * S + j] ? 'so much of v_' + j + ' is in y_' + i : 'masked, since position ' +
                j + ' is later'}.`);
        add('sum_p', i, {p : row(i)}, `A row of p adds up to ${
            short(sum(row(i).map((k) => p[k])))}.`);
    }
    for (let i = 0; i < T; i++) {
        for (let j = 0; j < S; j++)
            add('dp', i * S + j, {}, `dp${at(i, j)} = dy_${i} · v_${j} = ${
                short(dp[i * S + j])}: how much the loss grows if y_${i} takes more of v_${j}.`);
        add('delta', i, {dp : row(i), p : row(i)}, `δ_${i} = Σ p dp = ${
            sumOf(row(i).map((k) => [p[k], dp[k]]))} = ${short(delta[i])}, which is dy_${i} · y_${
            i}: no row of dp has to be kept.`);
    }
    for (let i = 0; i < T; i++) {
        for (let j = 0; j < S; j++) {
            const k = i * S + j;
            add('ds', k, {p : [ k ], dp : [ k ], delta : [ i ]}, `ds${at(i, j)} = p (dp − δ) = ${
                short(p[k])} × (${short(dp[k])} − ${signed(delta[i])}) = ${short(ds[k])}.`);
        }
        add('sum_ds', i, {ds : row(i)}, `A row of ds adds up to ${
            short(sum(row(i).map((k) => ds[k])))}, as for any softmax.`);
    }
    const sums = (values) => of(T, (i) => sum(row(i).map((k) => values[k])));
    const largest = Math.max(...ds.map(Math.abs));
    const tall = (name, label, values, whole) => ({name, label, shape : [ T, 1 ], values, whole,
        beside : true});
    return story(
        [ {name : 'p', shape}, tall('sum_p', 'sum', sums(p)), {name : 'dp', shape},
            tall('delta', 'δ = Σ p dp', delta), {name : 'ds', shape},
            tall('sum_ds', 'sum', sums(ds), largest) ].map(
            (grid) => ({values : v.s[grid.name], ...grid})),
        steps, 'Row i is a query, column j a key. Point at a number, or go to it by Tab and the ' +
            'arrow keys, to see what it is computed from; Play goes through all.');
}

// Which numbers reach which, from the library's Jacobians. also: what else an element of a gradient
// is made of, (input, place) to {grid: places}.
const flow = (also = () => ({})) => ({inputs, shapes, gradient, y, dy, output, names, jacobians}) =>
    {
    const flat = (shape) => [shape.slice(0, -1).reduce((a, b) => a * b, 1),
        shape.length ? shape[shape.length - 1] : 1 ];
    const at = (shape, i) => (shape.length ? placeOf(shape, i) : ''), steps = [],
        given = names.filter((name) => gradient[name]);
    const met = (k, j) => of(dy.length, (o) => o).filter((o) => jacobians[k][o][j] !== 0);
    y.values.forEach((v, o) => steps.push({
        target : {grid : output, at : o},
        lit : Object.fromEntries(given
            .map((name) => [name, of(inputs[name].length,
                (j) => j).filter((j) => jacobians[names.indexOf(name)][o][j] !== 0)])),
        said : `Forward: ${output}${at(y.shape, o)} = ${
            short(v)} is made of what is lit; nothing else moves it.`
    }));
    for (const name of given) {
        const k = names.indexOf(name);
        gradient[name].values.forEach((v, j) => {
            const from = met(k, j), terms = from.map((o) => `${signed(dy[o])} × ${
                signed(jacobians[k][o][j])}`);
            steps.push({
                target : {grid : `d${name}`, at : j},
                lit : {[`d${output}`] : from, ...also(name, j)},
                said : `Backward: ${name}${at(shapes[name], j)} is in ${
                    from.length || 'no'} element${from.length === 1 ? '' : 's'} of ${
                    output}; each sends its gradient times its slope: d${name}${
                    at(shapes[name], j)} = ${
                    terms.length ? `${terms.slice(0, 4).join(' + ')}${
                        terms.length > 4 ? ' + ...' : ''} = ` : ''}${short(v)}.`
            });
        });
    }
    const table = (name, shape, values, beside) => ({name, shape : flat(shape), values, beside});
    return story([...names.filter((name) => inputs[name]).map((name, i) => table(name, shapes[name],
        inputs[name], i)), table(output, y.shape, y.values, true), table(`d${output}`, y.shape, dy),
        ...given.map((name) => table(`d${name}`, shapes[name], gradient[name].values, true)) ],
            steps, point, 1100);
};
// a [2, 3], b [3, 2]
const products = (name, at) => (name === 'a' ? {b : [ 0, 1 ].map((j) => 2 * (at % 3) + j)}
    : {a : [ 0, 1 ].map((i) => 3 * i + Math.floor(at / 2))});

// A row times the Jacobian of a function of each element, which is grey: it is never made. The
// first row of the example is enough.
function never({y, shapes, gradient, jacobians : [ all ], ...v}) {
    const [, N] = shapes.x, [dy, dx, rows] = [ v.dy, gradient.x.values, all ]
        .map((list) => list.slice(0, N));
    return story([ {name : 'dy', shape : [ 1, N ], values : dy},
        {name : 'J', label : `J [${N}, ${N}], never made`, shape : [ N, N ],
            values : rows.flatMap((row) => row.slice(0, N)), unmade : true},
        {name : 'dx', label : 'dx = dy J', shape : [ 1, N ], values : dx} ],
        dx.map((v, k) => ({
            target : {grid : 'dx', at : k},
            lit : {dy : [ k ], J : [ k * N + k ]},
            said : `dx[${k}] = dy[${k}] × (1 − y[${k}]²) = ${signed(dy[k])} × ${
                short(1 - y.values[k] ** 2)} = ${short(v)}. Column ${k} of J has ${
                N - 1} more numbers; all are 0, so their products are left out.`
        })), `dy times J by the book is ${N * N} products, and J takes ${
            N * N} numbers of memory. All but ${N} are 0: only so many products are made, and J is not.`);
}

const plain = ([R, C], values, name) => ({name, shape : [ R, C ], values});
const point = 'Point at a number, or go to it by Tab and the arrow keys, to see what reaches it; ' +
    'Play goes through all.';

// Time to the right: the gates, the cell and the output; then, from the right, their gradients. Row
// k of either grid at time t is cell k T + t.
function lstm(v) {
    const T = v.shapes.gates[1], y = v.y.values, {c, dh, dc, gates, da} = v.s, steps = [],
        cell = (k, t) => k * T + t;
    const add = (grid, at, forward, backward, said) => steps.push({target : {grid, at},
        lit : {forward, backward}, said});
    const [i, f, g, o] = of(4, (k) => of(T, (t) => gates[4 * t + k])),
        names = [ 'i', 'f', 'g', 'o' ], C = 4, H = 5, DY = 0, DH = 1, DC = 2, DA = 3;
    const does = [ 'how much is written', 'how much of the cell is kept', '', 'how much is shown' ];
    for (let t = 0; t < T; t++) {
        const before = t ? [ t - 1 ] : [], h0 = before.map((b) => cell(H, b));
        names.forEach((name, k) => add('forward', cell(k, t), h0, [],
            `${name}_${t} = ${short(gates[4 * t + k])}: ${
                                           k === 2 ? 'by tanh, what may be written'
                                               : `by sigmoid, 0 is closed and 1 is open: ${
                                                   does[k]}`}; from x_${
                                           t}${t ? ` and h_${t - 1}` : ''}.`));
        add('forward', cell(C, t), [...[ 0, 1, 2 ].map((k) => cell(k, t)),
            ...before.map((b) => cell(C, b)) ], [],
            `c_${t} = f ${t ? `c_${t - 1}` : '0'} + i g = ${short(f[t])} × ${
                signed(t ? c[t - 1] : 0)} + ${short(i[t])} × ${signed(g[t])} = ${short(c[t])}.`);
        add('forward', cell(H, t), [ cell(3, t), cell(C, t) ], [], `h_${t} = o tanh(c_${t}) = ${
            short(o[t])} × ${signed(Math.tanh(c[t]))} = ${short(y[t])}.`);
    }
    for (let t = T - 1; t >= 0; t--) {
        const after = t + 1 < T ? [ t + 1 ] : [], slope = o[t] * (1 - Math.tanh(c[t]) ** 2);
        add('backward', cell(DH, t), [],
            [ cell(DY, t), ...after.flatMap((n) => names.map((_, k) => cell(DA + k, n))) ],
            `dh_${t} = dy_${t}${after.length ? ` + what the gates of step ${t + 1} send back = ${
                short(v.dy[t])} + ${signed(dh[t] - v.dy[t])}` : ''} = ${short(dh[t])}.`);
        add('backward', cell(DC, t), [ cell(3, t), cell(C, t), ...after.map((n) => cell(1, n)) ],
            [ cell(DH, t), ...after.map((n) => cell(DC, n)) ],
            `dc_${t} = ${after.length ? `dc_${t + 1} f_${
                t + 1}` : 'the gradient of the last state'} + dh o (1 − tanh²) = ${
                short(dc[t] - dh[t] * slope)} + ${
                signed(dh[t] * slope)} = ${
                    short(dc[t])}. From cell to cell there is one factor, f: open, it lets the gradient through.`);
        const own = [ [ 'dc g i (1 − i)', [ 0, 2 ] ], [ `dc ${t ? `c_${t - 1}` : '0'} f (1 − f)`,
            [ 1 ] ], [ 'dc i (1 − g²)', [ 0, 2 ] ], [ 'dh tanh(c) o (1 − o)', [ 3, C ] ] ];
        own.forEach(([ formula, read ], k) => add('backward', cell(DA + k, t),
            [...read.map((r) => cell(r, t)), ...(k === 1 && t ? [ cell(C, t - 1) ] : []) ],
                                                  [ cell(k === 3 ? DH : DC, t) ],
                                                  `d${names[k]}_${t} = ${formula} = ${
                                                      short(da[4 * t + k])}, before the gate's function.`));
    }
    const across = (values) => of(4 * T, (at) => values[4 * (at % T) + Math.floor(at / T)]),
        columns = of(T, (t) => `t = ${t}`);
    return story([
        {name : 'forward', label : 'forward', shape : [ 6, T ],
            values : [...across(gates), ...c, ...y ], rows : [...names, 'c', 'h' ], columns,
            whole : 1},
        {name : 'backward', label : 'backward', shape : [ 7, T ],
            values : [...v.dy, ...dh, ...dc, ...across(da) ], rows : [ 'dy', 'dh', 'dc', 'di', 'df',
                'dg', 'do' ], columns}
    ],
        steps, `Forward, time goes to the right; backward, to the left. ${point}`);
}

// The same for two gates and no cell; m is what the state before gives to n, before r.
function gru(v) {
    const T = v.shapes.gates[1], h = v.y.values, {r, z, n, dh, dn, dz, dr} = v.s, steps = [],
        cell = (k, t) => k * T + t;
    const [, , w] = v.inputs.weight, [, , b] = v.inputs.bias, old = (t) => (t ? h[t - 1] : 0),
        m = (t) => old(t) * w + b;
    const add = (grid, at, forward, backward, said) => steps.push({target : {grid, at},
        lit : {forward, backward}, said});
    const R = 0, Z = 1, N = 2, H = 3, DY = 0, DH = 1, DN = 2, DZ = 3, DR = 4;
    for (let t = 0; t < T; t++) {
        const h0 = t ? [ cell(H, t - 1) ] : [], from = `from x_${t}${t ? ` and h_${t - 1}` : ''}`,
            before = t ? `h_${t - 1}` : '0';
        add('forward', cell(R, t), h0, [],
            `r_${t} = ${short(r[t])}: by sigmoid, 0 is closed and 1 is open: how much of the state before n may use; ${from}.`);
        add('forward', cell(Z, t), h0, [],
            `z_${t} = ${short(z[t])}: by sigmoid, how much of the state before is kept; ${from}.`);
        add('forward', cell(N, t), [ cell(R, t), ...h0 ], [], `n_${t} = tanh(x's part + r m) = ${
            short(n[t])}, the new state as proposed; m = ${before} w + b = ${short(m(t))}.`);
        add('forward', cell(H, t), [ cell(Z, t), cell(N, t), ...h0 ], [],
            `h_${t} = (1 − z) n + z ${before} = ${short(1 - z[t])} × ${signed(n[t])} + ${
                short(z[t])} × ${signed(old(t))} = ${short(h[t])}.`);
    }
    for (let t = T - 1; t >= 0; t--) {
        const after = t + 1 < T ? [ t + 1 ] : [], h0 = t ? [ cell(H, t - 1) ] : [],
            before = t ? `h_${t - 1}` : '0';
        add('backward', cell(DH, t), after.flatMap((a) => [cell(R, a), cell(Z, a)]),
            [ cell(DY, t), ...after.flatMap((a) => [DH, DN, DZ, DR].map((k) => cell(k, a))) ],
            `dh_${t} = dy_${t}${after.map((a) => ` + dh_${a} z_${a} + what the gates of step ${
                a} send back = ${short(v.dy[t])} + ${signed(dh[a] * z[a])} + ${
                signed(dh[t] - v.dy[t] - dh[a] * z[a])}`).join('')} = ${short(dh[t])}${
                    after.length ? '. From state to state there is one factor, z: near 1, it ' +
                        'lets the gradient through' : ''}.`);
        add('backward', cell(DN, t), [ cell(Z, t), cell(N, t) ], [ cell(DH, t) ],
            `dn_${t} = dh (1 − z) (1 − n²) = ${short(dn[t])}, before tanh.`);
        add('backward', cell(DZ, t), [ cell(Z, t), cell(N, t), ...h0 ], [ cell(DH, t) ],
            `dz_${t} = dh (${before} − n) z (1 − z) = ${short(dz[t])}, before sigmoid.`);
        add('backward', cell(DR, t), [ cell(R, t), ...h0 ], [ cell(DN, t) ],
            `dr_${t} = dn m r (1 − r) = ${short(dr[t])}, before sigmoid.`);
    }
    const columns = of(T, (t) => `t = ${t}`);
    return story([
        {name : 'forward', label : 'forward', shape : [ 4, T ], values : [...r, ...z, ...n, ...h ],
            rows : [ 'r', 'z', 'n', 'h' ], columns, whole : 1},
        {name : 'backward', label : 'backward', shape : [ 5, T ],
            values : [...v.dy, ...dh, ...dn, ...dz, ...dr ],
            rows : [ 'dy', 'dh', 'dn', 'dz', 'dr' ], columns}
    ],
        steps, `Forward, time goes to the right; backward, to the left. ${point}`);
}

// ---- All of them: by op, titles and pictures ----------------------------------------------------

const scores = [ 'Probabilities, and what reaches the scores', softmax ],
    arrows = (centred) => [ [ 'What is taken away', norm(centred) ] ];
const pictures = {
    softmax : [ scores ],
    log_softmax : [ [ scores[0], logSoftmax ] ],
    cross_entropy : [ [ scores[0], crossEntropy ] ],
    rms_norm : arrows(false),
    add_rms_norm : arrows(false),
    layer_norm : arrows(true),
    batch_norm : arrows(true),
    group_norm : arrows(true),
    rope : [ [ 'Rotated, and rotated back', rope ], [ 'A hand for each pair', clocks ] ],
    attention : [ [ 'Queries and keys', attention ] ],
    rope_attention : [ [ 'Queries and keys', attention ] ],
    lstm : [ [ 'Gates through time', lstm ] ],
    gru : [ [ 'Gates through time', gru ] ],
    matmul : [ [ 'Rows and columns', flow(products) ] ],
    ...Object.fromEntries([ 'linear', 'sum', 'gather', 'swiglu', 'dropout', 'embedding', 'pad',
        'conv2d', 'conv_transpose2d', 'max_pool2d', 'avg_pool2d' ]
        .map((op) => [op, [ [ 'Who reaches whom', flow() ] ]]))
};

// The places of an op's pictures, as they are before a reader changes anything: {it, result,
// gradus}.
function html({it, result, gradus}) {
    return (pictures[it.name] || []).map(([ title, make ], k) => {
        const stories = make(numbersOf({it, result}), gradus), [{steps, draw}] = stories;
        const choice = stories.length > 1 ? `<select data-act="story" aria-label="which">${
            stories.map(({name}) => `<option>${escape(name)}</option>`).join('')}</select>` : '';
        const aim = stories[0].aim
            ? `<label>angle of h to x̂ <input type="range" data-act="aim" min="1" max="179" value="${Math.round(stories[0].angle)}"></label>` : '';
        return `<div class="panel drawn" data-of="${it.name}" data-picture="${k}"><h4>${title}</h4>${
            player.controls(choice + aim)}
<div class="both"><p class="said">${escape(steps[steps.length - 1].said)}</p><div class="picture">${
    draw(steps.length - 1)}</div></div></div>`;
    }).join('');
}

root.pictures = {
    pictures,
    ofLessons : {tanh : never},
    numbersOf,
    html
};
if (typeof module !== 'undefined') {
    module.exports = root.pictures;
    return;
}

// ---- In the page --------------------------------------------------------------------------------

// Returns a function that takes new numbers.
function start(place, [, make]) {
    const body = place.querySelector('.picture'),
        which = place.querySelector('select[data-act=story]'),
        aim = place.querySelector('[data-act=aim]');
    const {light, pick} = lighting(place, () => chosen().steps);
    let stories = null, drawn = body.innerHTML, play = null;
    const chosen = () => stories[which ? which.selectedIndex : 0];
    function show(at) {
        const {steps, draw} = chosen(), fresh = draw(at);
        if (fresh !== drawn) body.innerHTML = drawn = fresh;
        light(steps[at]);
        if (aim && aim !== document.activeElement) aim.value = Math.round(chosen().angle);
        place.dataset.at = at;
    }
    function take(numbers, gradus) {
        stories = make(numbersOf(numbers), gradus);
        if (play) return play.go(play.at());
        play = player.attach(place, {steps : () => chosen().steps.length - 1, show,
            pace : () => chosen().pace});
        pick(play.stop);
        aim?.addEventListener('input', () => place.dispatchEvent(
            new CustomEvent('cotangent',
                {bubbles : true, detail : {op : place.dataset.of,
                    values : chosen().aim(Number(aim.value))}})));
        which?.addEventListener('change', () => play.go(play.at()));
        place.dataset.ready = '1';
    }
    return take;
}

const places = new Map();
document.addEventListener('numbers', async ({detail}) => {
    const gradus = await root.Gradus.here();
    for (const place of document.querySelectorAll(`.drawn[data-of="${detail.it.name}"]`)) {
        if (!places.has(place)) places.set(place,
            start(place, pictures[place.dataset.of][place.dataset.picture]));
        places.get(place)(detail, gradus);
    }
});
})(globalThis);
