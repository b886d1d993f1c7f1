// sources.js - which files of the project become which pages.
'use strict';
const fs = require('fs');
const path = require('path');
const {execFileSync} = require('child_process');

exports.root = path.resolve(__dirname, '../..');

const shown = /\.(c|h|cu|cuh|def)$/;

// Every file that git tracks, or, without git, every file in the project's folders.
exports.list = function list() {
    try {
        return execFileSync(
            'git', [ 'ls-files' ], {cwd : exports.root, stdio : [ 'ignore', 'pipe', 'ignore' ]})
            .toString()
            .trim()
            .split('\n')
            .filter((file) => fs.existsSync(exports.path(file)));
    } catch {
        const found = [];
        const walk = (folder) => {
            for (const entry of fs.readdirSync(exports.path(folder), {withFileTypes : true})) {
                const name = path.posix.join(folder, entry.name);
                if (entry.isDirectory())
                    walk(name);
                else
                    found.push(name);
            }
        };
        for (const folder of ['include', 'src', 'kernels', 'train', 'bench', 'docs',
            'study', 'course', 'tests'])
            walk(folder);
        return [...found, 'README.md', 'CHANGELOG.md', 'CONTRIBUTING.md' ];
    }
};

exports.path = (file) => path.join(exports.root, file);
exports.read = (file) => fs.readFileSync(exports.path(file), 'utf8');
// The rows of a page's table of two columns: {first: second}.
exports.table = (file) => Object.fromEntries([...exports.read(file)
    .matchAll(/^\| ([\w.-]+) \| (.*) \|$/gm) ].slice(2).map((row) => row.slice(1)));
// Of the course there is none: its solutions are not for students, who read these pages.
exports.isCode = (file) => shown.test(file) && !file.startsWith('course/');
// What lies in an op's folder to test it.
exports.isTest = (file) => /^kernels\/\w+\/(test|planted|cuda_)\w*\.\w+$/.test(file);

// The page of a file: kernels/softmax/README.md is softmax.html, kernels/softmax/softmax.c is
// code-kernels-softmax-softmax.c.html. undefined: the file has none.
exports.page = function page(file) {
    const op = /^kernels\/(\w+)\/(\w+)\.md$/.exec(file);
    if (op) return op[2] === 'README' ? `${op[1]}.html` : `${op[1]}-${op[2].toLowerCase()}.html`;
    const header = /^include\/gradus\/(\w+)\.h$/.exec(file);
    if (header) return `reference-${header[1]}.html`;
    const lesson = /^study\/lessons\/([\w-]+)\.md$/.exec(file);
    if (lesson) return `lesson-${lesson[1]}.html`;
    const week = /^course\/(?:(\d-\w+)\/)?README\.md$/.exec(file);
    if (week) return week[1] ? `course-${week[1]}.html` : 'course.html';
    if (file === 'study/index.md') return 'index.html';
    if (/^(docs\/)?\w+\.md$/.test(file)) return path.basename(file, '.md').toLowerCase() + '.html';
    if (exports.isCode(file)) return `code-${file.replace(/\//g, '-')}.html`;
    return undefined;
};

// A place on a page, on the page that it stands on: RMSNorm's README becomes three, and the examples
// of functions of one variable would make that of elementwise too long.
const onGpu = new Set([ 'on-a-gpu', 'the-ladder', 'glossary' ]);
exports.oneVariable = 'elementwise-one.html';
const hasRow = (table, name) => new RegExp(`^[A-Z]+\\(${name},`, 'm').test(exports.read(table));
exports.place = function place(page, anchor = '') {
    const to = page === 'elementwise.html' && anchor.startsWith('worked-') &&
            hasRow('kernels/elementwise/unary.def', anchor.slice(7)) ? exports.oneVariable
        : page !== 'rms_norm.html' ? page : /^w(alk|orked)/.test(anchor)
        ? 'rms_norm-worked.html' : onGpu.has(anchor) ? 'rms_norm-gpu.html' : page;
    return anchor ? `${to}#${anchor}` : to;
};
