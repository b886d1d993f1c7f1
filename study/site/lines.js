// lines.js - the lines of code of a derivation's steps, whole, beside the step.
'use strict';
const path = require('path');
const {escape, plain} = require('./tools.js');
const code = require('./code.js');
const sources = require('./sources.js');

// ---- What is said at a mark ---------------------------------------------------------------------

// What a row of a table assigns; its other arguments are for kernels and for tests. A loss has
// slopes, which the kernel multiplies with dy, 0 for an input that it has not.
const assigned = {UNARY : [ 'y', 'dx' ], SCALAR : [ 'y', 'dx' ], RANGE : [ 'y', 'dx' ],
    BINARY : [ 'y', 'da', 'db' ], LOSS : [ 'loss', 'dx', 'dt', 'dw' ]};
function assignments(row) {
    const [, kind, list] = /^(\w+)\(([^]*)\)\s*$/.exec(row), values = [ '' ];
    let depth = 0;
    for (const [piece] of list.matchAll(/"[^"]*"|[^]/g)) {
        depth += piece === '(' ? 1 : piece === ')' ? -1 : 0;
        if (piece === ',' && !depth)
            values.push('');
        else
            values[values.length - 1] += piece;
    }
    const named = assigned[kind].map((name, i) => [name, values[i + 2].trim().replace(/\s+/g,
        ' ') ]).filter(([ , value ]) => kind !== 'LOSS' || value !== '0');
    // a sum is a factor in parentheses
    const isSum = (value) => / [-+?] |^-/.test(value.replace(/\((?:[^()]|\([^()]*\))*\)/g, ''));
    return named.map(([name, value], i) => `${name} = ${i && kind === 'LOSS'
        ? `dy * ${isSum(value) ? `(${value})` : value}` : value};`).join('\n');
}

// A line without its comment; GD_MATH(tanh) is tanh or tanhf.
const bare = (text) => text.replace(/GD_MATH\((\w+)\)/g, '$1')
    .replace(/\s*\/\*.*?\*\/\s*$/, '').replace(/\s*\/\/.*$/, '');
const dedented = (lines) => {
    const indent = Math.min(...lines.filter((text) => text.trim())
        .map((text) => /^ */.exec(text)[0].length));
    return lines.map((text) => text.slice(indent)).join('\n');
};

