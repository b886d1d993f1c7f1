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
        for (const folder of ['include', 'src', 'kernels', 'train', 'bench', 'docs', 'study', 'tests'])
            walk(folder);
        return [...found, 'README.md', 'CHANGELOG.md', 'CONTRIBUTING.md' ];
    }
};

exports.path = (file) => path.join(exports.root, file);
exports.read = (file) => fs.readFileSync(exports.path(file), 'utf8');
exports.isCode = (file) => shown.test(file);
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
    if (file === 'study/index.md') return 'index.html';
    if (/^(docs\/)?\w+\.md$/.test(file)) return path.basename(file, '.md').toLowerCase() + '.html';
    if (exports.isCode(file)) return `code-${file.replace(/\//g, '-')}.html`;
    return undefined;
};

// A place on a page, on the page that it stands on: RMSNorm's README becomes three.
const onGpu = new Set([ 'on-a-gpu', 'the-ladder', 'glossary' ]);
exports.place = function place(page, anchor) {
    const to = page !== 'rms_norm.html' ? page : /^w(alk|orked)/.test(anchor) ? 'rms_norm-worked.html' : onGpu.has(anchor) ? 'rms_norm-gpu.html' : page;
    return anchor ? `${to}#${anchor}` : to;
};
