// The user `worker` as docs/acl.md types it for any server, with the rights that it adds for waits and for a cluster.

'use strict';

const assert = require('node:assert/strict');
const { readFileSync } = require('node:fs');
const path = require('node:path');

/** test.sh copies the page beside the package. */
const PAGE = readFileSync(path.join(__dirname, '..', 'acl.md'), 'utf8');

/** Returns the words of ACL SETUSER behind the name. */
function workersLine({ password, isCluster = false }) {
    const line = /^user worker (on >change-me .*\+dlock\.acquire .*)$/m.exec(PAGE);
    assert.ok(line, 'the page has the line of a worker');
    const forWaits = addedFor('keeps its place with');
    const words = [line[1], forWaits, ...(isCluster ? [addedFor("a worker's cluster client")] : [])].join(' ');
    return words.replace('>change-me', `>${password}`).split(' ');
}

/** The rights of a row of the page's table. */
function addedFor(what) {
    const row = PAGE.split('\n').find((one) => one.startsWith('|') && one.includes(what));
    assert.ok(row, `the page has a row for: ${what}`);
    const cells = row.split(/(?<!\\)\|/);
    return cells.at(-2).trim().replaceAll('`', '').replaceAll('\\|', '|');
}

module.exports = { workersLine };
