// browser.js - the study in a real browser, from files, with the network off: every number that is
// shown, before and after a reader changes one, against the module under node (numbers.js); every
// planted bug chosen; search, steps, light and dark, a phone's width; and no error in the console.
//     node browser.js FOLDER [PART...]     -PART: all but that
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');
const {pathToFileURL} = require('url');
const zlib = require('zlib');
const {find, Browser} = require('./chromium.js');
require('../page/wasi.js');
const Gradus = require('../page/module.js');
const worked = require('../page/worked.js');
const {example : exampleOf} = require('../page/examples.js');
const reader = require('./reader.js');
const mended = require('./mended.js');
const {pace, keyboard} = require('./pace.js');

const folder = path.resolve(process.argv[2]), parts = process.argv.slice(3);
const wanted = (name) => parts.includes(name) || !parts.includes(`-${name}`) &&
    !parts.some((part) => part[0] !== '-');
const url = (page) => pathToFileURL(path.join(folder, page)).href;
const pages =
    fs.readdirSync(folder).filter((name) => name.endsWith('.html') && !name.startsWith('code-'));

// ---- Numbers -----------------------------------------------------------------------------------

// What the page shows of one example: tensors by name, as it keeps them and as one reads them.
const READ = (op) => `(() => {
    const place = document.querySelector('.worked[data-op="${op}"]');
    const tensors = {};
    for (const t of place.querySelectorAll('.tensor')) {
        const cells = [...t.querySelectorAll('td[data-value]')];
        tensors[t.dataset.tensor] = {
            values: cells.map((c) => Number(c.dataset.value)),
            shown: cells.map((c) => Number(c.querySelector('input') ? c.querySelector('input').value
                : c.textContent || c.title)),
            edits: cells.map((c) => c.querySelector('input')?.dataset.edit).filter(Boolean),
            shape: t.querySelector('small').textContent,
        };
    }
    return { tensors, disagree: [...place.querySelectorAll('[data-agrees]')]
        .filter((e) => !(Number(e.dataset.agrees) < 1e-9)).length };
})()`;

let compared = 0, gradus = null;
function same(ours, theirs, what) {
    assert.deepEqual(ours, theirs.map((v) => (v === '-inf' ? -Infinity : v)), what);
    compared += ours.length;
}

// What the page's inputs make, against everything that it shows beside them. name: the case that a
// reader chose.
function check(op, {tensors, disagree}, name) {
    assert.equal(disagree, 0, `${op}: a step is not what the library says`);
    const it = exampleOf(gradus, op), {request} = it;
    if (name) request.case = name;
    for (const [tensor, t] of Object.entries(tensors)) {
        t.values.forEach((v, i) => assert.ok(
                             Math.abs(v - t.shown[i]) <= 5.001e-5 * Math.max(1, Math.abs(v) / 100),
                             `${op}, ${tensor}: ${v} is shown as ${t.shown[i]}`));
        const cotangent = /^cotangent (\d)/.exec(t.edits[0]);
        if (cotangent)
            request.cotangents[cotangent[1]] = t.values;
        else if (t.edits.length)
            request.inputs[t.edits[0]] = t.values;
    }
    const result = worked.compute(gradus, it), {outputs, saves = []} = it.own;
    result.outputs.forEach((t, k) => t && same(tensors[outputs[k]].values, t.values,
        `${op}: output ${k}`));
    saves.forEach((save, k) => same(tensors[`saved ${save}`].values, result.saves[k].values,
        `${op}: ${save}`));
    const known = it.check.inputs.map(({name}, i) => [name, result.gradients[i], i])
        .filter(([ , g ]) => g);
    assert.ok(known.length > 0, `${op} shows no gradient`);
    for (const [input, g] of known) same(tensors[`d${input}`].values, g.values, `${op}: d${input}`);
    if (tensors.jacobian) same(tensors.jacobian.values, result.jacobians[known[0][2]].flat(),
        `${op}: the Jacobian`);
}

