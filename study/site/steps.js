// steps.js - the steps of the lesson on the tape: each is a program, the lines of
// docs/examples/tape_in_100_lines.c up to a place and a main() of its own; the last is the whole.
//     node steps.js        prints the six as one program, a function each, for WebAssembly
'use strict';
const sources = require('./sources.js');

const whole = sources.read('docs/examples/tape_in_100_lines.c');
const [entry] = /^int main\(void\)$/m.exec(whole);

// [{from, to: the lines of the whole that it adds, main}]
exports.steps = [...sources.read('study/lessons/tape-in-100-lines.md').matchAll(/^```step\n([^]*?)```$/gm) ]
    .reduce((all, [ , text ]) => {
    const [, before, main] = /^before: (.*)\n---\n([^]*)$/.exec(text) || [],
        to = before ? whole.indexOf(before) : whole.length;
    const from = all.length ? all[all.length - 1].to : 0;
    if (to <= from) throw new Error(`${before} does not follow in tape_in_100_lines.c`);
    return [...all, {from, to, main : main || ''} ];
}, []);
exports.program = ({to, main}) => whole.slice(0, to) + main;

if (require.main === module) {
    const named = (text, i) => text.replace(entry, `__attribute__((export_name("step_${
        i + 1}"))) int step_${i + 1}(void)`);
    console.log([named(whole, exports.steps.length - 1), ...exports.steps.slice(0, -1)
        .map(({main}, i) => named(main, i).replace(/}\n$/, '    return 0;\n}\n')),
        `__attribute__((export_name("step_input"))) double *step_input(int which)
{
    return which == 0 ? w.value : which == 1 ? x.value : b.value;
}` ].join('\n'));
}
