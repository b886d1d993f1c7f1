// site.js - makes the study: a folder of pages that opens from a file, made of the project's own
// texts and sources, with numbers from its own code.
//
//     node study/site/site.js FOLDER_OF_THE_WASM_PROGRAMS FOLDER_TO_WRITE [ADDRESS [SOURCE]]
'use strict';
const fs = require('fs');
const path = require('path');
const zlib = require('zlib');
const {katexFolder, escape, plain} = require('./tools.js');
const sources = require('./sources.js');
const markdown = require('./markdown.js');
const code = require('./code.js');
const curves = require('./curves.js');
const lines = require('./lines.js');
const marks = require('./marks.js');
const reference = require('./reference.js');
const rmsNorm = require('./rms_norm.js');
const tapes = require('./tapes.js');
const kernel = require('./kernel.js');
const lessons = require('./lessons.js');
const {steps} = require('./steps.js');
const frame = require('./page.js');
require('../page/wasi.js');
const Gradus = require('../page/module.js');
const {example} = require('../page/examples.js');
const runStep = require('../page/steps.js');
const exercises = require('../page/exercises.js');
const pictures = require('../page/pictures.js');
const expression = require('../page/expression.js');
const formula = require('../page/formula.js');
const Training = require('../page/train.js');
const worked = require('../page/worked.js');

const [programs, out] = process.argv.slice(2, 4).map((folder) => path.resolve(folder));
const about = sources.table('study/pages/about.md');
const given = sources.table('study/pages/given.md');
const publish = require('./publish.js');
const whole = publish.site(process.argv[4], process.argv[5]);
const files = sources.list(), known = new Set(files);
const search = [];

// ---- Writing -----------------------------------------------------------------------------------

// The stops of the path, as study/index.md has them: [{href, title}].
const path_of_stops = [...sources.read('study/index.md')
    .matchAll(/^\d+\. \[\*\*(.+?)\*\*\]\(([^)]+)\)/gm) ].map(
    ([ , title, target ]) => {
        const [file, anchor] = path.posix.normalize(path.posix.join('study', target)).split('#');
        return {title, href : (sources.page(file) || path.posix.basename(file)) +
            (anchor ? '#' + anchor : '')};
    });

function stopsOf(name) {
    const all = [ {title : 'The beginning', href : 'index.html'}, ...path_of_stops ];
    return all
        .map((stop, number) => ({number, before : all[number - 1], after : all[number + 1],
            href : stop.href}))
        .filter((stop) => stop.number && stop.href.split('#')[0] === name);
}

// The first sentences of a page, in words alone, and none of them cut.
function leadOf(html) {
    for (const [ , paragraph ] of html.matchAll(/<p[^>]*>([^]*?)<\/p>/g)) {
        if (/katex|A guess first/.test(paragraph)) continue;
        let said = '';
        for (const sentence of plain(paragraph).split(/(?<=[.?!]) (?=[A-Z])/)) {
            if (!/^[A-Z].*[.?!]$/.test(sentence) || said.length + sentence.length > 160) break;
            said += (said && ' ') + sentence;
        }
        if (said.length >= 40) return said;
    }
    return '';
}

// A page, and its entries in the search: one a heading.
function write(name, page) {
    fs.writeFileSync(path.join(out, name), frame({
        here : name,
        site : whole,
        stops : stopsOf(name),
        description : leadOf(page.html) ||
            `This is ${page.title}, of gradus, a library in C and CUDA for backpropagation.`,
        hidden : /^code-(tests|bench)-|-notes\.html$|^404/.test(name),
        ...page
    }));
    if (page.kind === 'listing') {
        search.push({title : page.title, page : 'code', href : name, text : ''});
        return;
    }
    const parts = page.html.split(/(?=<h[1-3] id=|<a id=")/);
    for (const part of parts) {
        const id = /^<(?:h[1-3]|a) id="([^"]*)"/.exec(part);
        const heading = /^<h[1-3][^>]*>([^]*?)<\/h/.exec(part);
        const title = heading ? plain(heading[1])
                      : id    ? id[1]
                              : page.title;
        search.push({
            title,
            page : page.title,
            href : name + (id ? '#' + id[1] : ''),
            text : plain(part).slice(0, 600),
            ...(/^<h1/.test(part) || part === parts[0]
                ? {about : [...page.about || [], ...(about[name] || '').split(', ') ]} : {})
        });
    }
}

