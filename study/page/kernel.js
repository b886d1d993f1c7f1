// kernel.js - beside RMSNorm's CUDA kernel: its walk, and the sum of a warp by a butterfly of
// shuffles.
(function(root) {
'use strict';
const player = root.player || require('./player.js');
const {number} = root.worked || require('./worked.js');

// ---- The butterfly ------------------------------------------------------------------------------

// The value of each lane, and the lanes that it is the sum of, before and after every exchange:
// [[{value, of: [lane]}]], as `for (step = lanes / 2; step > 0; step /= 2) v += shuffle(v, lane ^
// step)`.
function butterfly(values) {
    let row = values.map((value, lane) => ({value, of : [ lane ]}));
    const rows = [ row ];
    for (let step = values.length / 2; step >= 1; step /= 2) {
        row = row.map(({value, of}, lane) => {
            const other = row[lane ^ step];
            return {value : value + other.value, of : [...of, ...other.of ].sort((a, b) => a - b)};
        });
        rows.push(row);
    }
    return rows;
}

const WIDE = 52, HIGH = 78, LEFT = 40;

// shown: how many of the exchanges have happened.
function picture(values, shown) {
    const rows = butterfly(values), lanes = values.length;
    const x = (lane) => LEFT + lane * WIDE + WIDE / 2, y = (row) => 44 + row * HIGH;
    let html = `<text x="2" y="16">lane</text>${
        values.map((_, lane) => `<text x="${x(lane)}" y="16" text-anchor="middle">${lane}</text>`)
        .join('')}`;
    for (let r = 1; r < rows.length; r++) {
        const step = lanes >> r, later = r > shown ? ' later' : r === shown ? ' now' : '';
        html += `<text x="2" y="${y(r) - HIGH / 2 + 5}" class="step${later}">^ ${step}</text>`;
        for (let lane = 0; lane < lanes; lane++)
            for (const from of [lane, lane ^ step])
                html += `<line class="way${later}" x1="${x(from)}" y1="${y(r - 1) + 15}" x2="${
                    x(lane)}" y2="${y(r) - 17}"/>`;
    }
    rows.forEach((row, r) => row.forEach(({value, of}, lane) => {
        html += `<g class="cell${r > shown ? ' later' : ''}"${root.document ? ' tabindex="0"' : ''} role="group" data-row="${
            r}" data-of="${of.join(' ')}" data-value="${
            value}" aria-label="lane ${lane}, ${r ? `after exchange ${r}` : 'at first'}: ${
                number(value)}${
            r ? `, the sum of lanes ${of.join(', ')}` : ''}"><rect x="${x(lane) - 24.5}" y="${
                y(r) - 17}" width="49" height="32" rx="4"/><text x="${
            x(lane)}" y="${y(r) + 5}" text-anchor="middle">${number(value)}</text></g>`;
    }));
    return `<svg viewBox="0 0 ${LEFT + lanes * WIDE + 4} ${
        y(rows.length - 1) + 24}" role="group" aria-label="a sum over ${
        lanes} lanes by ${rows.length - 1} exchanges">${html}</svg>`;
}

root.kernel = {
    butterfly,
    picture
};
if (typeof module !== 'undefined') {
    module.exports = root.kernel;
    return;
}

// ---- In the page --------------------------------------------------------------------------------

function lightLanes(place, cell) {
    for (const lit of place.querySelectorAll('.part')) lit.classList.remove('part');
    if (!cell) return;
    const lanes = cell.dataset.of.split(' ');
    cell.classList.add('part');
    [...place.querySelectorAll('.cell[data-row="0"]') ]
        .forEach((e, lane) => e.classList.toggle('part', lanes.includes(String(lane))));
}

function startButterfly(place) {
    const values = JSON.parse(place.dataset.values), body = place.querySelector('.picture');
    player.attach(place, {
        steps : () => Math.log2(values.length),
        show : (at) => { body.innerHTML = picture(values, at); },
        pace : 1200
    });
    for (const event of ['mouseover', 'focusin'])
        body.addEventListener(event, ({target}) => lightLanes(body, target.closest('.cell')));
}

// One thought at a time: its text, and its lines of the kernel in view.
function startWalk(place) {
    const thoughts = [...place.querySelectorAll('.thoughts > li') ],
        code = place.querySelector('.sources');
    let moved = false;
    const show = (at) => {
        thoughts.forEach((li, i) => { li.hidden = i !== at; });
        for (const line of code.querySelectorAll('.line.now')) line.classList.remove('now');
        const lines = thoughts[at].dataset.lines.split(' ')
            .map((id) => document.getElementById(id));
        for (const line of lines) line.classList.add('now');
        const top = lines[0].getBoundingClientRect().top - code.getBoundingClientRect().top;
        if (moved) code.scrollTop += top - 40;
        moved = true;
    };
    const walk = player.attach(place, {steps : () => thoughts.length - 1, show, begin : 0,
        pace : 6000});
    code.addEventListener('click', ({target}) => {
        const line = target.closest('.line');
        const at = line ? thoughts.findIndex((li) => li.dataset.lines.split(' ').includes(line.id))
            : -1;
        if (at < 0) return;
        walk.stop();
        walk.go(at);
    });
    place.dataset.ready = '1';
}

document.addEventListener('DOMContentLoaded', () => {
    for (const [id, start] of [[ 'kernel-walk', startWalk ], [ 'butterfly', startButterfly ]]) {
        const place = document.getElementById(id);
        if (place) start(place);
    }
});
})(globalThis);
