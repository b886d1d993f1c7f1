// formula.js - a small language in which a reader writes a backward: one gradient or intermediate
// tensor a line, "h[i, k] = dy[i, k] * w[k];". The indices on the left run over all elements; sum(j, ..),
// mean(j, ..) and max(j, ..) run over one more. It is parsed and interpreted here, within a number of
// steps; nothing is evaluated as JavaScript. What a C programmer writes is understood as well: h[i][k], +=
// (over the indices that the left side lacks), 3.0f, expf(x), double h[i][k] = ..; and comments. Without indices
// the same language has whole tensors, which expression.js takes: "loss = mean((w x - y)^2)".
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

const functions = {
    erf,
    floor : Math.floor,
    exp : Math.exp,
    log : Math.log,
    sqrt : Math.sqrt,
    sin : Math.sin,
    cos : Math.cos,
    tanh : Math.tanh,
    abs : Math.abs,
    pow : Math.pow
};
// Of whole tensors, in expression.js.
const tensorFunctions = new Set([ 'abs', 'cos', 'exp', 'log', 'logsumexp', 'matmul', 'mean', 'relu', 'sigmoid', 'sin', 'softmax', 'sqrt', 'square', 'sum', 'tanh', 'transpose' ]);
const folds = {
    sum : [ 0, (a, b) => a + b ],
    mean : [ 0, (a, b) => a + b ],
    max : [ -Infinity, Math.max ]
};

// ---- Words ---------------------------------------------------------------------------------------

// In C each of these is a word that no tensor needs.
const types = new Set([ 'const', 'double', 'float', 'int', 'real', 'REAL', 'size_t', 'static' ]);

function tokens(text) {
    text = text.replace(/\/\*[^]*?(\*\/|$)/g, (comment) => comment.replace(/[^\n]/g, ' '));
    if (text.length > LENGTH) throw new Fault(`the text is longer than ${LENGTH} characters`, {line : 1, column : 1});
    const list = [];
    text.split('\n').forEach((source, i) => {
        const rule = /\s+|\/\/.*|(\d+\.?\d*(?:e[-+]?\d+)?|\.\d+)(?:[fl](?!\w))?|([A-Za-z_]\w*)|(<=|>=|==|!=|[-+*\/]=|[-+*\/()\[\],?:<>=;{}^@])|(.)/giy;
        for (let found; (found = rule.exec(source)) && found[0];) {
            const [, number, name, sign, strange ] = found, at = {line : i + 1, column : found.index + 1};
            if (strange) throw new Fault(`"${strange}" has no meaning here`, at);
            if (number || name || sign)
                list.push({kind : number ? 'number' : name ? 'name' : 'sign', text : number || name || sign, ...at});
        }
        list.push({kind : 'end', text : 'the end of the line', line : i + 1, column : source.length + 1});
    });
    return list;
}

// ---- Sentences: statements [{name, constant, indices, value}], each node with the place where it stands --------

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

const children = (node) => [node.left, node.right, node.of, node.condition, node.yes, node.no, ...node.args || [], ...node.indices || []];