// ---- Ops ---------------------------------------------------------------------------------------

// The ops whose records stand in the folder of a README.
function opsOf(readme, gradus) {
    const folder = path.dirname(readme);
    const text = files.filter((file) => path.dirname(file) === folder && /\.(c|def)$/.test(file) &&
                                   !sources.isTest(file))
                     .map(sources.read)
                     .join('\n');
    return gradus.ops()
        .map((op) => op.name)
        .filter(
            (name) => new RegExp(`const gd_op gd_op_${name} =|` +
                                     `^[A-Z]+\\(${name},`,
                'm').test(text));
}

function workedExample(gradus, op, symbols, lineOf, home) {
    const it = {...example(gradus, op), home}, pairs = symbols.map((s) => [s.tex, s.name]);
    const result = worked.compute(gradus, it);
    const body = worked.render(it, result, (tex) => markdown.formula(tex, false, symbols),
        pairs, lineOf);
    const variants = it.own.variants ? `<select data-act="variant" aria-label="eps">${
                                           Object.keys(it.own.variants)
                                               .map((v) => `<option${
                                                        it.own.variants[v][0] === it.own.case
                                                            ? ' selected'
                                                            : ''}>${v}</option>`)
                                               .join('')}</select>`
                                     : '';
    return `<h3 id="worked-${op}">${it.own.title || `${op}: <code>${
        escape(gradus.find(op).formula)}</code>`}</h3>${
        given[op] ? `<p class="given">Here: ${escape(given[op])}.</p>` : ''}
${pictures.html({it, result, gradus})}
<div class="worked" data-op="${op}"><div class="controls">${
        it.own.steps
            ? '<button type="button" data-act="step">Step</button><button type="button" ' +
                'data-act="back">Back</button><button type="button" data-act="all">All steps</button>'
            : ''}<button type="button" data-act="again">As it was</button>${variants}</div>
<div class="body">${body}</div></div>`;
}

// home: the page that has the marks.
function workedExamples(gradus, ops, symbols, lineOf, home) {
    if (!ops.length) return '';
    const examples = ops.map((op) => workedExample(gradus, op, symbols, lineOf, home));
    if (ops[0] === rmsNorm.row) return examples[0];
    return `<h2 id="worked">Worked ${ops.length > 1 ? 'examples' : 'example'}</h2>
<p>The numbers are the library's own, in float64, from its WebAssembly build. With JavaScript they
follow your input.</p>` +
           (ops.length > 4 ? ops.map((op, i) => `<details><summary><code>${op}</code></summary>${
                                         examples[i]}</details>`)
                           : examples)
               .join('\n');
}

// A derivation whose lines stand beside its steps does not end in them as well; what it says of
// their files stays.
const once = (html) => html
    .replace(/(<strong>In the code<\/strong>(?:(?!<\/p>)[^])*?):<\/p>\s*(<pre class="code">[^]*?<\/pre>)/g, (whole, words, block) => {
    const marks = [...block.matchAll(/class="mark"[^>]*data-mark="([^"]*)"/g) ]
        .map(([ , mark ]) => mark);
    return marks.length && marks.every((mark) => html.includes(`<div class="beside" data-mark="${
        mark}">`)) ? `${words}, beside each step.</p>` : whole;
});

