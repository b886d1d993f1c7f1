// watch.js - the first stop: a backward, computed by the library's tape, that one can watch. A number
// w, five x and five y; loss = mean((w x - y)^2). Values go down along the arrows, gradients up.
(function(root) {
'use strict';
const player = root.player || require('./player.js');
const POINTS = 5;
const start = {w : 0.5, x : [ -2, -1, 0, 1, 2 ], y : [ -3, -1, 1, 2, 4 ]};

const number = (v) => (v === null ? '?' : String(Math.round(v * 1000) / 1000 + 0).replace('-', '−'));
const list = (values) => values.map(number).join(', ');

// ---- The library ---------------------------------------------------------------------------------

class Watched {
    static async load(bytes) {
        const it = new Watched();
        it.exports = await root.wasi.start(bytes, {print : (text) => { it.out += text; }});
        return it;
    }

    // {values, parts, gradients, error}: values by name, parts by node and input.
    run({w, x, y}) {
        this.out = '';
        const at = this.exports.watch_numbers();
        new Float64Array(this.exports.memory.buffer, at, 1 + 2 * POINTS).set([ w, ...x, ...y ]);
        this.exports.watch_run();
        return JSON.parse(this.out);
    }
}

// ---- The steps -----------------------------------------------------------------------------------

// {values: names of the tensors with a value; gradients: name to list; arrow: the one in use; back;
// said} after each step. Arrows are named by the tensors at their ends; e is read twice by s.
function steps({values, parts}) {
    const list_of = [], one = (v) => v.map(() => 1);
    let known = [ 'w', 'x', 'y' ], gradients = {};
    const forward = (name, arrows, said) => {
        known = [...known, name ];
        list_of.push({values : known, gradients, arrows, said});
    };
    const backward = (name, arrow, gradient, said) => {
        gradients = {...gradients, [name] : gradient};
        list_of.push({values : known, gradients, arrows : arrow ? [ arrow ] : [], back : true, said});
    };
    const add = (a, b) => a.map((v, i) => v + b[i]);
    list_of.push({values : known, gradients, arrows : [], said : 'A number w, five x and five y. How should w change, so that w x comes closer to y?'});
    forward('p', [ 'w-p', 'x-p' ], `Forward: p = w x, element by element. Its slope: p changes with w by x.`);
    forward('e', [ 'p-e', 'y-e' ], 'Forward: e = p − y, how far each is off. Its slope: e changes with p by 1.');
    forward('s', [ 'e-s', 'e-s2' ], 'Forward: s = e e. It reads e twice. By either factor its slope is the other: e.');
    forward('loss', [ 's-loss' ], 'Forward: loss = mean(s), one number. Its slope by each s is 1/5.');
    backward('loss', null, one(values.loss), 'Backward: a gradient says how much the loss grows for each unit that a number grows. For the loss itself this is 1.');
    backward('s', 's-loss', parts['3_0'], `What arrives, 1, times the local slope, 1/5, is what leaves: ds = ${list(parts['3_0'])}.`);
    backward('e', 'e-s', parts['2_0'], `e had 0. By the first factor ds times e arrives: de = ${list(parts['2_0'])}.`);
    const both = add(parts['2_0'], parts['2_1']);
    backward('e', 'e-s2', both, `By the second factor as much arrives again, and they add up: de = ${list(both)}.`);
    backward('p', 'p-e', parts['1_0'], `The slope is 1, so it goes on unchanged: dp = ${list(parts['1_0'])}.`);
    backward('w', 'w-p', parts['0_0'], `One w made five p, so five parts, dp times x, add up: dw = ${
        list(parts['0_0'])}. The loss falls if w moves ${parts['0_0'][0] > 0 ? 'down' : 'up'}.`);
    return list_of;
}

// ---- The picture ---------------------------------------------------------------------------------

const rows = {w : 30, x : 84, p : 148, y : 202, e : 266, s : 330, loss : 394};
const labels = {w : 'w', x : 'x', p : 'p = w x', y : 'y', e : 'e = p − y', s : 's = e e', loss : 'loss'};
const arrows = {
    'w-p' : [ 'w', 'p', 26 ],
    'x-p' : [ 'x', 'p', 12 ],
    'p-e' : [ 'p', 'e', 26 ],
    'y-e' : [ 'y', 'e', 12 ],
    'e-s' : [ 'e', 's', 12 ],
    'e-s2' : [ 'e', 's', 26 ],
    's-loss' : [ 's', 'loss', 12 ]
};

function arrow(name, step) {
    const [from, to, bend] = arrows[name], now = step.arrows.includes(name);
    const [a, b] = [ rows[from], rows[to] ], kind = now ? (step.back ? ' back' : ' on') : '';
    const [y0, y1] = now && step.back ? [ b - 8, a + 10 ] : [ a + 8, b - 10 ], x = 44, d = y1 > y0 ? -7 : 7;
    const path = `M${x} ${y0} C${x - bend} ${y0 + (y1 - y0) / 3} ${x - bend} ${y0 + 2 * (y1 - y0) / 3} ${x} ${y1}`;
    const dot = now ? `<circle r="5"><animateMotion dur="0.7s" repeatCount="1" fill="freeze" path="${path}"/></circle>` : '';
    return `<g class="arrow${kind}"><path d="${path}"/><path class="tip" d="M${x} ${y1} l-6 ${d} l9 ${d / 3} z"/>${dot}</g>`;
}

// The picture after a step; result: of run().
function picture(result, step) {
    const cells = (values, y, kind) =>
        values.map((v, i) => `<text class="${kind}" x="${186 + 66 * i}" y="${y}" text-anchor="end" data-value="${v}">${
                                 number(v)}</text>`)
            .join('');
    const row = (name) => {
        const y = rows[name], gradient = step.gradients[name];
        return `<g data-row="${name}"><rect x="50" y="${y - 18}" width="418" height="44" rx="5"/><text class="name" x="58" y="${
                   y}">${labels[name]}</text>${
                   step.values.includes(name) ? cells(result.values[name], y, 'value') : ''}${
                   gradient ? `<text class="gradient name" x="58" y="${y + 19}">d${name}</text>` +
                                  cells(gradient, y + 19, 'gradient')
                            : ''}</g>`;
    };
    return `<svg viewBox="0 0 480 430" role="img" aria-label="values and gradients of loss = mean((w x − y)²)">${
        Object.keys(rows).map(row).join('')}${Object.keys(arrows).map((name) => arrow(name, step)).join('')}</svg>`;
}

// The same for who does not see it, and as a place for numbers of one's own.
const inputs = ({w, x, y}) => {
    const box = (name, v, i) => `<input type="text" inputmode="decimal" autocomplete="off" value="${
        v}" data-name="${name}" data-at="${i}" aria-label="${name}[${i}]">`;
    return `<div class="controls"><label>w <input type="range" data-name="w" min="-3" max="4" step="0.05" value="${
        w}"> <output>${w}</output></label></div><div class="controls"><span>x</span>${
        x.map((v, i) => box('x', v, i)).join('')}</div><div class="controls"><span>y</span>${
        y.map((v, i) => box('y', v, i)).join('')}</div><p class="refused bad" role="alert" hidden></p>`;
};

const html = (result) => {
    const all = steps(result);
    return `<div class="panel" id="watch">${player.controls()}<p class="said">${all[all.length - 1].said}</p>
<div class="picture">${picture(result, all[all.length - 1])}</div>${inputs(start)}</div>`;
};

root.watch = {
    Watched,
    start,
    steps,
    html
};
if (typeof module !== 'undefined') {
    module.exports = root.watch;
    return;
}

// ---- In the page ---------------------------------------------------------------------------------

document.addEventListener('DOMContentLoaded', async () => {
    const place = document.getElementById('watch');
    const said = place.querySelector('.said'), refused = place.querySelector('.refused');
    const library = await Watched.load(await root.wasi.unpack(root.watchWasm));
    const given = {w : start.w, x : [...start.x ], y : [...start.y ]};
    let result = library.run(given), all = steps(result);
    const calm = matchMedia('(prefers-reduced-motion: reduce)').matches;
    const play = player.attach(place, {
        steps : () => all.length - 1,
        pace : 2200,
        show : (at) => {
            place.querySelector('.picture').innerHTML = picture(result, all[at]);
            said.textContent = all[at].said;
            place.dataset.at = at;
        },
        begin : calm ? all.length - 1 : 0
    });
    place.addEventListener('input', ({target}) => {
        const {name, at} = target.dataset;
        if (!name) return;
        const v = Number(target.value), bad = target.value.trim() === '' || !(Math.abs(v) <= 1000);
        target.toggleAttribute('aria-invalid', bad);
        refused.hidden = !bad;
        if (bad) {
            refused.textContent = `“${target.value}” is not a number from −1000 to 1000; the picture keeps ${given[name][at]}.`;
            return;
        }
        if (name === 'w')
            place.querySelector('output').textContent = given.w = v;
        else
            given[name][at] = v;
        result = library.run(given);
        all = steps(result);
        play.go(play.at());
    });
    place.dataset.ready = '1';
    if (calm) return;
    play.go(1); // it moves at once
    place.querySelector('[data-act=play]').click();
});
})(globalThis);
