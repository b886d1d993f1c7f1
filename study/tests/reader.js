// reader.js - what a reader does besides looking: numbers that cannot be, tabbing on, starting
// again, searching, printing, a keyboard alone; and what axe says about every page.
'use strict';
const assert = require('assert');
const path = require('path');
const axe = require('./axe.js');

const WORKED = (op) => `document.querySelector('.worked[data-op="${op}"]')`;
const BOX = (op, edit, at) => `${WORKED(op)}
    .querySelector('input[data-edit="${edit}"][data-at="${at}"]')`;

// Types into a box and returns what stands in it and under it afterwards.
const type = (tab, op, edit, at, text) => tab.evaluate(`(() => {
    const box = ${BOX(op, edit, at)};
    box.value = ${JSON.stringify(text)};
    box.dispatchEvent(new Event('change', { bubbles: true }));
    return { value: box.value, said: box.closest('.tensor').querySelector('.refused')
        ?.textContent || '',
             invalid: box.hasAttribute('aria-invalid'), here: box.isConnected,
             tensors: ${WORKED(op)}.querySelectorAll('.tensor').length };
})()`);

async function open(tab, url, op) {
    await tab.open(url(`${op === 'rms_norm' ? 'rms_norm-worked' : op}.html`));
    await tab.until(`${WORKED(op)}.dataset.ready`);
}

async function edits(tab, url) {
    // A number that cannot be gets a sentence where it is, and the rest of the example stays.
    const cases = [
        [ 'cross_entropy', 'targets', 0, '7', /target/ ], [ 'cross_entropy', 'targets', 0, '1.5',
            /“1.5” is not a whole number/ ], [ 'embedding', 'ids', 1, '0.5', /not a whole number/ ],
            [ 'embedding', 'ids', 0, '99', /ids|id/ ],
        [ 'softmax', 'x', 0, 'a', /“a” is not a finite number/ ],
        [ 'softmax', 'x', 1, 'NaN', /not a finite number/ ],
        [ 'softmax', 'x', 1, '', /not a finite number/ ],
        [ 'rms_norm', 'x', 0, '1e300', /not finite|not a number/ ]
    ];
    for (const [op, edit, at, text, words] of cases) {
        await open(tab, url, op);
        const before = await tab.evaluate(`${WORKED(op)}.querySelectorAll('.tensor').length`);
        const bad = await type(tab, op, edit, at, text);
        assert.match(bad.said, words, `${op}: ${text}`);
        assert.match(bad.said, /; the example keeps /);
        assert.deepEqual([ bad.invalid, bad.here, bad.tensors ], [ true, true, before ],
            `${op}: ${text}`);
        const good = await type(tab, op, edit, at, '1');
        assert.equal(good.said, '', `${op}: the sentence stays`);
        assert.ok(!good.invalid && good.here && good.tensors === before);
    }
    // An edit leaves the boxes where they are, so that Tab goes on.
    for (const op of ['rms_norm', 'layer_norm', 'cross_entropy', 'attention']) {
        await open(tab, url, op);
        const edit = await tab.evaluate(`(() => {
            const boxes = [...${WORKED(op)}.querySelectorAll('input[data-edit]')];
            boxes[1].focus();
            boxes[0].value = '0.25';
            boxes[0].dispatchEvent(new Event('change', { bubbles: true }));
            return document.activeElement === boxes[1];
        })()`);
        assert.ok(edit, `${op}: the focus is lost`);
    }
}

