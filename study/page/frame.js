// frame.js - what every page has: light and dark, search, and symbols and marks that light up
// together wherever they stand.
'use strict';
document.documentElement.classList.add('js');
(function() {
// ---- Light and dark: as the system says, or as was chosen ----------------------------------

const stored = (() => {
    try {
        return localStorage.getItem('theme');
    } catch {
        return null;
    }
})();
if (stored) document.documentElement.dataset.theme = stored;

function changeTheme() {
    const system = matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
    const dark = (document.documentElement.dataset.theme || system) === 'dark';
    document.documentElement.dataset.theme = dark ? 'light' : 'dark';
    try {
        localStorage.setItem('theme', document.documentElement.dataset.theme);
    } catch { /* private */
    }
}

// ---- Search: the index is a script, loaded when it is first wanted -------------------------

let index = null;

function loadIndex() {
    if (index) return Promise.resolve(index);
    return new Promise((done) => {
        const script = document.createElement('script');
        script.src = 'search.js';
        script.onload = () => done(index = window.searchIndex);
        document.head.append(script);
    });
}

// layer_norm, layernorm and layer-norm are one word.
const joined = (text) => text.toLowerCase().replace(/[-_ ]/g, '');

// Every word must occur, apart or joined to its neighbours; what a page is about counts for most,
// then a title, and then the shorter entry.
function find(entries, query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean), whole = joined(query);
    return entries
        .map((entry) => {
            const title = entry.title.toLowerCase(), text = entry.text.toLowerCase();
            const about = (entry.about || []).map(joined);
            let score = about.includes(whole)    ? 900
                        : joined(title) === whole ? 200
                                                  : 0;
            if (!score && joined(title).includes(whole)) score = 40;
            let words_score = 0;
            for (const word of words) {
                if (title === word)
                    words_score += 100;
                else if (title.includes(word))
                    words_score += 20;
                else if (text.includes(word))
                    words_score += 1;
                else if (!score && joined(text).includes(whole))
                    score = 1;
                else if (!score)
                    return null;
            }
            return {entry, score : score + words_score - title.length / 1000};
        })
        .filter(Boolean)
        .sort((a, b) => b.score - a.score)
        .slice(0, 12)
        .map((hit) => hit.entry);
}

async function search(box, list) {
    const query = box.value.trim();
    const hits = query.length > 1 ? find(await loadIndex(), query) : [];
    if (query !== box.value.trim()) return; // another letter has come since
    list.replaceChildren(...hits.map((hit) => {
        const item = document.createElement('li'), link = document.createElement('a');
        link.href = hit.href;
        link.textContent = hit.title;
        const where = document.createElement('small');
        where.textContent = ' ' + hit.page;
        item.append(link, ...(hit.page === hit.title ? [] : [ where ]));
        return item;
    }));
    list.hidden = query.length < 2;
    if (query.length > 1 && !hits.length) {
        const item = document.createElement('li');
        item.textContent = `nothing for “${query}”`;
        list.append(item);
    }
}

// Arrow keys go through what was found, Enter takes the first, Escape leaves.
function searchKeys(event, box, list) {
    const links = [...list.querySelectorAll('a') ], at = links.indexOf(document.activeElement);
    if (event.key === 'Escape') {
        box.value = '';
        search(box, list);
        box.focus();
    } else if (event.key === 'Enter' && at < 0 && links.length) {
        location.href = links[0].href;
    } else if (event.key === 'ArrowDown' && links.length) {
        links[Math.min(at + 1, links.length - 1)].focus();
    } else if (event.key === 'ArrowUp' && at >= 0) {
        (links[at - 1] || box).focus();
    } else {
        return;
    }
    event.preventDefault();
}

// ---- What belongs together lights up together ----------------------------------------------

function light(attribute, value, on) {
    for (const element of document.querySelectorAll(`[data-${attribute}="${CSS.escape(value)}"]`))
        element.classList.toggle('lit', on);
}

function follow(event, on) {
    const element = event.target.closest && event.target.closest('[data-symbol], [data-mark]');
    if (!element) return;
    if (element.dataset.symbol)
        light('symbol', element.dataset.symbol, on);
    else
        light('mark', element.dataset.mark, on);
}

let tapped = null;
function tap(event) {
    const element = event.target.closest('[data-symbol]');
    if (tapped) light('symbol', tapped, false);
    tapped = element && element.dataset.symbol !== tapped ? element.dataset.symbol : null;
    if (tapped) light('symbol', tapped, true);
}

// Arrow keys go from cell to cell of a table, of which one at a time is reached by Tab.
window.rove = (event, cells) => {
    const cell = event.target.closest(cells);
    const way = {ArrowLeft : [ 0, -1 ], ArrowRight : [ 0, 1 ], ArrowUp : [ -1, 0 ],
        ArrowDown : [ 1, 0 ]}[event.key];
    if (!cell || !way) return;
    event.preventDefault();
    const to = cell.closest('table').rows[cell.parentElement.rowIndex + way[0]]
        ?.cells[cell.cellIndex + way[1]];
    if (!to || !to.matches(cells)) return;
    cell.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
};

// ---- A formula that is wider than its place is set smaller, down to 52% -------------------------

function fit() {
    const all = [...document.querySelectorAll('.equation, .step') ]
        .map((place) => ({place, formula : place.querySelector('.katex')}))
                    .filter(({formula}) => formula);
    for (const {formula} of all)
        if (formula.style.fontSize) formula.style.fontSize = '';
    // All are measured before any is changed, so that the page is laid out once.
    const sizes = all.map(({place, formula}) => {
        const step = place.classList.contains('step'),
            room = (step ? place : place.parentElement).clientWidth;
        const wide = Math.max((step ? formula : place).scrollWidth,
            ...[...formula.querySelectorAll('.base') ].map((e) => e.offsetWidth));
        return wide > room + 1 && room ? parseFloat(getComputedStyle(formula).fontSize) * Math
            .max(0.52, (room - 4) / wide) : 0;
    });
    all.forEach(({formula}, i) => { if (sizes[i]) formula.style.fontSize = `${sizes[i]}px`; });
}

// ---- What scrolls sideways can be scrolled by keyboard -----------------------------------------

function reachable() {
    const all = [...document.querySelectorAll('.wide, .formula, pre.code, .worked, .panel') ];
    const scrolls = all.map((e) => e.scrollWidth > e.clientWidth + 1 ||
        e.scrollHeight > e.clientHeight + 1);
    all.forEach((element, i) => {
        if (scrolls[i])
            element.tabIndex = 0;
        else
            element.removeAttribute('tabindex');
    });
}

document.addEventListener('DOMContentLoaded', () => {
    const box = document.getElementById('search'), list = document.getElementById('found');
    document.getElementById('theme').addEventListener('click', changeTheme);
    box.addEventListener('input', () => search(box, list));
    box.parentElement.addEventListener('keydown', (event) => searchKeys(event, box, list));
    document.addEventListener('mouseover', (event) => follow(event, true));
    document.addEventListener('mouseout', (event) => follow(event, false));
    document.addEventListener('focusin', (event) => follow(event, true));
    document.addEventListener('focusout', (event) => follow(event, false));
    document.addEventListener('click', tap);
    document.addEventListener('keydown', (event) => {
        if (event.key === '/' && !/INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName)) {
            event.preventDefault();
            box.focus();
        }
    });
    addEventListener('beforeprint',
        () => document.querySelectorAll('details:not(.exercise details, details.group)')
            .forEach((details) => { details.open = true; }));
    const arrange = () => {
        fit();
        reachable();
    };
    let resting = 0;
    const soon = (f) => () => {
        clearTimeout(resting);
        resting = setTimeout(f, 200);
    };
    for (const event of ['resize', 'load']) addEventListener(event, soon(arrange));
    addEventListener('numbers', soon(reachable)); // formulas stay as they are
    document.addEventListener('toggle', soon(arrange), true);
    document.fonts?.ready.then(arrange);
    arrange();
});
})();
