// The package as its users get it: what it exports, its types, and programs that end when they should.

'use strict';

const assert = require('node:assert/strict');
const { execFile } = require('node:child_process');
const { readdirSync, readFileSync } = require('node:fs');
const path = require('node:path');
const { promisify } = require('node:util');

const ts = require('typescript');

const dsync = require('dsync-client');
const { ONE_OF_EACH } = require('./libraries.js');
const { Server } = require('./servers.js');
const { after, before, describe, test } = require('./story.js');

const run = promisify(execFile);
/** A subscription that nobody uses is closed after 5 s; the process must not live until then. */
const EXIT_MS = 4_000;

test('import and require give the same functions', async () => {
    const imported = await import('dsync-client');
    for (const [name, value] of Object.entries(dsync)) {
        assert.equal(imported[name], value, name);
    }
});

/** Returns each file of the sources with those that it imports, their types included. */
function importsOf(folder) {
    const files = readdirSync(folder, { recursive: true }).filter((name) => name.endsWith('.ts'));
    const imported = (name) => {
        const { importedFiles } = ts.preProcessFile(readFileSync(path.join(folder, name), 'utf8'));
        const own = importedFiles.filter(({ fileName }) => fileName.startsWith('.'));
        return own.map(({ fileName }) => path.join(path.dirname(name), fileName.replace(/js$/, 'ts')));
    };
    return new Map(files.map((name) => [name, imported(name)]));
}

test('no files of the sources import each other in a circle', () => {
    const imports = importsOf(path.join(__dirname, '..', 'package', 'src'));
    assert.ok(imports.get('index.ts').includes('lock.ts'), `${[...imports]}`);
    const checked = new Set();
    const check = (name, way) => {
        assert.ok(!way.includes(name), `a circle: ${[...way, name].join(' -> ')}`);
        if (!checked.has(name)) {
            imports.get(name).forEach((next) => check(next, [...way, name]));
            checked.add(name);
        }
    };
    [...imports.keys()].forEach((name) => check(name, []));
});

describe('programs', () => {
    let server;
    before(async () => {
        server = await Server.start();
    });
    after(() => server.end());

    test('program in TypeScript works with `await using`', async () => {
        const program = path.join(__dirname, '..', 'out', 'test', 'types', 'import.mjs');
        await run(process.execPath, [program, server.url], { timeout: 60_000 });
    });

    for (const { name } of ONE_OF_EACH) {
        test(`program with ${name} ends after its last release`, async () => {
            const program = path.join(__dirname, 'exits.js');
            const { stdout } = await run(process.execPath, [program, name, server.url], { timeout: 60_000 });
            assert.ok(Number(stdout) < EXIT_MS, `it ended ${stdout.trim()} ms after its client was closed`);
        });
    }
});
