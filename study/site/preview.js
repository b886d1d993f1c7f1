// preview.js - pictures of the pages, by Chromium: the one that a link to the site is shown with, its
// first page, or README.md's, softmax's backward from the quotient rule to the lines of code.
//     node preview.js FOLDER [PICTURE.png]
'use strict';
const fs = require('fs');
const path = require('path');
const {pathToFileURL} = require('url');
const {find, Browser} = require('../tests/chromium.js');

async function main([ folder, picture ]) {
    const browser = new Browser(find());
    try {
        const tab = await browser.tab();
        const open = async (page, width, height, deviceScaleFactor) => {
            await tab.send('Emulation.setDeviceMetricsOverride',
                {width, height, deviceScaleFactor, mobile : false});
            await tab.send('Emulation.setScrollbarsHidden', {hidden : true});
            await tab.open(pathToFileURL(path.resolve(folder, page)).href);
        };
        const shoot = async (file, clip) => {
            const {data} = await tab.send('Page.captureScreenshot', {format : 'png', clip});
            fs.writeFileSync(file, Buffer.from(data, 'base64'));
        };
        if (picture) {
            await open('softmax.html', 900, 4000, 1.25);
            await shoot(picture, await tab.evaluate(`document.fonts.ready.then(() => {
                const starts = (tag, text) => [...document.querySelectorAll(tag)].find(
                    (element) => element.textContent.trim().startsWith(text)).getBoundingClientRect();
                const first = starts('p', 'Backward of softmax.'), end = starts('h2', 'Worked examples');
                return {x: first.x - 12, y: first.y - 12, width: first.width + 24,
                    height: end.y - first.y, scale: 1};
            })`));
            return;
        }
        await tab.send('Emulation.setEmulatedMedia',
            {features : [ {name : 'prefers-reduced-motion', value : 'reduce'} ]});
        await open('index.html', 1200, 630, 1);
        await tab.until(`document.querySelector('.tape').dataset.ready`);
        // The title and the whole picture, without what only a reader needs.
        await tab.evaluate(`document.head.append(Object.assign(document.createElement('style'),
            {textContent: 'header, .controls, .said, main h1 ~ p { display: none !important } main h1 { margin: 0; font-size: 2.6rem } main { padding: .6rem 1rem !important }'}))`);
        await shoot(path.join(folder, 'preview.png'));
    } finally {
        await browser.close();
    }
}

main(process.argv.slice(2)).catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
});