// The first page: the gradients step by step, against the derivative of mean((w x - y)^2) written
// down here.
async function watch(tab, url) {
    const sizes = [ [ 1280, 800 ], [ 1366, 768 ], [ 1440, 900 ], [ 390, 844 ] ];
    // the loss is in sight, and the sentence is the first one from the start
    for (const [width, height] of sizes) {
        await tab.send('Emulation.setDeviceMetricsOverride', {width, height, deviceScaleFactor : 1,
            mobile : width < 500});
        await tab.open(url('index.html'));
        const {bottom, least} = await tab.evaluate(`(
            {bottom: document.querySelector('[data-item=loss]').getBoundingClientRect().bottom,
            least: 12 * document.querySelector('.tape svg').getBoundingClientRect().width / document
                .querySelector('.tape svg').viewBox.baseVal.width})`);
        assert.ok(bottom <= height, `at ${width} x ${height} the loss ends at ${bottom}`);
        assert.ok(least >= 10, `letters of ${least} pixels`);
    }
    await tab.send('Emulation.clearDeviceMetricsOverride');
    await tab.open(url('index.html'));
    await tab.until(`document.querySelector('.tape').dataset.ready`);
    assert.ok(await tab.evaluate('performance.now()') < 5000);
    const act = (name) => `document.querySelector('.tape [data-act=${name}]')`,
        press = (name) => tab.evaluate(`${act(name)}.click()`);
    assert.equal(await tab.evaluate(`${act('play')}.textContent`), 'Pause');
    assert.equal(await tab.evaluate(
        `document.querySelector('.tape .said').getAttribute('aria-live')`), 'off');
    const numbers = `(() => ({ at: Number(document.querySelector('.tape').dataset.at),
        slopes: [...document.querySelectorAll('.tape .edge text')].map((t) => t.textContent).join(),
        ...Object.fromEntries([...document.querySelectorAll('.tape [data-item]')]
            .map((g) => [g.dataset.item,
                [...g.querySelectorAll('g:not(.hidden) > .gradient[data-value]')]
                .map((t) => Number(t.dataset.value))])) }))()`;
    const close = (ours, theirs, what) => {
        assert.equal(ours.length, theirs.length, what);
        ours.forEach((v, i) => assert.ok(Math.abs(v - theirs[i]) < 1e-12,
            `${what}: ${ours} instead of ${theirs}`));
    };
    await press('play');
    assert.equal(await tab.evaluate(`${act('play')}.textContent`), 'Play');
    assert.equal(await tab.evaluate(
        `document.querySelector('.tape .said').getAttribute('aria-live')`), 'polite');
    const seek = (at) => tab.evaluate(`(() => { const b = ${act('seek')}; b.value = ${at};
            b.dispatchEvent(new Event('input', { bubbles: true })); })()`);
    const x = [ -2, -1, 0, 1, 2 ], y = [ -3, -1, 1, 2, 4 ];
    for (const w of [0.5, -1.25]) {
        await tab.evaluate(`(() => { const b = document.querySelector('.tape [data-name=w]');
                b.value = ${
            w}; b.dispatchEvent(new Event('input', { bubbles: true })); })()`);
        await tab.until(`Number(document.querySelector('[data-item=p] .value').dataset
            .value) === ${w * x[0]}`);
        const e = x.map((v, i) => w * v - y[i]);
        await seek(6);
        let seen = await tab.evaluate(numbers);
        assert.equal(seen.at, 6);
        assert.equal(seen.slopes, '× x,× 1,× e,× e,× 1/5');
        close(seen.s, e.map(() => 1 / 5), 'ds');
        close(seen.e, [], 'de, before anything has arrived');
        await press('step');
        close((await tab.evaluate(numbers)).e, e.map((v) => v / 5), 'de, the first arrival');
        await press('step');
        close((await tab.evaluate(numbers)).e, e.map((v) => 2 * v / 5), 'de, both');
        await press('back');
        close((await tab.evaluate(numbers)).e, e.map((v) => v / 5), 'de, one back');
        for (let i = 0; i < 3; i++) await press('step');
        seen = await tab.evaluate(numbers);
        close(seen.p, e.map((v) => 2 * v / 5), 'dp');
        close(seen.w, [ e.reduce((sum, v, i) => sum + 2 * v * x[i] / 5, 0) ], 'dw');
    }
    // One step of descent: w -= 0.1 dw, from -1.25.
    await press('descend');
    await tab.until(`document.querySelector('.descent').textContent`);
    const dw = x.reduce((sum, v, i) => sum + 2 * (-1.25 * v - y[i]) * v / 5, 0),
        loss = (w) => x.reduce((sum, v, i) => sum + (w * v - y[i]) ** 2 / 5, 0);
    const [, w, before, after] = /^w = (\S+): the loss was (\S+) and is (\S+)$/
        .exec((await tab.evaluate(`document.querySelector('.descent').textContent`))
            .replace(/−/g, '-'));
    for (const [ours, theirs] of [[ w, -1.25 - 0.1 * dw ], [ before, loss(-1.25) ],
        [ after, loss(-1.25 - 0.1 * dw) ]])
        assert.ok(Math.abs(ours / theirs - 1) < 0.005, `${ours} instead of ${theirs}`);
    const refused = await tab.evaluate(`(() =>
        { const b = document.querySelector('.tape [data-name=x]'); b.value = 'q';
            b.dispatchEvent(new Event('input', { bubbles: true }));
            return document.querySelector('.tape .refused').textContent; })()`);
    assert.match(refused, /“q” is not a number/);
    // On paper the picture stands at its end, whatever it played; and afterwards where it was.
    await seek(2);
    await tab.evaluate(`dispatchEvent(new Event('beforeprint'))`);
    assert.equal(await tab.evaluate(`document.querySelectorAll('.tape .item.hidden').length`), 0);
    await tab.evaluate(`dispatchEvent(new Event('afterprint'))`);
    assert.equal((await tab.evaluate(numbers)).at, 2);
    await tab.send('Emulation.setEmulatedMedia',
        {features : [ {name : 'prefers-reduced-motion', value : 'reduce'} ]});
    await tab.open(url('index.html'));
    await tab.until(`document.querySelector('.tape').dataset.ready`);
    assert.equal(await tab.evaluate(`${act('play')}.textContent`), 'Play');
    await tab.send('Emulation.setEmulatedMedia', {features : []});
}

