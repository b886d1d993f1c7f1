// markdown.js - a page of markdown as HTML: formulas set by KaTeX, marks and files as links.
'use strict';
const path = require('path');
const {katex, marked, escape, plain, slug} = require('./tools.js');
const {highlight} = require('./code.js');
const sources = require('./sources.js');

// ---- Formulas ----------------------------------------------------------------------------------

// Wraps the symbols of a page's table in the formula, longest first: [{tex, name}].
function withSymbols(tex, symbols) {
    if (!symbols.length) return tex;
    const quoted = symbols.map((s) => s.tex)
                       .sort((a, b) => b.length - a.length)
                       .map((text) => text.replace(/[\\{}^$.*+?()[\]|]/g, '\\$&'));
    const names = Object.fromEntries(symbols.map((s) => [s.tex, s.name]));
    const pattern = new RegExp(
        `(${
            quoted.join(
                '|')})(?![a-zA-Z])|\\\\(?:text|mathrm|operatorname|begin|end|html\\w+)\\{[^}]*\\}|\\\\[a-zA-Z]+|[a-zA-Z]`,
        'g');
    return tex.replace(pattern,
        (whole, symbol) => symbol ? `{\\htmlData{symbol=${names[symbol]}}{${symbol}}}` : whole);
}

function formula(tex, displayMode, symbols) {
    return katex.renderToString(withSymbols(tex, symbols), {
        displayMode,
        trust : true,
        output : 'htmlAndMathml', // for the eye, and for a screen reader
        strict : (code) => (code === 'htmlExtension' ? 'ignore' : 'error'),
    });
}

// A display's equations, which a space as wide as a letter or more separates, outside of braces.
function equations(tex) {
    const list = [ '' ];
    let depth = 0;
    for (const [piece] of tex
        .matchAll(/\\(?:begin|end)\{\w+\*?\}|(?:\s|\\qquad|\\quad)*\\q?quad(?![a-z])(?:\s|\\qquad|\\quad)*|\\.|[^]/g)) {
        if (/^[{]$|^\\begin|^\\left/.test(piece)) depth++;
        if (/^[}]$|^\\end/.test(piece)) depth--;
        if (/quad/.test(piece) && !depth)
            list.push('');
        else
            list[list.length - 1] += piece;
    }
    return list.filter((each) => each.trim());
}

// ---- Links -------------------------------------------------------------------------------------