// The parts of an op's page, as HTML; worked(list) are the examples of some of its ops.
function opParts(gradus, readme, page) {
    const ops = opsOf(readme, gradus).filter((op) => gradus.find(op).backward);
    const found = marks.ofFolder(readme, files);
    const symbols = markdown.symbolsOf(sources.read(readme));
    const names = Object.fromEntries(symbols.map((s) => [s.code, s.name]));
    const bugs = gradus.bugs().filter((bug) => ops.includes(bug.op));
    let practice = '';
    if (bugs.length)
        practice += `<h2 id="break">Break it</h2><p><a href="break.html#${bugs[0].op}">${
            bugs.length} ways to get ${
            ops.length > 1 ? 'these backwards'
                           : 'this backward'} wrong</a>, and what gradcheck reports for each.</p>`;
    const exercised = ops.filter((op) => exercises.all.some((e) => e.op === op));
    if (exercised.length)
        practice += `<h2 id="exercise">Write it</h2><p>An exercise, which gradcheck answers: ${
            exercised.map((op) => `<a href="exercises.html#${op}">${op}</a>`).join(', ')}.</p>`;

    // The derivation ends in its lines of code; what follows there is about kernels.
    const blocks = [...page.html.matchAll(/<pre class="code">[^]*?<\/pre>/g) ].filter(
        ([ block ]) => block.includes('class="mark"'));
    const last = blocks[blocks.length - 1];
    const at = last ? last.index + last[0].length : page.html.length;
    const folder = path.dirname(readme);
    return {
        ops,
        practice,
        derivation : once(lines.beside(page.html.slice(0, at), found, names)),
        worked : (list) => workedExamples(gradus, list, symbols,
            (mark) => lines.ofMark(mark, found, names), sources.page(readme)),
        rest : page.html.slice(at),
        files : /<h2 id="files">/.test(page.html) ? '' : '<h2 id="files">Files</h2><ul>' +
                    files.filter((file) => path.dirname(file) === folder && sources.isCode(file))
                        .map((file) => `<li><a href="${sources.page(file)}">${
                            path.basename(file)}</a></li>`)
                        .join('') +
                    '</ul>'
    };
}

// A page with the headings that its HTML has.
const withHeadings = (page) => ({
    ...page,
    headings : [...page.html.matchAll(/<h2 id="([^"]*)">([^]*?)<\/h2>/g) ].map(
        ([, id, text ]) => ({depth : 2, id, text : plain(text)}))
});

// What a page needs for the examples of its ops.
const live = (ops) => [
    'wasi.js', 'module.js', 'examples.js', 'worked.js',
    ...(ops.some((op) => pictures.pictures[op]) ? [ 'player.js', 'drawings.js',
        'pictures.js' ] : [])
];

// What the search, and a page that links here, say of an op's page.
const listed = (ops) => (ops.length > 5 ? `${ops.slice(0, 5).join(', ')} and others`
    : ops.join(', ').replace(/, (\w+)$/, ' and $1'));
const told = (title, ops, readme) => (ops.length ? {
    title : `Backward of ${title.length > 40 ? `${
        path.basename(path.dirname(readme))} ops` : title}`,
    description : `The backward of ${
        listed(ops)} is derived step by step, beside its lines of C; the numbers follow your input, and a checker answers.`,
} : {});

