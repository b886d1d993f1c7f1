// expression.js - an expression of the reader's, "loss = mean((w x + b - y)^2)", as a list of ops for the
// library (study/expression.c), as a program in C that calls it, and as one that stands alone.
(function(root) {
'use strict';
const {Fault, parse, tensorFunctions} = root.formula || require('./formula.js');

const MOST = {text : 1000, ops : 40, axes : 2, elements : 64, size : 1e6}; // size: of a number

// ---- A list of tensors -----------------------------------------------------------------------------

const signs = {'+' : 'add', '-' : 'sub', '*' : 'mul', '/' : 'div', '@' : 'matmul'};
const binary = new Set(Object.values(signs));

// A number or nested lists of numbers, as a tensor, or null where it is neither.
function literal(node) {
    if (node.kind === 'number') return {shape : [], values : [ node.value ]};
    if (node.kind === 'minus' && node.of.kind === 'number') return {shape : [], values : [ -node.of.value ]};
    if (node.kind !== 'list') return null;
    const parts = node.of.map(literal);
    const bad = parts.findIndex((part) => !part || String(part.shape) !== String(parts[0] && parts[0].shape));
    if (bad >= 0) throw new Fault('a list has numbers, or lists of the same length', node.of[bad]);
    return {shape : [ parts.length, ...parts[0].shape ], values : parts.flatMap((part) => part.values)};
}

function checked(tensor, place) {
    if (tensor.shape.length > MOST.axes) throw new Fault(`a tensor here has at most ${MOST.axes} axes`, place);
    if (tensor.values.length > MOST.elements) throw new Fault(`a tensor here has at most ${MOST.elements} elements`, place);
    if (!tensor.values.every((v) => Math.abs(v) <= MOST.size)) throw new Fault(`a number here is at most ${MOST.size}`, place);
    return tensor;
}

// [{name, shape, values, wanted} or {name, op, args, said}], in order; the last is the loss. said: the op with
// the names of what it reads. "const x = 1" is not wanted: it gets no gradient.
function compile(text) {
    if (text.length > MOST.text) throw new Fault(`the text is longer than ${MOST.text} characters`, {line : 1, column : 1});
    const list = [], known = new Map(), constants = new Map();
    const made = (op, args, node) => {
        if (list.filter((one) => one.op).length >= MOST.ops) throw new Fault(`an expression here has at most ${MOST.ops} operations`, node);
        const name = (i) => list[i].name, [a, b] = args.map(name);
        const said = op === 'mul' ? `${a} ${b}` : op === 'neg' ? `-${a}` : binary.has(op) ? `${a} ${Object.keys(signs).find((s) => signs[s] === op)} ${b}` : `${op}(${a})`;
        return list.push({op, args, said, line : node.line, column : node.column}) - 1;
    };
    function value(node) {
        switch (node.kind) {
        case 'number' :
        case 'list' : {
            const constant = checked(literal(node), node), name = node.kind === 'list' ? 'constant' : String(node.value);
            if (!constants.has(name) || node.kind === 'list') constants.set(name, list.push({name, ...constant}) - 1);
            return constants.get(name);
        }
        case 'minus' : return made('neg', [ named(value(node.of)) ], node);
        case 'name' :
            if (!known.has(node.name)) throw new Fault(`${node.name} has no value: a line above gives it one, as in ${node.name} = 0.5`, node);
            return known.get(node.name);
        case 'call' : return call(node);
        case 'binary' : break;
        default : throw new Fault('comparisons have no gradient', node);
        }
        if (node.sign === '^') {
            const n = node.right.value, base = named(value(node.left));
            if (!(n === 2 || n === 3)) throw new Fault('a power here is 2 or 3', node.right);
            const square = made('mul', [ base, base ], node);
            return n === 2 ? square : made('mul', [ named(square), base ], node);
        }
        if (!signs[node.sign]) throw new Fault('comparisons have no gradient', node);
        const a = named(value(node.left));
        return made(signs[node.sign], [ a, named(value(node.right)) ], node);
    }
    function call(node) {
        const {name, args} = node, wanted = name === 'matmul' ? 2 : 1;
        if (!tensorFunctions.has(name)) throw new Fault(`there is no function ${name}; there are ${[...tensorFunctions].join(', ')}`, node);
        if (args.length !== wanted) throw new Fault(`${name} takes ${wanted} argument${wanted > 1 ? 's' : ''}, here are ${args.length}`, node);
        const given = args.map((arg) => named(value(arg)));
        return name === 'square' ? made('mul', [ given[0], given[0] ], node) : made(name, given, node);
    }
    const statements = parse(text, true), own = new Set(statements.map(({name}) => name));
    // What has no name of its own is called t1, t2, ...
    let unnamed = 0;
    const named = (i) => {
        while (!list[i].name || !list[i].own && own.has(list[i].name)) list[i].name = `t${++unnamed}`;
        return i;
    };
    for (const {name, constant, value : node, line, column} of statements) {
        if (known.has(name)) throw new Fault(`${name} has a value already`, {line, column});
        const given = literal(node);
        if (given) list.push({name, own : true, ...checked(given, node), wanted : !constant, line, column});
        const i = given ? list.length - 1 : value(node);
        if (!list[i].name) Object.assign(list[i], {name, own : true});
        known.set(name, i);
    }
    const last = [...known.values() ].pop();
    if (last === undefined || !list[last].op) throw new Fault('the last line computes the loss', {line : text.split('\n').length, column : 1});
    return list.slice(0, last + 1);
}

// As study/expression.c reads it.
const program = (list) => list.map((t) => (t.op ? `${t.op} ${t.args.join(' ')}`
                                                : `leaf ${t.name} ${t.wanted ? 1 : 0} ${[t.shape.length, ...t.shape, ...t.values ].join(' ')}`)).join('\n');

// {id of the tape: the tensor} of what the library has printed.
const names = (list, printed) => Object.fromEntries([...printed.matchAll(/^is (\d+) (n\d+)$/gm) ].map(([ , i, id ]) => [id, list[i]]));

// ---- The library -----------------------------------------------------------------------------------

class Expressions {
    static async load(bytes) {
        const it = new Expressions();
        it.exports = await root.wasi.start(bytes, {print : (text) => { it.out += text; }});
        return it;
    }

    // In a page: the module comes when it is first wanted.
    static here() {
        return Expressions.loading = Expressions.loading || root.wasi.module('expression').then(Expressions.load);
    }

    // What the library prints of a list's tape; its errors are faults of the place.
    run(list) {
        this.out = '';
        new Uint8Array(this.exports.memory.buffer).set(new TextEncoder().encode(program(list) + '\0'), this.exports.expression_text());
        this.exports.expression_run();
        const error = /^error (\d+) (.*)/m.exec(this.out);
        if (error) throw new Fault(error[2], list[error[1]].line ? list[error[1]] : {line : 1, column : 1});
        return this.out;
    }
}

// ---- As C ------------------------------------------------------------------------------------------

const taken = new Set(`auto break case char const continue default do double else enum extern float for goto if inline int long main
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while ctx printf NULL
    bool true false int64_t values`.split(/\s+/));
const number = (v) => (Object.is(v, -0) ? '-0.0' : Number.isInteger(v) ? `${v}.0` : String(v));

// Names that C can have: [name of each tensor], each one once.
function namesIn(list, more = []) {
    const used = new Set([...taken, ...more ]);
    return list.map(({name, op}, i) => {
        let c = /^[A-Za-z]\w*$/.test(name) && (op || name !== 'constant') ? name : `c${i}`;
        if (/^gd_/i.test(c)) c = `of_${c}`;
        while (used.has(c)) c += '_';
        used.add(c);
        return c;
    });
}

function asC(text, list) {
    const names = namesIn(list), all = new Set([ 'sum', 'mean' ]);
    const call = ({op, args}) => {
        const [a, b] = args.map((i) => names[i]);
        if (all.has(op)) return `gd_${op}_all(${a})`;
        if (op === 'logsumexp') return `gd_logsumexp(${a}, NULL, 0, false)`;
        if (op === 'softmax') return `gd_softmax(${a}, -1)`;
        if (op === 'transpose') return `gd_transpose(${a}, 0, 1)`;
        return `gd_${op}(${b ? `${a}, ${b}` : a})`;
    };
    const lines = list.flatMap((t, i) => {
        const define = `    gd_tensor *${names[i]} =`;
        if (t.op) return [ `${define} ${call(t)}; /* ${t.said.replace(/\*\//g, '')} */` ];
        const shape = t.shape.length ? `GD_SHAPE(${t.shape.join(', ')})` : '0, NULL';
        return [ `${define} gd_tensor_from(ctx, GD_FLOAT64, ${shape}, (double[]){${t.values.map(number).join(', ')}});`,
            ...(t.wanted ? [ `    gd_tensor_set_requires_grad(${names[i]}, true);` ] : []) ];
    });
    const prints = list.map((t, i) => (t.wanted ? `    print("${names[i]}", gd_grad(${names[i]}));` : '')).filter(Boolean);
    return `/* cc loss.c $(pkg-config --cflags --libs gradus) */
#include <stdio.h>
#include <stdlib.h>

#include "gradus/gradus.h"

static void print(const char *name, gd_tensor *grad)
{
    double values[${MOST.elements}];
    if (!grad || gd_tensor_read_f64(grad, values, gd_tensor_count(grad))) return;
    printf("d%s", name);
    for (int64_t i = 0; i < gd_tensor_count(grad); i++) printf(" %.9g", values[i]);
    puts("");
}

int main(void)
{
    gd_context *ctx = gd_context_create(NULL);
${lines.join('\n')}
    gd_backward(${names[list.length - 1]});
${prints.join('\n')}
    if (gd_error(ctx)) fprintf(stderr, "%s\\n", gd_error(ctx));
    const int status = gd_error(ctx) ? EXIT_FAILURE : EXIT_SUCCESS;
    gd_context_free(ctx);
    return status;
}
`;
}

// Rows of the table of ops: y, dy/da, dy/db.
const A = 'a->value[k]', B = 'b->value[k]', Y = 'y->value[k]';
const table = {
    add : [ `${A} + ${B}`, '1', '1' ], sub : [ `${A} - ${B}`, '1', '-1' ], mul : [ `${A} * ${B}`, B, A ],
    div : [ `${A} / ${B}`, `1 / ${B}`, `-${Y} / ${B}` ], neg : [ `-${A}`, '-1', '0' ], exp : [ `exp(${A})`, Y, '0' ],
    log : [ `log(${A})`, `1 / ${A}`, '0' ], sqrt : [ `sqrt(${A})`, `0.5 / ${Y}`, '0' ], sin : [ `sin(${A})`, `cos(${A})`, '0' ],
    cos : [ `cos(${A})`, `-sin(${A})`, '0' ], tanh : [ `tanh(${A})`, `1 - ${Y} * ${Y}`, '0' ],
    sigmoid : [ `1 / (1 + exp(-${A}))`, `${Y} * (1 - ${Y})`, '0' ], relu : [ `${A} > 0 ? ${A} : 0`, `${A} > 0`, '0' ],
    abs : [ `fabs(${A})`, `(${A} > 0) - (${A} < 0)`, '0' ]
};
const written = { // those that are not of one element each: forward, backward
    spread : [ `EACH ${Y} = a->value[0];`, 'EACH a->grad[0] += y->grad[k];' ],
    sum : [ `EACH y->value[0] += ${A};`, 'EACH a->grad[k] += y->grad[0];' ],
    mean : [ `EACH y->value[0] += ${A} / N;`, 'EACH a->grad[k] += y->grad[0] / N;' ]
};

// The program of docs/examples/tape_in_100_lines.c (head: what stands above its table) with this expression.
// Throws a Fault where an op is not of single elements.
function asHundred(head, list) {
    const N = Math.max(...list.filter((t) => !t.op).map((t) => t.values.length)), used = new Set(), size = [], lines = [];
    const names = namesIn(list, [ 'tape', 'nodes', 'tensor', 'node', 'op', 'apply', 'backward', 'step_tensors', 'N', 'TENSORS', 'EACH', 'OP', 'k', ...Object.keys(table), ...Object.keys(written), 'exp', 'log' ]);
    const apply = (op, a, b = 'NULL') => (used.add(op), `apply(&${op}_op, ${a}, ${b})`);
    list.forEach((t, i) => {
        if (!t.op) {
            size[i] = t.values.length;
            if (size[i] !== 1 && (size[i] !== N || t.shape.length !== 1)) throw new Fault(`the 100 lines have vectors of one length; ${t.name} is another`, t.line ? t : {line : 1, column : 1});
            lines.push(`    static tensor ${names[i]}_of = {{${(size[i] === 1 ? Array(N).fill(t.values[0]) : t.values).map(number).join(', ')}}, {0}}, *${names[i]} = &${names[i]}_of;`);
            return;
        }
        if (!table[t.op] && !written[t.op]) throw new Fault(`the 100 lines have ops of single elements, sum and mean; ${t.op} is not among them`, t);
        size[i] = written[t.op] ? 1 : Math.max(...t.args.map((a) => size[a]));
        const [a, b] = t.args.map((arg) => (!written[t.op] && size[arg] < size[i] ? apply('spread', names[arg]) : names[arg]));
        lines.push(`    tensor *${names[i]} = ${written[t.op] && size[t.args[0]] === 1 ? a : apply(t.op, a, b)}; /* ${t.said} */`);
    });
    const both = (op, [forward, backward]) => `static void ${op}_op_forward(tensor *y, const tensor *a, const tensor *b)
{
    (void)b;
    ${forward}
}
static void ${op}_op_backward(const tensor *y, tensor *a, tensor *b)
{
    (void)b;
    ${backward}
}
static const op ${op}_op = {"${op}", ${op}_op_forward, ${op}_op_backward};
`;
    const rows = [...used].filter((op) => table[op]).map((op) => `OP(${op}_op, ${table[op].join(', ')})`);
    const more = [...used].filter((op) => written[op]).map((op) => both(op, written[op]));
    const prints = list.map((t, i) => (t.wanted ? `    print("${names[i]}", ${names[i]}, ${size[i]});` : '')).filter(Boolean);
    return `${head.replace(/enum \{ N = \d+, TENSORS = \d+ \};/, `enum { N = ${N}, TENSORS = 256 };`)}/*  y, dy/da, dy/db */
${rows.join('\n')}

${more.join('\n')}
static void print(const char *name, const tensor *t, int count)
{
    printf("d%s", name);
    for (int k = 0; k < count; k++) printf(" %.9g", t->grad[k]);
    puts("");
}

int main(void)
{
${lines.join('\n')}
    backward(${names[list.length - 1]});
${prints.join('\n')}
    return 0;
}
`;
}

root.expression = {compile, names, program, asC, asHundred, Expressions, MOST};
if (typeof module !== 'undefined') module.exports = root.expression;
})(globalThis);
