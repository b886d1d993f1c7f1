// check.js - gradcheck on a backward that a reader wrote or on a planted bug: in a
// worker, so that the page stays at hand, or under node.
(function(root) {
'use strict';
const formula = root.formula || require('./formula.js');

// In the language "x[0]" would be an element.
const plainName = (name) => name.replace(/\[(\d+)\]$/, '$1');

// ---- What gradcheck has no name for -------------------------------------------------------------

const gates = {lstm : [ 'i', 'f', 'g', 'o' ], gru : [ 'r', 'z', 'n' ]};
const same = (a, b) => a.every((v, i) => Math.abs(v - b[i]) <= 1e-9 * Math.max(1, Math.abs(b[i])));

// In words, why `values` of a gradient are not `right`: as if a small constant were missing, or
// wrong in a part of an axis alone. Or nothing. others: {words: values}.
function cause(op, {shape, values}, right, others) {
    for (const [words, other] of Object.entries(others))
        if (same(values, other) && !same(right, other)) return words;
    const wrong = values.map((v, i) => i).filter((i) => !same([ values[i] ], [ right[i] ]));
    for (let d = shape.length - 1, inner = 1; d >= 0; inner *= shape[d--]) {
        const places = [...new Set(wrong.map((i) => Math.floor(i / inner) % shape[d])) ]
            .sort((a, b) => a - b), part = gates[op] && shape[d] / gates[op].length;
        if (!places.length || places.length === shape[d]) continue;
        if (Number.isInteger(part) && part)
            return `wrong for the gates ${
                [...new Set(places.map((k) => gates[op][Math.floor(k / part)])) ]
                .join(', ')}, right for the others`;
        if (places.length <= shape[d] / 2) return `wrong only where axis ${d} is ${
            places.length > 4 ? `${places[0]} to ${places[places.length - 1]}`
            : places.join(', ')}`;
    }
    const ratios = wrong.map((i) => values[i] / right[i]);
    if (values.every((v) => v === 0)) return 'it is 0 everywhere';
    if (ratios.length > 1 && same(ratios, ratios.map(() => ratios[0])))
        return `${Number(ratios[0].toPrecision(4))} times too large`;
    if (same([ values.reduce((a, b) => a + b, 0) ], [ right.reduce((a, b) => a + b, 0) ]))
        return 'its sum is right, its parts are not';
    return '';
}

// gradcheck on what was written: {error} or {words, report}. computed(): is called at each
// backward.
function check(gradus, exercise, text, computed = () => {}) {
    let program, error = '', told = null; // of the first backward
    const all = exercise.forward ? exercise.inputs
        : gradus.find(exercise.op).cases.find((c) => c.name === exercise.case).inputs;
    const inputs = all.map((input, i) => ({...input, i, name : plainName(input.name)}))
        .filter((input) => !input.absent);
    const forward = (math) => {
        const given = Object.fromEntries(inputs.map(({name, i}) => [name, math.tensor('x', i)]));
        math.put(0, formula.run(exercise.forward, given, {}).loss.values, 'y');
    };
    const backward = (math) => {
        if (error) return;
        computed();
        const given = {}, wanted = {};
        for (const [name, v] of Object.entries(exercise.numbers || {}))
            given[name] = {shape : [], values : [ v ]};
        for (const {name, i} of inputs) given[name] = math.tensor('x', i);
        (exercise.outputs || gradus.find(exercise.op).outputs).forEach((name, k) => {
            given[name] = math.tensor('y', k);
            given['d' + name] = math.tensor('dy', k);
        });
        const differentiable = inputs.filter((input) => !input.fixed && input.fill !== 4);
        for (const {name} of differentiable) wanted['d' + name] = given[name].shape;
        try {
            program = program || formula.translate(text, {given, wanted});
            const results = formula.compute(program, given);
            if (!told) told = {given : {...given}, wanted, results};
            for (const {name, i} of differentiable) math.put(i, results['d' + name].values);
        } catch (fault) {
            if (!(fault instanceof formula.Fault)) throw fault;
            error = fault.message;
        }
    };
    const found = exercise.forward ? gradus.checkWritten(inputs, forward, backward)
        : gradus.checkFormula(exercise.op, exercise.case, backward);
    if (error) return {error};
    for (const input of found.report.verdict === 'PASS' ? [] : found.report.inputs) {
        const name = 'd' + plainName(input.name);
        if (input.verdict === 'PASS' || input.finding || input.behaviour || !told.results[name])
            continue;
        const as = (numbers, program = exercise.answer) => formula.run(program,
            {...told.given, ...numbers}, told.wanted)[name].values;
        const others = told.given.eps
            ? {'as if there were no eps' : as({eps : {shape : [], values : [ 0 ]}})} : {};
        for (const [words, program] of Object.entries(exercise.mistakes || {}))
            others[words] = as({}, program);
        input.finding = cause(exercise.op, told.results[name], as({}), others);
    }
    return found;
}

root.check = check;
if (typeof module !== 'undefined') {
    module.exports = check;
    return;
}

// ---- In the worker ------------------------------------------------------------------------------

// A question is {exercise, text} or {bug: its number}; the answer is {found}, after some {backwards:
// how many were computed so far}.
const OFTEN = 50; // milliseconds
let library = null;
root.onmessage = async ({data : {packed, exercise, text, bug}}) => {
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
    root.postMessage({found : exercise ? check(gradus, exercise, text, computed)
        : gradus.breakIt(bug, true)});
};
})(globalThis);