async function example(tab, op) {
    check(op, await tab.evaluate(READ(op)));
    // A reader changes the first number of the first input that is not whole.
    const changed = await tab.evaluate(`(() => {
        const place = document.querySelector('.worked[data-op="${op}"]');
        const box = [...place.querySelectorAll('input[data-edit]')]
            .find((b) => !/ids|targets|condition/.test(b.dataset.edit));
        box.value = Number(box.value) + 0.125;
        box.dispatchEvent(new Event('change', { bubbles: true }));
        return box.value;
    })()`);
    assert.ok(changed);
    check(op, await tab.evaluate(READ(op)));
    // With something changed in each tensor it starts again with all of its numbers.
    assert.equal(await tab.evaluate(`(() => {
        const place = document.querySelector('.worked[data-op="${op}"]'),
            again = () => place.querySelector('[data-act=again]').click(),
            boxes = [...place.querySelectorAll('input[data-edit]')],
            all = () => boxes.map((b) => b.value).join();
        again();
        const before = all();
        for (const name of new Set(boxes.map((b) => b.dataset.edit))) {
            const box = boxes.find((b) => b.dataset.edit === name);
            box.value = Number(box.value) + (/ids|targets|index|condition|mask/.test(name)
                ? (Number(box.value) ? -1 : 1) : 0.125);
            box.dispatchEvent(new Event('change', { bubbles: true }));
        }
        const changed = all();
        again();
        return before !== changed && all() === before;
    })()`), true, `${op}: "As it was" does not restore`);
}

async function opPages(tab) {
    let ops = 0;
    const times = [];
    for (const page of pages) {
        const here = [
            ...fs.readFileSync(path.join(folder, page), 'utf8')
                .matchAll(/class="worked" data-op="(\w+)"/g)
        ].map(([, op ]) => op);
        if (!here.length) continue;
        await tab.open(url(page));
        await tab.until(
            `[...document.querySelectorAll('.worked')].every((e) => e.dataset.ready || e.closest('details'))`);
        times.push([ await tab.evaluate('performance.now()'), page ]);
        await tab.evaluate(
            `document.querySelectorAll('details').forEach((d) => { d.open = true; })`);
        await tab.until(`[...document.querySelectorAll('.worked')].every((e) => e.dataset.ready)`);
        for (const op of here) await example(tab, op);
        ops += here.length;
    }
    assert.ok(ops >= 47, `${ops} ops`);
    console.log(`${ops} ops, ${compared} numbers shown, each as the module has it; live after ${
        times.map(([ ms, page ]) => `${Math.round(ms)} ms ${page}`).join(', ')}`);
}

async function rmsNorm(tab) {
    await tab.open(url('rms_norm-worked.html'));
    await tab.until(`document.querySelector('.worked').dataset.ready`);
    for (const [i, name] of [[ 0, 'no_eps' ], [ 2, 'cols3' ], [ 3, 'large_eps' ]]) {
        await tab.evaluate(
            `(() => { const s = document.querySelector('select[data-act=variant]'); s.selectedIndex = ${
                i}; s.dispatchEvent(new Event('change')); })()`);
        check('rms_norm', await tab.evaluate(READ('rms_norm')), name);
    }
    // Steps, one after the other.
    const now =
        `document.querySelectorAll('.worked[data-op="rms_norm"] .step.now').length + ' ' + document.querySelectorAll('.worked[data-op="rms_norm"] .step.later').length`;
    await tab.evaluate(`document.querySelector('.worked[data-op=rms_norm] [data-act=step]').click()`);
    assert.equal(await tab.evaluate(now), '1 9');
    await tab.evaluate(`document.querySelector('.worked[data-op=rms_norm] [data-act=step]').click()`);
    assert.equal(await tab.evaluate(now), '1 8');
    // The walk: at first nothing is hidden, and step by step it comes back.
    const later = `document.querySelectorAll('#walk td.later').length`, lit = `[...document
        .querySelectorAll('#walk .line.marked')].map((l) => l.dataset.line).join()`;
    assert.equal(await tab.evaluate(later), 0);
    await tab.evaluate(`document.querySelector('#walk [data-act=step]').click()`);
    assert.ok(await tab.evaluate(later) > 50);
    for (let i = 0; i < 3; i++) await tab.evaluate(`document.querySelector('#walk [data-act=step]')
        .click()`);
    const four = await tab.evaluate(later);
    await tab.evaluate(`document.querySelector('#walk [data-act=back]').click()`);
    assert.ok(await tab.evaluate(later) > four);
    // Its lines, its window and its registers go with it.
    const words = [];
    for (let i = 0; i < 5; i++) {
        await tab.evaluate(`document.querySelector('#walk [data-act=step]').click()`);
        words.push(await tab.evaluate(`${lit} + ' ' +
            [...document.querySelectorAll('#walk td[data-at="-1"].now')].length + ' ' +
            document.querySelector('#walk .register').innerText.trim()`));
    }
    assert.deepEqual(words, [ '5 24 sum 21.75', '5 24 sum 21.75', '9 24 sum 21.75',
        '9 24 sum 21.75', '10 0 sum 21.75' ]);
    // It walks through the reader's numbers.
    await tab.evaluate(`(() => { const b = document.querySelector('.worked[data-op=rms_norm] input[data-edit=x]');
            b.value = 9; b.dispatchEvent(new Event('change', { bubbles: true })); })()`);
    assert.equal(await tab.evaluate(
        `document.querySelector('#walk td[data-at="-1"]').dataset.value`), '9');
    // A symbol lights up in formula, numbers and code.
    await tab.evaluate(
        `document.querySelector('.katex [data-symbol="rstd"]').dispatchEvent(new MouseEvent('mouseover', { bubbles: true }))`);
    for (const where of ['.katex ', 'pre.code ', '.tensor'])
        assert.ok(await tab.evaluate(
                      `document.querySelectorAll('${where}[data-symbol="rstd"].lit').length`) > 0,
            where);
    // The ladder draws.
    await tab.open(url('rms_norm-gpu.html'));
    assert.equal(await tab.evaluate(`document.querySelectorAll('figure.rung').length`), 13);
    const drawn = await tab.evaluate(`(() => {
        for (const figure of document.querySelectorAll('figure.rung'))
            for (let i = 0; i < 200; i++) figure.querySelector('[data-act=step]').click();
        const play = document.querySelector('figure.rung [data-act=play]'), words = [];
        for (let i = 0; i < 2; i++) play.click(), words.push(play.textContent);
        if (String(words) !== 'Pause,Play') return words;
        return [...document.querySelectorAll('figure.rung canvas')].filter((c) => !c.dataset.last)
            .map((c) => c.dataset.tensor);
    })()`);
    assert.deepEqual(drawn, [], 'pictures that stay empty');
}

