// chromium.js - a headless Chromium, told what to do through a pipe (Chrome DevTools Protocol).
'use strict';
const {spawn, execFileSync} = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');

function find() {
    for (const name of ['chromium', 'chromium-browser', 'google-chrome']) {
        try {
            execFileSync(name, [ '--version' ], {stdio : 'ignore'});
            return name;
        } catch { /* the next one */
        }
    }
    return null;
}

class Browser {
    constructor(program) {
        this.profile = fs.mkdtempSync(path.join(os.tmpdir(), 'study-'));
        // No name resolves: the network is off.
        this.child = spawn(program,
            [
                '--headless=new', '--no-sandbox', '--disable-gpu', '--no-first-run',
                '--disable-dev-shm-usage', '--host-resolver-rules=MAP * ~NOTFOUND',
                '--disable-component-update', '--disable-background-networking',
                '--remote-debugging-pipe', `--user-data-dir=${this.profile}`, 'about:blank'
            ],
            {stdio : [ 'ignore', 'ignore', 'ignore', 'pipe', 'pipe' ]});
        this.waiting = new Map();
        this.handlers = new Set();
        this.id = 0;
        let rest = '';
        this.child.stdio[4].on('data', (data) => {
            const parts = (rest + data).split('\0');
            rest = parts.pop();
            for (const part of parts) this.receive(JSON.parse(part));
        });
    }

    receive(message) {
        if (message.id === undefined) {
            for (const handler of this.handlers) handler(message);
            return;
        }
        const {done, fail} = this.waiting.get(message.id);
        this.waiting.delete(message.id);
        if (message.error)
            fail(new Error(message.error.message));
        else
            done(message.result);
    }

    send(method, params = {}, sessionId = undefined) {
        const id = ++this.id;
        this.child.stdio[3].write(JSON.stringify({id, method, params, sessionId}) + '\0');
        return new Promise((done, fail) => this.waiting.set(id, {done, fail}));
    }

    // A tab: what goes wrong in it is kept in `troubles`, what it asks for in `requests`.
    async tab() {
        const {targetId} = await this.send('Target.createTarget', {url : 'about:blank'});
        const {sessionId} = await this.send('Target.attachToTarget', {targetId, flatten : true});
        const tab = {
            troubles : [],
            requests : [],
            send : (method, params) => this.send(method, params, sessionId)
        };
        this.handlers.add(({method, params, sessionId : from}) => {
            if (from !== sessionId) return;
            if (method === 'Runtime.exceptionThrown')
                tab.troubles.push(
                    params.exceptionDetails.exception?.description || params.exceptionDetails.text);
            if (method === 'Runtime.consoleAPICalled' && /error|warning|assert/.test(params.type))
                tab.troubles.push(params.args.map((a) => a.value || a.description).join(' '));
            if (method === 'Log.entryAdded' && /error|warning/.test(params.entry.level))
                tab.troubles.push(params.entry.text);
            if (method === 'Network.requestWillBeSent') tab.requests.push(params.request.url);
            if (method === 'Page.loadEventFired' && tab.loaded) tab.loaded();
        });
        for (const domain of ['Page', 'Runtime', 'Log', 'Network'])
            await tab.send(`${domain}.enable`);
        tab.open = async (url) => {
            const loaded = new Promise((done) => { tab.loaded = done; });
            await tab.send('Page.navigate', {url});
            await loaded;
        };
        tab.evaluate = async (expression) => {
            const {result, exceptionDetails} = await tab.send(
                'Runtime.evaluate', {expression, awaitPromise : true, returnByValue : true});
            if (exceptionDetails)
                throw new Error(exceptionDetails.exception?.description || exceptionDetails.text);
            return result.value;
        };
        tab.until = async (expression) => {
            for (let i = 0; i < 600; i++) {
                if (await tab.evaluate(expression)) return;
                await new Promise((done) => setTimeout(done, 50));
            }
            throw new Error(`it never came: ${expression}`);
        };
        tab.trace = (work) => this.trace(work);
        return tab;
    }

    // The functions of pages that the browser called from its loop while work() went on: [{ms, url,
    // line}], where ms is processor time of the thread, which a busy machine does not lengthen by
    // making it wait.
    async trace(work) {
        const calls = [];
        let ended = null;
        const handler = ({method, params}) => {
            if (method === 'Tracing.tracingComplete') ended();
            if (method !== 'Tracing.dataCollected') return;
            for (const {name, tdur, args} of params.value)
                if (name === 'FunctionCall' && /^file:/.test(args.data?.url || ''))
                    calls.push({ms : tdur / 1000, url : args.data.url,
                        line : args.data.lineNumber});
        };
        this.handlers.add(handler);
        await this.send('Tracing.start',
            {transferMode : 'ReportEvents',
                traceConfig : {includedCategories : [ 'devtools.timeline' ]}});
        try {
            await work();
        } finally {
            const complete = new Promise((done) => { ended = done; });
            await this.send('Tracing.end');
            await complete;
            this.handlers.delete(handler);
        }
        return calls;
    }

    async close() {
        await this.send('Browser.close').catch(() => {});
        await new Promise(
            (done) => (this.child.exitCode === null ? this.child.once('exit', done) : done()));
        fs.rmSync(this.profile, {recursive : true, force : true, maxRetries : 5});
    }
}

module.exports = {
    find,
    Browser
};
