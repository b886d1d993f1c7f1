// lessons.js - the figures of lessons, and the tapes of other pages: what a reader turns goes to
// the library, whose module comes with the first touch.
(function(root) {
'use strict';
const tape = root.tape || require('./tape.js');
const {short, escape} = tape;
const expression = root.expression || require('./expression.js');

// ---- Numbers of one's own -----------------------------------------------------------------------

const leaf = (list, name) => list.find((t) => t.name === name && !t.op);

// The last gradient that has arrived at a leaf.
const gradientOf = (graph, name) => {
    const total = graph.items.find((item) => item.name === name && !item.node).outs
        .map((edge) => edge.total).filter(Boolean);
    return total[0] && graph.edges.filter((edge) => edge.from.name === name && edge.total)
        .sort((a, b) => Number(a.to.id.slice(1)) - Number(b.to.id.slice(1)) || b.k - a.k)[0]
        .total.list;
};
const lossOf = (graph) => graph.nodes[graph.nodes.length - 1].value.list[0];

// Loss and slope with `name` at v, which stays where it was: {loss, slope, v}.
function at(expressions, list, name, v) {
    const {values} = leaf(list, name), [kept] = values;
    values[0] = v;
    const graph = tape.read(expressions.run(list));
    values[0] = kept;
    return {loss : lossOf(graph), slope : gradientOf(graph, name)[0], v};
}

// What a curve shows at `here`: a step of descent from it, and the points, {x, y} of their values.
const shown = (expressions, list, name, here, rate, points) => [name, here,
    at(expressions, list, name, here.v - rate * here.slope), points &&
    Object.fromEntries([ 'x', 'y' ].map((axis, i) => [axis, leaf(list, points.split(' ')[i])
        .values]))];

// ---- A curve, its tangent, a step down it, and the points that the loss is about ----------------

// Two plots side by side, of one size; on a phone one below the other.
const W = 300, H = 210, LEFT = 34, RIGHT = W - 12, TOP = 22, BOTTOM = H - 22;

// Axes of numbers, which go up to the next mark: {x, y, html}.
function axes([x0, x1], [y0, y1], across, up) {
    const each = (a, b) => [1, 2, 5, 10, 20, 50, 100].find((s) => (b - a) / s <= 7),
        [dx, dy] = [ each(x0, x1), each(y0, y1) ];
    const marks = (a, b, by) => Array.from({length : Math.floor(b / by) - Math.ceil(a / by) + 1},
        (_, i) => (Math.ceil(a / by) + i) * by);
    y1 = Math.ceil(y1 / dy) * dy, y0 = Math.floor(y0 / dy) * dy;
    const x = (v) => Number((LEFT + (v - x0) / (x1 - x0) * (RIGHT - LEFT)).toFixed(1)),
        y = (v) => Number((BOTTOM - (v - y0) / (y1 - y0) * (BOTTOM - TOP)).toFixed(1));
    const html = marks(y0, y1, dy).map((v) => `<line class="${v ? 'tick' : 'axis'}" x1="${
        LEFT}" x2="${RIGHT}" y1="${y(v)}" y2="${y(v)}"/><text x="${LEFT - 4}" y="${
        y(v) + 4}" text-anchor="end">${short(v)}</text>`).join('') + marks(x0, x1, dx).map((v) => `<line class="${
        v ? 'tick' : 'axis'}" x1="${x(v)}" x2="${x(v)}" y1="${TOP}" y2="${BOTTOM}"/><text x="${
        x(v)}" y="${BOTTOM + 14}" text-anchor="middle">${short(v)}</text>`).join('');
    return {x, y, html : `<svg viewBox="0 0 ${W} ${H}" role="group" aria-label="${up} over ${
        across}">${html}<text x="2" y="12" class="name">${up}</text><text x="${RIGHT}" y="${
        H - 24}" text-anchor="end" class="name over">${across}</text>`};
}

// The line `name` times x among its points, with what it misses each by.
function fit(name, v, {x : xs, y : ys}) {
    const wide = Math.max(...xs.map(Math.abs)) + 0.5, high = Math.max(...ys.map(Math.abs)) + 1;
    const {x, y, html} = axes([ -wide, wide ], [ -high, high ], 'x', `the points, and ${name} x`);
    const edge = (to) => {
        const at = Math.abs(v * to) > high + 1 ? Math.sign(to) * (high + 1) / Math.abs(v) : to;
        return `${x(at)} ${y(v * at)}`;
    };
    return `${html}${xs.map((at, i) => `<line class="miss" x1="${x(at)}" x2="${x(at)}" y1="${
        y(ys[i])}" y2="${y(Math.max(-high - 1, Math.min(high + 1, v * at)))}"/>`)
        .join('')}<path class="model" d="M${edge(-wide)} L${edge(wide)}"/>${xs.map((at, i) => `<circle cx="${x(at)}" cy="${
        y(ys[i])}" r="4"/>`).join('')}</svg>`;
}

// next: {v, loss} after a step of descent.
function curve(points, name, {loss, slope, v}, next = {v, loss}, data = null) {
    const [low] = points[0], [high] = points[points.length - 1];
    const {x, y, html} = axes([ low, high ], [ 0, Math.max(...points.map(([ , l ]) => l)) ], name,
        'loss');
    const flat = Math.abs(slope) < 1e-9; // but for rounding
    // as far as the plot goes
    const reach = Math.min(1.2, slope ? (loss + 4) / Math.abs(slope) : 1.2);
    const line = (v2) => `${x(v2)} ${y(loss + slope * (v2 - v))}`, to = x(next.v);
    return {
        html : `${data ? fit(name, v, data) : ''}${html}<polyline points="${
            points.map(([ v, l ]) => `${x(v)},${y(l)}`).join(' ')}"/><path class="tangent" d="M${
            line(v - reach)} L${line(v + reach)}"/>${
            flat ? '' : `<path class="step" d="M${x(v)} ${y(loss)} H${to} V${
                y(next.loss)}"/><circle class="next" cx="${to}" cy="${y(next.loss)}" r="4"/>`}<circle
            class="now" cx="${x(v)}" cy="${y(loss)}" r="7"/></svg>`,
        said : `${name} = ${short(v)}: the loss is ${short(loss)}, its slope d${name} = ${
            short(flat ? 0 : slope)}. ${
            flat ? 'Flat: no way leads down.' : `The loss falls if ${name} moves ${
                slope > 0 ? 'down' : 'up'}.`}`
    };
}

// ---- Products of slopes, counted ----------------------------------------------------------------

const WIDTHS = [ 32, 32 ]; // of what lies between inputs and outputs
function count(inputs, outputs) {
    const sizes = [ inputs, ...WIDTHS, outputs ],
        once = sizes.slice(1).reduce((sum, n, i) => sum + n * sizes[i], 0);
    const most = Math.max(inputs, outputs) * once;
    const bar = (name, times, why) => `<p>${name}: ${times} × ${once} = <b>${
        times * once}</b> products, ${why}<span class="bar" style="width:${
        Math.max(0.5, 100 * times * once / most)}%"></span></p>`;
    return `<p>Three steps, ${sizes.join(' → ')} numbers; to go through all of them takes ${
        once} products.</p>${
        bar('Forward', inputs, 'once for each input.')}${
            bar('Backward', outputs, 'once for each output.')}`;
}

