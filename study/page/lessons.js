// lessons.js - the figures of lessons, and the tapes of other pages: what a reader turns goes to the
// library, whose module comes with the first touch.
(function(root) {
'use strict';
const tape = root.tape || require('./tape.js');
const {short, escape} = tape;
const expression = root.expression || require('./expression.js');

// ---- Numbers of one's own ----------------------------------------------------------------------------

const leaf = (list, name) => list.find((t) => t.name === name && !t.op);

// The last gradient that has arrived at a leaf.
const gradientOf = (graph, name) => {
    const total = graph.items.find((item) => item.name === name && !item.node).outs.map((edge) => edge.total).filter(Boolean);
    return total[0] && graph.edges.filter((edge) => edge.from.name === name && edge.total).sort((a, b) => Number(a.to.id.slice(1)) - Number(b.to.id.slice(1)) || b.k - a.k)[0].total.list;
};
const lossOf = (graph) => graph.nodes[graph.nodes.length - 1].value.list[0];

// Loss and slope with `name` at v: {loss, slope, v}.
function at(expressions, list, name, v) {
    leaf(list, name).values[0] = v;
    const graph = tape.read(expressions.run(list));
    return {loss : lossOf(graph), slope : gradientOf(graph, name)[0], v};
}

// ---- A curve and its tangent ---------------------------------------------------------------------------

const W = 400, H = 220;
function curve(points, name, {loss, slope, v}) {
    const [low] = points[0], [high] = points[points.length - 1], most = Math.max(...points.map(([ , l ]) => l));
    const x = (v) => 10 + (v - low) / (high - low) * (W - 20), y = (l) => H - 20 - l / most * (H - 40);
    const line = (v2) => `${x(v2).toFixed(1)} ${y(loss + slope * (v2 - v)).toFixed(1)}`;
    return {
        html : `<svg viewBox="0 0 ${W} ${H}"><polyline points="${points.map(([ v, l ]) => `${x(v).toFixed(1)},${y(l).toFixed(1)}`).join(' ')}"/><line class="tick" x1="10" x2="${W - 10}" y1="${y(0)}" y2="${y(0)}"/>
<path class="tangent" d="M${line(v - 1.2)} L${line(v + 1.2)}"/><circle cx="${x(v)}" cy="${y(loss)}" r="6"/><text x="${x(v)}" y="${H - 4}" text-anchor="middle">${name} = ${short(v)}</text></svg>`,
        said : `${name} = ${short(v)}: the loss is ${short(loss)}, its slope d${name} = ${short(slope)}. ${
            Math.abs(slope) < 0.05 ? 'Flat: no way leads down.' : `The loss falls if ${name} moves ${slope > 0 ? 'down' : 'up'}.`}`
    };
}

// ---- Products of slopes, counted ---------------------------------------------------------------------------

const WIDTHS = [ 32, 32 ]; // of what lies between inputs and outputs
function count(inputs, outputs) {
    const sizes = [ inputs, ...WIDTHS, outputs ], once = sizes.slice(1).reduce((sum, n, i) => sum + n * sizes[i], 0);
    const most = Math.max(inputs, outputs) * once;
    const bar = (name, times, why) => `<p>${name}: ${times} × ${once} = <b>${times * once}</b> products, ${why}<span class="bar" style="width:${Math.max(0.5, 100 * times * once / most)}%"></span></p>`;
    return `<p>Three steps, ${sizes.join(' → ')} numbers; to go through all of them takes ${once} products.</p>${
        bar('Forward', inputs, 'once for each input.')}${bar('Backward', outputs, 'once for each output.')}`;
}

root.lessons = {at, curve, count};
if (typeof module !== 'undefined') {
    module.exports = root.lessons;
    return;
}

// ---- In the page ---------------------------------------------------------------------------------------

// Takes what a reader changes to the library: changed(list, graph, printed) shows it.
function listen(place, list, changed) {
    const refused = place.querySelector('.refused');
    async function run() {
        const expressions = await expression.Expressions.here();
        try {
            const printed = expressions.run(list);
            changed(printed, tape.read(printed));
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
        const v = Number(target.value), bad = target.value.trim() === '' || !(Math.abs(v) <= 1000), {values} = leaf(list, name);
        target.toggleAttribute('aria-invalid', bad);
        say(bad ? `“${target.value}” is not a number from −1000 to 1000; the picture keeps ${values[at]}.` : '');
        if (bad) return;
        values[at] = v;
        if (target.type === 'range') show(name, v);
        run();
    });
    const button = place.querySelector('[data-act=descend]');
    button?.addEventListener('click', async () => {
        const {of, rate} = button.dataset, expressions = await expression.Expressions.here(), t = leaf(list, of);
        const {loss, slope} = at(expressions, list, of, t.values[0]), next = t.values[0] - rate * slope;
        t.values[0] = Number(next.toPrecision(12));
        const after = at(expressions, list, of, t.values[0]);
        place.querySelector('.descent').textContent = `${of} = ${short(after.v)}: the loss was ${short(loss)} and is ${short(after.loss)}`;
        show(of, t.values[0]);
        run();
    });
}

const players = new Map();

// Another expression in the place of the one that a panel has.
root.lessons.replaceTape = (place, text, printed) => {
    const drawn = tape.draw(printed, expression.names(expression.compile(text), printed), Boolean(place.dataset.small)), play = players.get(place), picture = place.querySelector('.picture');
    picture.style.setProperty('--width', `${drawn.width}px`);
    picture.classList.toggle('long', drawn.width > 900);
    play.stop();
    play.redraw(drawn);
    play.go(0);
};

function startTape(place) {
    const {tape : printed, expression : text, small, play} = place.dataset, list = text ? expression.compile(text) : [];
    const drawn = (printed) => tape.draw(printed, text ? expression.names(list, printed) : {}, Boolean(small));
    const calm = matchMedia('(prefers-reduced-motion: reduce)').matches, first = drawn(printed);
    const player = tape.attach(place, first, {begin : calm ? first.steps.length : 0, pace : play ? 2200 : Math.max(300, Math.min(1600, 30000 / first.steps.length))});
    if (text) listen(place, list, (printed) => player.redraw(drawn(printed)));
    players.set(place, player);
    place.dataset.ready = '1';
    if (!play || calm) return;
    player.go(1); // it moves at once
    place.querySelector('[data-act=play]').click();
}

function startCurve(place) {
    const {points, of, expression : text} = place.dataset, list = expression.compile(text), all = JSON.parse(points);
    listen(place, list, (printed, graph) => {
        const {html, said} = curve(all, of, {loss : lossOf(graph), slope : gradientOf(graph, of)[0], v : leaf(list, of).values[0]});
        place.querySelector('.picture').innerHTML = html;
        place.querySelector('.said').textContent = said;
    });
}

function startPicture(place) {
    const steps = JSON.parse(place.dataset.steps), {light, pick} = root.drawings.lighting(place, () => steps);
    const play = root.player.attach(place, {steps : () => steps.length - 1, show : (at) => light(steps[at]), pace : 1400});
    pick(play.stop);
}

function startCount(place) {
    place.addEventListener('input', ({target}) => {
        target.nextElementSibling.textContent = target.value;
        const [inputs, outputs] = [...place.querySelectorAll('input') ].map((box) => Number(box.value));
        place.querySelector('.body').innerHTML = count(inputs, outputs);
    });
}

// Options become buttons; whichever is chosen, what was folded opens.
function startGuess(place) {
    const reveal = place.parentElement.querySelector('details.reveal'), verdict = place.querySelector('.verdict');
    for (const option of place.querySelectorAll('li')) {
        const button = document.createElement('button');
        button.type = 'button';
        button.append(...option.childNodes);
        option.append(button);
        const formula = button.querySelector('annotation'); // the name of a button that is a formula
        if (formula) button.setAttribute('aria-label', formula.textContent);
        button.addEventListener('click', () => {
            const right = Boolean(option.dataset.right);
            for (const other of place.querySelectorAll('button')) other.setAttribute('aria-pressed', other === button);
            verdict.className = `verdict ${right ? 'good' : 'bad'}`;
            verdict.textContent = right ? 'So it is.' : `Not so: it is “${place.querySelector('[data-right]').textContent}”. See why.`;
            if (reveal) reveal.open = true;
        });
    }
}

document.addEventListener('DOMContentLoaded', () => {
    const kinds = {'.tape[data-tape]' : startTape, '.curve.slope' : startCurve, '.drawn.still' : startPicture, '.count' : startCount, '.guess' : startGuess};
    for (const [kind, start] of Object.entries(kinds)) document.querySelectorAll(kind).forEach(start);
});
})(globalThis);
