// tape.js - puts a tape in motion: values forward, gradients back, memory freed. The ids are those
// of gd_tape_print_dot: n4 a node, t4_1 the leaf at its input 1, t4_1_n4_1 the arrow of the value
// into it, n4_1_t4_1 that of the gradient out of it.
'use strict';
(function() {
function tape(place) {
    const svg = place.querySelector('svg'), said = place.querySelector('.said');
    const all = [...svg.querySelectorAll('g.node, g.edge') ];
    const nodes = all.filter((g) => /^n\d+$/.test(g.dataset.id))
                      .sort((a, b) => a.dataset.id.slice(1) - b.dataset.id.slice(1));
    const into = (node) =>
        all.filter((g) => g.classList.contains('edge') &&
                          new RegExp(`_${node.dataset.id}_\\d+$`).test(g.dataset.id));
    const back = (node) =>
        all.filter((g) => new RegExp(`^${node.dataset.id}_\\d+_[nt]\\d`).test(g.dataset.id) &&
                          g.classList.contains('edge'));
    const by = (id) => svg.querySelector(`[data-id="${id}"]`);
    const name = (g) => g.querySelector('text').textContent;
    const values = JSON.parse(place.dataset.values), gradients = JSON.parse(place.dataset.gradients);
    for (const g of all.filter((each) => each.classList.contains('node'))) {
        const title = document.createElementNS('http://www.w3.org/2000/svg', 'title');
        const {id} = g.dataset;
        title.textContent = [ values[id] && `value ${values[id]}`, gradients[id] && `gradient ${
                                gradients[id]}` ].filter(Boolean).join('\n');
        g.append(title);
    }
    const steps = [];

    for (const node of nodes) {
        steps.push(() => {
            for (const edge of into(node)) {
                edge.classList.remove('hidden');
                by(edge.dataset.id.replace(/_n\d+_\d+$/, ''))?.classList.remove('hidden');
            }
            node.classList.remove('hidden');
            node.classList.add('alive');
            said.textContent = `forward: ${name(node)}${
                values[node.dataset.id] ? ` = ${values[node.dataset.id]}` : ''}`;
        });
    }
    for (const node of [...nodes].reverse()) {
        steps.push(() => {
            const edges = back(node), arrived = [];
            for (const edge of edges) {
                edge.classList.remove('hidden');
                const to = by(edge.dataset.id.replace(/^n\d+_\d+_/, ''));
                to?.classList.add('reached');
                if (to && gradients[to.dataset.id])
                    arrived.push(`d${name(to)} = ${gradients[to.dataset.id]}`);
            }
            node.classList.add('freed');
            said.textContent = edges.length ? `backward: ${name(node)}, whose gradients go to ${
                                                  edges.length} of its inputs${
                                                  arrived.length ? ` (${arrived.join('; ')})` : ''
                                              }; its saved tensors are freed`
                                            : `backward: ${name(node)}`;
        });
    }

    let at = steps.length, timer = 0;
    function begin() {
        for (const g of all) {
            g.classList.remove('alive', 'freed', 'reached');
            g.classList.add('hidden');
        }
        at = 0;
    }
    function step() {
        if (at >= steps.length) begin();
        steps[at++]();
        if (at < steps.length) return;
        clearInterval(timer);
        timer = 0;
        said.textContent += '. End of the tape';
    }
    place.querySelector('[data-act=step]').addEventListener('click', step);
    place.querySelector('[data-act=play]').addEventListener('click', () => {
        clearInterval(timer);
        if (timer) {
            timer = 0;
            return;
        }
        begin();
        timer = setInterval(step, Math.max(120, Math.min(700, 12000 / steps.length)));
    });
}

document.addEventListener('DOMContentLoaded', () => {
    for (const place of document.querySelectorAll('.tape')) tape(place);
});
})();
