// formula.js - the language of every box: one tensor a line, "loss = mean((w x - y)^2)" of whole
// tensors, or "h[i, k] = dy[i, k] * w[k];" of elements. The indices on the left run over all
// elements; sum(j, ..), mean(j, ..) and max(j, ..) run over one more. What a C programmer writes is
// understood as well: h[i][k], += (over the indices that the left side lacks), 3.0f, expf(x),
// double h[i][k] = ..; and comments. Here it is parsed, and computed within a number of steps;
// nothing is evaluated as JavaScript. expression.js makes a tape of it.
(function(root) {
'use strict';

const STEPS = 4e6;    // of one run; a step is one operation on two numbers
const LENGTH = 4000;  // of a text, so that what is nested in it is bounded, too

class Fault extends Error {
    constructor(message, {line, column}) {
        super(`line ${line}, column ${column}: ${message}`);
        this.line = line;
        this.column = column;
    }
}

// By the series whose terms are all positive; |x| beyond 6 is 1 to the last bit.
function erf(x) {
    if (!(Math.abs(x) < 6)) return x === x ? Math.sign(x) : x;
    let term = x, total = 0;
    for (let n = 1; total + term !== total; n++) {
        total += term;
        term *= 2 * x * x / (2 * n + 1);
    }
    return 2 / Math.sqrt(Math.PI) * Math.exp(-x * x) * total;
}

// Of each element.
const functions = {
    abs : Math.abs,
    cos : Math.cos,
    erf,
    exp : Math.exp,
    floor : Math.floor,
    log : Math.log,
    pow : (a, b) => a ** b,
    relu : (x) => (x > 0 ? x : 0),
    sigmoid : (x) => 1 / (1 + Math.exp(-x)),
    sign : Math.sign,
    sin : Math.sin,
    sqrt : Math.sqrt,
    square : (x) => x * x,
    tanh : Math.tanh
};
const folds = {
    sum : [ 0, (a, b) => a + b ],
    mean : [ 0, (a, b) => a + b ],
    max : [ -Infinity, Math.max ]
};
// Of whole tensors. A fold takes a tensor, or an index and what is added up.
const whole = [ 'logsumexp', 'matmul', 'softmax', 'transpose' ];
const names = [...Object.keys(functions), ...Object.keys(folds), ...whole ].sort();
// The function of a name, which in C may be expf or fabsf.
const functionOf = (name) => [name, name.replace(/f$/, ''), name.replace(/^fabsf?$/, 'abs') ]
    .find((each) => names.includes(each));

// ---- Words --------------------------------------------------------------------------------------

// In C each of these is a word that no tensor needs.
const types = new Set([ 'const', 'double', 'float', 'int', 'real', 'REAL', 'size_t', 'static' ]);

// Space, a comment, a number with C's suffix, a name, a sign, or any other character, which may be
// two units.
const word = [
    /\s+|\/\/.*/, /((?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)([fl](?!\w))?/, /([A-Za-z_]\w*)/,
    /(<=|>=|==|!=|[-+*\/]=|[-+*\/()\[\],?:<>=;{}^@])/, /([\ud800-\udbff][\udc00-\udfff]|.)/
].map(({source}) => source).join('|');

function tokens(text) {
    text = text.replace(/\/\*[^]*?(\*\/|$)/g, (comment) => comment.replace(/[^\n]/gu, ' '));
    if (text.length > LENGTH) throw new Fault(`the text is longer than ${LENGTH} characters`,
        {line : 1, column : 1});
    const list = [];
    text.split('\n').forEach((source, i) => {
        const rule = new RegExp(word, 'giy');
        for (let found; (found = rule.exec(source)) && found[0];) {
            const [, number, suffix, name, sign, strange ] = found,
                at = {line : i + 1, column : found.index + 1};
            if (strange) throw new Fault(`"${strange}" has no meaning here`, at);
            // 2.0f is C's; 2f is not, but a product with f
            const inC = suffix && /[.e]/i.test(number);
            if (suffix && !inC) rule.lastIndex--;
            const text = inC ? number + suffix : number || name || sign,
                kind = number ? 'number' : name ? 'name' : 'sign';
            if (text) list.push({kind, text, end : at.column + text.length, ...at});
        }
        list.push({kind : 'end', text : 'the end of the line', line : i + 1,
            column : source.length + 1});
    });
    return list;
}

// ---- Sentences ----------------------------------------------------------------------------------
// Statements [{name, constant, indices, value}], each node with the place where it stands.

const found = (token) => (token.kind === 'end' ? token.text : `"${token.text}"`);

// Indices of a node that no fold inside it runs over and that are not in `known`.
function open(node, known, list = new Set()) {
    if (!node || typeof node !== 'object') return list;
    const inside = node.kind === 'fold' ? new Set([...known, node.index ]) : known;
    for (const index of node.indices || [])
        if (index.kind === 'name' && !index.indices && !known.has(index.name)) list.add(index.name);
    for (const child of children(node)) open(child, inside, list);
    return list;
}

const children = (node) => [node.left, node.right, node.of, node.condition, node.yes, node.no,
    ...node.args || [], ...node.indices || []];

// given: names that have a value before the first line.
function parse(text, given = []) {
    const list = tokens(text), statements = [], known = new Set(given);
    let at = 0, depth = 0;
    const peek = () => list[at], is = (text) => peek().kind === 'sign' && peek().text === text;
    // Whether the next word follows without a space.
    const joined = () => at && list[at - 1].line === peek().line &&
        list[at - 1].end === peek().column;
    const expect = (text) => {
        if (!is(text)) throw new Fault(`expected "${text}", found ${found(peek())}`, peek());
        return list[at++];
    };
    // A line that ends inside brackets goes on in the next.
    const ends = () => {
        while (depth && peek().kind === 'end' && at + 1 < list.length) at++;
    };
    const binary = (signs, next) => () => {
        let left = next();
        for (ends(); peek().kind === 'sign' && signs.includes(peek().text); ends()) {
            const sign = list[at++];
            left = {kind : 'binary', sign : sign.text, left, right : next(), line : sign.line,
                column : sign.column};
        }
        return left;
    };
    const inside = (open, close, parse_one) => {
        expect(open);
        depth++;
        if (depth > 40) throw new Fault('brackets are nested too deeply', peek());
        const all = [];
        do all.push(parse_one(all.length));
        while (ends(), is(',') && list[at++]);
        depth--;
        expect(close);
        return all;
    };
    function call(token, place) {
        const args = inside('(', ')', expression), name = functionOf(token.text);
        if (folds[name] && args.length === 2) {
            if (args[0].kind !== 'name' || args[0].indices)
                throw new Fault(`${name} takes a tensor, as in ${
                    name}(x), or an index and an expression, as in ${name}(j, x[j])`, place);
            return {kind : 'fold', name, index : args[0].name, of : args[1], ...place};
        }
        const wanted = name === 'matmul' ? 2 : functions[name]?.length || 1;
        if (args.length !== wanted)
            throw new Fault(`${name} takes ${wanted} argument${
                wanted > 1 ? 's' : ''}, here are ${args.length}`, place);
        return {kind : 'call', name, args, ...place};
    }
    function primary() {
        ends();
        const token = list[at++], place = {line : token.line, column : token.column};
        if (token.kind === 'number') {
            // of 2e-1 e, of 2e3 e3, of 2.0f f
            const value = parseFloat(token.text);
            const name = token.text.replace(/^[\d.]+/, '').split(/[-+]/)[0];
            if (known.has(name))
                throw new Fault(`${token.text} is a number, or a product with ${
                    name}: write a space before the ${name}, or ${value}`, place);
            return {kind : 'number', value, ...place};
        }
        if (token.kind === 'sign' && /^[-+]$/.test(token.text)) {
            let negative = token.text === '-';
            // thousands of them need no stack
            for (; is('-') || is('+'); at++) negative = negative !== is('-');
            const of = power();
            return negative ? {kind : 'minus', of, ...place} : of;
        }
        if (token.kind === 'sign' && token.text === '(') {
            at--;
            const all = inside('(', ')', expression);
            if (all.length > 1) throw new Fault('one expression is wanted in brackets', place);
            return all[0];
        }
        if (token.kind === 'sign' && token.text === '[') {
            at--;
            return {kind : 'list', of : inside('[', ']', expression), ...place};
        }
        if (token.kind !== 'name')
            throw new Fault(`expected a number or a name, found ${found(token)}`, place);
        if (is('(') && functionOf(token.text)) return call(token, place);
        let indices;
        // x[i][k] as x[i, k]; after a space a bracket is a list
        while (is('[') && joined())
            indices = [...indices || [], ...inside('[', ']', expression)];
        return {kind : 'name', name : token.text, indices, called : is('('), ...place};
    }
    function power() {
        const base = primary();
        if (is('[') && joined())
            throw new Fault('a name alone takes an index: give this one in a line of its own; a ' +
                'product with a list has a space before the list', peek());
        if (!is('^')) return base;
        const sign = list[at++];
        return {kind : 'binary', sign : '^', left : base, right : power(), line : sign.line,
            column : sign.column};
    }
    const times = binary([ '*', '/', '@' ], power);
    // "w x": names, numbers and brackets that stand side by side are a product.
    function product() {
        let left = times();
        while (peek().kind === 'name' || peek().kind === 'number' || is('(') || is('[')) {
            const {line, column, kind, text} = peek(), before = list[at - 1];
            if (kind === 'number' && (before.kind === 'number' || text[0] === '.' && joined()))
                throw new Fault(`a sign or a comma is missing between ${found(before)} and ${
                    found(peek())}`, peek());
            left = {kind : 'binary', sign : '*', left, right : times(), line, column};
        }
        return left;
    }
    const total = binary([ '+', '-' ], product);
    const compared = binary([ '<', '>', '<=', '>=', '==', '!=' ], total);
    function expression() {
        const condition = compared();
        ends();
        if (!is('?')) return condition;
        const {line, column} = list[at++], yes = expression();
        ends();
        expect(':');
        return {kind : 'choice', condition, yes, no : expression(), line, column};
    }
    function statement() {
        const first = at;
        while (peek().kind === 'name' && types.has(peek().text) && list[at + 1].kind === 'name')
            at++;
        const constant = list.slice(first, at).some(({text}) => text === 'const');
        if (peek().kind === 'name' && /^(for|while|if)$/.test(peek().text) || is('{') || is('}'))
            throw new Fault('a line is one formula, for all of its indices at once: loops and ' +
                'braces are not needed', peek());
        const target = power();
        if (target.kind !== 'name')
            throw new Fault('a line begins with the tensor that it defines', target);
        const indices = (target.indices || []).map((index) => {
            if (index.kind !== 'name' || index.indices)
                throw new Fault('on the left an index is a name', index);
            return index.name;
        });
        const sign = peek(), place = {line : target.line, column : target.column};
        if (is('+=') || is('-=')) at++;
        else expect('=');
        let value = expression();
        if (sign.text !== '=') { // adds up over what the left side has not, and to what was there
            for (const index of open(value, new Set([...indices, ...known ])))
                value = {kind : 'fold', name : 'sum', index, of : value, ...place};
            const same = statements.findIndex(({name}) => name === target.name),
                before = statements[same];
            // "s[i] = 0;", whose range comes with what is added
            const begun = before && before.value.kind === 'number';
            if (begun) statements.splice(same, 1);
            if (before && (!begun || before.value.value))
                value = {kind : 'binary', sign : sign.text[0], left : begun ? before.value : target,
                    right : value, ...place};
            else if (sign.text === '-=')
                value = {kind : 'minus', of : value, ...place};
        }
        known.add(target.name);
        statements.push({name : target.name, constant, adds : sign.text !== '=', indices, value,
            ...place});
    }
    while (at < list.length) {
        if (peek().kind === 'end' || is(';')) {
            at++;
            continue;
        }
        statement();
        if (!is(';') && peek().kind !== 'end')
            throw new Fault(`expected the end of the line${
                peek().kind === 'name' ? ' or ";"' : ''}, found ${found(peek())}`, peek());
    }
    return statements;
}

// ---- As a list of ops ---------------------------------------------------------------------------
// The one translation of the language: for the library's tape (expression.js) and for compute().

// Where an index is used as one, its range is that of the axis; `found` has those that the wanted
// gradient gives. {index: size}
function ranges(node, tensors, found, fixed = new Set(Object.keys(found))) {
    if (!node || typeof node !== 'object') return found;
    if (node.kind === 'name' && node.indices) {
        const t = tensors[node.name];
        node.indices.forEach((index, d) => {
            if (index.kind !== 'name' || index.indices || !t || t.shape[d] === undefined) return;
            // a place outside of a shorter axis is an error where it is read
            if (fixed.has(index.name)) return;
            if (found[index.name] !== undefined && found[index.name] !== t.shape[d])
                throw new Fault(`${index.name} runs over ${found[index.name]} elsewhere, but axis ${
                    d} of ${node.name} has ${t.shape[d]}`, index);
            found[index.name] = t.shape[d];
        });
    }
    for (const child of children(node))
        ranges(child, tensors, found, fixed);
    return found;
}

// A number or nested lists of numbers, as a tensor, or null where it is neither.
function literal(node) {
    if (node.kind === 'number') return {shape : [], values : [ node.value ]};
    if (node.kind === 'minus' && node.of.kind === 'number')
        return {shape : [], values : [ -node.of.value ]};
    if (node.kind !== 'list') return null;
    const parts = node.of.map(literal);
    const bad = parts.findIndex((part) => !part || String(part.shape) !== String(parts[0] &&
        parts[0].shape));
    if (bad >= 0) throw new Fault('a list has numbers, or lists of the same length; an index ' +
        'stands close to its name, as in x[i]', node.of[bad]);
    return {shape : [ parts.length, ...parts[0].shape ],
        values : parts.flatMap((part) => part.values)};
}

const signs = {'+' : 'add', '-' : 'sub', '*' : 'mul', '/' : 'div', '@' : 'matmul'};
const sizeOf = (shape) => shape.reduce((a, b) => a * b, 1);
const shown = (shape) => `[${shape.join(', ')}]`;

// The shape of what an op of these shapes makes. Whether they fit is found where it is run.
function shapeOf(op, shapes, more) {
    const [a, b] = shapes;
    if (op === 'reshape') return more;
    if (op === 'permute') return more.map((d) => a[d]);
    if (op === 'slice') return a.map((n, d) => (d === more[0] ? more[2] - more[1] : n));
    if (op === 'matmul') return [...a.slice(0, -1), ...b.slice(1) ];
    if (folds[op] || op === 'logsumexp') return more.length ? a.filter((_, d) => d !== more[0]) : [];
    if (op === 'take') return shapeOf('add', shapes.slice(1));
    const axes = Math.max(...shapes.map(({length}) => length));
    return Array.from({length : axes}, (_, d) => shapes
        .map((s) => s[d - axes + s.length] ?? 1).reduce((m, n) => (m === 1 ? n : m)));
}

function asManyAs(name, shape, indices, node) {
    if (indices.length !== shape.length) throw new Fault(`${name} has ${shape.length} ${
        shape.length === 1 ? 'axis' : 'axes'}, here are ${indices.length} indices`, node);
}

// {list, known}: [{name, shape, values, wanted} or {name, op, args, more, shape, said}] in order,
// and the number in it of each name. more: numbers that an op takes besides; said: the op with the
// names of what it reads. "const x = 1" is not wanted: it gets no gradient. given: {name: {shape}},
// the first of the list; wanted: {name: shape} of what the text must define; most: limits.
function translate(text, {given = {}, wanted = {}, most = {}} = {}) {
    const list = [], known = new Map(), constants = new Map();
    const add = (tensor, node) => {
        if (list.length >= most.tensors)
            throw new Fault(`an expression here has at most ${
                most.tensors} tensors, with numbers and what is between`, node);
        return list.push(tensor) - 1;
    };
    const checked = (tensor, place) => {
        if (tensor.shape.length > most.axes)
            throw new Fault(`a tensor here has at most ${most.axes} axes`, place);
        if (tensor.values.length > most.elements)
            throw new Fault(`a tensor here has at most ${most.elements} elements`, place);
        if (tensor.values.some((v) => Math.abs(v) > most.size))
            throw new Fault(`a number here is at most ${most.size}`, place);
        return tensor;
    };
    const made = (op, args, node, more = []) => {
        if (list.filter((one) => one.op).length >= most.ops)
            throw new Fault(`an expression here has at most ${most.ops} operations`, node);
        const [a, b, c] = args.map((i) => list[named(i)].name);
        const sign = Object.keys(signs).find((sign) => signs[sign] === op);
        const said = op === 'mul' ? `${a} ${b}` : op === 'neg' ? `-${a}` : op === 'where'
            ? `${a} ? ${b} : ${c}` : sign ? `${a} ${sign} ${b}` : `${op}(${
            [a, ...more ].join(', ')})`;
        const shape = shapeOf(op, args.map((i) => list[i].shape), more);
        return add({op, args, more, shape, said, line : node.line, column : node.column}, node);
    };
    const constant = (name, tensor, node) => {
        const key = `${name} ${tensor.shape} ${tensor.values}`;
        if (!constants.has(key)) constants.set(key, add({name, ...checked(tensor, node)}, node));
        return constants.get(key);
    };

    // A value is {at, of}: its number in the list, and the indices of its axes, or null where it is
    // whole. sizes: of the statement's indices.
    let sizes;
    const scalar = (at) => ({at, of : list[at].shape.length ? null : []});
    // With the axes of `to`, in that order; those that it lacks have size 1.
    function aligned({at, of}, to, node) {
        const own = to.filter((index) => of.includes(index)), rest = to.slice(to.indexOf(own[0]));
        if (String(own) !== String(of))
            at = made('permute', [ at ], node, own.map((index) => of.indexOf(index)));
        // axes before the first one need no place
        return !own.length || rest.length === own.length ? at : made('reshape', [ at ], node,
            rest.map((index) => (of.includes(index) ? sizes[index] : 1)));
    }
    // An op of elements.
    function each(op, values, node, more) {
        const indexed = values.filter(({of}) => of && of.length);
        if (indexed.length && values.some(({of}) => !of))
            throw new Fault('in a line with indices a tensor has its own, as in x[i]', node);
        const first = indexed.reduce((a, b) => (b.of.length > a.of.length ? b : a), values[0]);
        const to = indexed.length ? [...new Set([...first.of, ...values.flatMap(({of}) => of) ]) ]
            : null;
        const at = made(op, values.map((v) => (to ? aligned(v, to, node) : v.at)), node, more);
        return to ? {at, of : to} : scalar(at);
    }
    const number = (v, node) => scalar(constant(String(v), {shape : [], values : [ v ]}, node));
    // 1 or 0, without a slope: by the sign of what a is above b, or of how far it is from b. A row
    // says whether they change places, and whether its result is turned round.
    const comparisons = {'>' : [ 'relu' ], '<' : [ 'relu', true ], '!=' : [ 'abs' ],
        '<=' : [ 'relu', false, true ], '>=' : [ 'relu', true, true ], '==' : [ 'abs', false, true ]};
    function compared([ f, change, turn ], a, b, node) {
        const apart = each('sub', change ? [ b, a ] : [ a, b ], node),
            is = each('sign', [ each(f, [ apart ], node) ], node);
        return turn ? each('sub', [ number(1, node), is ], node) : is;
    }
    function value(node) {
        switch (node.kind) {
        case 'number' : return number(node.value, node);
        case 'list' : return scalar(add({name : 'constant', ...checked(literal(node), node)}, node));
        case 'minus' : return literal(node) ? number(-node.of.value, node)
            : each('neg', [ value(node.of) ], node);
        case 'choice' : return each('where', [ node.condition, node.yes, node.no ].map(value), node);
        case 'name' : return read(node);
        case 'call' : return call(node);
        case 'fold' : {
            const v = value(node.of), axis = (v.of || []).indexOf(node.index);
            if (axis < 0) throw new Fault(`no tensor is read at ${
                node.index}, so it has no range`, node);
            return {at : made(node.name, [ v.at ], node, [ axis ]),
                of : v.of.filter((index) => index !== node.index)};
        }
        }
        const a = value(node.left);
        if (node.sign === '^') return power(a, node.right, node);
        const b = value(node.right);
        if (comparisons[node.sign]) return compared(comparisons[node.sign], a, b, node);
        return node.sign === '@' ? whole('matmul', [ a, b ], node)
            : each(signs[node.sign], [ a, b ], node);
    }
    function read(node) {
        const {name, indices} = node;
        if (!indices && sizes[name] !== undefined) { // an index as a number
            const values = Array.from({length : sizes[name]}, (_, i) => i);
            return {at : constant(name, {shape : [ values.length ], values}, node), of : [ name ]};
        }
        if (!known.has(name))
            throw new Fault(node.called ? `there is no function ${name}; there are ${
                names.join(', ')}` : names.includes(name) ? `${name} is a function, as in ${
                name}(x)` : `${name} has no value: a line above gives it one, as in ${
                name} = 0.5${known.size ? `; known are ${
                    [...known.keys(), ...Object.keys(sizes) ].join(', ')}` : ''}`, node);
        const at = known.get(name), {shape} = list[at];
        if (!indices) return scalar(at);
        asManyAs(name, shape, indices, node);
        // x[0, k] is a slice
        const own = indices.map((index, d) => index.kind === 'name' && !index.indices &&
            sizes[index.name] === shape[d] && index.name);
        const plain = own.filter(Boolean);
        if (new Set(plain).size + indices.filter(({kind}) => kind === 'number').length ===
            indices.length) {
            const of = indices.reduceRight((from, {value : i}, d) => {
                if (own[d]) return from;
                if (!(Number.isInteger(i) && i < shape[d]))
                    throw outside(i, d, name, shape, indices[d]);
                return made('sum', [ made('slice', [ from ], node, [ d, i, i + 1 ]) ], node, [ d ]);
            }, at);
            return {at : of, of : plain};
        }
        if (most.tensors) throw new Fault('an index here is a name or a number, each name once',
            node);
        const places = indices.map(value), tensor = places.findIndex((v) => !v.of);
        if (tensor >= 0) throw new Fault('an index is one number', indices[tensor]);
        const of = [...new Set(places.flatMap((v) => v.of)) ];
        return {at : made('take', [ at, ...places.map((v) => aligned(v, of, node)) ], node), of};
    }
    // A small whole power is made of products; any other is exp(n log x) where the library goes back.
    function power(base, exponent, node) {
        const n = literal(exponent), whole = n && !n.shape.length && Math.abs(n.values[0]);
        if (Number.isInteger(whole) && whole && whole <= 8) {
            let of = base;
            for (let i = 1; i < whole; i++) of = each('mul', [ of, base ], node);
            return n.values[0] < 0 ? each('div', [ number(1, node), of ], node) : of;
        }
        const by = value(exponent);
        return most.tensors ? each('exp', [ each('mul', [ by, each('log', [ base ], node) ],
            node) ], node) : each('pow', [ base, by ], node);
    }
    function whole(name, args, node) {
        if (args.some(({of}) => of && of.length))
            throw new Fault(`${name} takes whole tensors${folds[name]
                ? `, or an index, as in ${name}(j, x[j])` : ', without indices'}`, node);
        const all = args.map(({at}) => at), [a, b] = all.map((at) => list[at].shape);
        if (name === 'transpose' && a.length === 2)
            return scalar(made('permute', all, node, [ 1, 0 ]));
        if (name === 'transpose' || name === 'matmul' && (a.length !== 2 || b.length !== 2 ||
            a[1] !== b[0])) throw new Fault(`${name} of ${[a, b].filter(Boolean).map(shown)
            .join(' and ')}, wanted ${b ? '[n, k] and [k, m]' : '[n, m]'}`, node);
        if (name !== 'matmul' || most.tensors) return scalar(made(name, all, node));
        // of each pair of a row and a column
        const pairs = made('mul', [ made('reshape', [ all[0] ], node, [...a, 1 ]), all[1] ], node);
        return scalar(made('sum', [ pairs ], node, [ 1 ]));
    }
    function call(node) {
        const {name, args : [of, exponent]} = node;
        if (name === 'pow') return power(value(of), exponent, node);
        if (name === 'square') return power(value(of), {kind : 'number', value : 2}, node);
        const given = node.args.map(value);
        return functions[name] ? each(name, given, node) : whole(name, given, node);
    }

    for (const [name, {shape}] of Object.entries(given))
        known.set(name, add({name, own : true, shape}, {line : 1, column : 1}));
    const fixed = new Set(known.keys()), goals = new Map(Object.entries(wanted));
    const statements = parse(text, fixed), own = new Set(statements.map(({name}) => name));
    // What has no name of its own is called t1, t2, ...
    let unnamed = 0;
    const named = (i) => {
        while (!list[i].name || !list[i].own && own.has(list[i].name))
            list[i].name = `t${++unnamed}`;
        return i;
    };
    for (const statement of statements) {
        const {name, constant : still, adds, indices, value : node, line, column} = statement;
        if (fixed.has(name) || known.has(name) && !adds) throw new Fault(fixed.has(name)
            ? `${name} is given and cannot be set` : `${name} has a value already`, statement);
        const target = goals.get(name), leaf = !indices.length && !target && literal(node);
        if (target && indices.length) asManyAs(name, target, indices, statement);
        let i;
        if (leaf) {
            i = add({name, own : true, ...checked(leaf, node), wanted : !still, line, column},
                node);
        } else {
            const all = Object.create(null), start = Object.create(null);
            for (const [each, at] of known) all[each] = list[at];
            if (target) indices.forEach((index, d) => { start[index] = target[d]; });
            sizes = ranges(node, all, start);
            const v = value(node);
            if (indices.length && !v.of)
                throw new Fault('in a line with indices a tensor has its own, as in x[i]', statement);
            const free = (v.of || []).find((index) => !indices.includes(index));
            if (free) throw new Fault(`${free} has no value: it stands neither on the left nor in ` +
                'a sum', statement);
            const missing = indices.find((index) => sizes[index] === undefined);
            if (missing) throw new Fault(`no tensor on the right is read at ${
                missing}, so it has no range`, statement);
            i = indices.length ? aligned(v, indices, statement) : v.at;
            const is = list[i].shape, shape = indices.length
                ? indices.map((index) => sizes[index]) : target || is;
            if (!indices.length && is.length && String(shape) !== String(is))
                throw new Fault(`${name} is ${shown(shape)}, but this is ${shown(is)}${sizeOf(is) >
                    sizeOf(shape) ? ': what was copied is added up, with an index, as in ' +
                    'db[k] = sum(i, dy[i, k])' : ''}`, statement);
            if (String(shape) !== String(is)) // every element is the same
                i = made('add', [ i, constant('zeros', {shape, values : Array(sizeOf(shape))
                    .fill(0)}, statement) ], statement);
        }
        if (!list[i].name) Object.assign(list[i], {name, own : true});
        known.set(name, i);
    }
    const without = Object.keys(wanted).find((name) => !known.has(name));
    if (without) throw new Fault(`${without} is not defined`,
        {line : Math.max(1, ...statements.map((s) => s.line)), column : 1});
    return {list, known};
}

// ---- Computing ----------------------------------------------------------------------------------

const outside = (i, d, name, shape, place) => new Fault(`index ${i} is outside axis ${d} of ${
    name}, which has ${shape[d]}`, place);
const operators = {
    add : (a, b) => a + b,
    sub : (a, b) => a - b,
    mul : (a, b) => a * b,
    div : (a, b) => a / b,
    neg : (a) => -a,
    where : (c, a, b) => (c ? a : b),
    ...functions
};
const stridesOf = (shape) => shape.map((_, d) => sizeOf(shape.slice(d + 1)));

// Where the elements of `shape` lie for these steps, an axis each.
function places(shape, strides, from = 0) {
    let list = [ from ];
    shape.forEach((n, d) => {
        const next = new Array(list.length * n);
        for (let i = 0, to = 0; i < list.length; i++)
            for (let k = 0; k < n; k++) next[to++] = list[i] + k * strides[d];
        list = next;
    });
    return list;
}

// Those of a tensor that is repeated to `shape`.
function repeated({shape : own}, shape, node) {
    const strides = stridesOf(own), skip = shape.length - own.length;
    if (own.some((n, d) => n !== 1 && n !== shape[d + skip]))
        throw new Fault(`the shapes ${shown(own)} and ${shown(shape)} do not fit each other`, node);
    return places(shape, shape.map((_, d) => (d < skip || own[d - skip] === 1 ? 0
        : strides[d - skip])));
}

// The values of an op's result. told: gets the fault of a place outside, whose value is NaN, since
// "i > 0 ? x[i - 1] : 0" does not take it.
function result(t, args, told) {
    const {op, more, shape} = t, [a, b] = args, count = sizeOf(shape), strides = stridesOf(a.shape);
    const over = (at, n, step, name) => {
        const [first, f] = folds[name];
        let total = first;
        for (let i = 0; i < n; i++) total = f(total, a.values[at + i * step]);
        return name === 'mean' ? total / n : total;
    };
    if (folds[op] && more.length) {
        const [axis] = more, left = (list) => list.filter((_, d) => d !== axis);
        return places(left(a.shape), left(strides))
            .map((at) => over(at, a.shape[axis], strides[axis], op));
    }
    if (folds[op]) return [ over(0, a.values.length, 1, op) ];
    if (operators[op]) {
        const f = operators[op], at = args.map((arg) => repeated(arg, shape, t)), values = [];
        for (let e = 0; e < count; e++)
            values.push(f(...args.map((arg, k) => arg.values[at[k][e]]), ...more));
        return values;
    }
    const taken = (list) => list.map((at) => a.values[at]);
    switch (op) {
    case 'reshape' : return a.values;
    case 'permute' : return taken(places(shape, more.map((d) => strides[d])));
    case 'slice' : return taken(places(shape, strides, more[1] * strides[more[0]]));
    case 'logsumexp' : {
        const most = over(0, a.values.length, 1, 'max');
        return [ most + Math.log(a.values.reduce((sum, v) => sum + Math.exp(v - most), 0)) ];
    }
    case 'softmax' : {
        const n = a.shape[a.shape.length - 1] || 1;
        const rows = Array.from({length : count / n}, (_, i) => a.values.slice(i * n, i * n + n));
        return rows.flatMap((row) => {
            const most = Math.max(...row), parts = row.map((v) => Math.exp(v - most)),
                total = parts.reduce((sum, v) => sum + v, 0);
            return parts.map((v) => v / total);
        });
    }
    }
    const indices = args.slice(1), at = indices.map((arg) => repeated(arg, shape, t)); // take
    return Array.from({length : count}, (_, e) => indices.reduce((from, arg, d) => {
        const i = arg.values[at[d][e]];
        if (Number.isInteger(i) && i >= 0 && i < a.shape[d]) return from + i * strides[d];
        told(outside(i, d, a.name, a.shape, t));
        return NaN;
    }, 0)).map((from) => (from === from ? a.values[from] : NaN));
}

// The values of all that a text names, of those that are given, {name: {shape, values}}.
function compute({list, known}, given, budget = STEPS) {
    let left = budget, fault = null;
    for (const t of list) {
        if (!t.op) {
            if (t.own && Object.hasOwn(given, t.name)) t.values = given[t.name].values;
            continue;
        }
        const args = t.args.map((i) => list[i]);
        // before there is an array of so many elements
        const count = Math.max(sizeOf(t.shape), ...args.map(({shape}) => sizeOf(shape)));
        if (!((left -= count) >= 0)) throw new Fault(`this takes more than ${
            budget} steps; give what is needed again a name of its own`, t);
        t.values = result(t, args, (told) => { fault = fault || told; });
        if (t.own && fault && t.values.some((v) => v !== v)) throw fault;
    }
    return Object.fromEntries([...known].map(([ name, at ]) => [name,
        {shape : list[at].shape, values : list[at].values}]));
}

const run = (text, given, wanted, budget) => compute(translate(text, {given, wanted}), given,
    budget);

root.formula = {
    Fault,
    names,
    functions,
    types,
    translate,
    compute,
    run
};
if (typeof module !== 'undefined') module.exports = root.formula;
})(globalThis);