function opPage(gradus, readme, page) {
    const {ops, practice, derivation, worked : examples, rest, files : list} = opParts(gradus,
        readme, page), home = sources.page(readme);
    const apart = ops.filter((op) => !sources.place(home, `worked-${op}`).startsWith(home)),
        here = ops.filter((op) => !apart.includes(op));
    if (apart.length) write(sources.oneVariable, withHeadings({kind : 'op',
        ...told('functions of one variable', apart, readme),
        html : `<h1 id="top">Functions of one variable, with numbers</h1>
<p>Their slopes are derived <a href="${home}">with the others</a>.</p>${examples(apart)}`,
        scripts : live(apart)}));
    const middle = `${examples(here)}${apart.length ? `<p><a href="${
        sources.oneVariable}#worked">Functions of one variable</a> have a page of their own.</p>`
        : ''}${practice}`;
    const title = middle && rest.trim() && !/^\s*<h2/.test(rest)
        ? '<h2 id="how-it-runs">How it runs</h2>' : '';
    return withHeadings({...page, kind : 'op', ...told(page.title, ops, readme),
        html : derivation + middle + title + rest + list, scripts : live(here)});
}

// RMSNorm has three pages: the derivation, its numbers, and its way to a GPU.
function normPages(gradus, readme, page) {
    const {ops, practice, derivation, worked : examples, rest, files : list} = opParts(gradus,
        readme, page);
    const sections = rest.split(/(?=<h2 id=")/),
        named = (id) => sections.find((html) => html.startsWith(`<h2 id="${id}">`)) || '';
    const gpu = named('on-a-gpu'), rungs = named('the-ladder');
    const cpu = sections.filter((html) => !gpu.includes(html) && html !== rungs).join('');
    const it = example(gradus, 'rms_norm');
    const [first, numbers, last] = rmsNorm.pages;
    const parts = (here) => `<nav class="parts" aria-label="pages on RMSNorm">${
        rmsNorm.pages
            .map(({name, part}) => `<a href="${name}"${
                name === here.name ? ' aria-current="page"' : ''}>${part}</a>`)
            .join('')}</nav>`;
    const put = (here, html, more = {}) =>
        write(here.name, withHeadings({...page, title : here.title,
            html : html.replace(/(<\/h1>)/, `$1${parts(here)}`), about : here.about,
            description : here.description, ...more}));
    put({...first, about : ops, kind : 'op'}, derivation + prose('cheat-sheet').html + practice +
        cpu + list);
    const row = () => examples([ rmsNorm.row ]),
        walk = () => rmsNorm.walk(it, worked.compute(gradus, it));
    put(numbers, prose('rms_norm-worked', {row, walk}).html + examples(ops),
        {kind : 'op', scripts : [...live(ops), 'walk.js' ]});
    put(last, `<h1 id="top">RMSNorm on a GPU</h1><p class="lead">From a thread for each row, twenty times slower than the memory, to the
