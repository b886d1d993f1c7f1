// editor.js - the box for an expression, its tape, its programs, and a link to it. What a link brings is text for
// the box, and parsed there like any other.
'use strict';
(function() {
const {compile, asC, asHundred, Expressions, MOST} = expression;

document.addEventListener('DOMContentLoaded', () => {
    const place = document.getElementById('editor'), get = (act) => place.querySelector(`[data-act=${act}]`);
    const box = place.querySelector('textarea'), refused = place.querySelector('.refused'), listing = place.querySelector('pre');
    const examples = place.querySelector('select');
    const unescaped = document.createElement('textarea'); // never put into the page: its value is text
    unescaped.innerHTML = document.getElementById('hundred').textContent;
    const head = unescaped.value;
    // What a text can be made into, or its fault in a sentence.
    const tried = async (make) => {
        refused.hidden = true;
        try {
            await make(box.value);
        } catch (fault) {
            if (!(fault instanceof formula.Fault)) throw fault;
            refused.textContent = fault.message;
            refused.hidden = false;
        }
    };
    const draw = () => tried(async (text) => {
        const list = compile(text), printed = (await Expressions.here()).run(list);
        lessons.replaceTape(document.getElementById('expression'), text, printed);
        listing.hidden = true;
        get('link').hash = `e=${encodeURIComponent(text)}`;
    });
    const list = (make) => () => tried(async (text) => {
        const tensors = compile(text);
        (await Expressions.here()).run(tensors); // shapes are the library's to check
        listing.textContent = make(text, tensors);
        listing.hidden = false;
    });
    get('draw').addEventListener('click', draw);
    get('c').addEventListener('click', list(asC));
    get('hundred').addEventListener('click', list((text, tensors) => asHundred(head, tensors)));
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
