// mended.js - what was once wrong on these pages, and must stay right: a check for each kind.
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');

const texts = (name, folder) => fs.readFileSync(path.join(folder, name), 'utf8');

async function wording(tab, url, pages, folder) {
    for (const page of pages)
        assert.doesNotMatch(texts(page, folder), /&amp;(#\d+|amp|lt|gt|quot);/,
            `${page}: escaped twice`);
    const formulas = (op) => tab.evaluate(`[...document
        .querySelectorAll('.worked[data-op="${op}"] annotation')]
        .map((a) => a.textContent).join(' ')`);
    await tab.open(url('rms_norm-worked.html'));
    const sum = await formulas('add_rms_norm');
    assert.match(sum, /\\hat x\}*_\{ik\} = s_\{ik\}/, 'what is normalised is the sum s');
    assert.ok(!sum.includes('\\hat s'), 'one name for the normalised row');
    // Formulas are formulas: no text outside of code has a sum or an exponential in letters.
    await tab.open(url('cross_entropy.html'));
    const plain = await tab.evaluate(`(() => {
        const walk = document.createTreeWalker(document.querySelector('main'), NodeFilter.SHOW_TEXT), found = [];
        while (walk.nextNode())
            if (/\\b(exp|log|sum)\\(|\\w_\\w*\\[|\\^T\\b/.test(walk.currentNode.data) && !walk.currentNode.parentElement.closest('code, pre, .katex, .worked, .panel, template, script'))
                found.push(walk.currentNode.data.trim());
        return found;
    })()`);
    assert.deepEqual(plain, []);
    await tab.until(`document.querySelector('.worked').dataset.ready`);
    assert.match(await tab.evaluate(
        `document.querySelector('[data-tensor=jacobian] b').textContent`), /^∂loss/);
    // In the reference only C is coloured as C.
    for (const page of pages.filter((name) => name.startsWith('reference-'))) {
        await tab.open(url(page));
        const words = await tab.evaluate(`[...document.querySelectorAll('main pre.code')]
            .filter((pre) => !/[;{}#]|gd_|GD_/.test(pre.textContent) &&
                pre.querySelector('.keyword')).map((pre) => pre.textContent)`);
        assert.deepEqual(words, [], page);
    }
    await tab.open(url('conventions.html'));
    assert.ok(await tab.evaluate(`document.querySelectorAll('main table tr').length`) > 20,
        'the table of NaN is a table');
}

// Every label of every picture is whole, and none lies on another, wherever it is played to.
async function labels(tab, url, pages, folder) {
    let measured = 0;
    for (const width of [1280, 768, 390, 320]) {
        await tab.send('Emulation.setDeviceMetricsOverride',
            {width, height : 800, deviceScaleFactor : 1, mobile : width < 500});
        for (const page of pages.filter((name) => /<svg|class="grids"/.test(texts(name, folder)))) {
            await tab.open(url(page));
            await tab.evaluate(`document.querySelectorAll('main details').forEach((d) => { d.open = true; })`);
            await tab.until(`[...document.querySelectorAll('.drawn[data-of]')]
                .every((e) => e.dataset.ready)`);
            const {bad, count} = await tab.evaluate(`(async () => {
                const bad = new Set();
                let count = 0;
                for (const part of [0, 0.5, 1]) {
                    for (const seek of document.querySelectorAll('main [data-act=seek]')) {
                        seek.value = Math.round(part * seek.max);
                        seek.dispatchEvent(new Event('input', { bubbles: true }));
                    }
                    await new Promise(requestAnimationFrame);
                    for (const svg of document.querySelectorAll('main svg')) {
                        const frame = svg.getBoundingClientRect(), seen = [];
                        for (const text of svg.querySelectorAll('text')) {
                            const box = text.getBoundingClientRect();
                            if (!box.width || getComputedStyle(text).visibility === 'hidden') continue;
                            count++;
                            if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
                                box.top < frame.top - 1 || box.bottom > frame.bottom + 1)
                                bad.add('cut: ' + text.textContent);
                            for (const [other, b] of seen)
                                if (Math.min(box.right, b.right) - Math.max(box.left, b.left) > 0.5 &&
                                    Math.min(box.bottom, b.bottom) - Math.max(box.top, b.top) > 4)
                                    bad.add(other + ' and ' + text.textContent);
                            seen.push([ text.textContent, box ]);
                        }
                    }
                    for (const cell of document.querySelectorAll('.grids :is(td, th, b)'))
                        if (count++, cell.scrollWidth > cell.clientWidth + 1 && cell.clientWidth)
                            bad.add('cut: ' + cell.textContent);
                }
                return { bad: [...bad], count };
            })()`);
            assert.deepEqual(bad, [], `${page}, ${width} wide`);
            measured += count;
        }
    }
    await tab.send('Emulation.clearDeviceMetricsOverride');
    console.log(`${measured} labels measured`);
}

