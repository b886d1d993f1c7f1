// lines.js - the lines of code of a derivation's steps, whole, beside the step.
'use strict';
const {escape} = require('./tools.js');
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

// The statements of one mark as HTML, those for the CPU first and the plain one before the fast one.
// found: of marks.ofFolder(); names: of the page's symbols.
function ofMark(mark, found, names) {
    const order = (at) => (code.machineOf(at.file) === 'CUDA' ? 2 : /plain/.test(at.file) ? 0 : 1);
    const seen = new Set();
    return found.filter((at) => at.mark === mark)
        .sort((a, b) => order(a) - order(b))
        .map((at) => {
            const {first, text} = statement(at), machine = code.machineOf(at.file);
            const key = `${machine}${text.replace(/\s+/g, ' ')}`;
            if (seen.has(key)) return '';
            seen.add(key);
            return `<div class="line-of"><small>${machine}: <a href="${sources.page(at.file)}#L${first}">${
                escape(at.file.split('/').pop())}:${first}</a></small><pre class="code">${
                code.highlight(text, names)}</pre></div>`;
        })
        .join('');
}

// Puts the lines of each mark under the paragraph, and the formula after it, where the derivation
// has the mark first.
function beside(html, found, names) {
    const placeOf = (mark) => html.indexOf(`id="mark-${mark.replace(/ /g, '-')}"`);
    const order = [...new Set(found.map((at) => at.mark)) ]
                      .map((mark) => ({mark, at : placeOf(mark)}))
                      .filter(({at}) => at >= 0)
                      .sort((a, b) => b.at - a.at); // from the end, so that the places stay
    for (const {mark, at} of order) {
        const close = /<\/(p|ul|ol|table)>(\s*<\/div>)?/g;
        close.lastIndex = at;
        const end = close.exec(html);
        if (!end) continue;
        let place = end.index + end[0].length;
        const formula = /^\s*<div class="formula">[^]*?<\/div>/.exec(html.slice(place));
        if (formula) place += formula[0].length;
        const lines = ofMark(mark, found, names);
        html = `${html.slice(0, place)}<div class="beside" data-mark="${mark}"><span class="mark">[${mark}]</span>${
            lines}</div>${html.slice(place)}`;
    }
    return html;
}

module.exports = {ofMark, beside};
