// worker.js - the library beside the page, which stays at hand: a module with its scripts in a
// worker, and gradcheck in one, with a question at a time.
(function(root) {
'use strict';

// A worker with the module NAME; more: what it gets with it. A page from a file may not name a
// worker's script, but may make one.
function start(name, more = {}) {
    const worker = new Worker(URL.createObjectURL(new Blob([ root[`${name}Scripts`] ],
        {type : 'text/javascript'})));
    worker.postMessage({packed : root[`${name}Wasm`], ...more});
    return worker;
}

// ---- gradcheck ----------------------------------------------------------------------------------

let worker = null, answer = null;

function stop(why) {
    worker?.terminate();
    worker = null;
    answer?.({error : why});
    answer = null;
}

// Shows, in `controls`, that gradcheck is at work, once that takes long enough to be seen: how many
// backwards it has computed, and a button that stops it.
function busy(controls) {
    const place = document.createElement('span');
    place.className = 'busy';
    place.innerHTML = '<progress aria-label="gradcheck is at work"></progress> <small></small> ' +
        '<button type="button" data-act="stop">Stop</button>';
    place.querySelector('button').addEventListener('click', () => stop('Stopped.'));
    const soon = setTimeout(() => controls.append(place), 150);
    return {
        tell(backwards) { place.querySelector('small').textContent = `${backwards} backwards`; },
        end() {
            clearTimeout(soon);
            if (place.contains(document.activeElement)) controls.querySelector('button').focus();
            place.remove();
        }
    };
}

// What gradcheck finds, or {error}; check.js has the questions. Another question stops it. The
// module comes with the first one.
async function ask(question, controls) {
    if (answer) stop('Stopped: another check has begun.');
    const shown = busy(controls);
    const found = await new Promise((done) => {
        answer = done;
        root.wasi.script('gradus-wasm.js').then(() => {
            if (answer !== done) return;
            worker = worker || start('gradus');
            worker.onmessage = ({data}) => {
                if (!data.found) return shown.tell(data.backwards);
                answer = null;
                done(data.found);
            };
            worker.onerror = ({message}) => stop(message);
            worker.postMessage(question);
        }, ({message}) => stop(message));
    });
    shown.end();
    return found;
}

root.workers = {
    start,
    ask
};
})(globalThis);