library's kernel: one idea at a time, and then the whole of it.</p>${
    rmsNorm.ladder(rungs, prose('ladder').html)}${kernel.walk(it.request.inputs.x.slice(0, 8))}${
    gpu}${rmsNorm.peers()}${prose('glossary').html}`,
    {scripts : [ 'examples.js', 'worked.js', 'player.js', 'kernel.js', 'ladder.js' ]});
}

// ---- Pages of text -----------------------------------------------------------------------------

// A page whose text is study/pages/NAME.md; blocks: what is made for it, by the words of its places.
function prose(name, blocks = {}) {
    const file = `study/pages/${name}.md`;
    return markdown.render(file, sources.read(file), {known, blocks});
}

function writeProse(name, blocks, more = {}) {
    write(`${name}.html`, {...withHeadings(prose(name, {...blocks,
        language : () => `${prose('language').html}<p>There are ${formula.names
            .map((each) => `<code>${each}</code>`).join(', ')}.</p>`})), ...more});
}

const firstDescription =
    'Learn how backpropagation works: nine short lessons with figures to play with, exercises ' +
        'that a checker answers, and a C library that runs in the page.';

function textPages(gradus, expressions, printed) {
    const blocks = lessons.blocks({gradus, expressions, printed}), homes = homesOf(gradus);
    // A page's figures and exercises, and the scripts that these take.
    const withFigures = (page) => {
        const named = [...page.html.matchAll(/<!-- exercise: (\w+) -->/g) ]
            .map(([ , name ]) => name);
        const html = page.html.replace(/<!-- exercise: (\w+) -->/g,
            (_, name) => exercisePanel(gradus, exercises.all.find((e) => (e.key || e.op) === name),
                0, homes, 3));
        const figures = /class="(panel tape|panel curve slope|guess|panel drawn still|panel count)"/
            .test(html);
        return {...page, html, scripts :
            [...new Set([...page.scripts || [], ...(figures ? lessons.scripts : []),
                ...(named.length ? exerciseScripts : []),
                ...(html.includes('program-step') ? [ 'wasi.js', 'steps.js' ] : []) ]) ]};
    };
    for (const file of files.filter((name) => name.endsWith('.md') && sources.page(name)).sort()) {
        const source = sources.read(file);
        const found = Object.fromEntries(
            marks.ofFolder(file, files).reverse().map((at) => [at.mark, {...at}]));
        const page = markdown.render(
            file, source, {known, marks : found, symbols : markdown.symbolsOf(source),
                blocks : file.startsWith('study/') ? blocks : {}});
        if (file === 'study/index.md') {
            const first = withFigures(page);
            write('index.html', {...first, headings : [], title : 'Backpropagation, step by step',
                kind : 'index', description : firstDescription});
            continue;
        }
        if (file.startsWith('study/lessons/')) {
            write(sources.page(file), {...withFigures({...page, html : lessons.screens(page.html)}),
                headings : [], kind : 'lesson'});
            continue;
        }
        const op = /^kernels\/\w+\/README\.md$/.test(file);
        if (file === 'docs/numerics.md') {
            page.html = page.html.replace('<h2 id="tolerances">', `${curves.error}$&`);
            page.headings.splice(page.headings.findIndex(({id}) => id === 'tolerances'), 0,
                {depth : 2, id : 'error-over-step', text : 'Why does my check fail?'});
            page.scripts = [ 'curves.js' ];
        }
        if (file === 'kernels/rms_norm/README.md')
            normPages(gradus, file, page);
        else
            write(sources.page(file), op ? opPage(gradus, file, page) : {...withFigures(page),
                ...(file === 'README.md' ? {title : 'The library'} : {})});
    }
    for (const file of files.filter((name) => /\.(svg|png)$/.test(name)))
        fs.copyFileSync(sources.path(file), path.join(out, path.basename(file)));
}

// ---- Code, reference, ops ----------------------------------------------------------------------

function codePages() {
    const shown = files.filter(sources.isCode);
    for (const file of shown) {
        const readme = path.posix.join(path.posix.dirname(file), 'README.md');
        const name = `code-${file.replace(/\//g, '-')}.html`;
        write(name, {
            title : file,
            kind : 'listing',
            html : `<h1 id="top">${file.split('/').join('/<wbr>')}</h1>${
                known.has(readme)
                    ? `<p><a href="${sources.page(readme)}">the derivation</a></p>`
                    : ''}${code.listing(file, known.has(readme) ? sources.page(readme) : '')}`,
        });
    }
    const folders = [...new Set(shown.map((file) => path.posix.dirname(file))) ];
    write('code.html', {
        title : 'Code',
        html : '<h1 id="top">Code</h1>' +
                   folders
                       .map((folder) => `<h2 id="${folder.replace(/\//g, '-')}">${folder}</h2><ul>${
                                shown.filter((file) => path.posix.dirname(file) === folder)
                                    .map((file) =>
                                             `<li><a href="code-${file.replace(/\//g, '-')}.html">${
                                                 path.posix.basename(file)}</a></li>`)
                                    .join('')}</ul>`)
                       .join('\n'),
    });
}