// Lessons: a guess opens what it is about, figures move, the exercise answers.
async function lessonPages(tab, url, pages) {
    const all = pages.filter((name) => name.startsWith('lesson-'));
    assert.equal(all.length, 9);
    for (const page of all) {
        await tab.open(url(page));
        const seen = await tab.evaluate(`(async () => {
            const bad = [], wait = (ms) => new Promise((done) => setTimeout(done, ms));
            for (const section of document.querySelectorAll('section')) {
                const figures = section.querySelectorAll('.tape, .slope, .still, .count').length;
                if (figures > 1) bad.push(section.querySelector('h2').textContent + ': ' + figures +
                    ' figures');
                const guess = section.querySelector('.guess'),
                    reveal = section.querySelector('details.reveal');
                if (!guess) continue;
                if (reveal.open) bad.push('open before a guess');
                const right = [...guess.querySelectorAll('li')].filter((li) => li.dataset.right),
                    wrong = [...guess.querySelectorAll('li')].find((li) => !li.dataset.right);
                if (right.length !== 1) bad.push('right answers: ' + right.length);
                wrong.querySelector('button').click();
                const formulas = (place) => place.querySelectorAll('.katex').length;
                if (formulas(guess.querySelector('.verdict')) !== formulas(right[0]))
                    bad.push('a formula in the letters of TeX');
                if (!reveal.open || !/^No: /.test(guess.querySelector('.verdict').textContent))
                    bad.push('a wrong guess is not told');
                right[0].querySelector('button').click();
                if (guess.querySelector('.verdict').textContent !== 'Right.')
                    bad.push('a right guess is not told');
            }
            for (const place of document.querySelectorAll('.tape, .still')) {
                const picture = () => place.querySelector('.picture').innerHTML +
                    place.querySelector('.said').textContent, before = picture();
                place.querySelector('[data-act=step]').click();
                if (picture() === before) bad.push('a figure that does not move');
            }
            for (const box of document.querySelectorAll('.inputs input, .count input')) {
                const place = box.closest('.panel'), before = place.innerHTML;
                box.value = Number(box.value) + 1,
                    box.dispatchEvent(new Event('input', { bubbles: true }));
                for (let i = 0; i < 100 && place.innerHTML === before; i++) await wait(20);
                if (place.innerHTML === before) bad.push('a number that moves nothing');
            }
            const answers = [];
            for (const place of document.querySelectorAll('.exercise')) {
                answers.push(await (${ANSWER})(place));
                place.querySelector('textarea').value = place.querySelector('details pre')
                    .textContent;
                answers.push(await (${ANSWER})(place));
            }
            for (const place of document.querySelectorAll('.program-step')) {
                const output = place.querySelector('.output'), before = output.textContent;
                place.querySelector('input').value = '0.75';
                place.querySelector('[data-act=run]').click();
                for (let i = 0; i < 100 && output.textContent === before; i++) await wait(20);
                if (output.textContent === before) bad.push('a step that does not run');
            }
            localStorage.clear();
            return { bad, answers: answers.map((words) => words.slice(0, 4)),
                next: [...document.querySelectorAll('main > section:last-of-type a[href]')]
                .map((a) => a.getAttribute('href')) };
        })()`);
        assert.deepEqual(seen.bad, [], `${page}: ${seen.bad}`);
        assert.deepEqual(seen.answers, [ 'FAIL', 'PASS', 'FAIL', 'PASS' ], page);
        assert.ok(seen.next.some((href) => /^[a-z_]+\.html$/.test(href)),
            `${page} leads to no page of the library`);
    }
    await tab.open(url('second_derivatives.html'));
    assert.equal(await tab.evaluate(`(async () =>
        { const place = document.querySelector('.exercise');
            place.querySelector('textarea').value = place.querySelector('details pre').textContent;
            const text = await (${ANSWER})(place); localStorage.clear(); return text.slice(0, 4);
            })()`), 'PASS');
    // The tangent at the slope's zero is flat, and the way there is by steps of descent.
    await tab.open(url('lesson-slope.html'));
    const said = await tab.evaluate(`(async () => {
        for (let i = 0; i < 12; i++) { document.querySelector('[data-act=descend]').click();
            await new Promise((done) => setTimeout(done, i ? 40 : 600)); }
        const said = () => document.querySelector('.slope .said').textContent, near = said(),
            slider = document.querySelector('.slope input[type=range]');
        slider.value = 1.7, slider.dispatchEvent(new Event('input', { bubbles: true }));
        for (let i = 0; i < 100 && said() === near; i++)
            await new Promise((done) => setTimeout(done, 20));
        return near + said();
    })()`);
    assert.match(said, /^w = 1.7: .*slope dw = −0.0104. The loss falls if w moves up.w = 1.7: .*slope dw = 0. Flat/);
    // The dot is dragged, by a finger that has gone down in its plot: the line among the points goes with
    // it, and the step of descent ends where the formula says.
    const drag = (event, part, plot = 'last') => tab.evaluate(`(async () => {
        const picture = document.querySelector('.slope .picture'), plot = picture.${plot}ElementChild,
            box = plot.getBoundingClientRect();
        plot.dispatchEvent(new PointerEvent('${event}', { bubbles: true, buttons: 1,
            clientX: box.left + box.width * ${part} }));
        await new Promise((done) => setTimeout(done, 300));
        const at = (name, of) => Number(picture.querySelector(name).getAttribute(of));
        return { w: Number(document.querySelector('.slope input[type=range]').value),
            step: (at('.next', 'cx') - at('.now', 'cx')) || 0,
            model: picture.querySelector('.model').getAttribute('d') };
    })()`);
    const unit = 254 / 7, middle = (w) => (34 + (w + 3) * unit) / 300;
    const seen = [ await drag('pointerdown', middle(3)), await drag('pointermove', middle(-1)) ];
    assert.deepEqual(seen.map(({w}) => w), [ 3, -1 ]);
    for (const {w, step} of seen) assert.ok(Math.abs(step / unit + 0.1 * (4 * w - 6.8)) < 0.01, `${
        w}: a step of ${step / unit}`);
    assert.notEqual(seen[0].model, seen[1].model);
    await drag('pointerdown', 0.5, 'first');
    assert.equal((await drag('pointermove', 0.9)).w, -1);
}