// ---- Break it ----------------------------------------------------------------------------------

async function breakIt(tab) {
    await tab.open(url('break.html'));
    await tab.until(`document.getElementById('result').dataset.of`);
    const outcomes = await tab.evaluate(`(async () => {
        const select = document.getElementById('bug'), result = document.getElementById('result'),
            list = [];
        for (const option of select.options) {
            select.value = option.value;
            result.dataset.of = '';
            select.dispatchEvent(new Event('change'));
            while (!result.dataset.of)
                await new Promise((done) => new MutationObserver(done).observe(result,
                    { attributes: true }));
            list.push([option.text, result.querySelector('#verdict b').textContent,
                result.querySelectorAll('.grid').length]);
        }
        return list;
    })()`);
    for (const [what, verdict, grids] of outcomes) {
        assert.equal(verdict, 'FAIL', what);
        assert.ok(grids >= 2, `${what}: no gradients to look at`);
    }
    assert.ok(outcomes.length >= 280);
    console.log(`${outcomes.length} planted bugs chosen`);
}

// ---- The frame ---------------------------------------------------------------------------------

async function tape(tab) {
    await tab.open(url('tape.html'));
    const seen = await tab.evaluate(`(() => {
        const place = document.getElementById('tape-fit_line'), said = [], norms = [];
        const top = place.querySelector('.picture').getBoundingClientRect().top, moved = [];
        for (let i = 0; i < 12; i++) {
            place.querySelector('[data-act=step]').click();
            said.push(place.querySelector('.said').textContent);
            norms.push(place.querySelectorAll('.small:not(.hidden)').length);
            if (place.querySelector('.picture').getBoundingClientRect().top !== top) moved.push(i);
        }
        const text = [...document.querySelectorAll('.tape svg text')]
            .map((t) => t.getBoundingClientRect().height);
        return { said, norms, hidden: place.querySelectorAll('.item.hidden, .edge.hidden').length,
            alive: place.querySelectorAll('.alive:not(.hidden)').length, moved,
            least: Math.min(...text) };
    })()`);
    // w begins at 0.5 and b at 1: values and gradients are those of the line there.
    const w = 0.5, b = 1, x = [ -2, -1, 0, 1, 2 ],
        e = [ -5, -3, -1, 1, 3 ].map((y, i) => w * x[i] + b - y),
        list = (values) => values.map((v) => String(Number(v.toPrecision(3))).replace('-', '−'))
        .join(', ');
    assert.equal(seen.said[0], `Forward: #0 = mul(w, x) = ${list(x.map((v) => w * v))}.`);
    assert.equal(seen.said[3], `Forward: #3 = mul(#2, #2) = ${list(e.map((v) => v * v))}.`);
    assert.match(seen.said[5], /^Backward: a gradient says/);
    // #2, the error, is read twice: the second arrival adds up.
    assert.ok(seen.said[7].endsWith(`d#2 = ${list(e.map((v) => v / 5))}.`), seen.said[7]);
    assert.ok(seen.said[8].includes(`they add up: d#2 = ${
        list(e.map((v) => 2 * v / 5))}. The 40 bytes`), seen.said[8]);
    assert.ok(seen.said[11].includes(`db = ${list([ e.reduce((sum, v) => sum + 2 * v / 5, 0) ])}.`),
        seen.said[11]);
    assert.ok(!seen.said.some((words) => /\b0 bytes/.test(words)));
    // On the way forward bytes are held, and no norm of a gradient is seen.
    assert.deepEqual(seen.norms.slice(0, 5), [ 1, 1, 1, 2, 2 ]);
    assert.equal(seen.hidden, 0);
    assert.equal(seen.alive, 1, 'only the first product still waits');
    assert.deepEqual(seen.moved, [], 'the caption pushes the graph');
    assert.ok(seen.least >= 10, `text of ${seen.least} pixels`);
    const play = `document.querySelector('#tape-fit_line [data-act=play]')`;
    await tab.evaluate(`${play}.click()`);
    assert.equal(await tab.evaluate(`${play}.textContent`), 'Pause');
    await tab.evaluate(`${play}.click()`);
    assert.equal(await tab.evaluate(`${play}.textContent`), 'Play');
}

