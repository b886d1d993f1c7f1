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

    // What a step says; before: the steps before it.
    function words({node, edge, backward, last}, before) {
        if (!backward) {
            const value = values[node.dataset.id];
            return `forward: ${name(node)}${value ? ` = ${value}` : ''}`;
        }
        if (!edge) return `backward: ${name(node)}`;
        const to = target(edge), from = source(edge), bytes = last ? saved(node) : 0;
        const earlier = before.filter((s) => s.edge && target(s.edge) === to).length;
        let text = `backward: ${name(node)} sends d${name(to).replace(/^#\d+ /, '')} ${parts[from] || ''}`;
        if (earlier && totals[from])
            text += `, arrival ${earlier + 1}: added to what was there it is ${totals[from]}`;
        if (bytes) text += `; the ${bytes} bytes it had saved are freed`;
        return text;
    }

    // Scrolls the picture, not the page.
    function bring(node) {
        const frame = svg.parentElement, outer = frame.getBoundingClientRect();
        const inner = node.getBoundingClientRect();
        if (inner.top < outer.top || inner.bottom > outer.bottom)
            frame.scrollTop += inner.top - outer.top - outer.height / 2;
        if (inner.left < outer.left || inner.right > outer.right)
            frame.scrollLeft += inner.left - outer.left - outer.width / 2;
    }

    function show(at) {
        for (const g of all) {
            g.classList.remove('alive', 'freed', 'reached', 'now');
            g.classList.toggle('hidden', at < steps.length || !steps.length);
        }
        const done = steps.slice(0, at), current = steps[at - 1];
        for (const step of done) {
            if (!step.backward) {
                step.node.classList.remove('hidden');
                step.node.classList.add('alive');
                for (const edge of into(step.node)) {
                    edge.classList.remove('hidden');
                    by(edge.dataset.id.replace(/_n\d+_\d+$/, ''))?.classList.remove('hidden');
                }
            }
            if (step.edge) {
                step.edge.classList.remove('hidden');
                target(step.edge)?.classList.add('reached');
            }
            if (step.last) step.node.classList.add('freed');
        }
        current?.node.classList.add('now');
        current?.edge?.classList.add('now');
        if (current && at < steps.length) bring(current.node);
        said.textContent = !current ? 'nothing has been computed yet'
                                    : words(current, done.slice(0, -1)) +
                                          (at === steps.length ? '. End of the tape' : '');
    }
    player.attach(place,
        {steps : () => steps.length, show, pace : Math.max(250, Math.min(900, 20000 / steps.length))});
}

document.addEventListener('DOMContentLoaded', () => {
    for (const place of document.querySelectorAll('.tape')) tape(place);
});
})();