// The box for an expression: its tape, a fault in a sentence, the library's own words on shapes,
// programs, and links, which may bring anything.
async function editor(tab, url) {
    await tab.open(url('expression.html'));
    await tab.until(`document.getElementById('editor').dataset.ready`);
    const write = (text) => tab.evaluate(`(async () => {
        const place = document.getElementById('editor'), refused = place.querySelector('.refused'),
            picture = document.querySelector('#expression .picture'), before = picture.innerHTML;
        place.querySelector('textarea').value = ${JSON.stringify(text)};
        place.querySelector('[data-act=draw]').click();
        for (let i = 0; i < 100 && picture.innerHTML === before && refused.hidden; i++)
            await new Promise((done) => setTimeout(done, 20));
        if (!refused.hidden) return { refused: refused.textContent,
            left: !document.getElementById('expression').hidden ||
            !place.querySelector('pre').hidden };
        return { refused: '', items: [...picture.querySelectorAll('[data-item]')]
            .map((g) => g.dataset.item).join(' '),
            steps: document.querySelector('#expression [data-act=seek]').max };
    })()`);
    assert.deepEqual(await write('a = [1, 2]\nloss = sum(tanh(a) a)'),
        {refused : '', items : 't1 a t2 loss', steps : '8'});
    // a program, which a fault hides with the tape
    await tab.evaluate(`document.querySelector('[data-act=c]').click()`);
    await tab.until(`!document.querySelector('#editor pre').hidden`);
    for (const [text, words] of [[ 'a = [1, 2]\nb = [1, 2, 3]\nloss = sum(a + b)',
        /^line 3, column 14: add: b is float64 \[3\], wanted a shape that/ ],
             [ 'loss = q', /^line 1, column 8: q has no value/ ]]) {
        const {refused, left} = await write(text);
        assert.match(refused, words);
        assert.ok(!left, 'the tape or the program of another text stays');
    }
    assert.equal((await write('a = [1, 2]\nloss = sum(tanh(a) a)')).refused, '');
    assert.ok(await tab.evaluate(`!document.getElementById('expression').hidden`),
        'a tape that was drawn again is not shown');
    // |grad| is seen only once it has arrived.
    await write('w = 2\nloss = w w');
    const norms = `[...document.querySelectorAll('#expression [data-item=w] .small:not(.hidden)')]
        .map((t) => t.textContent).join()`,
            step = `document.querySelector('#expression [data-act=step]').click()`;
    const seen = [];
    for (let i = 0; i < 4; i++) await tab.evaluate(step), seen.push(await tab.evaluate(norms));
    assert.deepEqual(seen, [ '', '', '', '|grad| 4' ]);
    await tab.evaluate(`document.querySelector('[data-act=c]').click()`);
    await tab.until(`!document.querySelector('#editor pre').hidden`);
    assert.match(await tab.evaluate(`document.querySelector('#editor pre').textContent`),
        /gd_mul\(w, w\)/);
    const link = await tab.evaluate(`document.querySelector('[data-act=link]').href`);
    await tab.open('about:blank');
    await tab.open(link);
    await tab.until(`document.querySelector('#expression [data-item=w]') &&
        document.querySelectorAll('#expression [data-item]').length === 2`);
    const hostile = [ '<img src=x onerror=window.broken=1>',
        'loss = "\u003cscript>window.broken=1</script>"',
        'constructor.constructor("window.broken=1")()', '${window.broken=1}',
        'x = 1\nloss = __proto__ x',
        `loss = ${'('.repeat(900)}1`, 'x = 1\n' + 'y = x x\n'.repeat(50),
        'x'.repeat(100000), '%', '' ];
    for (const text of hostile) {
        await tab.open('about:blank');
        await tab.open(url('expression.html') + '#e=' + (text === '%' ? '%'
            : encodeURIComponent(text)));
        await tab.until(`document.getElementById('editor').dataset.ready`);
        await tab.until(`!document.querySelector('#editor .refused').hidden`);
        assert.equal(await tab.evaluate(`typeof window.broken +
            document.querySelectorAll('main img, main script:not([type])').length`), 'undefined0',
                text.slice(0, 60));
    }
}

// The line beside a step is whole at any width, and a step that is taken is seen with its line.
async function lines(tab, url) {
    for (const [width, height] of [[ 1200, 900 ], [ 375, 800 ]]) {
        await tab.send('Emulation.setDeviceMetricsOverride', {width, height, deviceScaleFactor : 1,
            mobile : width < 500});
        for (const op of ['softmax', 'rms_norm', 'attention', 'layer_norm', 'cross_entropy']) {
            await tab.open(url(`${op}.html`));
            const seen = await tab.evaluate(`(() => {
                const boxes = [...document.querySelectorAll('.line-of pre, .excerpt pre')];
                return { beside: document.querySelectorAll('.beside .line-of').length,
                         cut: boxes.filter((b) => b.scrollWidth > b.clientWidth + 1)
                             .map((b) => b.textContent) };
            })()`);
            assert.deepEqual(seen.cut, [], `${op}: lines cut at a width of ${width}`);
            assert.ok(seen.beside >= 2, op);
            const level = await tab.evaluate(`(() => { const d = document.querySelector('.derived');
                    return d.children[1].getBoundingClientRect().top < d.children[0]
                        .getBoundingClientRect().bottom; })()`);
            assert.equal(level, width >= 1200,
                `${op}: the line is beside its formula from 1200 pixels on`);
            await open(tab, url, op);
            const hidden = await tab.evaluate(`(() => {
                const place = ${WORKED(op)}, steps = place.querySelectorAll('.step').length,
                    bad = [];
                for (let i = 0; i < steps; i++) {
                    place.querySelector('[data-act=step]').click();
                    const now = place.querySelector('.step.now'),
                        line = now.querySelector('.line-of') || now;
                    const box = line.getBoundingClientRect();
                    if (box.top < 0 || box.bottom > innerHeight + 1)
                        bad.push(now.dataset.step + ": " + box.top + " to " + box.bottom + " of " +
                            innerHeight);
                }
                return bad;
            })()`);
            assert.deepEqual(hidden, []); // steps out of view
        }
    }
    await tab.send('Emulation.clearDeviceMetricsOverride');
}

// From the first stop to the last by "next", and back.
async function path_of_stops(tab, url) {
    await tab.open(url('index.html'));
    const stops = await tab.evaluate(`[...document
        .querySelectorAll('main > ol > li > a:first-child')].map((a) => a.getAttribute('href'))`);
    assert.ok(stops.length >= 8);
    for (let i = 0; i < stops.length; i++) {
        await tab.open(url(stops[i].split('#')[0]));
        const [before, after] = await tab.evaluate(
            `(() => { const a = [...document.querySelectorAll('nav[aria-label="stop ${
                i + 1} of the path"] a')].map((a) => a.getAttribute('href')); return a; })()`);
        assert.equal(before, i ? stops[i - 1] : 'index.html');
        assert.equal(after, stops[i + 1] || 'index.html');
    }
}

// Resolves with the answer of an exercise's panel.
const ANSWER = `async (place) => {
    const answer = place.querySelector('.answer');
    place.querySelector('[data-act=check]').click();
    while (!answer.textContent) await new Promise((done) => setTimeout(done, 5));
    return answer.textContent;
}`;

