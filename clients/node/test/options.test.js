// The options of locks and semaphores that say who is next and for how long: lanes, rests and indexes.

'use strict';

const assert = require('node:assert/strict');

const { ReplyError } = require('ioredis5');

const dsync = require('dsync-client');
const { ALL } = require('./libraries.js');
const { Server, queued } = require('./servers.js');
const { standIn, tokenOf } = require('./stand_in.js');
const { after, before, describe, test } = require('./story.js');

for (const library of ALL) {
    describe(library.name, { concurrency: true }, () => {
        let server;
        let client;

        before(async () => {
            server = await Server.start();
            client = await library.open(server.url);
        });
        after(() => {
            dsync.closeSubscription(client);
            library.close(client);
            server.end();
        });

        test('index is the lowest that is free', async () => {
            const options = { limit: 2, index: true };
            let first = await dsync.semaphore(client, 'index', options);
            const second = await dsync.semaphore(client, 'index', options);
            assert.deepEqual([first.index, second.index], [0, 1]);
            for (const ownConnection of [true, false]) {
                const next = dsync.semaphore(client, 'index', { ...options, ownConnection });
                await queued(server, 1, 'index', 'DSEM');
                await first.release();
                first = await next;
                assert.equal(first.index, 0);
            }
            assert.equal(await server.call('DSEM.REVOKE', 'index', second.fence), 1);
            assert.equal(await second.renew(), false);
            assert.deepEqual([second.index, second.isHeld, second.signal.aborted], [1, false, true]);
            await first.release();
            {
                const both = await dsync.allOf(client, ['k', { semaphore: 'index', ...options }]);
                assert.deepEqual(both.holds.map(({ index }) => index), [undefined, 0]);
                await both.release();
            }
            const plain = await dsync.semaphore(client, 'index', { limit: 1 });
            assert.equal(plain.index, undefined);
            await plain.release();
        });
    });
}

test('options are those of each repeat, and the index that of the last answer', async () => {
    const answers = [new ReplyError('LOADING'), null, new ReplyError('READONLY')];
    const answer = (...words) => {
        const next = answers.shift();
        return next ?? (next === null ? ['WAITING', 1, 'dsync:{k}:9'] : [tokenOf(words), 7, 0]);
    };
    const client = standIn(answer);
    const options = { limit: 5, lane: 'tenant:7', laneLimit: 2, minHoldMs: 250, index: true, owner: '' };
    const hold = await dsync.semaphore(client, 'k', options);
    assert.deepEqual([hold.fence, hold.index], [7, 0]);
    const asked = client.commands.map((words) => words.join(' ').replace(tokenOf(words), 't'));
    const request = 'TOKEN t PX 30000 LIMIT 5 LANE tenant:7 LANELIMIT 2 MINHOLD 250 INDEX QUEUE 5000';
    assert.deepEqual(asked, Array(4).fill(`DSEM.ACQUIRE k ${request}`));
    await hold.release();
});

test('nonsense is refused before anything is sent', async () => {
    const client = standIn(() => assert.fail('nothing is to be sent'));
    const refused = [
        [{ laneLimit: 2 }, 'TypeError', /laneLimit is the limit of a lane/],
        [{ lane: 7 }, 'TypeError', /lane must be a text, not 7/],
        [{ lane: null }, 'TypeError', /lane must be a text, not null/],
        [{ lane: 'l'.repeat(129) }, 'RangeError', /lane must have 1 to 128 bytes, not 129/],
        [{ owner: 'ö'.repeat(65) }, 'RangeError', /owner must have 0 to 128 bytes, not 130/],
        [{ limit: 0 }, 'RangeError', /limit must be a whole number from 1 to 1000000, not 0/],
        [{ permits: '2' }, 'RangeError', /permits must be a whole number from 1 to 1000000, not 2/],
        [{ leaseMs: 31 * 86_400_000 }, 'RangeError', /leaseMs must be a whole number of milliseconds from 1 to 2592000000/],
        [{ permits: 2, index: true }, 'RangeError', /index is for one permit, not 2/],
        [{ minHoldMs: 0 }, 'RangeError', /minHoldMs must be a whole number of milliseconds from 1 to 2592000000, not 0/],
    ];
    for (const [options, name, message] of refused) {
        await assert.rejects(dsync.semaphore(client, 'k', { limit: 5, ...options }), { name, message });
    }
    await assert.rejects(dsync.lock(client, 'k', { minHoldMs: -1 }), RangeError);
    await assert.rejects(dsync.semaphore(client, 'k', 5), /the options of semaphore must be an object, not 5/);
    await assert.rejects(dsync.group(client, 'k').expect(0), /jobs must be a whole number from 1 to 1000000, not 0/);
    await assert.rejects(dsync.once(client, 'k', assert.fail, { keepMs: 5, forever: true }), /forever is given instead of keepMs/);
    for (const options of [{ keepMs: 0 }, { keepMs: 1.5 }, { retryDelayMs: -1 }, { maxAttempts: 0 }]) {
        await assert.rejects(dsync.once(client, 'k', assert.fail, options), RangeError);
    }
    await assert.rejects(dsync.lock(client, 'k', { lane: 'a' }), /lock has no option 'lane'/);
});