function referencePages() {
    const pages = files.filter((file) => file.startsWith('include/gradus/'))
                      .map((file) => ({file, ...reference.render(file)}));
    for (const page of pages) write(sources.page(page.file), page);
    write('reference.html', {
        title : 'Reference',
        html : '<h1 id="top">Reference</h1><p class="lead">Every public function, by header.</p>' +
                   pages
                       .map((page) => `<h2 id="${path.basename(page.file, '.h')}"><a href="${
                                sources.page(page.file)}">${page.title}</a></h2><p>${
                                page.headings[0].text.replace(/^[^:]*: /, '')}</p><p>${
                                page.names
                                    .map((name) => `<a href="${sources.page(page.file)}#${
                                             name}"><code>${name}</code></a>`)
                                    .join(' &middot; ')}</p>`)
                       .join('\n'),
    });
}

function opsPage(gradus) {
    const readmes = files.filter((file) => /^kernels\/\w+\/README\.md$/.test(file));
    const rows = readmes.flatMap((readme) => opsOf(readme, gradus).map((name) => {
        const op = gradus.find(name);
        const at = op.backward ? sources.place(sources.page(readme), `worked-${name}`)
            : sources.page(readme);
        return `<tr><td><a href="${at}"><code>${
            name}</code></a></td><td><code>${escape(op.formula)}</code></td><td align="right">${
            op.cases.length}</td></tr>`;
    }));
    // Each op is found by its name, and by the shorter one that people type.
    for (const readme of readmes)
        for (const name of opsOf(readme, gradus).filter((name) => gradus.find(name).backward))
            search.push({
                title : name,
                page : 'op',
                href : sources.place(sources.page(readme), `worked-${name}`),
                text : gradus.find(name).formula,
                about : [name, name.replace(/2d$/, ''), name.replace(/_(loss|div|with_logits).*$/,
                    ''), `backward of ${name}`, `${name} gradient` ]
            });
    writeProse('ops', {ops : () => `<div class="wide"><table><thead><tr><th>op</th><th>formula</th><th>cases of gradcheck</th></tr></thead><tbody>${
        rows.join('')}</tbody></table></div>`});
}

// ---- Break it ----------------------------------------------------------------------------------

function breakPage(gradus) {
    const bugs = gradus.bugs().map((bug, i) => ({...bug, i, ...gradus.breakIt(i, false)}));
    const ops = [...new Set(bugs.map((bug) => bug.op)) ];
    const said = (bug) =>
        bug.report.inputs
            .flatMap((input) => [input.finding, input.behaviour].filter(Boolean).map(
                         (text) => `${input.name}: ${text}`))
            .join('; ');
    const options =
        ops.map((op) => `<optgroup label="${op}">${
                    bugs.filter((b) => b.op === op)
                        .map((b) => `<option value="${b.i}">${op}: ${escape(b.what)}</option>`)
                        .join('')}</optgroup>`)
            .join('');
    const list = ops.map((op) => `<h3 id="${op}">${op}</h3><div class="wide"><table><tbody>${
                             bugs.filter((b) => b.op === op)
                                 .map((b) => `<tr data-bug="${b.i}"><td>${
                                          escape(b.what)}</td><td class="${
                                          b.report.verdict === 'PASS' ? 'good' : 'bad'}">${
                                          b.report.verdict}</td><td>${escape(said(b))}</td></tr>`)
                                 .join('')}</tbody></table></div>`)
                     .join('\n');
    writeProse('break', {
        panel : () => `<div class="panel" id="break"><div class="controls"><select aria-label="mistake" id="bug">${
            options}</select> <button type="button" id="run">Check</button></div>
<div id="result"><noscript>Choosing one needs JavaScript. What gradcheck reports for each is listed
below.</noscript></div></div>`,
        all : () => `<p>${bugs.length} mistakes, all of which must fail.</p>${list}`
    }, {scripts : [ 'wasi.js', 'worker.js', 'examples.js', 'worked.js', 'break.js' ]});
}

// ---- Exercises ---------------------------------------------------------------------------------

// The lines to choose from, in the place of one of the lines that are given.
function choice(exercise, i) {
    const given = exercise.answer.split('\n'),
        pre = (list) => (list.length ? `<pre class="code words">${
            escape(list.join('\n'))}</pre>` : '');
    const radios = exercises.lines(exercise).map(
        (line, k) => `<label class="line-choice"><input type="radio" name="choice-${i}" value="${
            k}"> <code>${escape(line)}</code></label>`);
    return `${pre(given.slice(0, exercise.at))}<fieldset><legend>Which line comes ${
        given.length > 1 ? 'here' : 'in'}?</legend>${radios.join('')}</fieldset>${
            pre(given.slice(exercise.at + 1))}`;
}

const exerciseScripts = [ 'wasi.js', 'worker.js', 'practice.js', 'exercises.js' ];

// The page of each op.
const homesOf = (gradus) => Object
    .fromEntries(files.filter((file) => /^kernels\/\w+\/README\.md$/.test(file))
                                                   .flatMap((file) => opsOf(file,
                                                       gradus).map((op) => [op, file])));

