// mended.js - what was once wrong on these pages, and must stay right: a check for each kind.
'use strict';
const assert = require('assert');
const fs = require('fs');
const path = require('path');

// Every example of every page starts again with all of its numbers.
async function again(tab, url, pages, folder) {
    let ops = 0;
    for (const page of pages) {
        if (!fs.readFileSync(path.join(folder, page), 'utf8').includes('class="worked"')) continue;
        await tab.open(url(page));
        await tab.evaluate(`document.querySelectorAll('details').forEach((d) => { d.open = true; })`);
        await tab.until(`[...document.querySelectorAll('.worked')].every((e) => e.dataset.ready)`);
        const bad = await tab.evaluate(`(() => [...document.querySelectorAll('.worked')].map((place) => {
            const boxes = () => [...place.querySelectorAll('input[data-edit]')], all = () => boxes().map((b) => b.value).join();
            const before = all(), names = new Set(boxes().map((b) => b.dataset.edit));
            for (const name of names) {
                const box = boxes().find((b) => b.dataset.edit === name);
                box.value = Number(box.value) + (/ids|targets|index|condition|mask/.test(name) ? (Number(box.value) ? -1 : 1) : 0.125);
                box.dispatchEvent(new Event('change', { bubbles: true }));
            }
            const changed = all() !== before;
            place.querySelector('[data-act=again]').click();
            return changed && all() === before ? '' : place.dataset.op;
        }))()`);
        assert.deepEqual(bad.filter(Boolean), [], `${page}: "As it was" does not restore`);
        ops += bad.length;
    }
    console.log(`${ops} examples start again as they were`);
}

const texts = (name, folder) => fs.readFileSync(path.join(folder, name), 'utf8');

async function wording(tab, url, pages, folder) {
    for (const page of pages) assert.doesNotMatch(texts(page, folder), /&amp;(#\d+|amp|lt|gt|quot);/, `${page}: escaped twice`);
    const formulas = (op) => tab.evaluate(`[...document.querySelectorAll('.worked[data-op="${op}"] annotation')].map((a) => a.textContent).join(' ')`);
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
    assert.match(await tab.evaluate(`document.querySelector('[data-tensor=jacobian] b').textContent`), /^∂loss/);
    // In the reference only C is coloured as C.
    for (const page of pages.filter((name) => name.startsWith('reference-'))) {
        await tab.open(url(page));
        const words = await tab.evaluate(`[...document.querySelectorAll('main pre.code')].filter((pre) => !/[;{}#]|gd_|GD_/.test(pre.textContent) && pre.querySelector('.keyword')).map((pre) => pre.textContent)`);
        assert.deepEqual(words, [], page);
    }
    await tab.open(url('conventions.html'));
    assert.ok(await tab.evaluate(`document.querySelectorAll('main table tr').length`) > 20, 'the table of NaN is a table');
}

// At both widths nothing is cut: what is wider than the page scrolls, with a shadow and by keyboard; formulas
// and the numbers of examples do not even that.
async function cut(tab, url, pages) {
    for (const width of [1200, 375]) {
        await tab.send('Emulation.setDeviceMetricsOverride', {width, height : 800, deviceScaleFactor : 1, mobile : width < 500});
        for (const page of pages) {
            await tab.open(url(page));
            const seen = await tab.evaluate(`document.fonts.ready.then(() => new Promise(requestAnimationFrame)).then(() => {
                const scrolls = (e) => { for (; e && e !== document.body; e = e.parentElement) if (/auto|scroll/.test(getComputedStyle(e).overflowX)) return true; return false; };
                const out = [...document.querySelectorAll('main table, main .katex-html, main pre, main svg, main img, main canvas')].filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && e.getBoundingClientRect().width && !scrolls(e));
                const formulas = [...document.querySelectorAll('.formula')].filter((e) => e.scrollWidth > e.clientWidth + 1);
                const tables = [...document.querySelectorAll('.tensor table, .grids table' + (innerWidth < 640 ? ', .walk' : ''))].filter((e) => e.getBoundingClientRect().right > e.closest('.worked, .panel').getBoundingClientRect().right);
                const unseen = [...document.querySelectorAll('.wide, .worked, .panel')].filter((e) => e.scrollWidth > e.clientWidth + 1 && (e.tabIndex < 0 || getComputedStyle(e).backgroundImage === 'none'));
                const header = document.querySelector('header');
                return { out: out.map((e) => e.tagName), formulas: formulas.map((e) => e.textContent.slice(0, 40)), tables: tables.map((e) => e.parentElement.dataset.tensor || ''), unseen: unseen.map((e) => e.outerHTML.slice(0, 60)),
                         width: document.documentElement.scrollWidth, header: getComputedStyle(header).position === 'sticky' ? header.offsetHeight : 0 };
            })`);
            assert.ok(seen.width <= width, `${page} is ${seen.width} wide on a screen of ${width}`);
            assert.deepEqual([ seen.out, seen.formulas, seen.tables, seen.unseen ], [ [], [], [], [] ], `${page}, ${width} wide`);
            assert.ok(seen.header <= 64, `${page}, ${width} wide: a header of ${seen.header} covers headings`);
        }
    }
    await tab.send('Emulation.clearDeviceMetricsOverride');
    await tab.send('Emulation.setEmulatedMedia', {features : [ {name : 'prefers-color-scheme', value : 'dark'} ]});
    for (const page of ['rms_norm-gpu.html', 'readme.html']) {
        await tab.open(url(page));
        assert.ok(await tab.evaluate(`[...document.querySelectorAll('main img')].every((img) => getComputedStyle(img).filter !== 'none')`), `${page}: a picture on white in the dark`);
    }
    await tab.send('Emulation.setEmulatedMedia', {features : []});
}

module.exports = {again, wording, cut};
