// Clients that Sentinels tell who the primary is: three Sentinels, a primary and a replica.

'use strict';

const assert = require('node:assert/strict');
const { setTimeout: sleep } = require('node:timers/promises');

const dsync = require('dsync-client');
const { inTime } = require('./ends.js');
const { ALL, OLDER } = require('./libraries.js');
const { eventually, placesOn, queued, startSentinelGroup } = require('./servers.js');
const { describe, test } = require('./story.js');

const SERVICE = 'locks';
/** A waiter is served so soon after the promotion, on a busy machine too. */
const SOON_MS = 15_000;

async function world(t, library) {
    const group = await startSentinelGroup(SERVICE);
    const ports = group.sentinels.map(({ port }) => port);
    const clients = await Promise.all([1, 2].map(() => library.openSentinel(ports, SERVICE)));
    t.after(() => {
        clients.forEach((client) => {
            dsync.closeSubscription(client);
            library.close(client);
        });
        [group.primary, group.replica, ...group.sentinels].forEach((server) => server.end());
    });
    return { ...group, clients };
}

/** How a primary goes. The first two leave connections that nobody closes, or nobody at the other end. */
const FAULTS = {
    'is frozen': ({ primary }) => primary.signal('SIGSTOP'),
    'is killed': ({ primary }) => primary.crash(),
    'changes places with its replica': ({ sentinels }) => sentinels[0].call('SENTINEL', 'FAILOVER', SERVICE),
};

describe('sentinel', { concurrency: 3 }, () => {
    for (const library of ALL.filter(({ openSentinel }) => openSentinel)) {
        for (const [what, fail] of OLDER.includes(library) ? Object.entries(FAULTS) : []) {
            // Waits, and the release, stayed with a frozen primary until it answered again, long after another was promoted.
            test(`${library.name}: hold and places go over to the replica when the primary ${what}`, async (t) => {
                const around = await world(t, library);
                const { primary, replica, clients } = around;
                const [holder, waiter] = clients;
                const hold = await dsync.lock(holder, 'k', { leaseMs: 20_000 });
                const ways = [{}, { ownConnection: true }];
                const waiting = ways.map((how) => dsync.withLock(waiter, 'k', ({ fence }) => fence, how));
                await queued(primary, 2, 'k');
                await placesOn(replica, 2, 'k');
                await fail(around);
                const isPrimary = async () => (await replica.call('ROLE'))[0] === 'master';
                await eventually(isPrimary, 'the replica is the primary', 60_000);
                assert.equal(await inTime(hold.release(), 'the hold is released', SOON_MS), true);
                const fences = await inTime(Promise.all(waiting), 'the waiters are served', SOON_MS);
                assert.ok(Math.min(...fences) > hold.fence, `${fences}`);
                const isFree = async () => (await replica.call('EXISTS', 'k')) === 0;
                await eventually(isFree, 'nothing is left behind');
            });
        }

        // node-redis kept all commands back for sixteen seconds, or for as long as no Sentinel answered.
        test(`${library.name}: primary is used while all Sentinels are dead`, async (t) => {
            const { sentinels, clients, primary } = await world(t, library);
            const [holder, waiter] = clients;
            const hold = await dsync.lock(holder, 'k', { leaseMs: 8_000 });
            const next = dsync.lock(waiter, 'k');
            await queued(primary, 1, 'k');
            await Promise.all(sentinels.map((sentinel) => sentinel.crash()));
            await sleep(12_000);
            hold.throwIfLost();
            assert.equal(await inTime(hold.release(), 'the hold is released', SOON_MS), true);
            assert.equal(await (await inTime(next, 'the waiter is served', SOON_MS)).release(), true);
        });
    }
});
