// steps.js - runs the steps of the lesson on the tape, programs in C, with the reader's numbers.
(function(root) {
'use strict';

// What step `i` (from 0) of the module prints; numbers: {w, x, b}, where they are others. Each run
// has a memory of its own.
async function run(bytes, i, numbers = {}) {
    let text = '';
    const it = await root.wasi.start(bytes, {print : (piece) => { text += piece; }});
    [ 'w', 'x', 'b' ].forEach((name, k) => {
        if (numbers[name])
            new Float64Array(it.memory.buffer, it.step_input(k), 3).set(numbers[name]);
    });
    it[`step_${i + 1}`]();
    return text;
}

if (typeof module !== 'undefined') {
    module.exports = run;
    return;
}

document.addEventListener('DOMContentLoaded', () => {
    for (const place of document.querySelectorAll('.program-step'))
        place.querySelector('[data-act=run]').addEventListener('click', async () => {
            const output = place.querySelector('.output'), numbers = {w : [], x : [], b : []};
            for (const box of place.querySelectorAll('input'))
                numbers[box.name].push(box.value.trim() === '' ? NaN : Number(box.value));
            output.textContent = Object.values(numbers).flat().every(Number.isFinite)
                ? await run(await root.wasi.module('steps'), Number(place.dataset.step), numbers)
                : 'Each box takes a number.';
        });
});
})(globalThis);
