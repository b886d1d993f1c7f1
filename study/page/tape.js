// tape.js - a tape in layers, values forward and gradients back, from what the library prints of it
// (study/spy.c): the graph of gd_tape_print_dot and the numbers by its ids. n4 is a node, t4_1 the
// leaf at its input 1, n4_1 what it sends there.
(function(root) {
'use strict';
const player = root.player || require('./player.js');

const escape = (text) => String(text).replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g,
    '&gt;').replace(/"/g, '&quot;');
const short = (v) => (Number.isFinite(v) ? String(Number(v.toPrecision(3))).replace('-', '−')
    : Number.isNaN(v) ? 'NaN' : v > 0 ? '∞' : '−∞');
const value = (word) => (/nan/.test(word) ? NaN : /inf/.test(word)
    ? (word[0] === '-' ? -Infinity : Infinity) : Number(word));
const words = ({list, more}) => `${list.map(short).join(', ')}${more ? ', ...' : ''}`;

// ---- The graph ----------------------------------------------------------------------------------

const slopes = { // of each input, by the names of the inputs and the result
    add : () => [ '1', '1' ], sub : () => [ '1', '−1' ], mul : (a, b) => [ b, a ],
    div : (a, b, y) => [ `1/${b}`, `−${y}/${b}` ], neg : () => [ '−1' ],
    exp : (a, b, y) => [ y ], log : (a) => [ `1/${a}` ], sqrt : (a, b, y) => [ `1/2${y}` ],
    sin : (a) => [ `cos ${a}` ], cos : (a) => [ `−sin ${a}` ],
    tanh : (a, b, y) => [ `(1 − ${y}²)` ], sigmoid : (a, b, y) => [ `${y}(1 − ${y})` ],
    relu : (a) => [ `[${a} > 0]` ], abs : (a) => [ `sign ${a}` ],
    sum : () => [ '1' ], softmax : () => [ 'J' ], logsumexp : (a) => [ `softmax(${a})` ]
};

// {items: by id, edges, nodes: in order, dot}. names: {id: {name, said}}, where the tape's own are
// not enough.
function read(text, names = {}) {
    const dot = text.slice(text.indexOf('digraph')), items = new Map(), edges = [];
    const lists = (what) => Object
        .fromEntries([...text.matchAll(new RegExp(`^${what} (\\w+)(.*)$`, 'gm')) ]
            .map(([ , id, list ]) => {
        const all = list.trim().split(' ').filter(Boolean), more = all[all.length - 1] === '...';
        return [id, {list : all.slice(0, more ? -1 : undefined).map(value), more}];
    }));
    const values = lists('value'), parts = lists('part'), totals = lists('total');
    const unquoted = (label) => label.split('\\n').map((line) => line.replace(/\\(.)/g, '$1'));
    const axes = (line) => (/\[([\d, ]*)\]/.exec(line) || [ '', '' ])[1].split(', ').filter(Boolean)
        .map(Number);
    for (const [line, id, label] of dot
        .matchAll(/^ *(\w+) \[id="\1",.* label="((?:[^"\\]|\\.)*)"\];$/gm)) {
        const rows = unquoted(label), node = id[0] === 'n', own = names[id] || {};
        const name = own.name || (node ? /^#\d+/.exec(rows[0])[0] : rows[0]);
        items.set(id, {id, node, name, shape : axes(rows[1]), value : values[id],
            norm : (/\|grad\| (\S+)/.exec(label.replace(/\\n/g, ' ')) || [])[1],
            op : node ? rows[0].replace(/^#\d+ /, '') : '', said : own.said || '',
            wanted : node || /style=filled/.test(line),
            saved : Number((/saved (\d+) bytes/.exec(label) || [ 0, 0 ])[1]), outs : [], ins : []});
    }
    for (const [ , from, to, k ] of dot.matchAll(/^ *(\w+) -> (n\d+) \[id="\w+_(\d+)", label/gm)) {
        const edge = {from : items.get(from), to : items.get(to), k : Number(k),
            part : parts[`${to}_${k}`], total : totals[`${to}_${k}`]};
        edges.push(edge), edge.from.outs.push(edge), edge.to.ins.push(edge);
    }
    for (const edge of edges) {
        const {to} = edge, own =
            (to.op === 'mean' ? [ `1/${edge.from.shape.reduce((a, b) => a * b, 1)}` ]
                : slopes[to.op]?.(to.ins[0].from.name, to.ins[1]?.from.name, to.name)) || [];
        edge.slope = to.op === 'matmul' ? [ `· ${to.ins[1].from.name}ᵀ`,
            `${to.ins[0].from.name}ᵀ ·` ][edge.k] : own[edge.k] && `× ${own[edge.k]}`;
    }
    return {items : [...items.values() ], edges,
        nodes : [...items.values() ].filter(({node}) => node), dot};
}

// What happens, in order: {item, edge, said}; each element learns from which step on it is there.
function steps({items, edges, nodes}) {
    const list = [], add = (step) => list.push(step);
    const loss = nodes[nodes.length - 1];
    for (const item of items) Object.assign(item, {from : 0, arrivals : [], freed : Infinity});
    for (const item of nodes) {
        const what = item.said || `${item.op}(${item.ins.map(({from}) => from.name).join(', ')})`;
        item.from = add({item, said : `Forward: ${item.name} = ${what}${
            item.value ? ` = ${words(item.value)}` : ''}.`});
    }
    const first = 'Backward: a gradient says by how much the loss grows for each unit that a number ' +
        `grows. For ${loss.name} itself this is 1.`;
    loss.arrivals.push({at : add({item : loss, said : first}), total : {list : [ 1 ]}});
    for (const item of [...nodes ].reverse()) {
        const back = item.ins.filter(({part}) => part), last = back[back.length - 1],
            arrived = item.arrivals[item.arrivals.length - 1];
        for (const edge of back) {
            const {from, part, total, slope} = edge, again = from.arrivals.length;
            const added = item.op !== 'matmul' && part.list.length < (arrived
                ? arrived.total.list.length : 0);
            let said = `${arrived ? `d${item.name} = ${words(arrived.total)} arrives. ` : ''}${
                slope ? (item.op === 'matmul' ? `${edge.k ? `${item.ins[0].from.name}ᵀ d${
                    item.name}` : `d${item.name} ${item.ins[1].from.name}ᵀ`}` : `Times the slope ${
                    slope.replace(/^× /, '')}`) : `${item.name} ${item.op}`}`;
            said += `${added ? `, and added up, since ${from.name} was copied,` : ''} ${
                !slope ? 'sends to' : item.op === 'matmul' ? 'leaves for' : 'it leaves for'} ${
                from.name}`;
            said += `${again ? `: ${
                words(part)}. Something has arrived there before, and they add up` : ''}: d${
                from.name} = ${words(total)}.`;
            if (edge === last && item.saved) said += ` The ${item.saved} bytes that ${
                item.name} had saved are freed.`;
            edge.back = add({item, edge, said});
            from.arrivals.push({at : edge.back, total});
        }
        item.freed = last ? last.back : item.from;
    }
    return list;
}

// ---- The layout ---------------------------------------------------------------------------------

const CHAR = 7.3, ROW = 16, GAP = 26;

// The rows of numbers of an item: of a matrix, its rows; of many columns, the first.
function rowsOf({shape}, {list, more}) {
    const columns = shape.length > 1 && !more ? shape[shape.length - 1] : Math.max(1, list.length),
        rows = [];
    for (let i = 0; i < list.length; i += columns)
        rows.push(list.slice(i, i + Math.min(columns, more ? 3 : 8)).map(short));
    return more || columns > 8 ? rows.map((row) => [...row, '…' ]) : rows;
}

// Where the slope of an edge is written: beside the middle of its first part.
const labelAt = ({points : [[ a, b ], [ c, d ]]}) => [ (a + c) / 2 + 5, (b + d) / 2 + 4 ];

// Gives each item x and y of its middle top, width and height, and each edge its points.
function layout({items, edges, nodes}, small) {
    for (const item of items) {
        const all = [...item.value ? rowsOf(item, item.value) : [],
            ...item.arrivals.flatMap(({total}) => rowsOf(item, total)) ];
        item.label = !item.node ? item.name : item.said ? `${item.name} = ${item.said}` : `${
            item.name} ${item.op}${small ? '' : ` [${item.shape.join(', ')}]`}`;
        item.cell = Math.max(0, ...all.flat().map((word) => word.length)) * CHAR + 9;
        item.rows = item.value ? rowsOf(item, item.value).length : 0;
        item.back = item.arrivals.length ? rowsOf(item, item.arrivals[0].total).length : 0;
        const columns = Math.max(0, ...all.map((row) => row.length)), gradient = item.back
            ? (item.name.length + 2) * CHAR : 0;
        // slopes of neighbouring arrows do not touch
        const apart = (list) => (list.length > 1 ? 16 + list.length * (10 + CHAR * Math
            .max(...list.map(({slope = ''}) => slope.length))) : 0);
        item.width = Math.max(item.label.length * CHAR + 16, columns * item.cell + gradient + 12,
            apart(item.outs), apart(item.ins), small ? 0 : item.norm || item.saved ? 150 : 0);
        item.indent = gradient;
        item.height = ROW * (1 + item.rows + item.back) + 8 + (small ? 0 : 12);
        item.layer = 0;
    }
    // in order: those before are done
    for (const node of nodes) node.layer = Math.max(0, ...node.ins.map(({from}) => from.layer)) + 1;
    for (const item of items)
        if (!item.node) item.layer = Math.min(...item.outs.map(({to}) => to.layer)) - 1;
    const layers = [];
    const put = (one) => (layers[one.layer] = layers[one.layer] || []).push(one);
    items.forEach(put);
    // Where an arrow passes a layer it has a place of its own there.
    const links = new Map(), link = (a, b) => {
        for (const [one, other] of [[ a, b ], [ b, a ]])
            links.set(one, [...links.get(one) || [], other ]);
    };
    for (const edge of edges) {
        edge.by = [];
        for (let layer = edge.from.layer + 1; layer < edge.to.layer; layer++)
            edge.by.push({layer, width : 14, height : 0});
        edge.by.forEach(put);
        [ edge.from, ...edge.by, edge.to ].reduce((a, b) => (link(a, b), b));
    }
    arrange(layers, links);
    const between = small ? 33 : 40;
    let y = 4;
    for (const layer of layers) {
        const high = Math.max(...layer.map(({height}) => height));
        for (const one of layer) one.y = one.height ? y : y + high / 2;
        y += high + between;
    }
    const left = Math.min(...layers.flat().map((one) => one.x - one.width / 2)) - 4;
    for (const one of layers.flat()) one.x -= left;
    // Edges leave and arrive in the order in which their other ends stand, so that they do not
    // cross.
    const far = (edge, list) => (list === edge.to.ins ? edge.by[edge.by.length - 1] || edge.from
        : edge.by[0] || edge.to).x;
    const port = (item, all, edge, list = [...all ].sort((a, b) => far(a, all) - far(b, all))) =>
        item.x + (list.indexOf(edge) - (list.length - 1) / 2) * Math.min(64,
            (item.width - 16) / list.length);
    for (const item of items)
        item.outs = [...item.outs ].sort((a, b) => (a.by[0] || a.to).x - (b.by[0] || b.to).x ||
            a.k - b.k);
    for (const edge of edges)
        edge.points = [ [ port(edge.from, edge.from.outs, edge),
            edge.from.y + edge.from.height + 2 ], ...edge.by.map(({x, y}) => [x, y]),
            [ port(edge.to, edge.to.ins, edge), edge.to.y - 2 ] ];
    const labels = edges.filter(({slope}) => slope).map((edge) => labelAt(edge)[0] +
        edge.slope.length * CHAR);
    const right = Math.max(...labels, ...layers.flat().map((one) => one.x + one.width / 2));
    return {width : right + 4, height : y - between + 4};
}

// Orders each layer by the middle of what it is linked to, then moves each towards that, without
// overlaps.
function arrange(layers, links) {
    const middle = (one, layer) => {
        const all = (links.get(one) || []).filter((other) => layer === undefined ||
            other.layer === layer);
        // leaves stand beside
        const inner = all.filter(({outs, node}) => node || !outs), near = inner.length
            ? inner : all;
        return near.length ? near.reduce((sum, {x}) => sum + x, 0) / near.length : one.x;
    };
    const apart = (a, b) => (a.width + b.width) / 2 + GAP;
    const settle = (layer, wanted) => {
        const right = [...wanted ], left = [...wanted ];
        for (let i = 1; i < layer.length; i++)
            right[i] = Math.max(right[i], right[i - 1] + apart(layer[i - 1], layer[i]));
        for (let i = layer.length - 2; i >= 0; i--)
            left[i] = Math.min(left[i], left[i + 1] - apart(layer[i], layer[i + 1]));
        layer.forEach((one, i) => { one.x = (left[i] + right[i]) / 2; });
    };
    for (const layer of layers) settle(layer, layer.map(() => 0));
    for (let turn = 0; turn < 8; turn++) {
        const down = turn % 2 === 0;
        for (const layer of down ? layers : [...layers ].reverse()) {
            const wanted = new Map(layer
                .map((one) => [one, middle(one, one.layer + (down ? -1 : 1))]));
            layer.sort((a, b) => wanted.get(a) - wanted.get(b));
            settle(layer, layer.map((one) => wanted.get(one)));
        }
    }
    for (let turn = 0; turn < 12; turn++)
        for (const layer of layers) settle(layer, layer.map((one) => middle(one)));
}

// ---- The picture --------------------------------------------------------------------------------

const path = (points) => points.map(([ x, y ], i) => {
    if (!i) return `M${x.toFixed(1)} ${y.toFixed(1)}`;
    const [a, b] = points[i - 1], half = ((b + y) / 2).toFixed(1);
    return `C${a.toFixed(1)} ${half} ${x.toFixed(1)} ${half} ${x.toFixed(1)} ${y.toFixed(1)}`;
}).join(' ');

// From a step on, and until another.
const during = (from, until = Infinity, name = '') => `class="${name}" data-from="${from}"${
    until < Infinity ? ` data-until="${until}"` : ''}`;

function drawEdge(edge, i) {
    const [x, y] = edge.points[edge.points.length - 1], [a, b] = edge.points[0], at = labelAt(edge);
    const tip = (x, y, d) => `M${x} ${y} l-4.5 ${d} h9 z`;
    return `<g ${during(edge.to.from, Infinity, 'edge')} data-edge="${i}"><path d="${
        path(edge.points)}"/><path ${
        during(0, edge.back, 'tip')} d="${tip(x, y, -7)}"/>${
            edge.back ? `<path ${during(edge.back, Infinity, 'tip')} d="${tip(a, b, 7)}"/>` : ''}${
        edge.slope && edge.back ? `<text x="${at[0]}" y="${at[1]}">${escape(edge.slope)}</text>`
            : ''}</g>`;
}

function drawItem(item, small) {
    const left = item.x - item.width / 2, box = `x="${left}" y="${item.y}" width="${
        item.width}" height="${item.height}" rx="${item.node ? 5 : 14}"`;
    const numbers = (tensor, y, kind) => rowsOf(item, tensor).map((row, r) => row.map((word, c) =>
        `<text class="${kind}" text-anchor="end" x="${
            left + item.indent + 4 + (c + 1) * item.cell}" y="${y + r * ROW}" data-value="${
            tensor.list[r * row.length + c]}">${word}</text>`).join('')).join('');
    const first = item.y + 15 + ROW, below = first + item.rows * ROW,
        foot = item.y + item.height - 6;
    const gradients = item.arrivals.map(({at, total}, i) => `<g ${
        during(at, item.arrivals[i + 1]?.at)}><text class="gradient" x="${left + 8}" y="${
        below}">d${escape(item.name)}</text>${
        numbers(total, below, 'gradient')}</g>`).join('');
    const arrived = item.arrivals.length ? item.arrivals[item.arrivals.length - 1].at : Infinity;
    return `<g ${during(item.from, Infinity, item.node ? 'item' : 'item leaf')} data-item="${
        escape(item.name)}"><rect ${box}/>${
        item.saved ? `<rect ${during(item.from, item.freed, 'alive')} ${box}/>` : ''}<text x="${
            left + 8}" y="${item.y + 15}">${escape(item.label)}</text>${
        item.value ? `<g ${during(item.from)}>${numbers(item.value, first, 'value')}</g>` : ''}${
            gradients}${
        small ? '' : `${item.norm && arrived < Infinity ? `<text ${
            during(arrived, Infinity, 'small')} x="${left + 8}" y="${foot}">|grad| ${
            item.norm}</text>` : ''}${
            item.saved ? `<text ${during(item.from, item.freed, 'small')} x="${
                item.x + item.width / 2 - 8}" y="${foot}" text-anchor="end">${
                item.saved} bytes</text>` : ''}`}</g>`;
}

// The whole picture: {html, steps, width}. small: without shapes, norms and bytes.
function draw(text, names, small = false) {
    const graph = read(text, names), list = steps(graph), {width, height} = layout(graph, small),
        at = list.length;
    const svg = `<svg viewBox="0 0 ${Math.ceil(width)} ${Math.ceil(height)}">${
        graph.edges.map(drawEdge).join('')}${
        graph.items.map((item) => drawItem(item, small)).join('')}<g class="dots"></g></svg>`;
    // As it stands at the end.
    const html = svg.replace(/class="([^"]*)" data-from="(\d+)" data-until="(\d+)"/g,
        (whole, name, from, until) => (until <= at ? whole.replace(`"${name}"`, `"${name} hidden"`)
            : whole));
    return {html, steps : list, width : Math.ceil(width), graph};
}

// The steps in words, for whoever does not see the picture, or has it on paper.
const inWords = (list) => `<details><summary>all steps, in words</summary><ol>${
    list.map(({said}) => `<li>${escape(said)}</li>`).join('')}</ol></details>`;

// Puts a picture into motion; in `place` are the controls, .said and .picture, which has it. begin:
// the step it starts with. Returns {go, stop, at, redraw(drawn)}.
function attach(place, drawn, {begin, pace, before = 'Nothing has been computed yet.'} = {}) {
    const picture = place.querySelector('.picture'), said = place.querySelector('.said');
    let timed, marked = [];
    const gather = () => {
        timed = [...picture.querySelectorAll('[data-from]') ]
            .map((element) => ({element, from : Number(element.dataset.from),
                until : Number(element.dataset.until || Infinity),
                hidden : element.classList.contains('hidden')}));
        marked = [];
    };
    // Scrolls the picture, not the page.
    function bring(element) {
        const outer = picture.getBoundingClientRect(), inner = element.getBoundingClientRect();
        if (inner.top < outer.top || inner.bottom > outer.bottom)
            picture.scrollTop += inner.top - outer.top - outer.height / 2;
        if (inner.left < outer.left || inner.right > outer.right)
            picture.scrollLeft += inner.left - outer.left - outer.width / 2;
    }
    function show(at) {
        for (const one of timed) {
            const hidden = at < one.from || at >= one.until;
            if (hidden === one.hidden) continue;
            one.element.classList.toggle('hidden', hidden);
            one.hidden = hidden;
        }
        for (const element of marked) element.classList.remove('now', 'back');
        const step = drawn.steps[at - 1], {edges, items} = drawn.graph;
        const used = step ? (step.edge ? [ step.edge ] : step.item.from === at ? step.item.ins : [])
            : [];
        marked = [...used.map((edge) => picture.querySelector(`[data-edge="${
            edges.indexOf(edge)}"]`)),
            ...step ? [ picture.querySelectorAll('.item')[items.indexOf(step.item)] ] : [] ];
        for (const element of marked)
            element.classList.add('now', ...(step.edge ? [ 'back' ] : []));
        const [kind, way] = step?.edge ? [ 'back', '1;0' ] : [ '', '0;1' ];
        picture.querySelector('.dots').innerHTML = used.map((edge) =>
            `<circle r="4.5" class="${kind}"><animateMotion dur="0.7s" repeatCount="1" fill="freeze"
                calcMode="linear" keyTimes="0;1" keyPoints="${way}" path="${path(edge.points)}"/>
            </circle>`).join('');
        const svg = picture.querySelector('svg');
        if (used.length) for (const motion of svg.querySelectorAll('animateMotion'))
            motion.beginElement?.();
        said.textContent = step ? step.said : before;
        place.dataset.at = at;
        const wide = picture.scrollHeight > picture.clientHeight + 1 ||
            picture.scrollWidth > picture.clientWidth + 1;
        if (wide && at < drawn.steps.length)
            bring(marked[marked.length - 1] || picture.querySelector('.item'));
    }
    gather();
    const controls = player.attach(place, {steps : () => drawn.steps.length, show, pace, begin});
    return {
        ...controls,
        redraw(next) {
            drawn = next;
            picture.innerHTML = next.html;
            place.querySelector('details ol')
                ?.replaceChildren(...next.steps
                    .map((step) => Object.assign(document.createElement('li'),
                        {textContent : step.said})));
            gather();
            controls.go(controls.at());
        }
    };
}

root.tape = {read, draw, inWords, attach, short, escape};
if (typeof module !== 'undefined') module.exports = root.tape;
})(globalThis);