// An exercise: a mistake in the language, a wrong gradient, the answer; and it is kept.
async function exercise(tab, url) {
    await tab.open(url('exercises.html'));
    const ready = `document.getElementById('main').dataset.exercises`;
    await tab.until(ready);
    const write = (text) => tab.evaluate(`(() => {
        const place = document.querySelector('.exercise[data-exercise="6"]');
        place.querySelector('textarea').value = ${JSON.stringify(text)};
        return (${ANSWER})(place);
    })()`);
    assert.match(await write('dx[i, k] = y[i, k] *'),
        /^line 1, column 21: expected a number or a name/);
    assert.match(await write('dx[i, k] = -y[i, k] * (dy[i, k] - sum(j, dy[i, j] * y[i, j]))'),
        /^FAIL.*sign/);
    assert.match(await write('dx[i, k] = y[i, k] * (dy[i, k] - sum(j, dy[i, j] * y[i, j]))'),
        /^PASS/);
    assert.match(await tab.evaluate(`document.getElementById('done').textContent`), /^1 of 10/);
    await tab.open(url('exercises.html'));
    await tab.until(ready);
    assert.match(await tab.evaluate(`document.getElementById('done').textContent`), /^1 of 10/);
    // Lines to choose from, in a group that a link opens.
    await tab.open('about:blank');
    await tab.open(url('exercises.html') + '#lstm');
    await tab.until(ready);
    const seen = await tab.evaluate(`(async () => {
        const place = document.getElementById('lstm').closest('.exercise'),
            open = place.closest('details').open, all = [];
        const first = await (${ANSWER})(place);
        for (const box of place.querySelectorAll('input')) box.click(),
            all.push((await (${ANSWER})(place)).slice(0, 4));
        return { open, first, all: all.sort() };
    })()`);
    assert.deepEqual(seen, {open : true, first : 'Choose a line first.',
        all : [ 'FAIL', 'FAIL', 'FAIL', 'PASS' ]});
    assert.match(await tab.evaluate(`document.getElementById('done').textContent`),
        /and 1 of the \d\d others/);
    // A long check leaves the page at hand; it says how far it is, and can be stopped, by another
    // one, too.
    const stopped = await tab.evaluate(`(async () => {
        const place = document.getElementById('attention').closest('.exercise'),
            other = document.getElementById('pow').closest('.exercise');
        const answer = (${ANSWER})(place);
        let ticks = 0;
        const clock = setInterval(() => ticks++, 1), until = async (seen) => { while (!seen())
            await new Promise((done) => setTimeout(done, 1)); };
        await until(() => /^[1-9]\\d* backwards$/.test(place.querySelector('.busy small')
            ?.textContent));
        place.querySelector('[data-act=stop]').focus();
        place.querySelector('[data-act=stop]').click();
        const words = [ await answer, document.activeElement.dataset.act,
            place.querySelectorAll('.busy').length ];
        clearInterval(clock);
        const again = (${ANSWER})(place), next = await (${ANSWER})(other);
        return { ticks, words, again: await again, next: next.slice(0, 4) };
    })()`);
    assert.ok(stopped.ticks >= 1,
        `${stopped.ticks} ticks of a millisecond while gradcheck was at work`);
    assert.deepEqual(stopped.words, [ 'Stopped.', 'check', 0 ]);
    assert.deepEqual([ stopped.again, stopped.next ],
        [ 'Stopped: another check has begun.', 'FAIL' ]);
    await tab.evaluate(`localStorage.clear()`);
}

// The curves follow what is dragged.
async function curves(tab, url) {
    for (const [page, place, drag] of [
             [ 'numerics.html', 'error-curve', '-12' ], [ 'vanishing.html', 'deep-stack', '3' ] ]) {
        await tab.open(url(page));
        await tab.until(`document.getElementById('${place}').dataset.ready`);
        const seen = await tab.evaluate(`(() => {
            const place = document.getElementById('${place}'),
                picture = () => place.querySelector('svg').innerHTML + place.querySelector('.said')
                .textContent;
            const before = picture(), slider = place.querySelector('input[type=range]');
            slider.value = '${drag}';
            slider.dispatchEvent(new Event('input', { bubbles: true }));
            return [before !== picture(), /NaN|Infinity/.test(picture())];
        })()`);
        assert.deepEqual(seen, [ true, false ], page);
    }
    // Without JavaScript's help the picture is in the page; the step is dragged in the picture as
    // well; at a phone's width one can read it.
    await tab.send('Emulation.setDeviceMetricsOverride',
        {width : 375, height : 800, deviceScaleFactor : 1, mobile : true});
    await tab.open(url('numerics.html'));
    await tab.until(`document.getElementById('error-curve').dataset.ready`);
    const dragged = await tab.evaluate(`(() => {
        const svg = document.querySelector('#error-curve svg'), box = svg.getBoundingClientRect();
        const to = (at) => (svg.dispatchEvent(new PointerEvent('pointerdown',
            { clientX: box.left + at * box.width, bubbles: true })),
            document.querySelector('#error-curve .said').textContent);
        return { left: to(0.3), right: to(0.95), least: box.width / 340 * 11 };
    })()`);
    assert.match(dragged.left,
        /float64: \S+ error \S+ mostly rounding; float32: x \+ h and x - h are the same number/);
    assert.match(dragged.right, /float64: [^;]*mostly truncation; float32: [^;]*mostly truncation/);
    assert.ok(dragged.least >= 9.5, `letters of ${dragged.least} pixels`);
    await tab.send('Emulation.clearDeviceMetricsOverride');
}

// One element of a gradient: by mouse and by arrow keys, its parts light up and add up to it. The
// Jacobian is that of the gradient that is pointed at, and its parts are in the element's column.
async function element(tab, url) {
    for (const [op, name] of [[ 'softmax', 'x' ], [ 'attention', 'q' ], [ 'cross_entropy', 'logits' ],
        [ 'rms_norm', 'weight' ], [ 'layer_norm', 'bias' ], [ 'linear', 'weight' ]]) {
        await open(tab, url, op);
        const seen = await tab.evaluate(`(() => {
            const place = ${WORKED(op)}, sum = place.querySelector('.sum'),
                cells = [...place.querySelectorAll('table[data-picks="${name}"] td')],
                last = cells[cells.length - 1];
            last.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
            const map = place.querySelector('[data-tensor=jacobian]'),
                lit = [...map.querySelectorAll('td.part')];
            const pointed = { off: Math.abs(Number(sum.dataset.total) - Number(last.dataset.value)),
                of: map.dataset.of, column: cells.length - 1, rows: lit.length,
                columns: [...new Set(lit.map((td) => td.cellIndex - 1))],
                heads: map.querySelectorAll('th.part').length,
                dy: place.querySelectorAll('td.part input[data-edit^=cotangent]').length };
            cells[0].focus();
            const first = sum.textContent;
            cells[0].dispatchEvent(new KeyboardEvent('keydown',
                { key: 'ArrowRight', bubbles: true }));
            return { ...pointed, moved: first !== sum.textContent &&
                document.activeElement.dataset.pick };
        })()`);
        assert.ok(seen.off < 1e-9 && seen.rows >= 1, `${op}: ${JSON.stringify(seen)}`);
        assert.deepEqual([ seen.of, seen.columns, seen.dy, seen.heads, seen.moved ],
            [ name, [ seen.column ], seen.rows, seen.rows, '1' ], op);
    }
}

