// check.js - gradcheck on a backward that a reader wrote, on a planted bug or on switches: in a worker, so
// that the page stays at hand, or under node.
(function(root) {
'use strict';
const formula = root.formula || require('./formula.js');

// In the language "x[0]" would be an element.
const plainName = (name) => name.replace(/\[(\d+)\]$/, '$1');

// gradcheck on what was written: {error} or {words, report}. computed(): is called at each backward.
function check(gradus, exercise, text, computed = () => {}) {
    let statements, error = '';
    try {
        statements = formula.parse(text);
    } catch (fault) {
        if (!(fault instanceof formula.Fault)) throw fault;
        return {error : fault.message};
    }
    const record = gradus.find(exercise.op).cases.find((c) => c.name === exercise.case);
    const inputs = record.inputs.map((input, i) => ({...input, i, name : plainName(input.name)})).filter((input) => !input.absent);
    const found = gradus.checkFormula(exercise.op, exercise.case, (math) => {
        if (error) return;
        computed();
        const given = {}, wanted = {};
        for (const [name, v] of Object.entries(exercise.numbers || {})) given[name] = {shape : [], values : [ v ]};
        for (const {name, i} of inputs) given[name] = math.tensor('x', i);
        (exercise.outputs || [ 'y' ]).forEach((name, k) => {
            given[name] = math.tensor('y', k);
            given['d' + name] = math.tensor('dy', k);
        });
        const differentiable = inputs.filter((input) => !input.fixed && input.fill !== 4);
        for (const {name} of differentiable) wanted['d' + name] = given[name].shape;
        try {
            const results = formula.run(statements, given, wanted);
            for (const {name, i} of differentiable) math.put(i, results['d' + name].values);
        } catch (fault) {
            if (!(fault instanceof formula.Fault)) throw fault;
            error = fault.message;
        }
    });
    return error ? {error} : found;
}

root.check = check;
if (typeof module !== 'undefined') {
    module.exports = check;
    return;
}

// ---- In the worker ---------------------------------------------------------------------------------

// A question is {exercise, text}, {bug: its number} or {parts: the switches of RMSNorm's backward}; the answer
// is {found}, after some {backwards: how many were computed so far}.
const OFTEN = 50; // milliseconds
let library = null;
root.onmessage = async ({data : {packed, exercise, text, bug, parts}}) => {
    if (packed) {
        library = root.wasi.unpack(packed).then(root.Gradus.load);
        return;
    }
    const gradus = await library;
    let backwards = 0, told = performance.now();
    const computed = () => {
        backwards++;
        if (performance.now() < told + OFTEN) return;
        told = performance.now();
        root.postMessage({backwards});
    };
    root.postMessage({found : exercise ? check(gradus, exercise, text, computed) : parts === undefined ? gradus.breakIt(bug, true) : gradus.switchIt(parts)});
};
})(globalThis);
