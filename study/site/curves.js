// curves.js - the pages' places for the curves of page/curves.js.
'use strict';
const {escape} = require('./tools.js');
const {functions, activations, errorPicture, stackPicture, W, H} = require('../page/curves.js');

const options = (names) => names.map((name) => `<option>${escape(name)}</option>`).join('');

const picture = ({svg, said}, label) => `<p class="said" aria-live="polite">${
    escape(said)}</p><svg viewBox="0 0 ${W} ${H}" role="group" aria-label="${label}">${svg}</svg>`;
const begin = [ Object.keys(functions)[0], -5 ];

exports.error = `<h2 id="error-over-step">Why does my check fail?</h2>
<p>The error of (f(x + h) - f(x - h)) / 2h over the step h. To the right of the lowest point the difference
is too coarse: the error falls with h². To its left rounding is divided by ever smaller steps: it grows as
1/h, from a level that is 2²⁹ times as high in float32. A large constant in f raises it. Beside a kink a
step that crosses it measures the other side, too. Drag the step, by the slider or in the picture.</p>
<div class="panel curve" id="error-curve"><div class="controls"><select aria-label="function">${
    options(Object.keys(functions))}</select> <label>h <input type="range" min="-15" max="0" step="0.1" value="${begin[1]}"></label></div>
${picture(errorPicture(...begin), 'error over the step, in float64 and float32')}
<p><span class="float64">float64</span>, <span class="float32">float32</span>. Computed here, in JavaScript, not by
the library.</p><noscript>Dragging takes JavaScript.</noscript></div>`;

exports.stack = `<div class="panel curve" id="deep-stack"><div class="controls"><label>function <select name="activation">${
    options(Object.keys(activations))}</select></label>
<label>gain <input type="range" name="gain" min="0.2" max="4" step="0.1" value="1"> <output>1</output></label>
<label><input type="checkbox" name="residual"> residual</label> <label><input type="checkbox" name="norm"> RMSNorm</label></div>
${picture(stackPicture({activation : Object.keys(activations)[0], gain : 1, residual : false,
    norm : false}), 'norm of the gradient by layer')}</div>`;
