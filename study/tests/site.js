// site.js - the pages as files: every link leads somewhere, nothing comes from elsewhere, every
// public function is in the reference, every op has its example, and all of it is there without
// JavaScript.
//     node site.js FOLDER
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const sources = require('../site/sources.js');
const markdown = require('../site/markdown.js');
const ladder = require('../page/ladder.js');
const {ladder : exercises} = require('../page/exercises.js');
const {examples} = require('../page/examples.js');

const folder = process.argv[2];
// what GD_FUNCTION defines in the headers of formulas
const formulas = new Set(sources.list().filter((file) => /^kernels\/\w+\/(formula|functions)\.h$/
    .test(file)).flatMap((file) => [...sources.read(file)
    .matchAll(/^GD_FUNCTION [\w ]+?\b(\w+)\(/gm) ]).map(([ , name ]) => name));
const pages = Object.fromEntries(
    fs.readdirSync(folder)
        .filter((name) => name.endsWith('.html'))
        .map((name) => [name, fs.readFileSync(path.join(folder, name), 'utf8')]));
assert.ok(Object.keys(pages).length > 300);

// ---- Links -------------------------------------------------------------------------------------

let links = 0;
for (const [name, html] of Object.entries(pages)) {
    const ids = [...html.matchAll(/ id="([^"]*)"/g) ].map(([, id ]) => id);
    assert.equal(new Set(ids).size, ids.length,
        `${name}: an id twice: ${ids.find((id, i) => ids.indexOf(id) !== i)}`);
    for (const [, attribute, target] of html.matchAll(/ (href|src)="([^"]*)"/g)) {
        if (attribute === 'href' && /^https:\/\//.test(target))
            continue; // a link that a reader may follow
        if (/^data:,/.test(target)) continue;
        assert.doesNotMatch(target, /^\w+:|^\//, `${name}: ${target} is not in the folder`);
        const [file, anchor] = target.split('#');
        if (file)
            assert.ok(pages[file] || fs.existsSync(path.join(folder, file)),
                `${name}: there is no ${file}`);
        if (anchor)
            assert.ok((pages[file || name] || '').includes(` id="${anchor}"`),
                `${name}: nothing is called #${anchor} in ${file || name}`);
        links++;
    }
}

const addresses = fs.readFileSync(path.join(__dirname, '../addresses.txt'), 'utf8');
for (const name of addresses.split('\n').filter((line) => line && !line.startsWith('#')))
    assert.ok(pages[name], `${name}: its address was promised`);

// ---- Ready to be published ---------------------------------------------------------------------

for (const [name, html] of Object.entries(pages)) {
    assert.match(html, /<title>[^<]+ - gradus<\/title>/, name);
    assert.match(html, /<footer><a href="licences\.html">/, name);
    assert.match(html, /<meta property="og:title"[^>]*><meta property="og:type"/, name);
    assert.match(html, /<meta name="twitter:card"/, name);
    const about = /<meta name="description" content="([^"]*)">/.exec(html);
    // whole sentences that say what is there, and a name that people search
    assert.match(about?.[1] || '', /^[A-Z](?!.* [,.]).{39,}(?<!\.\.)[.?!]$/, name);
    if (html.includes('class="worked"'))
        assert.match(html, /<title>(Backward of|RMSNorm)/, name);
    assert.doesNotMatch(html, /<(?!canvas)\w+ [^>]*role="img"/,
        `${name}: a picture whose numbers are not read out`);
    assert.equal(html.includes('content="noindex"'),
        /^code-(tests|bench)-|-notes\.html$|^404/.test(name), name);
}
assert.match(pages['licences.html'], /MIT License/);
assert.match(pages['train.html'], /<polyline points="\d[^"]{300,}" class="smooth"/,
    'no run to see before the reader\'s own');
