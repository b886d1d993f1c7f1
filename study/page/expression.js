// expression.js - an expression of the reader's, "loss = mean((w x + b - y)^2)", as a list of ops
// for the library (study/expression.c), and as a program in C that calls it.
(function(root) {
'use strict';
const {Fault, translate} = root.formula || require('./formula.js');

// size: of a number
const MOST = {text : 1000, tensors : 64, ops : 40, axes : 2, elements : 64, size : 1e6};

// ---- For the library ----------------------------------------------------------------------------

function compile(text) {
    if (text.length > MOST.text) throw new Fault(`the text is longer than ${MOST.text} characters`,
        {line : 1, column : 1});
    const {list, known} = translate(text, {most : MOST}), last = [...known.values() ].pop();
    if (last === undefined || !list[last].op) throw new Fault('the last line computes the loss',
        {line : text.split('\n').length, column : 1});
    return list.slice(0, last + 1);
}

// As study/expression.c reads it.
const program = (list) => list.map((t) => (t.op ? [t.op, ...t.args, ...t.more ].join(' ')
                                                : `leaf ${t.name} ${t.wanted ? 1 : 0} ${
                                                    [t.shape.length, ...t.shape, ...t.values ]
                                                    .join(' ')}`)).join('\n');

// {id of the tape: the tensor} of what the library has printed.
const names = (list, printed) => Object.fromEntries([...printed.matchAll(/^is (\d+) (n\d+)$/gm) ]
    .map(([ , i, id ]) => [id, list[i]]));

class Expressions {
    static async load(bytes) {
        const it = new Expressions();
        it.exports = await root.wasi.start(bytes, {print : (text) => { it.out += text; }});
        return it;
    }

    // In a page: the module comes when it is first wanted.
    static here() {
        return Expressions.loading = Expressions.loading || root.wasi.module('expression')
            .then(Expressions.load);
    }

    // What the library prints of a list's tape; its errors are faults of the place.
    run(list) {
        this.out = '';
        new Uint8Array(this.exports.memory.buffer)
            .set(new TextEncoder().encode(program(list) + '\0'), this.exports.expression_text());
        this.exports.expression_run();
        const error = /^error (\d+) (.*)/m.exec(this.out);
        if (error) throw new Fault(error[2], list[error[1]].line ? list[error[1]]
            : {line : 1, column : 1});
        return this.out;
    }
}

// ---- As C ---------------------------------------------------------------------------------------

// What C, its headers and the program below have in the place where the tensors are defined.
const taken = new Set(`
    alignas alignof alloca asm auto bool break case char const constexpr continue default do
    double else enum extern false float for goto if inline int linux long main math_errhandling
    nullptr register restrict return short signed sizeof static static_assert stderr stdin
    stdout struct switch thread_local true typedef typeof typeof_unqual union unix unsigned void
    volatile while ctx fprintf int64_t print status`.trim().split(/\s+/));
const number = (v) => (Object.is(v, -0) ? '-0.0' : Number.isInteger(v) ? `${v}.0` : String(v));

// Names that C can have: [name of each tensor], each one once.
function namesIn(list) {
    const used = new Set(taken);
    return list.map(({name, op}, i) => {
        let c = /^[A-Za-z]\w*$/.test(name) && (op || name !== 'constant') ? name : `c${i}`;
        if (/^gd_/i.test(c)) c = `of_${c}`;
        if (/^[A-Z]([A-Z]+\d*$|[A-Z\d]*_)/.test(c)) c = `${c}_`; // as macros are named
        while (used.has(c)) c += '_';
        used.add(c);
        return c;
    });
}

function asC(text, list) {
    const names = namesIn(list);
    const call = ({op, args, more}) => {
        const list = more.join(', '), axes = list ? `(int[]){${list}}, 1, false` : 'NULL, 0, false';
        const rest = {sum : axes, mean : axes, max : axes, logsumexp : axes, softmax : '-1',
            permute : `(int[]){${list}}`, reshape : `GD_SHAPE(${list})`};
        const read = args.map((i) => names[i]);
        if (op === 'where') read[0] = `gd_cast(${read[0]}, GD_INT32)`;
        return `gd_${op}(${[...read, rest[op] || list ].filter(Boolean).join(', ')})`;
    };
    const lines = list.flatMap((t, i) => {
        const define = `    gd_tensor *${names[i]} =`;
        if (t.op) return [ `${define} ${call(t)}; /* ${t.said.replace(/\*\//g, '')} */` ];
        const shape = t.shape.length ? `GD_SHAPE(${t.shape.join(', ')})` : '0, NULL';
        return [ `${define} gd_tensor_from(ctx, GD_FLOAT64, ${shape}, (double[]){${
            t.values.map(number).join(', ')}});`,
            ...(t.wanted ? [ `    gd_tensor_set_requires_grad(${names[i]}, true);` ] : []) ];
    });
    const prints = list.map((t, i) => (t.wanted ? `    print("${names[i]}", gd_grad(${names[i]}));`
        : '')).filter(Boolean);
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

root.expression = {compile, names, asC, Expressions, MOST};
if (typeof module !== 'undefined') module.exports = root.expression;
})(globalThis);
