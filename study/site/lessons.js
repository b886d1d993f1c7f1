// lessons.js - what a lesson has besides text: figures that one can play with, guesses before what
// they reveal, and an exercise. In study/lessons/ each is a block of its kind: "tape", "curve",
// "picture", "count", "guess"; an exercise is a comment, so that other pages can have one.
'use strict';
const {escape} = require('./tools.js');
const player = require('../page/player.js');
const tape = require('../page/tape.js');
const expression = require('../page/expression.js');
const lessons = require('../page/lessons.js');
const pictures = require('../page/pictures.js');
const worked = require('../page/worked.js');
const {example} = require('../page/examples.js');
const code = require('./code.js');
const {steps, program} = require('./steps.js');

// The lines "name: value" above "---", and what is below.
function parts(text) {
    const [head, body] = text.split(/^---\n/m);
    return {options : Object.fromEntries(head.split('\n').filter(Boolean)
        .map((line) => line.split(/: */))), body : body.trim()};
}

const inputBoxes = (list, names = []) => names.map((name) => {
    const {values} = list.find((t) => t.name === name);
    return `<div class="controls"><span>${name}</span>${
        values.map((v, i) => `<input type="text" inputmode="decimal" autocomplete="off" value="${
            v}" data-name="${name}" data-at="${i}" aria-label="${name}[${i}]">`).join('')}</div>`;
}).join('');

// slider: "w -3 4 0.05"; step: "w 0.1", a button that takes a step of descent.
function inputs(list, {slider, step, edit}) {
    const [name, min, max, by] = (slider || '').split(' '), [of, rate] = (step || '').split(' ');
    const value = slider && list.find((t) => t.name === name).values[0];
    const range = slider ? `<label>${name} <input type="range" data-name="${
        name}" data-at="0" min="${min}" max="${max}" step="${by}" value="${value}"> <output>${
        value}</output></label>` : '';
    const button = step ? `<button type="button" data-act="descend" data-of="${of}" data-rate="${
        rate}">${of} −= ${rate} d${of}</button><span class="descent" aria-live="polite"></span>`
        : '';
    return `<div class="inputs">${range || button ? `<div class="controls">${range}${
        button}</div>` : ''}${inputBoxes(list,
        edit && edit.split(' '))}</div><p class="refused bad" role="alert" hidden></p>`;
}

// The tape of an expression, or, without one, what an example program has printed. small: without
// shapes, norms and bytes.
function tapePanel(printed, {text = '', list = [], options = {}, small = true, id = ''}) {
    const drawn = tape.draw(printed, text ? expression.names(list, printed) : {}, small);
    return `<div class="panel tape"${id && ` id="${id}"`} data-tape="${escape(printed)}"${
        text && ` data-expression="${escape(text)}"`}${small ? ' data-small="1"' : ''}${
        options.play ? ' data-play="1"' : ''}>${
        player.controls()}<p class="said">${escape(drawn.steps[drawn.steps.length - 1].said)}</p>
<div class="picture${drawn.width > 900 ? ' long'
    : ''}" tabindex="0" role="group" aria-label="the tape, in layers" style="--width:${
    drawn.width}px">${drawn.html}</div>${text ? inputs(list, options) : ''}${
    tape.inWords(drawn.steps)}</div>`;
}

// A step of the program in a hundred lines: what was there in grey, what it adds, and what it prints.
function programStep({from, to, main}, i, printed) {
    const whole = program(steps[steps.length - 1]), part = (text, kind) => text && `<span class="${
        kind}">${code.highlight(text, {})}</span>`;
    const boxes = [ 'w', 'x', 'b' ].map((name) => `<span>${name}</span>${
        new RegExp(`\\b${name} = {{([^}]*)}`).exec(whole)[1].split(', ')
        .map((v, k) => `<input type="text" inputmode="decimal" autocomplete="off" value="${
            v}" name="${name}" aria-label="${name}[${k}]">`).join('')}`).join(' ');
    return `<div class="panel program-step" data-step="${i}"><pre class="code lines"><code>${
        part(whole.slice(0, from), 'old')}${part(whole.slice(from, to) + main, 'new')}</code></pre>
<div class="controls js">${boxes} <button type="button" data-act="run">Run</button></div>
<pre class="code words output" aria-live="polite">${escape(printed)}</pre></div>`;
}

