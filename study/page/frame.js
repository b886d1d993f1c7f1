// frame.js - what every page has: light and dark, search, and symbols and marks that light up
// together wherever they stand.
'use strict';
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

// Every word must occur; the title counts for most, and then the shorter entry.
function find(entries, query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    return entries
        .map((entry) => {
            const title = entry.title.toLowerCase(), text = entry.text.toLowerCase();
            let score = 0;
            for (const word of words) {
                if (title === word)
                    score += 100;
                else if (title.includes(word))
                    score += 20;
                else if (text.includes(word))
                    score += 1;
                else
                    return null;
            }
            return {entry, score : score - title.length / 1000};
        })
        .filter(Boolean)
        .sort((a, b) => b.score - a.score)
        .slice(0, 12)
        .map((hit) => hit.entry);
}

async function search(box, list) {
    const query = box.value.trim();
    const hits = query.length > 1 ? find(await loadIndex(), query) : [];
    list.replaceChildren(...hits.map((hit) => {
        const item = document.createElement('li'), link = document.createElement('a');
        link.href = hit.href;
        link.textContent = hit.title;
        const where = document.createElement('small');
        where.textContent = ' ' + hit.page;
        item.append(link, where);
        return item;
    }));
    list.classList.toggle('open', query.length > 1);
    if (query.length > 1 && !hits.length) list.append('nothing');
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

document.addEventListener('DOMContentLoaded', () => {
    const box = document.getElementById('search'), list = document.getElementById('found');
    document.getElementById('theme').addEventListener('click', changeTheme);
    box.addEventListener('input', () => search(box, list));
    box.addEventListener('keydown', (event) => {
        if (event.key === 'Escape') {
            box.value = '';
            search(box, list);
        }
        if (event.key === 'Enter' && list.querySelector('a'))
            location.href = list.querySelector('a').href;
    });
    document.addEventListener('mouseover', (event) => follow(event, true));
    document.addEventListener('mouseout', (event) => follow(event, false));
    document.addEventListener('click', tap);
    document.addEventListener('keydown', (event) => {
        if (event.key === '/' && !/INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName)) {
            event.preventDefault();
            box.focus();
        }
    });
});
})();
