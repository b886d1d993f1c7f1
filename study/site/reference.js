// reference.js - the public headers as reference pages: what a comment says, beside what it is
// about.
'use strict';
const {escape, slug} = require('./tools.js');
const {highlight} = require('./code.js');
const sources = require('./sources.js');

// The words of a comment, without its stars.
const words = (comment) => comment.replace(/^\/\*+/, '')
                               .replace(/\*\/$/, '')
                               .split('\n')
                               .map((line) => line.replace(/^ ?\* ?/, ''))
                               .join('\n')
                               .trim();

// Whether an indented piece is C, and not a formula or a list in English.
const isCode = (text) => /[;{}]\s*$/m.test(text) || /\bgd_\w+\(/.test(text);

// Indented lines in two columns, which two spaces or more part, as rows [name, what is said of it];
// a name that ends in a comma goes on below. null: they are something else.
function twoColumns(part) {
    const lines = part.split('\n'), first = /^( {3,}\S.*? {2,})\S/.exec(lines[0]);
    if (!first || lines.length < 3) return null;
    const at = first[1].length, list = [];
    for (const line of lines) {
        if (line.length > at && line.slice(at - 2, at) !== '  ') return null;
        const name = line.slice(0, at).trim(), said = line.slice(at).trim(),
            last = list[list.length - 1];
        if (name && !(last && last[0].endsWith(',')))
            list.push([ name, said ]);
        else if (!last)
            return null;
        else
            [last[0], last[1]] = [ `${last[0]} ${name}`.trim(), `${last[1]} ${said}`.trim() ];
    }
    return list;
}

const table = (list) => `<div class="wide"><table><tbody>${
    list.map(([ name, said ]) => `<tr><td><code>${escape(name)}</code></td><td>${
        escape(said)}</td></tr>`).join('')}</tbody></table></div>`;

function indented(part) {
    const list = !/\bgd_\w+\(/.test(part) && twoColumns(part);
    return list ? table(list) : `<pre class="code">${
        isCode(part) ? highlight(part) : escape(part)}</pre>`;
}

// Paragraphs; indented lines stay as they are.
function prose(text) {
    return text.split(/\n\s*\n/)
        .map((part) => (/^ {3,}/m.test(part) && !/^\S/.test(part)
                            ? indented(part)
                            : `<p>${
                                  escape(part).replace(/\n {3,}.*/g,
                                      (line) => `<br><code>${line.trim()}</code>`)}</p>`))
        .join('\n');
}

// A header as blocks: {section} or {comment, code, names}.
function parse(file) {
    const source = sources.read(file);
    const blocks = [];
    let comment = '', code = '';
    const flush = () => {
        if (comment || code.trim()) blocks.push({comment, code : code.trim()});
        comment = code = '';
    };
    let depth = 0;
    const lines = source.split('\n');
    for (let i = 0; i < lines.length; i++) {
        const line = lines[i];
        const section = /^\/\* -+ (.*?) -+ \*\/$/.exec(line);
        if (section) {
            flush();
            blocks.push({section : section[1]});
        } else if (depth === 0 && /^\/\*/.test(line)) {
            flush();
            comment = line;
            while (!/\*\/\s*$/.test(lines[i])) comment += '\n' + lines[++i];
        } else if (depth === 0 && /^\s*$/.test(line)) {
            flush();
        } else if (!/^\s*#|^extern "C" \{|^\}$/.test(line) || depth > 0) {
            code += line + '\n';
            depth += (line.match(/[{(]/g) || []).length - (line.match(/[})]/g) || []).length;
        } else if (/^#define GD_\w+\(?/.test(line) && !/GRADUS_\w+_H/.test(line)) {
            code += line + '\n';
            while (/\\$/.test(lines[i])) code += lines[++i] + '\n';
        }
    }
    flush();
    return blocks.filter((b) => b.section || b.code || b === blocks[0] || b.comment);
}

// The names that a declaration declares: functions, types, constants.
function namesIn(code) {
    const plain = code.replace(/\/\*[^]*?\*\//g, '');
    const names = new Set();
    for (const [, name] of plain.matchAll(/GD_API[^;(]*?\b(gd_\w+)\s*\(/g)) names.add(name);
    for (const [, name] of plain.matchAll(/^typedef [^{;]*?\(\*(gd_\w+)\)/gm)) names.add(name);
    for (const [, name] of plain.matchAll(/^(?:\} |typedef struct \w+ )(gd_\w+);/gm))
        names.add(name);
    for (const [, name] of plain.matchAll(/^#define (GD_\w+)/gm)) names.add(name);
    return [...names ];
}

// {html, title, headings, names}
function render(file) {
    const blocks = parse(file), headings = [], names = [];
    const about = words(blocks[0].comment || '');
    const [first, ...rest] = about.split('\n');
    const title = first.replace(/^\w+\.h - /, '').replace(/\.$/, '');
    const name = file.replace('include/', '');
    headings.push({depth : 1, text : `${name}: ${title}`, id : 'top'});
    let html = `<h1 id="top"><code>${name}</code></h1>\n<p class="lead">${escape(title)}</p>\n` +
               (rest.join('').trim() ? prose(rest.join('\n').trim()) : '') +
               `<p><a href="code-${file.replace(/\//g, '-')}.html">The header itself</a></p>`;
    for (const block of blocks.slice(1)) {
        if (block.section) {
            const id = slug(block.section);
            headings.push({depth : 2, text : block.section, id});
            html += `<h2 id="${id}">${escape(block.section)}</h2>\n`;
            continue;
        }
        const declared = namesIn(block.code);
        names.push(...declared);
        for (const id of declared) headings.push({depth : 3, text : id, id});
        html += '<section class="entry">' + declared.map((id) => `<a id="${id}"></a>`).join('') +
                (block.code ? `<pre class="code">${highlight(block.code)}</pre>` : '') +
                (block.comment ? prose(words(block.comment)) : '') + '</section>\n';
    }
    return {html, title : name, headings, names};
}

module.exports = {render};
