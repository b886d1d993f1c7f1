// curves.js - the two curves: the error of a difference has its two sides, and the gradient of the
// deep stack is that of differences of its loss.
//     node curves.js
'use strict';
const assert = require('assert');
const {difference, functions, activations, stack, input, errorPicture, stackPicture} =
    require('../page/curves.js');

const error = (name, type, h) => difference(name, type, h).error;
for (const type of ['float64', 'float32']) {
    const best = type === 'float64' ? 1e-5 : 1e-2;
    for (const far of [best * 30, best / 300]) // truncation, rounding
        assert.ok(error('exp(x) at 1', type, far) > 10 * error('exp(x) at 1', type, best),
            `${type}, ${far}`);
}
// Truncation falls with h^2.
const ratio = error('exp(x) at 1', 'float64', 1e-2) / error('exp(x) at 1', 'float64', 1e-3);
assert.ok(Math.abs(ratio - 100) < 1);
// A large constant costs digits; a kink is felt from its distance on.
assert.ok(error('exp(x) + 1000 at 1', 'float64', 1e-7) > 10 * error('exp(x) at 1',
    'float64', 1e-7));
const kink = Object.keys(functions).find((name) => /kink/.test(name));
assert.ok(error(kink, 'float64', 5e-4) < 1e-9 && error(kink, 'float64', 1e-2) > 0.8);

assert.match(errorPicture(kink, -2).said, /across the kink; .*across the kink/);
assert.match(errorPicture(kink, -6).said, /float64: [^;]*mostly rounding/);

for (const activation of Object.keys(activations))
    for (const residual of [false, true])
        for (const norm of [false, true]) {
            const options = {activation, gain : 1.5, residual, norm},
                {gradient, norms} = stack(options);
            const h = 1e-6, largest = Math.max(...gradient.map(Math.abs));
            gradient.forEach((v, k) => {
                const at = (d) => stack(options, input.map((x, i) => x + (i === k ? d : 0))).loss;
                const off = Math.abs(v - (at(h) - at(-h)) / (2 * h));
                assert.ok(off <= 1e-5 * largest + 1e-8, `${JSON.stringify(options)}: element ${
                    k} is off by ${off}`);
            });
            assert.equal(norms.length, 21);
        }
const first = (options) => stack({gain : 1, residual : false, norm : false, ...options}).norms[0];
assert.ok(first({activation : 'sigmoid'}) < 1e-8, 'a stack of sigmoids vanishes');
assert.ok(first({activation : 'relu', gain : 4}) > 1e3, 'a gain of 4 explodes');
assert.ok(first({activation : 'sigmoid', residual : true}) > 0.1, 'a residual stream keeps it');
for (const [words, options] of [['vanishes', {activation : 'sigmoid', gain : 1}],
    ['explodes', {activation : 'relu', gain : 4}], ['arrives', {activation : 'relu', gain : 1.4}]])
    assert.match(stackPicture({residual : false, norm : false, ...options}).said,
        new RegExp(words));
console.log('the curves are right');
