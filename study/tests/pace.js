// pace.js - how soon the first picture moves, how long a script keeps a frame, and whether a
// keyboard is enough. Both times are printed.
'use strict';
const assert = require('assert');
const path = require('path');

const WATCH = `document.addEventListener('DOMContentLoaded', () => new MutationObserver(() => {
    if (!window.moved && document.querySelector('.tape animateMotion'))
        window.moved = performance.now();
}).observe(document.body, { childList: true, subtree: true }))`;

async function pace(tab, url, pages) {
    const {identifier} = await tab.send('Page.addScriptToEvaluateOnNewDocument', {source : WATCH});
    await tab.open(url('index.html'));
    await tab.until('window.moved');
    const moved = await tab.evaluate('window.moved');
    await tab.send('Page.removeScriptToEvaluateOnNewDocument', {identifier});
    // Of many ops the module comes when the first example is opened.
    const asked = () => tab.requests.filter((request) => request.endsWith('ops-wasm.js')).length,
        before = asked();
    await tab.open(url('elementwise.html'));
    assert.equal(asked(), before);
    await tab.evaluate(`document.querySelector('.worked').closest('details').open = true`);
    await tab.until(`document.querySelector('.worked').dataset.ready`);
    assert.equal(asked(), before + 1);
    const longest = [];
    for (const page of pages) {
        await tab.open(url(page));
        const shown = '(e) => e.offsetParent', players = `[...document
            .querySelectorAll('[data-act=play]')].filter(${shown})`;
        const sliders = `[...document.querySelectorAll('input[type=range]:not([data-act=seek])')]
            .filter(${shown})`;
        if (!await tab.evaluate(`${players}.length + ${sliders}.length +
            Boolean(document.getElementById('train'))`)) continue;
        await new Promise((done) => setTimeout(done, 300));
        // Everything that plays plays, and what is dragged is dragged, for a second and a half.
        const calls = await tab.trace(() => tab.evaluate(`(async () => {
            for (const button of ${players}) if (button.textContent === 'Play') button.click();
            if (document.getElementById('train'))
                document.querySelector('#train [data-part=go]').click();
            for (let i = 0; i < 5; i++) {
                for (const slider of ${sliders}) {
                    slider.value = Number(slider.min) +
                        (Number(slider.max) - Number(slider.min)) * (i + 1) / 6;
                    slider.dispatchEvent(new Event('input', { bubbles: true }));
                }
                await new Promise((done) => setTimeout(done, 300));
            }
        })()`));
        longest.push(calls.reduce((most, one) => (one.ms > most.ms ? {...one, page} : most),
            {ms : 0, page}));
    }
    longest.sort((a, b) => b.ms - a.ms);
    console.log(`the first picture moves after ${
        Math.round(moved)} ms; the longest scripts of a frame, of ${
        longest.length} pages that move: ${
        longest.slice(0, 4).map(({ms, page, url, line}) => `${ms.toFixed(1)} ms ${page} (${
            path.basename(url)}:${line})`).join(', ')}`);
    assert.ok(moved <= 4000);
    assert.ok(longest[0].ms > 0 && longest[0].ms <= 10);
}

// By keyboard alone: each thing that can be clicked has the focus at some time as Tab goes on, or
// is in a group that arrow keys go through; and Enter and the space bar do what a click does.
async function keyboard(tab, url) {
    const press = async (key, code = key) => {
        for (const type of ['keyDown', 'keyUp'])
            await tab.send('Input.dispatchKeyEvent',
                {type, key, code, windowsVirtualKeyCode : {Tab : 9, Enter : 13, ' ' : 32,
                    ArrowRight : 39}[key],
                ...(type === 'keyDown' && key === ' ' ? {text : ' '} : key === 'Enter' &&
                    type === 'keyDown' ? {text : '\r'} : {})});
    };
    for (const page of ['index.html', 'softmax.html', 'rms_norm-gpu.html', 'exercises.html',
        'break.html', 'vanishing.html', 'tape.html', 'train.html']) {
        await tab.open(url(page));
        await new Promise((done) => setTimeout(done, 400));
        const left = await tab.evaluate(`(() => {
            const all = [...document
                .querySelectorAll('main button, main input, main select, main textarea, main summary, main a[href]:not([tabindex="-1"])')].filter((e) => e.offsetParent);
            return all.filter((e) => e.tabIndex < 0 && !e.closest('table[data-picks]'))
                .map((e) => e.outerHTML.slice(0, 80));
        })()`);
        assert.deepEqual(left, [], `${page}: out of the keyboard's reach`);
        const clicked = await tab.evaluate(`[...document
            .querySelectorAll('main [data-pick], main .cell, main .sources .line')]
            .filter((e) => e.offsetParent && e.tabIndex < 0 && !e.closest('[tabindex="0"], table'))
            .length`);
        assert.equal(clicked, 0, page);
    }
    // The kernel's walk, by Tab and the space bar; its lines by the slider's arrow keys.
    await tab.open(url('rms_norm-gpu.html'));
    await tab.until(`document.getElementById('kernel-walk').dataset.ready`);
    const thought = `[...document.querySelectorAll('.thoughts > li')].findIndex((li) => !li.hidden)`;
    await tab.evaluate(`document.querySelector('#kernel-walk [data-act=play]').focus()`);
    await press('Tab');
    await press('Tab');
    await press(' ', 'Space');
    assert.equal(await tab.evaluate(thought), 1);
    await press('Tab');
    await press('ArrowRight');
    assert.equal(await tab.evaluate(thought), 2);
    // The first page: Tab from the top comes to the link past the header, and Enter follows it.
    await tab.open(url('index.html'));
    await press('Tab');
    assert.equal(await tab.evaluate(`document.activeElement.className`), 'skip');
    await press('Enter');
    assert.equal(await tab.evaluate(`document.activeElement.id`), 'main');
}

module.exports = {pace, keyboard};
