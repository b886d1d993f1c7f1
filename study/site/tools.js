// tools.js - KaTeX and marked, from wherever Debian's packages or npm put them.
'use strict';

function find(name, ...places) {
    for (const place of [name, ...places]) {
        try {
            return require(place);
        } catch (error) {
            if (error.code !== 'MODULE_NOT_FOUND') throw error;
        }
    }
    throw new Error(`node cannot find ${name} (Debian: libjs-katex, node-marked)`);
}

exports.katex = find('katex', '/usr/share/nodejs/katex', '/usr/share/javascript/katex/katex.js');
exports.marked = find('marked', '/usr/share/nodejs/marked');
exports.katexFolder = '/usr/share/javascript/katex';

exports.escape = (text) => String(
    text).replace(/&/g, '&amp;')
                               .replace(/</g, '&lt;')
                               .replace(/>/g, '&gt;')
                               .replace(/"/g, '&quot;');

// The words of a piece of HTML. Of a formula there are two, for the eye and for the ear: the first.
exports.plain = (html) => html.replace(/<(template|script|style|math)\b[^]*?<\/\1>/g, '')
                              .replace(/<a class="anchor"[^]*?<\/a>/g, '')
                              .replace(/<[^>]*>/g, ' ')
                              .replace(/&lt;/g, '<')
                              .replace(/&gt;/g, '>')
                              .replace(/&quot;/g, '"')
                              .replace(/&#39;/g, "'")
                              .replace(/&part;/g, '∂')
                              .replace(/&middot;/g, '·')
                              .replace(/&amp;/g, '&')
                              .replace(/\s+/g, ' ')
                              .replace(/ ([,.;:)])/g, '$1')
                              .trim();

// A heading or a title as the name of an anchor, as GitHub makes it.
exports.slug = (text) =>
    text.toLowerCase().replace(/<[^>]*>/g, '').replace(/[^\w\- ]/g, '').trim().replace(/ /g, '-');
