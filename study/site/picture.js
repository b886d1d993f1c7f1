// picture.js - a derivation as the study shows it, for README.md: softmax's backward, from the quotient
// rule to the lines of code.
//     node picture.js FOLDER PICTURE.png    with the pages in FOLDER, and Chromium
'use strict';
const fs = require('fs');
const path = require('path');
const {pathToFileURL} = require('url');
const {find, Browser} = require('../tests/chromium.js');

const FIRST = 'Backward of softmax.', LAST = 'Worked examples';

async function main([ folder, picture ])
{
    const browser = new Browser(find());
    try {
        const tab = await browser.tab();
        await tab.send('Emulation.setDeviceMetricsOverride',
                       {width : 900, height : 4000, deviceScaleFactor : 1.25, mobile : false});
        await tab.send('Emulation.setScrollbarsHidden', {hidden : true});
        await tab.open(pathToFileURL(path.resolve(folder, 'softmax.html')).href);
        const clip = await tab.evaluate(`document.fonts.ready.then(() => {
            const starts = (tag, text) => [...document.querySelectorAll(tag)].find(
                (element) => element.textContent.trim().startsWith(text));
            const first = starts('p', ${JSON.stringify(FIRST)}).getBoundingClientRect();
            const end = starts('h2', ${JSON.stringify(LAST)}).getBoundingClientRect();
            return {x: first.x - 12, y: first.y - 12, width: first.width + 24,
                height: end.y - first.y, scale: 1};
        })`);
        const {data} = await tab.send('Page.captureScreenshot', {format : 'png', clip});
        fs.writeFileSync(picture, Buffer.from(data, 'base64'));
    } finally {
        await browser.close();
    }
}

main(process.argv.slice(2));