// At both widths nothing is cut: what is wider than the page scrolls, with a shadow and by
// keyboard; formulas and the numbers of examples do not even that.
async function cut(tab, url, pages) {
    for (const width of [1200, 375]) {
        await tab.send('Emulation.setDeviceMetricsOverride',
            {width, height : 800, deviceScaleFactor : 1, mobile : width < 500});
        for (const page of pages) {
            await tab.open(url(page));
            const seen = await tab.evaluate(`document.fonts.ready
                .then(() => new Promise(requestAnimationFrame)).then(() => {
                const scrolls = (e) => { for (; e && e !== document.body; e = e.parentElement)
                    if (/auto|scroll/.test(getComputedStyle(e).overflowX)) return true;
                    return false; };
                const out = [...document
                    .querySelectorAll('main table, main .katex-html, main pre, main svg, main img, main canvas')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && e.getBoundingClientRect().width && !scrolls(e));
                // nor does a formula break, but between equations
                const formulas = [...document.querySelectorAll('.formula')]
                    .filter((e) => e.scrollWidth > e.clientWidth + 1 ||
                        [...e.querySelectorAll('.equation .katex-html')]
                            .some((html) => html.getClientRects().length > 1));
                out.push(...[...document.querySelectorAll('header nav a')]
                    .filter((a) => a.getBoundingClientRect().right > innerWidth));
                const tables = [...document.querySelectorAll('.tensor table, .grids table' +
                    (innerWidth < 640 ? ', .walk' : ''))].filter((e) => e.getBoundingClientRect()
                    .right > e.closest('.worked, .panel').getBoundingClientRect().right);
                const unseen = [...document.querySelectorAll('.wide, .worked, .panel')]
                    .filter((e) => e.scrollWidth > e.clientWidth + 1 &&
                        (e.tabIndex < 0 || getComputedStyle(e).backgroundImage === 'none'));
                const header = document.querySelector('header');
                return { out: out.map((e) => e.tagName),
                    formulas: formulas.map((e) => e.textContent.slice(0, 40)),
                    tables: tables.map((e) => e.parentElement.dataset.tensor || ''),
                    unseen: unseen.map((e) => e.outerHTML.slice(0, 60)),
                         width: document.documentElement.scrollWidth,
                         header: getComputedStyle(header).position === 'sticky'
                         ? header.offsetHeight : 0 };
            })`);
            assert.ok(seen.width <= width, `${page} is ${seen.width} wide on a screen of ${width}`);
            assert.deepEqual([ seen.out, seen.formulas, seen.tables, seen.unseen ], [ [], [], [], [] ],
                `${page}, ${width} wide`);
            assert.ok(seen.header <= 64, `${page}, ${width} wide: a header of ${
                seen.header} covers headings`);
        }
    }
    await tab.send('Emulation.clearDeviceMetricsOverride');
    await tab.send('Emulation.setEmulatedMedia',
        {features : [ {name : 'prefers-color-scheme', value : 'dark'} ]});
    for (const page of ['rms_norm-gpu.html', 'readme.html']) {
        await tab.open(url(page));
        assert.ok(await tab.evaluate(`[...document.querySelectorAll('main img')]
            .every((img) => getComputedStyle(img).filter !== 'none')`),
                `${page}: a picture on white in the dark`);
    }
    await tab.send('Emulation.setEmulatedMedia', {features : []});
}

module.exports = {wording, labels, cut};
