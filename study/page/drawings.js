// drawings.js - what pictures are made of, as HTML: bars, arrows, circles, and grids of numbers
// whose cells light up.
(function(root) {
'use strict';

const W = 320; // of every picture, in its own units: about a phone's pixels
const escape = (text) => String(text).replace(/&/g, '&amp;').replace(/</g,
    '&lt;').replace(/"/g, '&quot;');
const short = (v) => String(Math.round(v * 100) / 100 + 0).replace('-', '−');
const sum = (list) => list.reduce((a, b) => a + b, 0);
const dot = (a, b) => sum(a.map((v, i) => v * b[i]));
const size = (a) => Math.sqrt(dot(a, a));
const of = (n, f) => Array.from({length : n}, (_, i) => f(i));

// What it shows is said in words beside it.
const svg = (height, label, inside) =>
    `<svg viewBox="0 0 ${W} ${Math.round(height)}" role="group" aria-label="${escape(label)}">${
        inside}</svg>`;
const text = (x, y, words, more = '') => `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" ${more}>${
    escape(words)}</text>`;

// Bars, a lane below the other, all at one scale: the largest lane is `most` high. lanes: [{name,
// rows: [[value]], lines: a number for each row, later}].
function bars(lanes, label, most = 92) {
    const gap = 16, [{rows}] = lanes,
        slot = (W - gap * (rows.length - 1)) / (rows.length * rows[0].length);
    const ends = lanes.map((lane) => [...lane.rows.flat(), ...lane.lines || [], 0 ])
        .map((all) => [Math.max(...all), Math.min(...all)]);
    const scale = most / Math.max(...ends.map(([ high, low ]) => high - low), 1e-300);
    let top = 0;
    const inside = lanes.map((lane, l) => {
        const [high, low] = ends[l], begin = top, y = (v) => begin + 28 + (high - v) * scale;
        top += (high - low) * scale + 48;
        const one = (values, r) => {
            const left = r * (slot * values.length + gap), right = left + slot * values.length,
                line = lane.lines ? y(lane.lines[r]) : -1;
            // A number stands at the end of its bar, or beyond the line that would go through it.
            const place = (v) => {
                const at = v < 0 ? y(v) + 11 : y(v) - 3;
                return line < at - 11 || line > at + 3 ? at : v < 0 ? line + 12 : line - 4;
            };
            return `<line x1="${left}" x2="${right}" y1="${y(0)}" y2="${y(0)}" class="axis"/>` +
                (lane.lines ? `<line x1="${left}" x2="${right}" y1="${line}" y2="${
                    line}" class="level"/>` : '') +
                   values.map((v, k) => `<rect class="${v < 0 ? 'minus' : 'plus'}" data-value="${
                       v}" x="${left + k * slot + 3}" y="${
                                            Math.min(y(v), y(0))}" width="${slot - 6}" height="${
                                                Math.abs(y(v) - y(0))}"/>` +
                                        text(left + (k + 0.5) * slot, place(v), short(v),
                                            'text-anchor="middle"'))
                       .join('');
        };
        return `<g class="${lane.later ? 'dim' : ''}">${
            text(0, begin + 11, lane.name, 'class="name"')}${lane.rows.map(one).join('')}</g>`;
    });
    return svg(top + 4, label, inside.join(''));
}

function arrow([x0, y0], [x1, y1], kind) {
    const length = Math.hypot(x1 - x0, y1 - y0);
    if (length < 1) return `<circle class="${kind}" cx="${x0}" cy="${y0}" r="2.5"/>`;
    const [ux, uy] = [ (x1 - x0) / length, (y1 - y0) / length ], back = Math.min(8, length);
    const at = (along, aside) => `${(x1 - along * ux - aside * uy).toFixed(1)} ${
        (y1 - along * uy + aside * ux).toFixed(1)}`;
    return `<g class="${kind}"><path d="M${x0.toFixed(1)} ${y0.toFixed(1)} L${
        at(back / 2, 0)}"/><path class="tip" d="M${at(0, 0)} L${
        at(back, 3.5)} L${at(back, -3.5)} Z"/></g>`;
}

// Arrows in one plane, x to the right, y up, at one scale. list: [{from: [x, y], to, kind, name,
// side: where the name stands: tip, end, left, right or below, by: pixels that it is moved aside,
// later}].
function plane(list, label) {
    const high = 190, edge = 30, ends = list.flatMap(({from, to}) => [from, to]);
    const [left, right] = [ Math.min(0, ...ends.map((p) => p[0])),
        Math.max(0, ...ends.map((p) => p[0])) ];
    const [low, most] = [ Math.min(0, ...ends.map((p) => p[1])),
        Math.max(0, ...ends.map((p) => p[1])) ];
    const scale = Math.min((W - 2 * edge - 40) / (right - left || 1),
        (high - 2 * edge) / (most - low || 1));
    const place = ([x, y], [dx, dy] = [ 0, 0 ]) => [ edge + 20 + (x - left) * scale + dx,
        high - edge - (y - low) * scale + dy ];
    const one = ({from, to, kind, name, side, by, later}) => {
        const a = place(from, by), b = place(to, by),
            middle = [ (a[0] + b[0]) / 2, (a[1] + b[1]) / 2 ];
        const where = {
            tip : [ b[0] + (b[0] >= a[0] ? 5 : -5), b[1] - 5, b[0] >= a[0] ? 'start' : 'end' ],
            end : [ b[0] + 6, b[1] + 4, 'start' ],
            left : [ middle[0] - 6, middle[1] + 4, 'end' ],
            right : [ middle[0] + 6, middle[1] + 4, 'start' ],
            below : [ middle[0], middle[1] + 15, 'middle' ]
        }[side];
        return `<g class="${later ? 'hidden' : ''}">${arrow(a, b, kind)}${
            text(where[0], where[1], name, `text-anchor="${where[2]}" class="${kind} name"`)}</g>`;
    };
    const [, axis] = place([ 0, 0 ]);
    return svg(high, label, `<line class="axis" x1="0" x2="${W}" y1="${axis}" y2="${axis}"/>${
        list.map(one).join('')}`);
}

// Circles with hands. list: [{name, radius: of the circle, most: the longest hand, hands: [{to: [x,
// y], kind}]}].
function circles(list, label) {
    const each = W / Math.max(3, list.length), middle = each / 2;
    const one = ({name, radius, most, hands}, i) => {
        const x = i * each + middle, scale = (middle - 6) / (most || 1);
        return `<circle class="axis" cx="${x}" cy="${middle}" r="${radius * scale}"/>${
            hands.map(({to, kind}) => arrow([ x, middle ],
                [ x + to[0] * scale, middle - to[1] * scale ], kind)).join('')}${
            text(x, each + 12, name, 'text-anchor="middle" class="name"')}`;
    };
    return svg(each + 18, label, list.map(one).join(''));
}

// Grids of numbers. list: [{name, label, shape: [rows, columns], values, rows, columns: their
// names, whole: the number that has the full colour, beside: stands to the right of the one
// before, unmade: grey, since nobody computes it}].
function grids(list) {
    const one = ({name, label, shape : [R, C], values, rows, columns, whole, unmade}) => {
        const largest = whole || Math.max(...values.map(Math.abs)) || 1;
        const cell = (i) => `<td data-grid="${name}" data-at="${i}" data-value="${
            values[i]}" style="background:rgba(var(${values[i] < 0 ? '--minus' : '--plus'}),${
            (0.4 * Math.min(1, Math.abs(values[i]) / largest)).toFixed(3)})">${
            short(values[i])}</td>`;
        return `<div class="cells"><b>${escape(label || name)}</b><table class="numbers${unmade ? ' unmade' : ''}">${
            columns ? `<tr><td></td>${
                columns.map((c) => `<th scope="col">${escape(c)}</th>`).join('')}</tr>` : ''}${
            of(R, (r) => `<tr>${rows ? `<th scope="row">${escape(rows[r])}</th>` : ''}${
                of(C, (c) => cell(r * C + c)).join('')}</tr>`).join('')}</table></div>`;
    };
    const groups = [];
    for (const grid of list) {
        if (grid.beside)
            groups[groups.length - 1].push(one(grid));
        else
            groups.push([ one(grid) ]);
    }
    return `<div class="grids">${
        groups.map((group) => `<div>${group.join('')}</div>`).join('')}</div>`;
}

// In a page: lights the cells of a step in the grids of a place, as it is played, and by itself the
// step whose cell is pointed at or reached by keyboard. steps(): of now.
function lighting(place, steps) {
    const body = place.querySelector('.picture'), said = place.querySelector('.said');
    // A keyboard goes to the cells that have a step, by Tab to the first of each grid.
    function reach(cells) {
        const targets = steps().map(({target}) => target && `${target.grid} ${target.at}`),
            grids = new Set();
        for (const cell of cells) {
            const {grid, at} = cell.dataset;
            if (!targets.includes(`${grid} ${at}`)) continue;
            cell.tabIndex = grids.has(grid) ? -1 : 0;
            grids.add(grid);
        }
    }
    function light({said : words, target, lit = {}}) {
        said.textContent = words;
        const cells = body.querySelectorAll('td[data-grid]');
        if (!body.querySelector('td[tabindex]')) reach(cells);
        for (const cell of cells) {
            const at = Number(cell.dataset.at), grid = cell.dataset.grid;
            cell.classList.toggle('target', Boolean(target) && target.grid === grid &&
                target.at === at);
            cell.classList.toggle('part', (lit[grid] || []).includes(at));
        }
    }
    function pick(stop) {
        for (const event of ['mouseover', 'focusin', 'click'])
            body.addEventListener(event, ({target}) => {
                const cell = target.closest && target.closest('td[data-grid]');
                const step = cell && steps().find((s) => s.target && s.target.grid === cell.dataset
                    .grid && s.target.at === Number(cell.dataset.at));
                if (!step) return;
                stop();
                light(step);
            });
        body.addEventListener('keydown', (event) => root.rove(event, 'td[data-grid][tabindex]'));
    }
    return {light, pick};
}

root.drawings = {
    lighting,
    bars,
    plane,
    circles,
    grids,
    short,
    escape,
    sum,
    dot,
    size,
    of
};
if (typeof module !== 'undefined') module.exports = root.drawings;
})(globalThis);