assert.ok(fs.existsSync(path.join(folder, 'icon.svg')));
// An op's page with the scripts and styles that it names, each compressed by gzip -9 as a server
// sends it, to the first visitor; and with the module, which comes with the first example, of many
// ops when one is opened. Not counted: KaTeX's fonts (those in use, 50 kB) and the search's index,
// which comes when one searches. The first page has a limit for its module alone.
const zlib = require('zlib');
for (const [name, html] of Object.entries(pages)) {
    const bytes = Buffer.byteLength(html);
    assert.ok(bytes <= 400000, `${name} has ${bytes} bytes`);
}
const gzipped = (file) => zlib.gzipSync(fs.readFileSync(path.join(folder, file)),
    {level : 9}).length;
let most = 0;
for (const [name, html] of Object.entries(pages)
    .filter(([, text ]) => text.includes('class="worked"'))) {
    const loaded = [...html.matchAll(/<(?:script|link)[^>]* (?:src|href)="([^":]+\.(?:js|css))"/g) ]
        .map(([ , file ]) => file);
    const first = [ name, ...loaded ].map(gzipped).reduce((a, b) => a + b),
        bytes = first + gzipped('ops-wasm.js');
    if (bytes > most) console.log(`${name}: ${
        first} bytes with what it loads, gzipped, and with the module ${bytes}`);
    assert.ok(!loaded.includes('ops-wasm.js') && first <= 100000,
        `${name} loads ${first} bytes at first, gzipped`);
    most = Math.max(most, bytes);
}
assert.ok(most <= 275000, `an op's page loads ${most} bytes, gzipped`);
// The first page and the lessons come without a module: it follows the first number that a reader
// changes.
const weight = (name) => [ name,
    ...[...pages[name].matchAll(/<(?:script|link)[^>]* (?:src|href)="([^":]+\.(?:js|css))"/g) ]
    .map(([ , file ]) => file) ].map(gzipped).reduce((a, b) => a + b);
const lessons = Object.keys(pages).filter((name) => name.startsWith('lesson-'));
assert.equal(lessons.length, 9);
for (const name of [ 'index.html', 'expression.html', ...lessons ]) {
    assert.doesNotMatch(pages[name], /src="[^"]*wasm\.js"/, name);
    const source = name.startsWith('lesson-') &&
        sources.read(`study/lessons/${name.slice(7, -5)}.md`);
    // Words of text, guesses among them; not the numbers of figures.
    const words = source && source.replace(/^```(?!guess)\w+\n[^]*?^```$/gm,
        '').replace(/^```.*$|<!--[^]*?-->/gm, '').trim().split(/\s+/).length;
    console.log(`${name}: ${weight(name)} bytes${words ? `, ${words} words` : ''}`);
    assert.ok(weight(name) <= (words ? 60000 : 100000),
        `${name} loads ${weight(name)} bytes, gzipped`);
    if (!words) continue;
    assert.ok(words <= 300, `${name} has ${words} words`);
    // the lesson's own case, and one farther away
    assert.equal((source.match(/^<!-- exercise: \w+ -->$/gm) || []).length, 2, name);
    for (const screen of source.split(/^## /m))
        assert.ok((screen.match(/^```(tape|curve|picture|count)$/gm) || []).length <= 1,
            `${name}: two figures on a screen`);
}

// What the lessons say, compared with what they show.
const said = (name, words) => words.exec(sources.read(`study/lessons/${name}.md`))[1];
const spoken = [ 'zero', 'one', 'two', 'three', 'four', 'five' ];
assert.equal(said('sum-and-broadcast', /for a row of (\w+)\./), spoken[examples.sum.shapes.x[1]]);
for (const name of [ 'a', 'b' ])
    assert.equal(said('matrix-product', new RegExp(`\\b${name} is \\[([\\d, ]+)\\]`)),
        examples.matmul.shapes[name].join(', '));
const loss = (p) => new Function('p_t',
    `return ${said('cross-entropy', /Why not \$([^$]*)\$ as the loss/)}`)(p);