// A link in `file` as a link between pages; links to what has no page go to nothing.
function resolve(href, file, known) {
    if (/^(\w+:|#)|^[\w-]+\.html/.test(href)) return href;
    const [target, anchor] = href.split('#');
    let name =
        path.posix.normalize(path.posix.join(path.posix.dirname(file), target)).replace(/\/$/, '');
    if (!known.has(name) && known.has(name + '/README.md')) name += '/README.md';
    const page = known.has(name) ? sources.page(name) : undefined;
    if (!page) return /\.(svg|png)$/.test(name) ? path.posix.basename(name) : undefined;
    return sources.place(page, anchor);
}

// `rms_norm_cpu.c` in a page of its folder, or a path from the root.
function fileNamed(text, file, known) {
    for (const name of [path.posix.join(path.posix.dirname(file), text), text])
        if (/\.\w+$/.test(text) && known.has(name) && sources.page(name)) return sources.page(name);
    return undefined;
}

// ---- The page ----------------------------------------------------------------------------------

// Returns {html, title, headings: [{depth, text, id}], text}. context: {known: files that have
// pages, marks: {mark: {file, line}}, symbols: [{tex, name, code}], blocks: {language of a block of
// code: its HTML}}.
function render(file, source, context) {
    const headings = [];
    const {known, marks = {}, symbols = [], blocks = {}} = context;
    const inline = (text) => marked.parseInline(text);
    const codeNames = Object.fromEntries(symbols.map((s) => [s.code, s.name]));
    const math = (name, level, start, rule, display) => ({
        name,
        level,
        start : (text) => {
            const at = text.search(start);
            return at < 0 ? undefined : at;
        },
        tokenizer(text) {
            const found = rule.exec(text);
            return found ? {type : name, raw : found[0], tex : found[1].trim()} : undefined;
        },
        renderer : (token) =>
            (display ? `<div class="formula">${
                equations(token.tex).map((tex) => `<span class="equation">${
                    formula(tex, true, symbols)}</span>`).join('')}</div>\n`
                     : formula(token.tex, false, symbols)),
    });
    const mark = {
        name : 'mark',
        level : 'inline',
        start : (text) => {
            const at = text.search(/\[[\w. ]+\](?![([])/);
            return at < 0 ? undefined : at;
        },
        tokenizer(text) {
            const found = /^\[([\w. ]+)\](?![([])/.exec(text);
            if (found && Object.prototype.hasOwnProperty.call(marks, found[1]))
                return {type : 'mark', raw : found[0], mark : found[1]};
            return undefined;
        },
        renderer : ({mark : name}) => {
            const at = marks[name], id = name.replace(/ /g, '-');
            const first = !at.seen;
            at.seen = true;
            return `<a class="mark"${first ? ` id="mark-${id}"` : ''} href="${
                sources.page(at.file)}#L${at.line}" data-mark="${name}">[${name}]</a>`;
        },
    };
    // how often a heading has come: the second one is called added-1, as on GitHub
    const taken = {};
    const headingId = (name) => {
        taken[name] = (taken[name] || 0) + 1;
        return taken[name] > 1 ? `${name}-${taken[name] - 1}` : name;
    };
    const renderer = {
        heading(html, depth, raw) {
            const id = headingId(slug(raw));
            headings.push({depth, text : plain(html), id});
            return `<h${depth} id="${id}">${html} <a class="anchor" href="#${
                id}" aria-label="link to ${escape(plain(html))}">#</a></h${depth}>\n`;
        },
        link(href, title, html) {
            const to = resolve(href, file, known);
            return to ? `<a href="${escape(to)}">${html.replace(/<\/?a\b[^>]*>/g, '')}</a>` : html;
        },
        image(href, title, alt) {
            return `<img src="${escape(path.posix.basename(href))}" alt="${
                escape(alt)}" loading="lazy">`;
        },
        codespan(html) {
            const page = fileNamed(html, file, known);
            return page ? `<a href="${page}"><code>${html}</code></a>` : `<code>${html}</code>`;
        },
        code(text, language) {
            if (Object.prototype.hasOwnProperty.call(blocks, language))
                return blocks[language].call({inline}, text);
            const c = /^(c|cpp|cuda|)$/.test(language || '');
            const html = c ? highlight(text, codeNames) : escape(text);
            const linked = html.replace(/\[([a-z][\w. ]*)\](?=[^\n]*\*\/<)/g,
                (whole, name) =>
                    (marks[name] ? `<a class="mark" href="${sources.page(marks[name].file)}#L${
                                       marks[name].line}" data-mark="${name}">${whole}</a>`
                                 : whole));
            return `<pre class="code${c ? '' : ' ' + escape(language)}">${linked}\n</pre>\n`;
        },
        // A table of symbols is looked up, not read.
        table(head, body) {
            const html = `<div class="wide"><table><thead>${
                head.replace(/<th([^>]*)><\/th>/g, '<td$1></td>')}</thead><tbody>${
                body}</tbody></table></div>\n`;
            return /^\s*<tr>\s*<th[^>]*>symbol</.test(head)
                ? `<details><summary>The symbols, and their names in the code</summary>${
                    html}</details>\n` : html;
        },
    };
    marked.setOptions({...marked.getDefaults(), headerIds : false, mangle : false});
    marked.use({
        extensions : [
            math('displayMath', 'block', /\$\$/, /^\$\$([^]+?)\$\$/, true),
            math('displayMathInline', 'inline', /\$\$/, /^\$\$([^]+?)\$\$/, true),
            math('inlineMath', 'inline', /\$/, /^\$(?!\s)((?:[^$\\]|\\[^])+?)\$(?!\d)/, false),
            mark,
        ],
        renderer,
    });
    const html = marked.parse(source);
    const title = headings.length ? headings[0].text : path.posix.basename(file);
    return {html, title, headings};
}

// The table whose first column is called symbol: [{tex, code, name}].
function symbolsOf(source) {
    const found = /^\| symbol \|.*\n\|[-| :]+\n((?:\|.*\n)+)/m.exec(source);
    if (!found) return [];
    return found[1]
        .trim()
        .split('\n')
        .map((row) => row.split('|').slice(1, -1).map((cell) => cell.trim()))
        .flatMap(([ symbol, code ]) => {
            const tex = /^\$(.+)\$$/.exec(symbol), name = /`(\w+)/.exec(code || '');
            return tex && name ? [ {tex : tex[1], code : name[1], name : name[1]} ] : [];
        });
}

module.exports = {
    render,
    symbolsOf,
    formula
};
