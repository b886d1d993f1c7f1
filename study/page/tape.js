// tape.js - puts a tape in motion: values forward, gradients back, memory freed. The ids are those
// of gd_tape_print_dot: n4 a node, t4_1 the leaf at its input 1, t4_1_n4_1 the arrow of the value
// into it, n4_1_t4_1 that of the gradient out of it.
'use strict';
(function() {
// What happens, in order: {node, edge: the arrow of a gradient, none on the way forward; last: of
// its node}.
function stepsOf(all, nodes) {
    const isEdge = (g) => g.classList.contains('edge');
    const back = (node) =>
        all.filter((g) => isEdge(g) && new RegExp(`^${node.dataset.id}_\\d+_[nt]\\d`).test(g.dataset.id));
    const steps = nodes.map((node) => ({node}));
    for (const node of [...nodes].reverse()) {
        const edges = back(node);
        if (!edges.length) steps.push({node, backward : true, last : true});
        edges.forEach((edge, i) =>
                          steps.push({node, edge, backward : true, last : i + 1 === edges.length}));
    }
    return steps;
}

function tape(place) {
    const svg = place.querySelector('svg'), said = place.querySelector('.said');
    const all = [...svg.querySelectorAll('g.node, g.edge') ];
    const nodes = all.filter((g) => /^n\d+$/.test(g.dataset.id))
                      .sort((a, b) => a.dataset.id.slice(1) - b.dataset.id.slice(1));
    const into = (node) =>
        all.filter((g) => g.classList.contains('edge') &&
                          new RegExp(`_${node.dataset.id}_\\d+$`).test(g.dataset.id));
    const by = (id) => svg.querySelector(`[data-id="${id}"]`);
    const name = (g) => g.querySelector('text').textContent;
    const {values, parts, totals} = JSON.parse(place.dataset.numbers);
    const saved = (node) => Number(/saved (\d+) bytes/.exec(node.textContent)?.[1] || 0);
    const steps = stepsOf(all, nodes);
    const target = (edge) => by(edge.dataset.id.replace(/^n\d+_\d+_/, ''));
    const source = (edge) => /^(n\d+_\d+)_/.exec(edge.dataset.id)[1];

    // After how many steps an element has each of its classes, so that a step looks at nothing else.
    const since = new Map(all.map((g) => [g, {}])), plain = new Map(all.map((g) => [g, g.getAttribute('class')]));
    const set = (g, name, at) => { if (g) since.get(g)[name] ??= at; };
    steps.forEach((step, i) => {
        const at = i + 1;
        step.to = step.edge && target(step.edge);
        step.arrival = steps.slice(0, i).filter(({to}) => to && to === step.to).length + 1;
        if (!step.backward) {
            set(step.node, 'seen', at), set(step.node, 'alive', at);
            for (const edge of into(step.node)) set(edge, 'seen', at), set(by(edge.dataset.id.replace(/_n\d+_\d+$/, '')), 'seen', at);
        }
        if (step.edge) set(step.edge, 'seen', at), set(step.to, 'reached', at);
        if (step.last) set(step.node, 'freed', at);
    });

    function words({node, edge, backward, last, to, arrival}) {
        if (!backward) {
            const value = values[node.dataset.id];
            return `forward: ${name(node)}${value ? ` = ${value}` : ''}`;
        }
        if (!edge) return `backward: ${name(node)}`;
        const from = source(edge), bytes = last ? saved(node) : 0;
        let text = `backward: ${name(node)} sends d${name(to).replace(/^#\d+ /, '')} ${parts[from] || ''}`;
        if (arrival > 1 && totals[from])
            text += `, arrival ${arrival}: added to what was there it is ${totals[from]}`;
        if (bytes) text += `; the ${bytes} bytes it had saved are freed`;
        return text;
    }

    // Scrolls the picture, not the page. Where it has no part out of sight nothing is measured.
    const frame = svg.parentElement;
    let wide = false;
    new ResizeObserver(() => { wide = frame.scrollWidth > frame.clientWidth || frame.scrollHeight > frame.clientHeight; }).observe(frame);
    function bring(node) {
        if (!wide) return;
        const outer = frame.getBoundingClientRect(), inner = node.getBoundingClientRect();
        if (inner.top < outer.top || inner.bottom > outer.bottom)
            frame.scrollTop += inner.top - outer.top - outer.height / 2;
        if (inner.left < outer.left || inner.right > outer.right)
            frame.scrollLeft += inner.left - outer.left - outer.width / 2;
    }

    function show(at) {
        const current = steps[at - 1], whole = at === steps.length;
        if (current && !whole) bring(current.node); // before anything is changed, when its place is known
        for (const g of all) {
            const {seen, ...more} = since.get(g);
            let names = plain.get(g);
            if (!whole && !(seen <= at)) names += ' hidden';
            for (const name in more)
                if (more[name] <= at) names += ` ${name}`;
            if (current && (g === current.node || g === current.edge)) names += ' now';
            if (g.getAttribute('class') !== names) g.setAttribute('class', names);
        }
        said.textContent = current ? words(current) + (whole ? '. End of the tape' : '') : 'nothing has been computed yet';
    }
    player.attach(place,
        {steps : () => steps.length, show, pace : Math.max(250, Math.min(900, 20000 / steps.length))});
}

document.addEventListener('DOMContentLoaded', () => {
    for (const place of document.querySelectorAll('.tape')) tape(place);
});
})();