function exercisePanel(gradus, exercise, number, homes, level) {
    const {op, answer} = exercise, i = exercises.all.indexOf(exercise), id = exercise.key || op;
    const numbers = Object.entries(exercise.numbers || {}).map(([ name, v ]) => `${name} = ${
        v === Math.PI ? '3.14159...' : v}`).join(', ');
    return `<div class="panel exercise" data-exercise="${i}"><h${level} id="${id}" class="small">${
        number ? number + '. ' : ''}${id}<span class="state good"></span></h${level}>
<p>${escape(exercise.says || gradus.find(op).formula)}${
    /\.$/.test(exercise.says || '') ? '' : '.'}${
        numbers && !exercise.says ? ` Here ${numbers}.` : ''} <a href="${
            sources.page(homes[op])}">the derivation</a></p>
${exercise.wrong ? choice(exercise, i)
                 : `<textarea rows="${answer.split('\n').length +
                     2}" spellcheck="false" aria-label="the backward of ${op}">${
                     escape(exercise.begin)}</textarea>`}
<div class="controls"><button type="button" data-act="check">Check</button>${
        exercise.wrong ? '' : '<button type="button" data-act="again">As it was</button>'}</div>
<div class="answer" aria-live="polite"></div>
<details><summary>An answer</summary><pre class="code words">${
    escape(exercise.wrong ? answer.split('\n')[exercise.at] : answer)}</pre></details></div>`;
}

function exercisesPage(gradus) {
    const readmes = files.filter((file) => /^kernels\/\w+\/README\.md$/.test(file));
    const homes = homesOf(gradus);
    const rest = readmes.map((file) =>
        ({file, list : exercises.all.slice(exercises.ladder.length).filter(({op, key}) => !key &&
            homes[op] === file)}))
                     .filter(({list}) => list.length);
    const title = (file) => plain(markdown.render(file, sources.read(file), {known}).title);
    writeProse('exercises', {
        ladder : () => exercises.ladder.map((e, i) => exercisePanel(gradus, e, i + 1, homes, 2))
            .join('\n'),
        rest : () => rest.map(({file, list}) => `<details class="group"><summary>${
            escape(title(file))}: ${list.length}</summary>${
            list.map((e) => exercisePanel(gradus, e, 0, homes, 3)).join('\n')}</details>`)
            .join('\n')
    }, {
        scripts : exerciseScripts,
        title : 'Exercises',
        headings : [
            ...exercises.ladder.map((e, i) => ({depth : 2, id : e.op, text : `${i + 1}. ${e.op}`})),
            {depth : 2, id : 'every-op', text : 'Every other op'}
        ]
    });
}

// ---- Live training -----------------------------------------------------------------------------

async function trainPage() {
    const text = files.filter((file) => file.startsWith('include/gradus/')).map(sources.read)
        .join('\n');
    // A run, so that there is something to see before the reader's own.
    const training = await Training.load(fs.readFileSync(path.join(programs, 'study_train.wasm')),
        text), {loss} = training.open(1);
    const losses = Array.from({length : 50}, () => training.step(0.003).loss);
    writeProse('train', {
        panel : () => `<div class="panel" id="train"><div class="controls"><button type="button" data-part="go">Train</button><button type="button" data-part="again">Restart</button><label>learning rate <select data-part="rate"><option>0.0003</option><option>0.001</option><option selected>0.003</option><option>0.01</option><option>0.1</option></select></label></div>
<p data-part="said" aria-live="polite">The loss of a run of ${losses.length} steps, from ${
    loss.toFixed(3)} to ${losses[losses.length - 1]
    .toFixed(3)}, when this page was made. Yours takes its place.</p><svg data-part="loss" viewBox="0 0 640 220" role="group" aria-label="loss over the steps">${Training.plot(losses, loss)}</svg>
<h2 class="small">What it writes</h2><pre class="code words" data-part="sample">${
    escape(training.sample(200, 0.8))}</pre>
<details><summary>The text it learns from, or your
own: 66 bytes or more</summary><textarea data-part="text" rows="12" aria-label="text to learn from"></textarea></details>
<noscript>Training takes JavaScript.</noscript></div>`
    }, {title : 'Train', scripts : [ 'train-wasm.js', 'wasi.js', 'worker.js', 'train.js' ]});
    carry('train', 'study_train', `trainText = ${JSON.stringify(text)};\n${
        scriptsFor('train', [ 'wasi.js', 'train.js' ])}`);
}

