// editor.js - the box for an expression, its tape, its programs, and a link to it. What a link
// brings is text for the box, and parsed there like any other.
'use strict';
(function() {
const {compile, asC, Expressions, MOST} = expression;

document.addEventListener('DOMContentLoaded', () => {
    const place = document.getElementById('editor'),
        get = (act) => place.querySelector(`[data-act=${act}]`);
    const box = place.querySelector('textarea'), refused = place.querySelector('.refused'),
        listing = place.querySelector('pre');
    const examples = place.querySelector('select');
    const panel = document.getElementById('expression');
    let drawn = box.defaultValue;
    // The tape of what is in the box, and what `make` writes of it; or its fault in a sentence,
    // beside which no tape or program of another text is left.
    const tried = (make) => async () => {
        const text = box.value;
        refused.hidden = listing.hidden = true;
        panel.hidden = text !== drawn;
        try {
            // shapes are the library's to check
            const list = compile(text), printed = (await Expressions.here()).run(list);
            if (panel.hidden || !make) {
                panel.hidden = false;
                lessons.replaceTape(panel, text, printed);
                drawn = text;
                get('link').hash = `e=${encodeURIComponent(text)}`;
            }
            if (!make) return;
            listing.textContent = make(text, list);
            listing.hidden = false;
        } catch (fault) {
            if (!(fault instanceof formula.Fault)) throw fault;
            refused.textContent = fault.message;
            refused.hidden = false;
        }
    };
    const draw = tried();
    get('draw').addEventListener('click', draw);
    get('c').addEventListener('click', tried(asC));
    examples.addEventListener('change', () => {
        if (examples.value) box.value = examples.value;
        draw();
    });
    const arrive = () => {
        const found = /^#e=([^]*)/.exec(location.hash);
        if (!found) return;
        let text = '';
        try {
            text = decodeURIComponent(found[1].slice(0, 9 * MOST.text));
        } catch { /* not a text */
        }
        if (!text || text.length > MOST.text) {
            refused.textContent = `The link has no expression of at most ${MOST.text} characters.`;
            refused.hidden = false;
            return;
        }
        box.value = text;
        draw();
    };
    addEventListener('hashchange', arrive);
    get('link').hash = `e=${encodeURIComponent(box.value)}`;
    arrive();
    place.dataset.ready = '1';
});
})();