async function train(tab) {
    await tab.open(url('train.html'));
    await tab.evaluate(`document.querySelector('#train [data-part=go]').click()`);
    await tab.until(`Number(document.getElementById('train').dataset.steps) >= 60`);
    await tab.evaluate(`document.querySelector('#train [data-part=go]').click()`);
    const seen = await tab.evaluate(
        `({ said: document.querySelector('[data-part=said]').textContent, points: document.querySelector('.smooth').getAttribute('points').split(' ').length, sample: document.querySelector('[data-part=sample]').textContent.length })`);
    const [, loss, guess] = /loss ([\d.]+) \(uniform guess: ([\d.]+)/.exec(seen.said);
    assert.ok(Number(loss) < Number(guess) - 0.7, seen.said);
    assert.ok(seen.points >= 60 && seen.sample >= 150);
    console.log(`training: ${seen.said}`);
}

async function frame(tab) {
    await tab.open(url('index.html'));
    const ground = `getComputedStyle(document.body).backgroundColor`;
    const light = await tab.evaluate(ground);
    await tab.send('Emulation.setEmulatedMedia',
        {features : [ {name : 'prefers-color-scheme', value : 'dark'} ]});
    assert.notEqual(await tab.evaluate(ground), light);
    await tab.evaluate(`document.getElementById('theme').click()`);
    assert.equal(await tab.evaluate(ground), light);
    await tab.evaluate(`localStorage.clear()`);
    await tab.send('Emulation.setEmulatedMedia', {features : []});
}

async function main() {
    const program = find();
    if (!program) {
        console.log('no Chromium here (Debian: apt install chromium)');
        process.exit(77);
    }
    const [, packed] = /'([^']*)'/.exec(fs.readFileSync(path.join(folder, 'ops-wasm.js'), 'utf8'));
    gradus = await Gradus.load(zlib.gunzipSync(Buffer.from(packed, 'base64')));
    const browser = new Browser(program);
    try {
        const tab = await browser.tab();
        for (const part of [opPages, rmsNorm, breakIt, tape, train, frame, ...Object.values(reader),
            ...Object.values(mended), pace, keyboard]) {
            if (!wanted(part.name)) continue;
            const begun = Date.now();
            await part(tab, url, pages, folder);
            console.log(`${part.name}: ${((Date.now() - begun) / 1000).toFixed(1)} s`);
        }
        assert.deepEqual(tab.troubles, []);
        const elsewhere =
            tab.requests.filter((request) => !/^(file|data|about|blob):/.test(request));
        assert.deepEqual(elsewhere, []);
        console.log(`${pages.length} pages, ${
            tab.requests.length} files asked for, none from elsewhere, no word in the console`);
    } finally {
        await browser.close();
    }
}

main().catch((error) => {
    console.error(error.message || error);
    console.error(error.stack);
    process.exitCode = 1;
});
