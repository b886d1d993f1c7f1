// lines.js - the lines of code of a derivation's steps, whole, beside the step.
'use strict';
const {escape, plain} = require('./tools.js');
const code = require('./code.js');
const sources = require('./sources.js');

// The statement that a marked line belongs to: {first, text}; it begins after the end of the one
// before, and its comment is left out.
function statement({file, line}) {
    const all = sources.read(file).split('\n').map((text) => text.replace(/\s*\/\*.*?\*\/\s*$/, '').replace(/\s*\/\/.*$/, ''));
    const ends = (text) => text === undefined || /[;{}:]\s*$/.test(text) || /^\s*($|\/\*|\*|#)/.test(text);
    let first = line - 1, last = first;
    const row = /^(UNARY|SCALAR|RANGE|BINARY|LOSS)\(/.test(all[first]);
    while (!row && first > 0 && last - first < 5 && !ends(all[first - 1])) first--;
    while (last - first < 7 && !(row ? /\)\s*$/ : /[;{]\s*$/).test(all[last]) && all[last + 1]) last++;
    const shown = all.slice(first, last + 1);
    const indent = Math.min(...shown.filter((text) => text.trim()).map((text) => /^ */.exec(text)[0].length));
    return {first : first + 1, text : shown.map((text) => text.slice(indent)).join('\n')};
}

// The statements of one mark as HTML, the plain one first, then the fast one, then CUDA's: the first is
// seen, the others are chosen, and on paper there are all. found: of marks.ofFolder(); names: of the page's symbols.
const order = (at) => (code.machineOf(at.file) === 'CUDA' ? 2 : /plain/.test(at.file) ? 0 : 1);
const kinds = [ 'plain', 'CPU', 'CUDA' ];
let groups = 0;

function ofMark(mark, found, names) {
    const seen = new Set(), list = [];
    for (const at of found.filter((at) => at.mark === mark).sort((a, b) => order(a) - order(b))) {
        const {first, text} = statement(at), machine = code.machineOf(at.file), kind = machine === 'CPU and CUDA' ? machine : kinds[order(at)];
        const key = text.replace(/\s+/g, ' ');
        if (seen.has(key)) continue;
        seen.add(key);
        const html = `<small><a href="${sources.page(at.file)}#L${first}">${escape(at.file.split('/').pop())}:${first}</a></small><pre class="code">${code.highlight(text, names)}</pre>`;
        const same = list.find((one) => one.kind === kind);
        if (same)
            same.html += html;
        else
            list.push({kind, html});
    }
    if (list.length < 2) return list.map(({kind, html}) => `<div class="line-of"><small>${kind}</small> ${html}</div>`).join('');
    groups++;
    return `<div class="tabs" role="group" aria-label="the line of ${escape(mark)}">${list.map(({kind}, i) => `<label><input type="radio" name="tab-${groups}"${i ? '' : ' checked'}> ${kind}</label>`).join(' ')}${
        list.map(({html}) => `<div class="line-of">${html}</div>`).join('')}</div>`;
}

// The end of the sentence that a block of HTML at `end` may leave open: formulas follow it, and paragraphs that
// go on with it.
function sentenceEnd(html, end) {
    for (;;) {
        const rest = html.slice(end), formula = /^\s*<div class="formula">[^]*?<\/div>/.exec(rest);
        const text = /^\s*<p>([^]*?)<\/p>/.exec(rest), before = plain(html.slice(0, end).slice(-400).replace(/^[^<]*>/, ''));
        const goesOn = text && (/^(?:<[^>]*>)*[a-z(,;]/.test(text[1]) || /(<\/div>|[^.:!?)\]])\s*$/.test(html.slice(0, end)) && !/[.:!?]\]?\)?$/.test(before) && /<\/p>\s*$/.test(html.slice(0, end)));
        if (formula)
            end += formula[0].length;
        else if (goesOn)
            end += text[0].length;
        else
            return end;
    }
}

// Puts the lines of each mark beside the sentence, with its formulas, in which the derivation has the mark first.
function beside(html, found, names) {
    const placed = [];
    for (const mark of new Set(found.map((at) => at.mark))) {
        const at = html.indexOf(`id="mark-${mark.replace(/ /g, '-')}"`);
        if (at < 0) continue;
        const close = /<\/(p|ul|ol|table)>(\s*<\/div>)?/g;
        close.lastIndex = at;
        const end = close.exec(html);
        if (!end) continue;
        const own = html.lastIndexOf(`<${end[1]}`, at), wide = end[2] ? html.lastIndexOf('<div class="wide">', at) : own;
        placed.push({mark, from : end[2] && wide >= 0 ? wide : own, to : sentenceEnd(html, end.index + end[0].length)});
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
        html = `${html.slice(0, from)}<div class="derived"><div>${html.slice(from, to)}</div><div class="boxes">${
            marks.map((mark) => `<div class="beside" data-mark="${mark}"><span class="mark">[${mark}]</span>${ofMark(mark, found, names)}</div>`).join('')}</div></div>${html.slice(to)}`;
    return html;
}

module.exports = {ofMark, beside};
