// Holds that nobody has any more are not renewed; who has the hold, its signal, or a listener there, has it.

'use strict';

const assert = require('node:assert/strict');
const { setTimeout: sleep } = require('node:timers/promises');
const v8 = require('node:v8');
const { runInNewContext } = require('node:vm');

const dsync = require('dsync-client');
const { eventually } = require('./servers.js');
const { granted, standIn } = require('./stand_in.js');
const { describe, test } = require('./story.js');

v8.setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc');

const OPTIONS = { leaseMs: 900 };

/** A client, and the moments at which each key was renewed. */
function world() {
    const renewals = new Map();
    const client = standIn((...words) => {
        if (words[0].endsWith('.RENEW')) {
            renewals.set(words[1], performance.now());
        }
        return words[0].endsWith('.ACQUIRE') ? granted(['DLOCK.ACQUIRE', ...words.slice(1)]) : 1;
    });
    const isRenewed = (key) => performance.now() - (renewals.get(key) ?? -Infinity) < OPTIONS.leaseMs;
    return { client, isRenewed };
}

/** What nobody has is collected. Awaits a turn first: the last one may still have what it has read. */
async function collect() {
    await sleep(10);
    gc();
    await sleep(10);
}

/** Fails unless the key is renewed for three leases more. */
async function staysRenewed(isRenewed, key) {
    await eventually(() => isRenewed(key), 'it is renewed');
    for (let n = 0; n < 3; n += 1) {
        await collect();
        await sleep(OPTIONS.leaseMs);
        assert.ok(isRenewed(key), `${key} is renewed`);
    }
}

async function isLeft(isRenewed, key) {
    await collect();
    await sleep(2 * OPTIONS.leaseMs);
    assert.ok(!isRenewed(key), `${key} is not renewed any more`);
}

// It was granted when nobody waited for it any more, and renewed for as long as the process lived.
test('loser of a race is not renewed, in a process that only waits', async () => {
    const { client, isRenewed } = world();
    const race = () => Promise.race([dsync.lock(client, 'race', OPTIONS), sleep(0)]);
    await race();
    await eventually(() => isRenewed('race'), 'it is renewed once');
    await eventually(() => !isRenewed('race'), 'it is not renewed any more');
});

describe('forgotten', { concurrency: true }, () => {
    test('work of withLock that does not look at its hold keeps it', async () => {
        const { client, isRenewed } = world();
        await dsync.withLock(client, 'k', () => staysRenewed(isRenewed, 'k'), OPTIONS);
    });

    test('who has only the signal keeps the hold', async () => {
        const { client, isRenewed } = world();
        const signalOf = async () => (await dsync.lock(client, 'k', OPTIONS)).signal;
        let signal = await signalOf();
        await staysRenewed(isRenewed, 'k');
        assert.equal(signal.aborted, false);
        signal = undefined;
        await isLeft(isRenewed, 'k');
    });

    test('who only listens to the signal keeps the hold, and is told', async () => {
        const { client, isRenewed } = world();
        const told = [];
        const listen = async (key) => {
            const { signal } = await dsync.lock(client, key, OPTIONS);
            const listener = () => told.push(key);
            signal.addEventListener('abort', listener);
            return () => signal.removeEventListener('abort', listener);
        };
        await listen('k');
        await staysRenewed(isRenewed, 'k');
        let leave = await listen('left');
        await staysRenewed(isRenewed, 'left');
        leave();
        leave = undefined;
        await isLeft(isRenewed, 'left');
        client.call = async () => 0;
        await eventually(() => told.length > 0, 'the listener is told');
        assert.deepEqual(told, ['k']);
    });

    test('who has only the signal of several holds keeps them all', async () => {
        const { client, isRenewed } = world();
        const signalOf = async () => (await dsync.allOf(client, ['a', 'b'], OPTIONS)).signal;
        let signal = await signalOf();
        await Promise.all(['a', 'b'].map((key) => staysRenewed(isRenewed, key)));
        assert.equal(signal.aborted, false);
        signal = undefined;
        await Promise.all(['a', 'b'].map((key) => isLeft(isRenewed, key)));
    });
});
