// The programs in README.md do what it says.

'use strict';

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const { cpSync, mkdtempSync, readFileSync, rmSync } = require('node:fs');
const { tmpdir } = require('node:os');
const path = require('node:path');
const { promisify } = require('node:util');

const ts = require('typescript');

const dsync = require('dsync-client');
const { ONE_OF_EACH } = require('./libraries.js');
const { Server } = require('./servers.js');
const { after, before, describe, test } = require('./story.js');

const run = promisify(execFile);
const AsyncFunction = (async () => {}).constructor;
const INSTALLED = { ioredis: 'ioredis6', redis: 'redis6' };

/** What the programs call, besides the package. */
const SURROUNDINGS = {
    parts: ['a', 'b', 'c', 'd'],
    store: async (part, fence) => assert.ok(fence > 0),
    writeReport: async (fence, signal) => {
        assert.ok(fence > 0 && !signal.aborted);
        return 'report.pdf';
    },
    fetchQuote: async (signal) => {
        assert.ok(!signal.aborted);
        return 42;
    },
    makeInvoices: async () => 's3://invoices',
};

/** What must be true of the names that a program has defined. */
const OUTCOMES = {
    result: (value) => assert.equal(value, 'report.pdf'),
    hold: (value) => assert.equal(value.isHeld, false),
    quote: (value) => assert.equal(value, 42),
    round: (value) => assert.deepEqual(value, { done: 4, lapsed: 0 }),
    address: (value) => assert.equal(value, 's3://invoices'),
};

function programs() {
    const text = readFileSync(path.join(__dirname, '..', 'README.md'), 'utf8');
    return [...text.matchAll(/^```js\n(.*?)^```/gms)].map(([, program]) => program);
}

/** The lines for the shell that install the package. */
function installs() {
    const text = readFileSync(path.join(__dirname, '..', 'README.md'), 'utf8');
    return [...text.matchAll(/^```sh\n(.*?)^```/gms)].map(([, lines]) => lines);
}

/** Compiles a program to a function, which resolves to the values that it has defined. */
function compiled(program, names) {
    const required = program.replace(/^import (.*) from '(.*)'$/gm, "const $1 = required('$2')");
    const defined = [...program.matchAll(/^const (\w+) =/gm)].map(([, name]) => name);
    const body = `return async () => { ${required}\nreturn { ${defined.join(', ')} } }`;
    const { outputText } = ts.transpileModule(body, { compilerOptions: { target: 'es2022', module: 'preserve' } });
    return new AsyncFunction('required', ...names, outputText);
}

describe('README', () => {
    let server;
    before(async () => {
        server = await Server.start();
        process.env.REDIS_URL = server.url;
    });
    after(() => server.end());

    for (const library of ONE_OF_EACH) {
        for (const program of programs()) {
            test(`${library.name}: ${program.split('\n').find((line) => line.includes('(client'))}`, async () => {
                const client = await library.open(server.url);
                const opened = [];
                const required = (name) => {
                    const found = { ...require(INSTALLED[name] ?? name) };
                    if (found.Redis) {
                        const { Redis } = found;
                        found.Redis = function (...words) {
                            opened.push(new Redis(...words));
                            return opened[0];
                        };
                    }
                    return found;
                };
                const given = { ...dsync, ...SURROUNDINGS, client };
                // A program that makes its own client is given none.
                if (program.includes('const client =')) {
                    delete given.client;
                }
                const names = Object.keys(given).filter((name) => !program.includes(`import { ${name} }`));
                const start = await compiled(program, names)(required, ...names.map((name) => given[name]));
                const values = await start();
                for (const [name, value] of Object.entries(values)) {
                    OUTCOMES[name]?.(value);
                }
                for (const one of [client, ...opened]) {
                    dsync.closeSubscription(one);
                }
                opened.forEach((one) => one.disconnect());
                library.close(client);
                await server.call('FLUSHALL');
            });
        }
    }
});

describe('README, install', () => {
    for (const lines of installs()) {
        test(lines.trim().split('\n')[0], async (t) => {
            // As in a checkout, where nothing is installed beside the package.
            const checkout = mkdtempSync(path.join(tmpdir(), 'dsync-checkout-'));
            const fresh = mkdtempSync(path.join(tmpdir(), 'dsync-fresh-'));
            t.after(() => [checkout, fresh].forEach((folder) => rmSync(folder, { recursive: true })));
            for (const name of ['package.json', 'package-lock.json', 'tsconfig.json', 'src']) {
                const source = path.join(__dirname, '../package', name);
                cpSync(source, path.join(checkout, 'clients/node', name), { recursive: true });
            }
            const inFresh = (file, ...words) =>
                run(file, words, { cwd: fresh, timeout: 170_000, env: { ...process.env, DSYNC: checkout } });
            await inFresh('npm', 'init', '-y');
            await inFresh('sh', '-ec', lines);
            const program = "require('ioredis'); console.log(typeof require('dsync-client').lock)";
            const { stdout } = await inFresh(process.execPath, '-e', program);
            assert.equal(stdout, 'function\n');
        });
    }
});
