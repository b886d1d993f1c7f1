// train.js - trains a small transformer in the page, a step at a time, and shows its loss and what
// it writes.
'use strict';
(function(root) {
class Training {
    static async load(bytes, text) {
        const it = new Training();
        it.out = '';
        it.exports = await root.wasi.start(bytes, {print : (piece) => { it.out += piece; }});
        const data = new TextEncoder().encode(text);
        const at = it.exports.train_text(data.length);
        new Uint8Array(it.exports.memory.buffer, at, data.length).set(data);
        return it;
    }

    call(name, ...args) {
        this.exports[name](...args);
        const text = this.out;
        this.out = '';
        return text;
    }

    open(seed) { return JSON.parse(this.call('train_open', seed)); }
    step(rate) { return JSON.parse(this.call('train_step', rate)); }
    sample(length, temperature) { return this.call('train_sample', length, temperature); }
}
// The losses as a line, as SVG; the dashed one is that of a uniform guess.
function plot(losses, first) {
    const W = 640, H = 220, left = 34, most = Math.max(first, ...losses) * 1.05,
          steps = Math.max(200, losses.length);
    const x = (i) => left + (W - left - 6) * i / steps, y = (v) => H - 20 - (H - 30) * v / most;
    const smooth = [];
    losses.reduce((mean, v, i) => (smooth[i] = i ? 0.9 * mean + 0.1 * v : v), 0);
    const line = (list) => list.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(' ');
    const ticks = [];
    for (let v = 0; v <= most; v++)
        ticks.push(`<text x="${left - 6}" y="${y(v) + 4}" text-anchor="end">${v}</text><line x1="${
            left}" x2="${W}" y1="${y(v)}" y2="${y(v)}" class="tick"/>`);
    return `${ticks.join('')}<line x1="${left}" x2="${W}" y1="${y(first)}" y2="${
        y(first)}" class="guess"/><polyline points="${
        line(losses)}" class="raw"/><polyline points="${line(smooth)}" class="smooth"/><text x="${
        W - 4}" y="${H - 4}" text-anchor="end">${steps} steps</text>`;
}

root.Training = Training;
if (typeof module !== 'undefined') {
    module.exports = Object.assign(Training, {plot});
    return;
}

// ---- In a worker, so that the page stays at hand: it opens a text, then takes a step a message --

if (typeof document === 'undefined') {
    let training = null;
    root.onmessage = async ({data}) => {
        if (data.packed) {
            training = await Training.load(await root.wasi.unpack(data.packed), data.text);
            return root.postMessage({opened : training.open(1)});
        }
        const state = training.step(data.rate);
        root.postMessage({state, sample : state.step % 25 ? '' : training.sample(200, 0.8)});
    };
    return;
}

// ---- In the page ---------------------------------------------------------------------------

const LEAST = 66; // bytes: a window, the byte after it, and one place to begin at

document.addEventListener('DOMContentLoaded', () => {
    const place = document.getElementById('train');
    const get = (name) => place.querySelector(`[data-part=${name}]`);
    const text = get('text'), said = get('said'), written = get('sample');
    // of another run
    const before = [ get('loss').innerHTML, said.textContent, written.textContent ];
    let worker = null, asked = false, losses = [], first = 0, running = false;
    text.value = root.trainText;

    // False: the text is too short to be cut into windows, which is said.
    function begin() {
        const length = new TextEncoder().encode(text.value).length;
        if (length < LEAST) {
            said.textContent = `The text has ${
                length} bytes. A window is 64 bytes and the one after it, so it takes ${
                LEAST} or more.`;
            return false;
        }
        worker = root.workers.start('train', {text : text.value});
        worker.onmessage = ({data}) => {
            asked = false;
            if (data.opened)
                opened(data.opened);
            else
                stepped(data);
            ask();
        };
        asked = true;
        losses = [];
        return true;
    }
    function ask() {
        if (!running || asked) return;
        asked = true;
        worker.postMessage({rate : Number(get('rate').value)});
    }
    function opened(state) {
        first = state.loss;
        said.textContent = `${state.parameters} parameters, ${state.vocab} different bytes`;
    }
    function stepped({state, sample}) {
        losses.push(state.loss);
        said.textContent =
            state.error || `step ${state.step}, loss ${
                               state.loss.toFixed(3)} (uniform guess: ${first.toFixed(3)})`;
        get('loss').innerHTML = plot(losses, first);
        if (sample) written.textContent = sample;
        place.dataset.steps = state.step;
        if (state.error || !(state.loss >= 0)) running = false;
    }
    get('go').addEventListener('click', () => {
        if (!worker && !begin()) return;
        running = !running;
        get('go').textContent = running ? 'Pause' : 'Continue';
        // where it stands is read out when it rests
        said.setAttribute('aria-live', running ? 'off' : 'polite');
        ask();
    });
    get('again').addEventListener('click', () => {
        if (worker) worker.terminate();
        worker = null;
        running = asked = false;
        get('go').textContent = 'Train';
        get('loss').innerHTML = before[0];
        said.textContent = before[1];
        written.textContent = before[2];
    });
    text.addEventListener('change', () => get('again').click()); // the next run reads it
});
})(globalThis);