root.lessons = {at, shown, curve, count};
if (typeof module !== 'undefined') {
    module.exports = root.lessons;
    return;
}

// ---- In the page --------------------------------------------------------------------------------

// Takes what a reader changes to the library: changed(list, graph, printed) shows it.
function listen(place, list, changed) {
    const refused = place.querySelector('.refused');
    async function run() {
        const expressions = await expression.Expressions.here();
        try {
            const printed = expressions.run(list);
            changed(printed, tape.read(printed), expressions);
        } catch (fault) {
            if (!(fault instanceof root.formula.Fault)) throw fault;
            say(fault.message);
        }
    }
    const say = (text) => {
        refused.hidden = !text;
        refused.textContent = text;
    };
    const show = (name, v) => {
        for (const box of place.querySelectorAll(`[data-name="${name}"][data-at="0"]`)) {
            box.value = v;
            if (box.nextElementSibling) box.nextElementSibling.textContent = short(v);
        }
    };
    place.addEventListener('input', ({target}) => {
        const {name, at} = target.dataset;
        if (!name) return;
        const v = Number(target.value), bad = target.value.trim() === '' || !(Math.abs(v) <= 1000),
            {values} = leaf(list, name);
        target.toggleAttribute('aria-invalid', bad);
        say(bad ? `“${target.value}” is not a number from −1000 to 1000; the picture keeps ${
            values[at]}.` : '');
        if (bad) return;
        values[at] = v;
        if (target.type === 'range') show(name, v);
        run();
    });
    const button = place.querySelector('[data-act=descend]');
    button?.addEventListener('click', async () => {
        const {of, rate} = button.dataset, expressions = await expression.Expressions.here(),
            t = leaf(list, of);
        const {loss, slope} = at(expressions, list, of, t.values[0]),
            next = t.values[0] - rate * slope;
        const after = at(expressions, list, of, Number(next.toPrecision(12)));
        t.values[0] = after.v;
        place.querySelector('.descent').textContent = `${of} = ${short(after.v)}: the loss was ${
            short(loss)} and is ${short(after.loss)}`;
        show(of, t.values[0]);
        run();
    });
}