// ---- Modules -----------------------------------------------------------------------------------

// NAME-wasm.js: a module as a script, since a page opened from a file may not fetch. Packed, as
// wasi.unpack() takes it: base64 of the bytes themselves would leave a server little to compress.
function carry(name, program, more = '') {
    const bytes = zlib.gzipSync(fs.readFileSync(path.join(programs, `${program}.wasm`)),
        {level : 9});
    fs.writeFileSync(path.join(out, `${name}-wasm.js`),
        `${name}Wasm = '${bytes.toString('base64')}';\n${more}`);
}

// The scripts of a worker that runs the module, for page/worker.js.
const scriptsFor = (name, scripts) =>
    `${name}Scripts = ${JSON.stringify(scripts.map((script) => sources.read(`study/page/${script}`))
        .join('\n'))};\n`;

// ---- All of it ---------------------------------------------------------------------------------

async function main() {
    fs.mkdirSync(path.join(out, 'katex/fonts'), {recursive : true});
    const load = (name) => Gradus.load(fs.readFileSync(path.join(programs, `${name}.wasm`)));
    const gradus = await load('study_ops'), faults = await load('study');
    // only their module has them, and only the other shows the steps
    gradus.planted = faults.bugs();
    carry('ops', 'study_ops');
    carry('gradus', 'study',
        scriptsFor('gradus', [ 'wasi.js', 'module.js', 'formula.js', 'check.js' ]));
    carry('expression', 'study_expression');
    carry('steps', 'study_hundred');
    const hundred = fs.readFileSync(path.join(programs, 'study_hundred.wasm'));
    const expressions = await expression.Expressions
        .load(fs.readFileSync(path.join(programs, 'study_expression.wasm')));
    // comments are a seventh of what a page would load
    for (const file of fs.readdirSync(path.join(__dirname, '../page')))
        fs.writeFileSync(path.join(out, file),
            sources.read(`study/page/${file}`).replace(/^ *\/\/.*\n/gm, ''));
    fs.copyFileSync(path.join(katexFolder, 'katex.min.css'), path.join(out, 'katex/katex.min.css'));
    for (const font of fs.readdirSync(path.join(katexFolder, 'fonts'))
             .filter((name) => name.endsWith('.woff2')))
        fs.copyFileSync(path.join(katexFolder, 'fonts', font), path.join(out, 'katex/fonts', font));
    textPages(gradus, expressions, await Promise.all(steps.map((_, i) => runStep(hundred, i))));
    opsPage(gradus);
    referencePages();
    codePages();
    breakPage(faults);
    exercisesPage(gradus);
    writeProse('vanishing', {stack : () => curves.stack}, {scripts : [ 'curves.js' ]});
    await trainPage();
    const drawn = await tapes.programs(programs, [ 'fit_line', 'mlp', 'custom_op',
        'transformer_block' ]);
    writeProse('tape', {program : (name) => drawn[name.trim()]}, {scripts : lessons.scripts});
    writeProse('expression', {editor : () => tapes.editor(expressions)},
        {scripts : [...lessons.scripts, 'editor.js' ]});
    for (const page of publish.pages()) write(page.name, page);
    publish.files(out, whole);
    fs.writeFileSync(path.join(out, 'search.js'), `searchIndex = ${JSON.stringify(search)};\n`);
    console.log(
        `${fs.readdirSync(out).filter((name) => name.endsWith('.html')).length} pages in ${out}`);
}

main().catch((error) => {
    // KaTeX is one line of 300 kB, which a stack trace would quote.
    console.error(`study: ${error.message}\n${
        String(error.stack)
            .split('\n')
            .filter((line) => /^\s+at /.test(line))
            .slice(0, 6)
            .join('\n')}`);
    process.exitCode = 1;
});
