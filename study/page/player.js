// player.js - Play, Pause, Step, Back and a slider for whatever goes in steps.
(function(root) {
'use strict';

// The controls as HTML; more: other controls beside them.
const controls = (more = '') =>
    `<div class="controls"><button type="button" data-act="play">Play</button>
<button type="button" data-act="back">Back</button><button type="button" data-act="step">Step</button>
<input type="range" data-act="seek" min="0" value="0" aria-label="step">${more}</div>`;

// Makes the controls in `place` work. steps(): how many there are; show(at) puts the state after
// `at` of them into the page; pace: milliseconds of one. It begins at the end, with all that there
// is to see. Returns {go(at), stop(), at()}.
function attach(place, {steps, show, pace = 600, begin = steps()}) {
    const button = (name) => place.querySelector(`[data-act=${name}]`),
        said = place.querySelector('.said, .turn');
    const play = button('play'), seek = button('seek');
    let at = begin, timer = 0;
    function go(to) {
        at = Math.max(0, Math.min(steps(), to));
        seek.max = steps();
        seek.value = at;
        seek.setAttribute('aria-valuetext', `step ${at} of ${steps()}`);
        show(at);
    }
    function stop() {
        clearInterval(timer);
        timer = 0;
        play.textContent = 'Play';
        // a step is read out; what plays by itself is not
        said?.setAttribute('aria-live', 'polite');
    }
    function tick() {
        go(at + 1);
        if (at >= steps()) stop();
    }
    play.addEventListener('click', () => {
        if (timer) return stop();
        if (at >= steps()) go(0);
        play.textContent = 'Pause';
        said?.setAttribute('aria-live', 'off');
        timer = setInterval(tick, typeof pace === 'function' ? pace() : pace);
    });
    const by = (n) => () => {
        stop();
        go(n > 0 && at >= steps() ? 1 : at + n);
    };
    button('step').addEventListener('click', by(1));
    button('back').addEventListener('click', by(-1));
    seek.addEventListener('input', () => {
        stop();
        go(Number(seek.value));
    });
    stop();
    go(begin);
    // On paper it stands at the end.
    let kept = null;
    addEventListener('beforeprint', () => { kept = at, stop(), go(steps()); });
    addEventListener('afterprint', () => go(kept));
    return {go, stop, at : () => at};
}

root.player = {
    controls,
    attach
};
if (typeof module !== 'undefined') module.exports = root.player;
})(globalThis);
