// preview.js - the picture that a link to the site is shown with: its first page, by Chromium.
//     node preview.js FOLDER
'use strict';
const fs = require('fs');
const path = require('path');
const {pathToFileURL} = require('url');
const {find, Browser} = require('../tests/chromium.js');

async function main([ folder ]) {
    const browser = new Browser(find());
    try {
        const tab = await browser.tab();
        await tab.send('Emulation.setDeviceMetricsOverride',
            {width : 1200, height : 630, deviceScaleFactor : 1, mobile : false});
        await tab.send('Emulation.setEmulatedMedia', {features : [ {name : 'prefers-reduced-motion', value : 'reduce'} ]});
        await tab.open(pathToFileURL(path.resolve(folder, 'index.html')).href);
        await tab.send('Emulation.setScrollbarsHidden', {hidden : true});
        await tab.until(`document.querySelector('.tape').dataset.ready`);
        // The title and the whole picture, without what only a reader needs.
        await tab.evaluate(`document.head.append(Object.assign(document.createElement('style'), {textContent: 'header, .controls, .said, main h1 ~ p { display: none !important } main h1 { margin: 0; font-size: 2.6rem } main { padding: .6rem 1rem !important }'}))`);
        const {data} = await tab.send('Page.captureScreenshot', {format : 'png'});
        fs.writeFileSync(path.join(folder, 'preview.png'), Buffer.from(data, 'base64'));
    } finally {
        await browser.close();
    }
}

main(process.argv.slice(2)).catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
});