const players = new Map();

// Another expression in the place of the one that a panel has.
root.lessons.replaceTape = (place, text, printed) => {
    const drawn = tape.draw(printed, expression.names(expression.compile(text), printed),
        Boolean(place.dataset.small)), play = players.get(place),
        picture = place.querySelector('.picture');
    picture.style.setProperty('--width', `${drawn.width}px`);
    picture.classList.toggle('long', drawn.width > 900);
    play.stop();
    play.redraw(drawn);
    play.go(0);
};

function startTape(place) {
    const {tape : printed, expression : text, small, play} = place.dataset,
        list = text ? expression.compile(text) : [];
    const drawn = (printed) => tape.draw(printed, text ? expression.names(list, printed) : {},
        Boolean(small));
    const calm = matchMedia('(prefers-reduced-motion: reduce)').matches, first = drawn(printed);
    const player = tape.attach(place, first, {begin : calm ? first.steps.length : 0,
        pace : play ? 2200 : Math.max(300, Math.min(1600, 30000 / first.steps.length))});
    if (text) listen(place, list, (printed) => player.redraw(drawn(printed)));
    players.set(place, player);
    place.dataset.ready = '1';
    if (!play || calm) return;
    player.go(1); // it moves at once
    place.querySelector('[data-act=play]').click();
}

function startCurve(place) {
    const {curve : points, of, expression : text, rate, points : names} = place.dataset,
        list = expression.compile(text), all = JSON.parse(points),
        picture = place.querySelector('.picture'), slider = place.querySelector('[type=range]');
    listen(place, list, (printed, graph, expressions) => {
        const here = {loss : lossOf(graph), slope : gradientOf(graph, of)[0],
            v : leaf(list, of).values[0]};
        const {html, said} = curve(all, ...shown(expressions, list, of, here, rate, names));
        picture.innerHTML = html;
        place.querySelector('.said').textContent = said;
    });
    // The point follows a finger that has gone down in its plot, the last one.
    let dragged = false;
    const drag = (event) => {
        const plot = picture.lastElementChild, box = plot.getBoundingClientRect();
        if (event.type === 'pointerdown') {
            dragged = plot.contains(event.target);
            if (dragged && event.isTrusted) picture.setPointerCapture(event.pointerId);
        }
        if (!dragged || event.type === 'pointermove' && !event.buttons) return;
        const part = ((event.clientX - box.left) / box.width * W - LEFT) / (RIGHT - LEFT);
        slider.value = Number(slider.min) + part * (slider.max - slider.min);
        slider.dispatchEvent(new Event('input', {bubbles : true}));
    };
    for (const event of ['pointerdown', 'pointermove']) picture.addEventListener(event, drag);
}

function startPicture(place) {
    const steps = JSON.parse(place.dataset.steps), {light, pick} = root.drawings.lighting(place,
        () => steps);
    const play = root.player.attach(place,
        {steps : () => steps.length - 1, show : (at) => light(steps[at]), pace : 1400});
    pick(play.stop);
}

function startCount(place) {
    place.addEventListener('input', ({target}) => {
        target.nextElementSibling.textContent = target.value;
        const [inputs, outputs] = [...place.querySelectorAll('input') ]
            .map((box) => Number(box.value));
        place.querySelector('.body').innerHTML = count(inputs, outputs);
    });
}

// Options become buttons; whichever is chosen, what was folded opens.
function startGuess(place) {
    const reveal = place.parentElement.querySelector('details.reveal'),
        verdict = place.querySelector('.verdict');
    for (const option of place.querySelectorAll('li')) {
        const button = document.createElement('button');
        button.type = 'button';
        button.append(...option.childNodes);
        option.append(button);
        // the name of a button that is a formula
        const formula = button.querySelector('annotation');
        if (formula) button.setAttribute('aria-label', formula.textContent);
        button.addEventListener('click', () => {
            const right = Boolean(option.dataset.right);
            for (const other of place.querySelectorAll('button'))
                other.setAttribute('aria-pressed', other === button);
            verdict.className = `verdict ${right ? 'good' : 'bad'}`;
            // formulas stay formulas
            const answer = place.querySelector('[data-right] button').cloneNode(true).childNodes;
            verdict.replaceChildren(...right ? [ 'Right.' ] : [ 'No: it is “', ...answer,
                '”. See why.' ]);
            if (reveal) reveal.open = true;
        });
    }
}

document.addEventListener('DOMContentLoaded', () => {
    const kinds = {'.tape[data-tape]' : startTape, '.curve.slope' : startCurve,
        '.drawn.still' : startPicture, '.count' : startCount, '.guess' : startGuess};
    for (const [kind, start] of Object.entries(kinds))
        document.querySelectorAll(kind).forEach(start);
});
})(globalThis);