// The pictures beside the examples: they stand still until they are played, go step by step, follow
// the numbers, and can be pointed at by mouse and by keyboard; at a phone's width one can read
// them.
async function drawn(tab, url) {
    const pages = {softmax : 'softmax', cross_entropy : 'cross_entropy',
        rms_norm : 'rms_norm-worked', layer_norm : 'layer_norm', batch_norm : 'batch_norm',
        rope : 'rope', attention : 'attention', conv2d : 'conv', conv_transpose2d : 'conv',
        max_pool2d : 'pool', lstm : 'rnn', gru : 'rnn', pad : 'pad', embedding : 'embedding'};
    await tab.send('Emulation.setDeviceMetricsOverride',
        {width : 375, height : 800, deviceScaleFactor : 1, mobile : true});
    for (const [op, page] of Object.entries(pages)) {
        await tab.open(url(`${page}.html`));
        await tab.until(`document.querySelector('.drawn[data-of="${op}"]')?.dataset.ready`);
        const seen = await tab.evaluate(`(() => {
            const place = document.querySelector('.drawn[data-of="${op}"]'),
                button = (act) => place.querySelector('[data-act=' + act + ']');
            const state = () => place.querySelector('.picture').innerHTML +
                place.querySelector('.said').textContent;
            const still = button('play').textContent, whole = state(), words = [],
                states = new Set();
            for (let i = 0; i < 2; i++) button('play').click(),
                words.push(button('play').textContent);
            const steps = Number(button('seek').max);
            for (let i = 0; i < steps; i++) button('back').click();
            for (let i = 0; i <= steps; i++) states.add(state()), button('step').click();
            button('seek').value = steps, button('seek').dispatchEvent(new Event('input'));
            const box = [...document.querySelectorAll('.worked[data-op="${op}"] input[data-edit]')]
                .find((b) => /^(x|logits|q|gates|table)$/.test(b.dataset.edit));
            box.value = Number(box.value) + 0.25,
                box.dispatchEvent(new Event('change', { bubbles: true }));
            return { still, words, steps, states: states.size,
                bad: /NaN|undefined/.test([...states].join()), followed: 0,
                     whole, least: Math.min(...[...place
                         .querySelectorAll('.picture text, .picture td')]
                         .map((t) => parseFloat(getComputedStyle(t).fontSize) *
                         (t.ownerSVGElement ? t.ownerSVGElement.getBoundingClientRect().width / 320
                             : 1))) };
        })()`);
        assert.equal(seen.still, 'Play', op);
        assert.deepEqual(seen.words, [ 'Pause', 'Play' ], op);
        assert.ok(seen.steps >= 2 && seen.states === seen.steps + 1 && !seen.bad,
            `${op}: ${seen.states} states of ${seen.steps} steps`);
        assert.ok(seen.least >= 10, `${op}: letters of ${seen.least} pixels`);
        await tab.until(`(() => { const p = document.querySelector('.drawn[data-of="${op}"]');
                return p.querySelector('.picture').innerHTML + p.querySelector('.said')
                    .textContent !== ${JSON.stringify(seen.whole)}; })()`);
    }
    // The arrow of a norm can be dragged: dy, the steps and dx follow.
    for (const [page, op] of [[ 'rms_norm-worked', 'rms_norm' ], [ 'batch_norm', 'batch_norm' ],
        [ 'batch_norm', 'group_norm' ], [ 'layer_norm', 'layer_norm' ]]) {
        await tab.open(url(`${page}.html`));
        await tab.until(`document.querySelector('.drawn[data-of="${op}"]')?.dataset.ready`);
        const say = (degrees) => `(() => {
            const place = document.querySelector('.drawn[data-of="${op}"]'),
                aim = place.querySelector('[data-act=aim]');
            aim.value = ${degrees}, aim.dispatchEvent(new Event('input', { bubbles: true }));
        })()`;
        const first = `document.querySelector('.drawn[data-of="${op}"] [data-act=seek]')`;
        await tab.evaluate(`${first}.value = 0,
            ${first}.dispatchEvent(new Event('input', { bubbles: true }))`);
        for (const degrees of [20, 90, 135]) {
            await tab.evaluate(say(degrees));
            await tab.until(`Math.abs(
                Number(/between them is ([\\d.]+)°/
                    .exec(document.querySelector('.drawn[data-of="${op}"] .said').textContent)[1]) -
                    ${degrees}) < 0.1`);
        }
        assert.equal(await tab.evaluate(`[...${WORKED(op)}.querySelectorAll('[data-agrees]')]
            .filter((e) => !(Number(e.dataset.agrees) < 1e-9)).length`), 0, op);
    }
    for (const [page, op, grid] of [[ 'attention', 'attention', 'ds' ], [ 'conv', 'conv2d', 'dx' ],
        [ 'pool', 'max_pool2d', 'y' ], [ 'rnn', 'lstm', 'backward' ],
             [ 'rnn', 'gru', 'backward' ], [ 'conv', 'conv_transpose2d', 'dx' ],
             [ 'pad', 'pad', 'dx' ], [ 'embedding', 'embedding', 'dtable' ]]) {
        await tab.open(url(`${page}.html`));
        await tab.until(`document.querySelector('.drawn[data-of="${op}"]')?.dataset.ready`);
        const seen = await tab.evaluate(`(() => {
            const place = document.querySelector('.drawn[data-of="${op}"]'),
                cell = (at) => place.querySelector('td[tabindex][data-grid="${grid}"][data-at="' +
                    at + '"]');
            const target = () => place.querySelector('td.target').dataset.at,
                words = () => place.querySelector('.said').textContent;
            const first = [...place.querySelectorAll('td[tabindex="0"][data-grid="${grid}"]')];
            first[0].focus();
            const one = [words(), target(), place.querySelectorAll('.part').length];
            document.activeElement.dispatchEvent(new KeyboardEvent('keydown',
                { key: 'ArrowRight', bubbles: true }));
            return { reachable: first.length, one, other: words() };
        })()`);
        assert.equal(seen.reachable, 1, op);
        assert.ok(seen.one[2] >= 1 && seen.one[0] !== seen.other, `${op}: ${seen.one}`);
    }
    await tab.send('Emulation.clearDeviceMetricsOverride');
}

