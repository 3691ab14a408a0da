// Holds that nobody has any more are not renewed; who has the hold, its signal, or a listener there, has it. Who has only what
// depends on the signal is told when the lease is over.

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
        if (words[0] === 'DONCE.BEGIN') {
            return ['RUN', ...granted(words), 1];
        }
        return /ACQUIRE|ADD/.test(words[0]) ? granted(words) : 1;
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

describe('told', () => {
    const waysToKeep = {
        'a signal': (signal) => {
            const derived = AbortSignal.any([signal, new AbortController().signal]);
            return () => derived.aborted && derived.reason;
        },
        'a signal of a signal': (signal) => {
            const derived = AbortSignal.any([AbortSignal.any([signal]), AbortSignal.timeout(60_000)]);
            return () => derived.aborted && derived.reason;
        },
        'a listener of a signal': (signal) => {
            let reason = false;
            const derived = AbortSignal.any([signal, new AbortController().signal]);
            derived.addEventListener('abort', (event) => (reason = event.target.reason));
            return () => reason;
        },
    };
    const waysToHold = {
        lock: (client, key) => dsync.lock(client, key, OPTIONS),
        member: (client, key) => dsync.group(client, key).add(OPTIONS),
        run: async (client, key) => (await dsync.once.begin(client, key, OPTIONS)).run,
        all: (client, key) => dsync.allOf(client, ['another', key], OPTIONS),
    };
    for (const [what, keep] of Object.entries(waysToKeep)) {
        // Two leaders: the next one was granted the lock, and the first one was never told.
        test(`who has only ${what} that depends on that of a hold is told of the loss in time`, async () => {
            const { client, isRenewed } = world();
            const keepOne = async ([key, hold]) => [key, keep((await hold(client, key)).signal)];
            const kept = await Promise.all(Object.entries(waysToHold).map(keepOne));
            await Promise.all(kept.map(([key]) => eventually(() => isRenewed(key), `${key} is renewed`)));
            await collect();
            await Promise.all(
                kept.map(async ([key, told]) => {
                    await eventually(() => !isRenewed(key), `the lease of ${key} is over`);
                    // What is due by now, on a machine that is busy.
                    await sleep(1);
                    assert.ok(told() instanceof dsync.HoldLost, `the loss of ${key} is told`);
                    assert.match(told().message, /the program does not refer to it any more/);
                }),
            );
        });
    }

    test('listeners that are left after the end keep no hold', async () => {
        const { client } = world();
        const gone = [];
        const registry = new FinalizationRegistry((end) => gone.push(end));
        const use = async (name, end) => {
            const hold = await dsync.lock(client, name, OPTIONS);
            hold.signal.addEventListener('abort', () => {});
            hold.signal.onabort = () => {};
            registry.register(hold, name);
            await end(hold);
        };
        await use('released', (hold) => hold.release());
        await use('lost', (hold) => {
            client.call = async () => 0;
            return hold.renew();
        });
        const areGone = async () => {
            await collect();
            return gone.length === 2;
        };
        await eventually(areGone, 'both holds are collected');
    });
});
