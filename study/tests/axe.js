// axe.js - axe-core, the checker of accessibility, from PyPI's axe-playwright-python; for this test
// alone, no page has it. It is kept in build/axe, or named by GRADUS_AXE.
'use strict';
const {execFileSync} = require('child_process');
const fs = require('fs');
const path = require('path');

// Its text, or null where PyPI does not answer.
function find(build) {
    const kept = process.env.GRADUS_AXE || path.join(build, 'axe/axe_playwright_python/axe.min.js');
    if (!fs.existsSync(kept) && !process.env.GRADUS_AXE) {
        const folder = path.join(build, 'axe');
        const run = (...args) => execFileSync('python3', [ '-m', ...args ],
            {stdio : 'ignore', timeout : 60000});
        try {
            fs.mkdirSync(folder, {recursive : true});
            const wanted = path.join(folder, 'wanted.txt'),
                tools = path.join(__dirname, '../../scripts/tools.txt');
            fs.writeFileSync(wanted, fs.readFileSync(tools, 'utf8').match(/^axe-.*\n/m)[0]);
            run('pip', 'download', '--quiet', '--no-deps', '--require-hashes', '--dest', folder,
                '-r', wanted);
            run('zipfile', '-e', path.join(folder,
                fs.readdirSync(folder).find((name) => name.endsWith('.whl'))), folder);
        } catch {
            return null;
        }
    }
    return fs.existsSync(kept) ? fs.readFileSync(kept, 'utf8') : null;
}

// What it finds on the page of a tab, a line each; elements of the same kind are named once.
// rules: those that run, or all.
async function findings(tab, axe, rules = null) {
    await tab.evaluate(axe + ';0');
    const {violations} = await tab.evaluate(
        `axe.run(document, {resultTypes: ['violations']${
            rules ? `, runOnly: ${JSON.stringify(rules)}`
            : ''}}).then((r) => ({violations: r.violations.map((v) => ({id: v.id, help: v.help, nodes: v.nodes.length, target: String(v.nodes[0].target), more: v.nodes[0].failureSummary}))}))`);
    return violations.map((v) => `${v.id} (${v.nodes}): ${v.help}: ${v.target}: ${
        v.more.replace(/\s+/g, ' ').slice(0, 200)}`);
}

module.exports = {find, findings};