async function search(tab, url) {
    await tab.open(url('index.html'));
    const wanted = {
        layernorm : /^layer_norm/,
        'cross-entropy' : /^cross_entropy/,
        'flash attention' : /^attention/,
        'batch norm' : /^batch_norm/,
        convolution : /^conv/,
        lstm : /^rnn/,
        vanishing : /^vanishing/,
        exercise : /^exercises/,
        softmax : /^softmax/,
        relu : /^elementwise-one\.html#worked-relu$/,
        'max pool' : /^pool\.html#worked-max_pool2d$/,
        kl : /^loss\.html#worked-kl_div$/,
        jacobian : /^lesson-why-backwards/,
        vjp : /^lesson-why-backwards/,
        hessian : /^second_derivatives/,
        'numerical gradient' : /^numerics/,
        triton : /^rms_norm-gpu/,
        einsum : /^lesson-matrix-product/,
        adam : /^training/,
        broadcast : /^lesson-sum-and-broadcast/,
        gd_rms_norm : /^reference-ops\.html#gd_rms_norm$/
    };
    for (const [query, page] of Object.entries(wanted)) {
        await tab.evaluate(`(() => { const b = document.getElementById('search'); b.value = ${
            JSON.stringify(query)}; b.dispatchEvent(new Event('input')); })()`);
        await tab.until(`document.querySelector('#found li') &&
            !document.getElementById('found').hidden`);
        await tab.until(`document.querySelector('#found a')`);
        await new Promise((done) => setTimeout(done, 60));
        assert.match(await tab.evaluate(`document.querySelector('#found a').getAttribute('href')`),
            page, query);
    }
    assert.equal(await tab.evaluate(`searchIndex.filter((e) => /#\\s*$/.test(e.title)).length`), 0);
    assert.equal(await tab.evaluate(`searchIndex.filter((e) => /&amp;|&#/.test(e.title)).length`),
        0);
    const key = (name) => tab.evaluate(
        `document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: '${
            name}', bubbles: true, cancelable: true }))`);
    await tab.evaluate(`document.getElementById('search').focus()`);
    await key('ArrowDown');
    assert.equal(await tab.evaluate(`document.activeElement.tagName`), 'A');
    await key('ArrowUp');
    assert.equal(await tab.evaluate(`document.activeElement.id`), 'search');
    await key('Escape');
    await tab.until(`document.getElementById('found').hidden`);
    assert.equal(await tab.evaluate(`document.getElementById('search').value`), '');
}

// The ladder: one card at a time, by its links, from the plot and by keyboard; printed, all of
// them.
async function ladder(tab, url) {
    await tab.open(url('rms_norm-gpu.html'));
    const cards = `[...document.querySelectorAll('figure.rung')]
        .flatMap((f, i) => getComputedStyle(f).display === 'none' ? [] : [i])`;
    assert.deepEqual(await tab.evaluate(cards), [ 0 ]);
    await tab.evaluate(`document.querySelector('#rung-0 a[data-way=on]').click()`);
    assert.deepEqual(await tab.evaluate(cards), [ 1 ]);
    assert.equal(await tab.evaluate(`document.activeElement.closest('figure').id`), 'rung-1');
    await tab.evaluate(`document.querySelector('.plot a[data-go="12"]').click()`);
    assert.deepEqual(await tab.evaluate(cards), [ 12 ]);
    assert.equal(await tab.evaluate(`document.querySelectorAll('.plot a[aria-current]').length`),
        1);
    assert.equal(await tab.evaluate(`document.querySelectorAll('#rung-12 a[data-way=on]').length`),
        0);
    await tab.send('Emulation.setEmulatedMedia', {media : 'print'});
    assert.equal((await tab.evaluate(cards)).length, 13);
    await tab.send('Emulation.setEmulatedMedia', {media : '', features : []});
}

// RMSNorm's kernel: a thought at a time, with its lines; the sums of the butterfly and of Newton's
// step.
async function kernel(tab, url) {
    await tab.open(url('rms_norm-gpu.html'));
    await tab.until(`document.getElementById('kernel-walk').dataset.ready`);
    const seen = await tab.evaluate(`(() => {
        const place = document.getElementById('kernel-walk'),
            all = place.querySelectorAll('.thoughts > li').length, bad = [];
        const box = place.querySelector('.sources');
        for (let i = 1; i < all; i++) {
            place.querySelector('[data-act=step]').click();
            const open = [...place.querySelectorAll('.thoughts > li')].filter((li) => !li.hidden),
                lines = [...box.querySelectorAll('.line.now')];
            const top = lines[0].getBoundingClientRect().top - box.getBoundingClientRect().top;
            if (open.length !== 1 || lines.length < 1 || top < 0 || top > box.clientHeight - 20)
                bad.push([i, open.length, lines.length, top]);
        }
        return { all, bad };
    })()`);
    assert.ok(seen.all >= 10);
    assert.deepEqual(seen.bad, []);
    const sums = await tab.evaluate(`(() => {
        const place = document.getElementById('butterfly');
        while (place.closest('li').hidden)
            document.querySelector('#kernel-walk [data-act=back]').click();
        const values = JSON.parse(place.dataset.values);
        const total = values.reduce((a, b) => a + b, 0),
            rows = [...new Set([...place.querySelectorAll('.cell')].map((c) => c.dataset.row))];
        const wrong = [...place.querySelectorAll('.cell')]
            .filter((c) => Math.abs(Number(c.dataset.value) - c.dataset.of.split(' ')
                .reduce((sum, lane) => sum + values[lane], 0)) > 1e-9).length;
        place.querySelector('.cell[data-row="1"]').focus();
        return { total, rows: rows.length, wrong,
            last: [...place.querySelectorAll('.cell[data-row="3"]')]
            .every((c) => Math.abs(Number(c.dataset.value) - total) < 1e-9),
            lit: place.querySelectorAll('.cell.part').length };
    })()`);
    assert.deepEqual(sums, {total : 21.75, rows : 4, wrong : 0, last : true, lit : 3});
    const [first, fused] = await tab.evaluate(`[...document.querySelectorAll('#newton td[data-off]')]
        .map((td) => Math.abs(Number(td.dataset.off)))`);
    assert.ok(first >= 1.4 && fused <= 1, `${first}, ${fused}`);
}