// The short functions that a header of formulas defines, and those of other ops' that it includes:
// {name: {file, first, last, text, body}}.
const defined = {};
function functionsOf(file) {
    if (defined[file]) return defined[file];
    const source = sources.read(file), found = {};
    for (const [ , other ] of source.matchAll(/^#include "(\w+\/(?:formula|functions)\.h)"/gm))
        Object.assign(found, functionsOf(`kernels/${other}`));
    for (const {0 : whole, 1 : head, 2 : name, 3 : inside, index} of source
        .matchAll(/^GD_FUNCTION ([\w ]+?\b(\w+)\([^)]*\))\n\{\n([^]*?)^\}$/gm)) {
        const first = source.slice(0, index).split('\n').length;
        const lines = inside.trimEnd().split('\n').map(bare).filter((text) => text.trim());
        found[name] = {file, first, last : first + whole.split('\n').length - 1,
            text : `${head}\n{\n${lines.join('\n')}\n}`, body : dedented(lines)};
    }
    return defined[file] = found;
}
// What a file can call of them: its folder's, and what it includes.
const helpersOf = (file) => Object.assign({}, ...[...sources.list().filter((other) =>
    /(formula|functions)\.h$/.test(other) && path.dirname(other) === path.dirname(file)), file ]
    .map(functionsOf));

// The statement that a marked line belongs to, {first, text}: a row's assignments, all of a short
// function, or what begins after the end of the statement before; without its comment.
function statement({file, line}, helpers) {
    const all = sources.read(file).split('\n').map(bare);
    const own = Object.values(helpers).find((one) => one.file === file && one.first < line &&
        line < one.last);
    if (own && /functions\.h$/.test(file)) return own; // rows call it by its name
    if (own) return {first : line, text : own.body};
    const ends = (text) => text === undefined || /[;{}:]\s*$/.test(text) ||
        /^\s*($|\/\*|\*|#)/.test(text);
    let first = line - 1, last = first;
    const row = /^(UNARY|SCALAR|RANGE|BINARY|LOSS)\(/.test(all[first]);
    while (!row && first > 0 && last - first < 5 && !ends(all[first - 1])) first--;
    while (last - first < 7 && !(row ? /\)\s*$/ : /[;{]\s*$/).test(all[last]) && all[last + 1])
        last++;
    const shown = all.slice(first, last + 1);
    return {first : first + 1, text : row ? assignments(shown.join('\n')) : dedented(shown)};
}

// The helpers that a piece of code calls, and those that these call, each once; those of a forward,
// the first line, come last.
function called(text, helpers, seen = new Set()) {
    const [forward, ...rest] = text.split('\n');
    for (const [ , name ] of [...rest, forward ].join('\n').matchAll(/\b(\w+)\(/g)) {
        if (!Object.prototype.hasOwnProperty.call(helpers, name) || seen.has(name)) continue;
        seen.add(name);
        called(helpers[name].body, helpers, seen);
    }
    return [...seen ].map((name) => helpers[name]);
}

// The statements of one mark as HTML, the plain one first, then the fast one, then CUDA's: the
// first is seen, the others are chosen, and on paper there are all. The helpers that they call stand
// below, but those with a box of their own in the derivation. found: of marks.ofFolder(); names: of
// the page's symbols.
const order = (at) => (code.machineOf(at.file) === 'CUDA' ? 2 : /plain/.test(at.file) ? 0 : 1);
const kinds = [ 'plain', 'CPU', 'CUDA' ];
let groups = 0;

function ofMark(mark, found, names, boxes = []) {
    const seen = new Set(), list = [];
    const piece = (file, first, text) => `<small><a href="${sources.page(file)}#L${first}">${
        escape(file.split('/').pop())}:${first}</a></small><pre class="code">${
        code.highlight(text, names)}</pre>`;
    const boxed = ({file, first, last}) => boxes.some((at) => at.file === file && at.line > first &&
        at.line < last);
    for (const at of found.filter((at) => at.mark === mark).sort((a, b) => order(a) - order(b))) {
        const helpers = helpersOf(at.file), {first, text} = statement(at, helpers), machine = code.machineOf(at.file),
            kind = machine === 'CPU and CUDA' ? machine : kinds[order(at)];
        const key = text.replace(/\s+/g, ' ');
        if (seen.has(key)) continue;
        seen.add(key);
        const html = piece(at.file, first, text) + called(text, helpers)
            .filter((helper) => !boxed(helper)).map((helper) => piece(helper.file, helper.first,
                helper.text)).join('');
        const same = list.find((one) => one.kind === kind);
        if (same)
            same.html += html;
        else
            list.push({kind, html});
    }
    if (list.length < 2) return list.map(({kind, html}) => `<div class="line-of"><small>${
        kind}</small> ${html}</div>`).join('');
    groups++;
    return `<div class="tabs" role="group" aria-label="the line of ${escape(mark)}">${
        list.map(({kind}, i) => `<label><input type="radio" name="tab-${groups}"${
            i ? '' : ' checked'}> ${kind}</label>`).join(' ')}${
        list.map(({html}) => `<div class="line-of">${html}</div>`).join('')}</div>`;
}

// The end of the sentence that a block of HTML at `end` may leave open: formulas follow it, and
// paragraphs that go on with it.
function sentenceEnd(html, end) {
    for (;;) {
        const rest = html.slice(end), formula = /^\s*<div class="formula">[^]*?<\/div>/.exec(rest);
        const text = /^\s*<p>([^]*?)<\/p>/.exec(rest),
            before = plain(html.slice(0, end).slice(-400).replace(/^[^<]*>/, ''));
        const goesOn = text && (/^(?:<[^>]*>)*[a-z(,;]/.test(text[1]) || /(<\/div>|[^.:!?)\]])\s*$/
            .test(html.slice(0, end)) && !/[.:!?]\]?\)?$/.test(before) &&
            /<\/p>\s*$/.test(html.slice(0, end)));
        if (formula)
            end += formula[0].length;
        else if (goesOn)
            end += text[0].length;
        else
            return end;
    }
}

// Puts the lines of each mark beside the sentence, with its formulas, in which the derivation has
// the mark first.
function beside(html, found, names) {
    const placed = [];
    for (const mark of new Set(found.map((at) => at.mark))) {
        const at = html.indexOf(`id="mark-${mark.replace(/ /g, '-')}"`);
        if (at < 0) continue;
        const close = /<\/(p|ul|ol|table)>(\s*<\/div>)?/g;
        close.lastIndex = at;
        const end = close.exec(html);
        if (!end) continue;
        const own = html.lastIndexOf(`<${end[1]}`, at),
            wide = end[2] ? html.lastIndexOf('<div class="wide">', at) : own;
        placed.push({mark, from : end[2] && wide >= 0 ? wide : own,
            to : sentenceEnd(html, end.index + end[0].length)});
    }
    // Sentences that run into each other are one place.
    const places = [];
    for (const {mark, from, to} of placed.sort((a, b) => a.from - b.from || a.to - b.to)) {
        const last = places[places.length - 1];
        if (last && from < last.to) {
            last.marks.push(mark);
            last.to = Math.max(last.to, to);
        } else {
            places.push({marks : [ mark ], from, to});
        }
    }
    for (const {marks, from, to} of places.reverse()) // from the end, so that the places stay
        html = `${html.slice(0, from)}<div class="derived"><div>${
            html.slice(from, to)}</div><div class="boxes">${
            marks.map((mark) => `<div class="beside" data-mark="${mark}"><span class="mark">[${
                mark}]</span>${ofMark(mark, found, names, found)}</div>`).join('')}</div></div>${
                html.slice(to)}`;
    return html;
}

module.exports = {ofMark, beside};