// whole: of whole tensors, with products without a sign, @, ^ and lists of numbers.
function parse(text, whole = false) {
    const list = tokens(text);
    let at = 0, depth = 0;
    const peek = () => list[at], is = (text) => peek().kind === 'sign' && peek().text === text;
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
            left = {kind : 'binary', sign : sign.text, left, right : next(), line : sign.line, column : sign.column};
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
        const args = inside('(', ')', expression), has = (table, name) => Object.prototype.hasOwnProperty.call(table, name);
        if (whole) return {kind : 'call', name : token.text, args, ...place};
        if (has(folds, token.text)) {
            if (args.length !== 2 || args[0].kind !== 'name' || args[0].indices)
                throw new Fault(`${token.text} takes an index and an expression, as in ${token.text}(j, x[j])`, place);
            return {kind : 'fold', name : token.text, index : args[0].name, of : args[1], ...place};
        }
        const name = [token.text, token.text.replace(/f$/, ''), token.text.replace(/^fabsf?$/, 'abs') ].find((each) => has(functions, each));
        if (!name)
            throw new Fault(`there is no function ${token.text}; there are ${[...Object.keys(functions), ...Object.keys(folds)].join(', ')}`, place);
        if (args.length !== functions[name].length)
            throw new Fault(`${name} takes ${functions[name].length} argument${functions[name].length > 1 ? 's' : ''}, here are ${args.length}`, place);
        return {kind : 'call', name, args, ...place};
    }
    function primary() {
        ends();
        const token = list[at++], place = {line : token.line, column : token.column};
        if (token.kind === 'number') return {kind : 'number', value : Number(token.text), ...place};
        if (token.kind === 'sign' && token.text === '-') return {kind : 'minus', of : power(), ...place};
        if (token.kind === 'sign' && token.text === '+') return power();
        if (token.kind === 'sign' && token.text === '(') {
            at--;
            const all = inside('(', ')', expression);
            if (all.length > 1) throw new Fault('one expression is wanted in brackets', place);
            return all[0];
        }
        if (whole && token.kind === 'sign' && token.text === '[') {
            at--;
            return {kind : 'list', of : inside('[', ']', expression), ...place};
        }
        if (token.kind !== 'name')
            throw new Fault(`expected a number or a name, found ${found(token)}`, place);
        if (is('(') && !(whole && !tensorFunctions.has(token.text))) return call(token, place);
        let indices;
        while (!whole && is('[')) indices = [...indices || [], ...inside('[', ']', expression)]; // x[i][k] as x[i, k]
        return {kind : 'name', name : token.text, indices, ...place};
    }
    function power() {
        const base = primary();
        if (!is('^')) return base;
        const sign = list[at++];
        if (!whole) throw new Fault('in C ^ is no power: write x * x, or pow(x, 2)', sign);
        return {kind : 'binary', sign : '^', left : base, right : power(), line : sign.line, column : sign.column};
    }
    const times = binary([ '*', '/', '@' ], power);
    // "w x": of whole tensors names, numbers and brackets that stand side by side are a product.
    function product() {
        let left = times();
        while (whole && (peek().kind === 'name' || peek().kind === 'number' || is('(') || is('['))) {
            const {line, column} = peek();
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
    const statements = [];
    function statement() {
        const first = at;
        while (peek().kind === 'name' && types.has(peek().text) && list[at + 1].kind === 'name') at++;
        const constant = list.slice(first, at).some(({text}) => text === 'const');
        if (peek().kind === 'name' && /^(for|while|if)$/.test(peek().text) || is('{') || is('}'))
            throw new Fault('a line is one formula, for all of its indices at once: loops and braces are not needed', peek());
        const target = power();
        if (target.kind !== 'name') throw new Fault('a line begins with the tensor that it defines', target);
        const indices = (target.indices || []).map((index) => {
            if (index.kind !== 'name' || index.indices) throw new Fault('on the left an index is a name', index);
            return index.name;
        });
        const sign = peek(), place = {line : target.line, column : target.column};
        if (is('+=') || is('-=')) at++;
        else expect('=');
        let value = expression();
        if (sign.text !== '=') { // adds up over what the left side has not, and to what was there
            for (const index of whole ? [] : open(value, new Set(indices))) value = {kind : 'fold', name : 'sum', index, of : value, ...place};
            const same = statements.findIndex(({name}) => name === target.name), first = statements[same];
            const begun = first && first.value.kind === 'number'; // "s[i] = 0;", whose range comes with what is added
            const before = !first ? {kind : 'number', value : 0, ...place} : begun ? first.value : target;
            if (begun) statements.splice(same, 1);
            value = {kind : 'binary', sign : sign.text[0], left : before, right : value, ...place};
        }
        statements.push({name : target.name, constant, indices, value, ...place});
    }
    while (at < list.length) {
        if (peek().kind === 'end' || is(';')) {
            at++;
            continue;
        }
        statement();
        if (!is(';') && peek().kind !== 'end')
            throw new Fault(`expected the end of the line${peek().kind === 'name' ? ' or ";"' : ''}, found ${found(peek())}`, peek());
    }
    return statements;
}

// ---- Running -------------------------------------------------------------------------------------

// Where an index is used as one, its range is that of the axis; `found` has those that the wanted
// gradient gives. {index: size}
function ranges(node, tensors, found, fixed = new Set(Object.keys(found))) {
    if (!node || typeof node !== 'object') return found;
    if (node.kind === 'name' && node.indices) {
        const t = tensors[node.name];
        node.indices.forEach((index, d) => {
            if (index.kind !== 'name' || index.indices || !t || t.shape[d] === undefined) return;
            if (fixed.has(index.name)) return; // a place outside of a shorter axis is an error where it is read
            if (found[index.name] !== undefined && found[index.name] !== t.shape[d])
                throw new Fault(`${index.name} runs over ${found[index.name]} elsewhere, but axis ${d} of ${node.name} has ${t.shape[d]}`, index);
            found[index.name] = t.shape[d];
        });
    }
    for (const child of children(node))
        ranges(child, tensors, found, fixed);
    return found;
}

const operators = {
    '+' : (a, b) => a + b,
    '-' : (a, b) => a - b,
    '*' : (a, b) => a * b,
    '/' : (a, b) => a / b,
    '<' : (a, b) => Number(a < b),
    '>' : (a, b) => Number(a > b),
    '<=' : (a, b) => Number(a <= b),
    '>=' : (a, b) => Number(a >= b),
    '==' : (a, b) => Number(a === b),
    '!=' : (a, b) => Number(a !== b)
};

// given: {name: {shape, values}}, a number has the shape []. wanted: {name: shape} of the gradients.
// Returns all tensors, with those that the text defines.
function run(statements, given, wanted, budget = STEPS) {
    const map = (from = {}) => Object.assign(Object.create(null), from); // a name may be "constructor"
    const tensors = map(given);
    wanted = map(wanted);
    let left = budget;
    const names = (extra) => [...Object.keys(tensors), ...Object.keys(extra)].join(', ');
    const tooLong = (node) => new Fault(`this takes more than ${budget} steps; give what is needed again a name of its own`, node);
    function value(node, index, size) {
        if (--left < 0) throw tooLong(node);
        switch (node.kind) {
        case 'number' : return node.value;
        case 'minus' : return -value(node.of, index, size);
        case 'binary' : return operators[node.sign](value(node.left, index, size), value(node.right, index, size));
        case 'choice' : return value(value(node.condition, index, size) ? node.yes : node.no, index, size);
        case 'call' : return functions[node.name](...node.args.map((arg) => value(arg, index, size)));
        case 'fold' : {
            const n = size[node.index], [first, fold] = folds[node.name];
            if (n === undefined) throw new Fault(`no tensor is read at ${node.index}, so it has no range`, node);
            if (Object.prototype.hasOwnProperty.call(index, node.index)) throw new Fault(`${node.index} is in use already`, node);
            let result = first;
            for (let i = 0; i < n; i++) {
                index[node.index] = i;
                result = fold(result, value(node.of, index, size));
            }
            delete index[node.index];
            return node.name === 'mean' ? result / n : result;
        }
        default : return read(node, index, size);
        }
    }
    function read(node, index, size) {
        if (!node.indices && Object.prototype.hasOwnProperty.call(index, node.name)) return index[node.name];
        const t = Object.prototype.hasOwnProperty.call(tensors, node.name) && tensors[node.name];
        if (!t) throw new Fault(`${node.name} is not known; known are ${names(index)}`, node);
        const given_indices = node.indices || [];
        if (given_indices.length !== t.shape.length)
            throw new Fault(`${node.name} has ${t.shape.length} ${t.shape.length === 1 ? 'axis' : 'axes'}, here are ${given_indices.length} indices`, node);
        let at = 0;
        given_indices.forEach((each, d) => {
            const i = value(each, index, size);
            if (!(Number.isInteger(i) && i >= 0 && i < t.shape[d]))
                throw new Fault(`index ${i} is outside axis ${d} of ${node.name}, which has ${t.shape[d]}`, each);
            at = at * t.shape[d] + i;
        });
        return t.values[at];
    }
    for (const statement of statements) {
        const {name, indices, value : node} = statement;
        if (Object.prototype.hasOwnProperty.call(given, name)) throw new Fault(`${name} is given and cannot be set`, statement);
        const target = wanted[name];
        if (target && target.length !== indices.length)
            throw new Fault(`${name} has ${target.length} axes, here are ${indices.length} indices`, statement);
        const start = map();
        indices.forEach((index, d) => { if (target) start[index] = target[d]; });
        const size = ranges(node, tensors, start);
        const shape = indices.map((index) => {
            if (size[index] === undefined) throw new Fault(`no tensor on the right is read at ${index}, so it has no range`, statement);
            return size[index];
        });
        const count = shape.reduce((a, b) => a * b, 1);
        if (!(count <= left)) throw tooLong(statement); // before there is an array of so many elements
        const values = new Array(count);
        for (let e = 0; e < count; e++) {
            const index = Object.fromEntries(indices.map((each) => [each, 0]));
            for (let d = shape.length - 1, rest = e; d >= 0; d--) {
                index[indices[d]] = rest % shape[d];
                rest = Math.floor(rest / shape[d]);
            }
            values[e] = value(node, index, size);
        }
        tensors[name] = {shape, values};
    }
    for (const name of Object.keys(wanted))
        if (!tensors[name]) throw new Fault(`${name} is not defined`, {line : Math.max(1, ...statements.map((s) => s.line)), column : 1});
    return tensors;
}

root.formula = {
    Fault,
    tensorFunctions,
    parse,
    run
};
if (typeof module !== 'undefined') module.exports = root.formula;
})(globalThis);