assert.ok(loss(0.9) < loss(0.1), 'a loss that grows with the share of the truth');
// each over all k
const softmax = exercises.find(({op}) => op === 'softmax').answer.match(/\*/g).length;
assert.equal(said('softmax', /that is (\d) N products/), String(softmax));
for (const [name, html] of Object.entries(pages)) {
    let next = 1;
    for (const [ , start = '1', items ] of html.matchAll(/<ol(?: start="(\d+)")?>([^]*?)<\/ol>/g)) {
        assert.ok(start === '1' || Number(start) === next, `${name}: a sentence that begins with ${
            start}. became a list`);
        next = Number(start) + items.split('<li>').length - 1;
    }
}
// The line beside a step computes it, and a helper that it calls stands below.
const stepOf = (page, op, tensor) => pages[page].split(`class="worked" data-op="${op}"`)[1]
    .split(/class="step"|class="worked"/).find((s) => s.includes(`data-tensor="step ${tensor}"`))
    .replace(/<[^>]*>/g, '').replace(/\s+/g, ' ');
for (const [page, op, tensor, ...words] of [
         [ 'batch_norm', 'batch_norm', 'dx', 'return scale * (d - mean_d - xhat' ],
         [ 'batch_norm', 'batch_norm_fixed', 'dx', 'value = w * rstd * (double)dy[at];' ],
         [ 'axis', 'gather', 'dx', 'dx[t_i] += dy[i];' ],
         [ 'axis', 'scatter_add', 'ds', 'ds[i] += dy[t_i];' ],
         [ 'reduce', 'logsumexp', 'dx', 'weight = GD_EXP(x - y);', ': dy * weight;' ],
         [ 'rope', 'rope', 'sin', 'sine[i] = way * (REAL)sin(' ],
         [ 'elementwise-one', 'tanh', 'dx', 'y = tanh(x); dx = dy * (1 - y * y);' ],
         [ 'elementwise', 'pow_tensor', 'da', 'da = dy * base_slope(a, b);', 'b * pow(a, b - 1);',
             'pow(a, b) * log(a);' ],
         [ 'loss', 'huber_loss', 'dx', 'dx = dy * clamp(', 'REAL clamp(', 'REAL huber(' ],
         [ 'loss', 'kl_div', 'dx', 'REAL kl_share(', 'REAL kl_target_slope(', 'REAL kl_div(' ]
     ])
    for (const word of words) assert.ok(stepOf(`${page}.html`, op, tensor).includes(word), `${op}: ${
        word}`);