// Printed from a dark screen: black on white, with nothing hidden.
async function print(tab, url) {
    await tab.send('Emulation.setEmulatedMedia',
        {media : 'print', features : [ {name : 'prefers-color-scheme', value : 'dark'} ]});
    await open(tab, url, 'softmax');
    const seen = await tab.evaluate(`(() => {
        const style = (s) => getComputedStyle(document.querySelector(s));
        return [style('body').backgroundColor, style('body').color, style('header').display,
                style('.jacobian').printColorAdjust || style('.jacobian').webkitPrintColorAdjust];
    })()`);
    assert.deepEqual(seen, [ 'rgb(255, 255, 255)', 'rgb(0, 0, 0)', 'none', 'exact' ]);
    // Answers stay folded, and what else is folded opens.
    for (const [page, open] of [[ 'exercises.html', 0 ], [ 'lesson-chain.html', 3 ]]) {
        await tab.open(url(page));
        await tab.evaluate(`dispatchEvent(new Event('beforeprint'))`);
        assert.equal(await tab.evaluate(`document.querySelectorAll('details[open]').length`),
            open, page);
    }
    await tab.send('Emulation.setEmulatedMedia', {media : '', features : []});
}

// Without JavaScript: text and whole figures, and nothing to press that would do nothing.
async function withoutScripts(tab, url, pages) {
    await tab.send('Emulation.setScriptExecutionDisabled', {value : true});
    for (const page of pages.filter((name) => !/^code|^reference/.test(name))) {
        await tab.open(url(page));
        const {root} = await tab.send('DOM.getDocument', {depth : -1});
        const all = [], walk = (node) => { all.push(node), (node.children || []).forEach(walk); };
        walk(root);
        const get = ({attributes = []}, name) => attributes[attributes.indexOf(name) + 1] || '';
        const dead = all.filter((node) => /^(BUTTON|SELECT)$/.test(node.nodeName) ||
            node.nodeName === 'INPUT' && !get(node, 'name').startsWith('tab-') ||
            /^(TD|TH|G)$/i.test(node.nodeName) && node.attributes.includes('tabindex'));
        for (const {nodeId} of dead) {
            const box = await tab.send('DOM.getBoxModel', {nodeId}).catch(() => null);
            assert.ok(!box || !box.model.width, `${page}: a dead button or cell`);
        }
        if (!/^(index|lesson-|tape|expression)/.test(page)) continue;
        const gone = all.filter(({attributes}) => attributes && /\bitem\b[^"]*\bhidden\b/
            .test(attributes[attributes.indexOf('class') + 1]));
        assert.equal(gone.length, 0, `${page}: a figure that is not whole`);
    }
    await tab.send('Emulation.setScriptExecutionDisabled', {value : false});
    await tab.open(url('exercises.html'));
    assert.equal(await tab.evaluate(`[...document.querySelectorAll('.exercise textarea')]
        .filter((t) => !t.defaultValue.trim()).length`), 0);
}

// Texts that cannot be trained on are refused in a sentence; others are what it learns from.
async function ownText(tab, url) {
    await tab.open(url('train.html'));
    const go = (text) => tab.evaluate(`(() =>
        { const t = document.querySelector('[data-part=text]'); t.value = ${
        JSON.stringify(text)}; t.dispatchEvent(new Event('change'));
document.querySelector('[data-part=go]').click(); })()`);
    const said = `document.querySelector('[data-part=said]').textContent`;
    await go('too short');
    await tab.until(said);
    assert.match(await tab.evaluate(said), /has 9 bytes.*66 or more/);
    await go('abc '.repeat(20)); // 80 bytes, of four kinds
    await tab.until(`Number(document.getElementById('train').dataset.steps) >= 2`);
    assert.match(await tab.evaluate(said), /uniform guess: 1\.386/); // log 4
    await tab.evaluate(`document.querySelector('[data-part=go]').click()`);
}

async function accessible(tab, url, pages, folder) {
    const text = axe.find(path.dirname(folder));
    if (!text) return console
        .log('axe is left out: PyPI does not answer (GRADUS_AXE names an axe.min.js)');
    const before = tab.troubles.length;
    for (const scheme of ['light', 'dark']) {
        await tab.send('Emulation.setEmulatedMedia',
            {features : [ {name : 'prefers-color-scheme', value : scheme} ]});
        for (const page of pages) {
            await tab.open(url(page));
            const findings = await axe.findings(tab, text, scheme === 'dark'
                ? [ 'color-contrast' ] : null);
            assert.deepEqual(findings, [], `${page}, ${scheme}: ${findings.join('\n')}`);
        }
    }
    await tab.send('Emulation.setEmulatedMedia', {features : []});
    tab.troubles.length = before; // axe asks for style sheets, which a page from a file may not
    console.log(`axe finds nothing on ${pages.length} pages, light and dark`);
}

module.exports = {withoutScripts, watch, lessonPages, editor, kernel, curves, exercise, lines,
    path_of_stops, edits, element, drawn, ladder, search, print, ownText, accessible};
