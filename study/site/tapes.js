// tapes.js - the tapes of the example programs, as graphs.
'use strict';
exports.page = async function page() {
    return { title: 'Tape', html: '<h1 id="top">The tape</h1>' };
};