// library: {gradus, expressions}; printed: by each step of the program in a hundred lines.
exports.blocks = ({gradus, expressions, printed = []}) => {
    let step = 0;
    const run = (text) => {
        const {options, body} = parts(text), list = expression.compile(body);
        return {text : body, list, options, printed : expressions.run(list)};
    };
    return {
        tape(text) {
            const it = run(text);
            return tapePanel(it.printed, it);
        },
        // The loss over a number of it, with the tangent and a step of descent, and the points it is
        // about: "points: x y".
        curve(text) {
            const it = run(text), [name, min, max] = it.options.slider.split(' '),
                [, rate] = it.options.step.split(' '), {points} = it.options;
            const {values : [ v ]} = it.list.find((t) => t.name === name);
            const all = Array.from({length : 71}, (_, i) => Number(min) + (max - min) * i / 70)
                .map((v) => [v, lessons.at(expressions, it.list, name, v).loss]
                    .map((v) => Number(v.toPrecision(5))));
            const {html, said} = lessons.curve(all, ...lessons.shown(expressions, it.list, name,
                lessons.at(expressions, it.list, name, v), rate, points));
            return `<div class="panel curve slope" data-expression="${escape(it.text)}" data-of="${
                name}" data-rate="${rate}" data-points="${points}" data-curve="${
                JSON.stringify(all)}"><p class="said" aria-live="polite">${said}</p>
<div class="picture">${html}</div>${inputs(it.list, it.options)}</div>`;
        },
        picture(text) {
            const op = text.trim(), it = example(gradus, op), result = worked.compute(gradus, it),
                make = pictures.ofLessons[op] || pictures.pictures[op][0][1];
            const [{steps, draw}] = make(pictures.numbersOf({it, result}), gradus);
            return `<div class="panel drawn still" data-steps="${escape(JSON.stringify(steps))}">${
                player.controls()}<p class="said">${
                escape(steps[steps.length - 1].said)}</p><div class="picture">${
                draw(0)}</div></div>`;
        },
        step() {
            return programStep(steps[step], step, printed[step++]);
        },
        listing : () => `<pre class="code">${code.highlight(program(steps[steps.length - 1]), {})}</pre>`,
        count : () => `<div class="panel count"><div class="controls"><label>inputs <input type="range" name="inputs" min="1" max="64" value="48"> <output>48</output></label>
<label>outputs <input type="range" name="outputs" min="1" max="64" value="1"> <output>1</output></label></div><div class="body">${lessons.count(48, 1)}</div></div>`,
        guess(text) {
            const [question, ...options] = text.trim().split(/\n(?=[-+] )/);
            return `<div class="guess"><p><b>A guess first.</b> ${this.inline(question)}</p><ul>${
                options.map((option) => `<li${option[0] === '+' ? ' data-right="1"' : ''}>${
                    this.inline(option.slice(2))}</li>`)
                    .join('')}</ul><p class="verdict" aria-live="polite"></p></div><!-- reveal -->`;
        }
    };
};

// Each heading begins a screen; what follows a guess is folded until there is one.
exports.screens = (html) => html.split(/(?=<h2 id=)/).map((part, i) => {
    const pieces = part.split('<!-- reveal -->');
    const folded = pieces.length > 1 ? `${
        pieces[0]}<details class="reveal"><summary>I have made a guess</summary>${
        pieces.slice(1).join('')}</details>` : part;
    return i ? `<section>${folded}</section>` : folded;
}).join('\n');

exports.tapePanel = tapePanel;
exports.scripts = [ 'wasi.js', 'formula.js', 'expression.js', 'player.js', 'tape.js', 'drawings.js',
    'lessons.js' ];
