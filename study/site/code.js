// code.js - C and CUDA as HTML, a line an anchor.
'use strict';
const {escape} = require('./tools.js');
const marks = require('./marks.js');
const sources = require('./sources.js');

const words = new Set(`auto bool break case char const continue default do double else enum extern
    false float for goto if inline int int32_t int64_t long restrict return short signed size_t
    sizeof static struct switch true typedef uint32_t uint64_t uint8_t union unsigned void volatile
    while template class typename constexpr auto using namespace REAL NULL __global__ __device__
    __shared__ __host__`.split(/\s+/));
const token =
    /\/\*[^]*?\*\/|\/\/[^\n]*|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|^[ \t]*#[^\n]*|\b[A-Za-z_]\w*\b|[^]/gm;

function colour(text) {
    if (/^\/[*/]/.test(text)) return 'comment';
    if (/^["']/.test(text)) return 'string';
    if (/^\s*#/.test(text)) return 'preprocessor';
    return words.has(text) ? 'keyword' : '';
}

// Coloured HTML. symbols: { name in the code: name of the symbol }, which then light up together.
function highlight(code, symbols = {}) {
    let html = '';
    for (const [text] of code.matchAll(token)) {
        const kind = colour(text);
        const symbol = Object.prototype.hasOwnProperty.call(symbols, text) && symbols[text];
        // A token of several lines is closed and opened again at each, so that lines stand alone.
        const piece = escape(text);
        if (symbol)
            html += `<span data-symbol="${escape(symbol)}">${piece}</span>`;
        else if (kind)
            html +=
                piece.split('\n').map((line) => `<span class="${kind}">${line}</span>`).join('\n');
        else
            html += piece;
    }
    return html;
}

// A comment's mark as a link to where the derivation has it.
function linkMarks(html, readmePage) {
    return html.replace(/\[([a-z][\w. ]*)\](?=( \[[\w. ]+\])* \*\/<)/g,
        (whole, mark) => readmePage
                             ? `<a class="mark" href="${readmePage}#mark-${
                                   mark.replace(/ /g, '-')}" data-mark="${mark}">${whole}</a>`
                             : whole);
}

// The whole of a file.
function listing(file, readmePage) {
    const lines = highlight(sources.read(file).replace(/\n$/, '')).split('\n');
    const plain = sources.read(file).split('\n');
    return `<pre class="code listing">${
        lines
            .map((line, i) => {
                const marked = marks.inCode.test(plain[i]);
                return `<span class="line${marked ? ' marked' : ''}" id="L${
                    i + 1}"><a class="number" href="#L${i + 1}" tabindex="-1">${i + 1}</a>${
                    marked ? linkMarks(line, readmePage) : line}\n</span>`;
            })
            .join('')}</pre>`;
}

// For which machine a file is: a header or a table that CUDA code includes is for both.
const isCuda = (file) => /\.cuh?$/.test(file);
let cuda = null; // all of it
function machineOf(file) {
    if (isCuda(file)) return 'CUDA';
    cuda = cuda || sources.list().filter(isCuda).map(sources.read).join('\n');
    return cuda.includes(`#include "${file.replace(/^kernels\//, '')}"`) ? 'CPU and CUDA' : 'CPU';
}

module.exports = {
    highlight,
    listing,
    machineOf
};