for (const [name, html] of Object.entries(pages)) {
    const boxes = html.match(/<div class="line-of">[^]*?<\/div>/g) || [];
    for (const box of boxes)
        assert.doesNotMatch(box, /\b(OUTPUT|INPUTS?|NOTHING|STEPS|SMOOTH|KINKS|GD_NONE)\b|GD_MATH/,
            `${name} shows what a row has for kernels and tests`);
    // Every function of formulas that is called in a box of its page has its body there.
    const code = boxes.join('\n').replace(/<[^>]*>/g, '');
    for (const [ , called ] of new Set(code.matchAll(/\b(\w+)\(/g)))
        if (formulas.has(called)) assert.match(code, new RegExp(`(REAL|ACC|bool) ${called}\\(`), name);
}

// ---- Without JavaScript ------------------------------------------------------------------------

for (const name of ['rms_norm.html', 'rms_norm-worked.html', 'rms_norm-gpu.html'])
    assert.doesNotMatch(pages[name], /\$\$|katex-error/);
// Ops without a backward have no example. Nor have functions that are a few ops (upsample_nearest,
// roll, index_select, min, ...), without a record: their gradients are those of the ops, whose
// examples are here.
const flat = new Set(
    [...sources.read('kernels/elementwise/compare.def').matchAll(/^COMPARE\((\w+),/gm) ].map(
        ([, name ]) => name));
assert.equal(flat.size, 6);
flat.add('any').add('all').add('topk').add('sort').add('one_hot').add('argmax');
const records = sources.list()
                    .filter((file) => /^kernels\/\w+\/\w+\.(c|def)$/.test(file) &&
                        !sources.isTest(file))
                    .flatMap((file) => [...sources.read(file)
                        .matchAll(/^(?:const gd_op gd_op_|[A-Z]+\()(\w+)(?: =|, ")/gm)]);
assert.ok(records.length >= 109);
for (const op of records) {
    if (flat.has(op[1])) continue;
    const home = Object.entries(pages).find(([, html ]) => html.includes(`data-op="${op[1]}"`));
    assert.ok(home, `no page has an example of ${op[1]}`);
    const body = home[1].split(`data-op="${op[1]}"`)[1].split('class="worked"')[0];
    assert.ok(
        (body.match(/data-value=/g) || []).length >= 4, `${op[1]}: no numbers in the page itself`);
}
assert.ok((pages['break.html'].match(/data-bug=/g) || []).length >= 280);
assert.match(pages['numerics.html'], /<polyline class="float32" points="[-\d., ]{400,}"/);
assert.ok((pages['vanishing.html'].match(/<rect /g) || []).length === 21);
assert.ok((pages['tape.html'].match(/<svg/g) || []).length >= 4);

// A table of symbols for every derivation, with names that the code has.
for (const readme of sources.list().filter((file) => /^kernels\/\w+\/README\.md$/.test(file))) {
    if (!pages[sources.page(readme)].includes('id="worked"')) continue;
    const symbols = markdown.symbolsOf(sources.read(readme)), folder = path.dirname(readme);
    assert.ok(symbols.length >= 3, `${readme} has no table of symbols`);
    const code = sources.list()
                     .filter((file) => path.dirname(file) === folder && sources.isCode(file) &&
                                       !sources.isTest(file))
                     .map(sources.read)
                     .join('\n');
    for (const {code : name} of symbols)
        assert.match(code, new RegExp(`\\b${name}\\b`), `${folder} has no ${name}`);
}

// A derivation's lines, in each of its pages: the plain ones first where there are any, each once,
// between sentences.
for (const [name, html] of Object.entries(pages)
    .filter(([, html ]) => html.includes('class="derived"'))) {
    const text = html.split('id="worked"')[0],
        boxes = [...text.matchAll(
            /<div class="beside" data-mark="([^"]*)">([^]*?)<\/div><\/div>/g) ];
    assert.ok(boxes.length && /<label><input type="radio"|<small>(CPU|plain)/.test(text),
        `${name} has no line`);
    assert.equal(new Set(boxes.map(([ , mark ]) => mark)).size, boxes.length,
        `${name}: a line twice`);
    for (const [ , mark, box ] of boxes)
        if (/plain_cpu\.c/.test(box))
            assert.match(box, /^<span class="mark">[^<]*<\/span><div class="(tabs|line-of)"[^]*?plain(<|_cpu)/, `${name}: [${mark}] has its plain line first`);
    assert.doesNotMatch(text, /<\/pre><\/div>(?:<\/div>)*\s*<p>(?:<[^>]*>)*[a-z(,;]/,
        `${name}: a box splits a sentence`);
}

// ---- The reference -----------------------------------------------------------------------------

let functions = 0;
for (const file of sources.list().filter((name) => name.startsWith('include/gradus/'))) {
    const html = pages[sources.page(file)];
    const plain = sources.read(file).replace(/\/\*[^]*?\*\//g, '');
    for (const [, name] of plain.matchAll(/GD_API[^;(]*?\b(gd_\w+)\s*\(/g)) {
        assert.ok(html.includes(`<a id="${name}">`), `${file}: ${name} is not in the reference`);
        functions++;
    }
}
assert.ok(functions > 150, `${functions} functions`);

// ---- The ladder is the kernels' own ------------------------------------------------------------

const kernels = (name) => sources.read(`kernels/rms_norm/${name}`).replace(/\s+/g, ' ');
for (const rung of ladder.rungs) {
    const source = rung.source || 'ladder.cu';
    for (const line of rung.code)
        assert.ok(kernels(source).includes(line.replace(/\s+/g, ' ')), `${source} has no: ${line}`);
    assert.ok(pages['rms_norm-gpu.html'].includes(rung.name));
}
// Every rung that the README has figures of, in its order.
assert.deepEqual(ladder.rungs.map((rung) => rung.name),
    [...sources.read('kernels/rms_norm/README.md').matchAll(/^\| ([^|]+)( \| [\d.]+){8} \|$/gm) ]
        .map(
        ([, name ]) => name));
assert.match(sources.read('kernels/rms_norm/CUDA.md'), // the plans of ours, which the pictures show
    /^\| 4096 \| c4 t256 b256 \| c2 t512 b512 s1 P132 \|/m);
// What was counted is shown beside what is computed: no rung moves less, and only the naive one
// much more.
const counted = [...pages['rms_norm-gpu.html']
    .matchAll(/must move<\/td><td data-value="(\d+)">[^]*?as ncu counts on one NVIDIA [^<]*<\/td><td data-value="([\d.]+)">/g) ].map(([, must, dram ]) => dram / must);
assert.ok(counted.length === ladder.rungs.length &&
    counted.every((times, i) => (i ? times > 0.99 && times < 1.05 : times > 4)), String(counted));
const moved = ladder.rungs.map((rung) => ladder.load(rung, 8192, 0, 0, 0));
assert.deepEqual([ moved[0].asked, moved[0].moved ], [ 128, 1024 ]); // 7 of 8 bytes
for (const {asked, moved : bytes} of moved.slice(1)) assert.equal(bytes, asked);
// What the kernels must move, in numbers of M N; the partial sums of 528 and 132 blocks are a
// share.
const least = ladder.rungs.filter((rung) => rung.backward)
                  .map((rung) => ladder.total(rung, 2048, 8192).moved / (4 * 2048 * 8192));
assert.deepEqual(least, [ 5, 3, 3 + 2 * 528 / 2048, 3 + 2 * 132 / 2048 ]);
// In the pictures each sector of a row is asked for, each dx written, and dw has all of its rows.
for (const rung of ladder.rungs.filter((r) => !r.threadARow)) {
    const frames = ladder.frames(rung);
    for (const panel of ladder.panels(rung))
        for (const row of panel.rows) {
            const seen = new Set(frames.flatMap((frame) => frame.marks)
                                     .filter((m) => m.tensor === panel.name && m.row === row)
                                     .flatMap((m) => m.sectors));
            assert.equal(seen.size, ladder.N / 8, `${rung.name}: row ${row} of ${panel.name}`);
        }
}
// Each rung is told once, in its card, with README's figures at the one size that all cards have.
const readme = sources.read('kernels/rms_norm/README.md'),
    cards = pages['rms_norm-gpu.html'].split('<figure class="rung"').slice(1);
assert.equal(cards.length, ladder.rungs.length);
ladder.rungs.forEach(({name}, i) => {
    const [, us, share] = new RegExp(`^\\| ${
        name} (?:\\| [\\d.]+ ){3}\\| ([\\d.]+) \\| \\d+ \\| ([\\d.]+)(?: \\| [\\d.]+){2} \\|$`,
        'm').exec(readme);
    assert.ok(cards[i].includes(`<td data-value="${Number(us)}">`) &&
        cards[i].includes(`<td data-value="${Number(share)}">`), name);
});
assert.match(readme, new RegExp(`\\| ${ladder.M} x ${ladder.N}: us \\|`));
assert.equal(pages['rms_norm-gpu.html'].split('Their order, and so the bits of dw').length, 2);
// Its kernel is there, whole, with the lines of the card lit; and the page begins with the naive
// one.
const whole = cards.filter((card) => /<details class="whole">/.test(card) &&
    /__global__/.test(card) && /<span class="line marked">/.test(card) && />}\n/.test(card));
assert.equal(whole.length, ladder.rungs.filter((rung) => !rung.source).length);
assert.ok(/id="the-ladder"[^]*id="the-kernel"[^]*id="on-a-gpu"[^]*id="peers"/
    .test(pages['rms_norm-gpu.html']));
// The plot beside PyTorch has the figures of the package's table.
const peers = sources.read('python/README.md').split('On an H200, ')[1].split('\n\n')[1].split('\n')
    .slice(2).flatMap((line) => line.split('|').slice(3, -1).map(Number));
assert.deepEqual([...pages['rms_norm-gpu.html'].matchAll(/%"><\/i><\/td><td>(\d+)<\/td>/g) ]
    .map(([ , us ]) => Number(us)), peers);
assert.ok(peers.length >= 40);

console.log(`${Object.keys(pages).length} pages, ${links} links, ${functions} public functions`);
