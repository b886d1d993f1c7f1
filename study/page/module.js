// module.js - the library, as WebAssembly, for the page and for node.
(function(root) {
'use strict';

class Gradus {
    // bytes: of study_ops.wasm, or of study.wasm, which also has gradcheck and the planted bugs
    static async load(bytes) {
        const it = new Gradus();
        it.out = '';
        it.exports = await root.wasi.start(bytes, {
            print : (text) => { it.out += text; },
            page : {backward : () => it.backward(it.math()), forward : () => it.forward(it.math())}
        });
        return it;
    }

    take() {
        const text = this.out;
        this.out = '';
        return text;
    }

    json(call) {
        call();
        return JSON.parse(this.take());
    }

    // The records of all ops: [{name, formula, outputs, backward, cases}]. outputs: their names, of "x[N] -> y[N]; rstd".
    ops() {
        const named = (op) => ({...op, outputs : op.signature.replace(/\[.*?\]|:\w+/g, '').match(/-> ([^;]*)/)[1].trim().split(/ +/)});
        this.known = this.known || this.json(() => this.exports.study_ops()).map(named);
        return this.known;
    }

    find(op) { return this.ops().find((record) => record.name === op); }

    // Forward and backward of an op on a case with inputs of one's own:
    // {op, case, shapes: {name: shape}, inputs: {name: values}, cotangents: [values]} to
    // {outputs, saves, gradients, error}, each tensor {shape, values}.
    run(request) {
        this.open(request);
        return this.json(() => this.exports.study_run());
    }

    // The same by the op's plain twin, if it has one: {.., twin: whether, steps: {name: values}},
    // the values that the C code hands out (GD_STEP), those of the backward, or of the forward if
    // it alone has them. Of study_ops.wasm.
    derive(request) {
        this.open(request);
        const result = this.json(() => this.exports.study_derive()), passes = [ {}, {} ];
        for (const [name, backwards, value] of result.steps)
            (passes[backwards][name] = passes[backwards][name] || []).push(value === '-inf'
                ? -Infinity : value);
        return {...result, steps : {...passes[0], ...passes[1]}};
    }

    open({op, case: name, shapes = {}, inputs, cotangents}) {
        const x = this.exports, memory = x.memory;
        new Uint8Array(memory.buffer).set(new TextEncoder().encode(op + '\0'), x.study_text());
        const cases = this.find(op).cases;
        const index = Math.max(0, cases.findIndex((c) => c.name === name));
        x.study_open(index);
        cases[index].inputs.forEach((input, i) => {
            if (input.absent) return;
            const shape = shapes[input.name];
            if (shape) x.study_shape(i, shape.length, ...shape, ...Array(4 - shape.length).fill(0));
            const at = x.study_input(i);
            new Float64Array(memory.buffer, at, inputs[input.name].length).set(inputs[input.name]);
        });
        (cotangents || []).forEach((values, k) => {
            const at = x.study_cotangent(k, values.length);
            new Float64Array(memory.buffer, at, values.length).set(values);
        });
    }

    bugs() {
        this.planted = this.planted || this.json(() => this.exports.study_bugs());
        return this.planted;
    }

    // gradcheck on a planted bug: {words, report, grids}.
    breakIt(index, grids) {
        return this.found(() => this.exports.study_break(index, grids ? 1 : 0));
    }

    // gradcheck on a backward of the page's: compute(math) is called for each, where
    // math.tensor('x' | 'y' | 'dy', i) is {shape, values}, and math.put(i, values) sets a gradient.
    checkFormula(op, name, compute) {
        const x = this.exports;
        new Uint8Array(x.memory.buffer).set(new TextEncoder().encode(op + '\0'), x.study_text());
        this.backward = compute;
        return this.found(() => x
            .study_formula(this.find(op).cases.findIndex((c) => c.name === name)));
    }

    // The same on a loss that the page computes as well; inputs: [{name, shape, fixed}], of one axis
    // at most.
    checkWritten(inputs, forward, backward) {
        const x = this.exports;
        const sizes = inputs.map(({name, shape}) => `${name}[${shape}]`).join(' ');
        new Uint8Array(x.memory.buffer).set(new TextEncoder().encode(`${sizes} -> loss[]\0`),
            x.study_text());
        inputs.forEach(({shape, fixed}, i) => x.study_written_input(i, fixed, shape.length,
            shape[0] || 0));
        Object.assign(this, {forward, backward});
        return this.found(() => x.study_written(inputs.length));
    }

    math() {
        const x = this.exports, letter = (kind) => kind.charCodeAt(0);
        const shape = (kind, i) => Array.from(
            {length : x.study_part_axes(letter(kind), i)},
            (_, d) => x.study_part_size(letter(kind), i, d));
        const view = (kind, i, sizes) => new Float64Array(
            x.memory.buffer, x.study_part(letter(kind), i), sizes.reduce((a, b) => a * b, 1));
        return {
            tensor(kind, i) { // a cotangent that is not there is zeros
                const sizes = shape(kind, i), there = x.study_part(letter(kind), i);
                return {shape : sizes, values : there ? Array.from(view(kind, i, sizes))
                    : Array(sizes.reduce((a, b) => a * b, 1)).fill(0)};
            },
            put : (i, values, kind = 'g') => view(kind, i, shape(kind, i)).set(values)
        };
    }

    found(call) {
        call();
        const text = this.take(), at = text.lastIndexOf('\n{"report":');
        return {words : text.slice(0, at).trim(), ...JSON.parse(text.slice(at))};
    }
}

// In a page: the module is two thirds of what a page loads, and comes when the first example is
// opened.
Gradus.here = () => (Gradus.loading = Gradus.loading || root.wasi.module('ops').then(Gradus.load));

root.Gradus = Gradus;
if (typeof module !== 'undefined') module.exports = Gradus;
})(globalThis);
