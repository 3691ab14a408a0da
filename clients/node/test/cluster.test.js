// A cluster of three nodes.

'use strict';

const assert = require('node:assert/strict');

const slotOf = require('cluster-key-slot');

const dsync = require('dsync-client');
const { workersLine } = require('./acl.js');
const { inTime } = require('./ends.js');
const { ALL, OLDER } = require('./libraries.js');
const { eventually, follows, placesOn, queued, startCluster } = require('./servers.js');
const { after, before, describe, test } = require('./story.js');

describe('cluster', () => {
    let nodes;
    before(async () => {
        nodes = await startCluster();
    });
    after(() => nodes.forEach((node) => node.end()));

    /** The node that has the key. */
    const nodeOf = async (key) => {
        for (const node of nodes) {
            if ((await node.call('EXISTS', key).catch(() => 'elsewhere')) !== 'elsewhere') {
                return node;
            }
        }
        throw new Error(`no node has ${key}`);
    };

    for (const library of ALL) {
        describe(library.name, () => {
            let client;
            before(async () => {
                // ioredis has a prefix for keys, which is not for the channels of the server.
                client = await library.openCluster(nodes.map(({ port }) => port), { keyPrefix: 'app:' });
            });
            after(() => {
                dsync.closeSubscription(client);
                library.close(client);
            });

            test('requests go to the node of their key without redirections', async () => {
                for (const node of nodes) {
                    await node.call('CONFIG', 'RESETSTAT');
                }
                const keys = Array.from({ length: 30 }, (_, n) => `${library.name}:${n}`);
                const holds = await Promise.all(keys.map((key) => dsync.lock(client, key)));
                await Promise.all(holds.map((hold) => hold.release()));
                for (const node of nodes) {
                    assert.ok(!(await node.call('INFO', 'errorstats')).includes('MOVED'), 'a request was redirected');
                }
            });

            for (const ownConnection of [false, true]) {
                const how = ownConnection ? 'on a connection of its own' : 'by a subscription at the node of the key';

                test(`request gets its turn ${how}`, async () => {
                    const keys = ['a', 'b', 'c', 'd'].map((name) => `${library.name}:${ownConnection}:${name}`);
                    const holds = await Promise.all(keys.map((key) => dsync.lock(client, key)));
                    const pending = keys.map((key) => dsync.lock(client, key, { ownConnection }));
                    for (const key of keys) {
                        const node = await nodeOf(key);
                        await queued(node, 1, key);
                        if (!ownConnection) {
                            const channel = `dsync:{${key}}:*`;
                            const isHeard = async () => (await node.call('PUBSUB', 'SHARDCHANNELS', channel)).length === 1;
                            await eventually(isHeard, 'it listens to the channel of its place');
                        }
                    }
                    await Promise.all(holds.map((hold) => hold.release()));
                    const next = await Promise.all(pending);
                    await Promise.all(next.map((hold) => hold.release()));
                });
            }

            test('worker of docs/acl.md hears of its turn', async () => {
                for (const node of nodes) {
                    await node.call('ACL', 'SETUSER', 'worker', ...workersLine({ password: 'secret', isCluster: true }));
                }
                const ports = nodes.map(({ port }) => port);
                const worker = await library.openCluster(ports, { username: 'worker', password: 'secret' });
                const key = `jobs:${library.name}`;
                const hold = await dsync.lock(client, key);
                const next = dsync.lock(worker, key);
                const node = await nodeOf(key);
                const isHeard = async () => (await node.call('PUBSUB', 'SHARDCHANNELS', `dsync:{${key}}:*`)).length === 1;
                await eventually(isHeard, 'it listens to the channel of its place');
                await hold.release();
                assert.equal(await (await next).release(), true);
                dsync.closeSubscription(worker);
                library.close(worker);
            });

            test('hold and place move with their slot', async () => {
                const key = `${library.name}:moves`;
                const slot = slotOf(key);
                const from = await nodeOf(key);
                const to = nodes[(nodes.indexOf(from) + 1) % nodes.length];
                const hold = await dsync.lock(client, key);
                const order = [];
                const waiting = [];
                for (const name of ['first', 'second']) {
                    waiting.push(dsync.withLock(client, key, () => order.push(name)));
                    await queued(from, waiting.length, key);
                }
                const [fromId, toId] = [await from.call('CLUSTER', 'MYID'), await to.call('CLUSTER', 'MYID')];
                await to.call('CLUSTER', 'SETSLOT', slot, 'IMPORTING', fromId);
                await from.call('CLUSTER', 'SETSLOT', slot, 'MIGRATING', toId);
                assert.equal(await from.call('MIGRATE', '127.0.0.1', to.port, key, 0, 10_000), 'OK');
                for (const node of [to, from]) {
                    await node.call('CLUSTER', 'SETSLOT', slot, 'NODE', toId);
                }
                await queued(to, 2, key);
                assert.equal(await hold.release(), true);
                await Promise.all(waiting);
                assert.deepEqual(order, ['first', 'second']);
            });
        });
    }
});

/** A waiter is served so soon after the promotion, on a busy machine too. */
const SOON_MS = 15_000;

/** How a primary goes, and comes back as a replica. */
const FAULTS = {
    'is frozen': { fail: ({ primary }) => primary.signal('SIGSTOP'), mend: ({ primary }) => primary.signal('SIGCONT') },
    'is killed': { fail: ({ primary }) => primary.crash(), mend: ({ primary }) => primary.startAgain() },
    'changes places with its replica': { fail: ({ replica }) => replica.call('CLUSTER', 'FAILOVER'), mend: () => {} },
};

describe('cluster, failover', { concurrency: 3 }, () => {
    for (const library of OLDER) {
        // Waits, and the release, stayed with a frozen primary until it answered again, long after another was promoted.
        test(`${library.name}: hold and places go over to the replica`, async (t) => {
            const nodes = await startCluster(1);
            let [primary, , , replica] = nodes;
            const ports = nodes.map(({ port }) => port);
            const clients = await Promise.all([1, 2].map(() => library.openCluster(ports)));
            t.after(() => {
                clients.forEach((client) => {
                    dsync.closeSubscription(client);
                    library.close(client);
                });
                nodes.forEach((node) => node.end());
            });
            const [holder, waiter] = clients;
            for (const [what, { fail, mend }] of Object.entries(FAULTS)) {
                await t.test(`when the primary ${what}`, async () => {
                    // In slot 3359, of the first primary.
                    const key = `{hello3}:${what}`;
                    const hold = await dsync.lock(holder, key, { leaseMs: 20_000 });
                    const ways = [{}, { ownConnection: true }];
                    const waiting = ways.map((how) => dsync.withLock(waiter, key, ({ fence }) => fence, how));
                    await queued(primary, 2, key);
                    await replica.call('READONLY');
                    await placesOn(replica, 2, key);
                    await fail({ primary, replica });
                    const isPrimary = async () => (await replica.call('ROLE'))[0] === 'master';
                    await eventually(isPrimary, 'the replica is the primary', 60_000);
                    assert.equal(await inTime(hold.release(), 'the hold is released', SOON_MS), true);
                    const fences = await inTime(Promise.all(waiting), 'the waiters are served', SOON_MS);
                    assert.ok(Math.min(...fences) > hold.fence, `${fences}`);
                    const isFree = async () => (await replica.call('EXISTS', key)) === 0;
                    await eventually(isFree, 'nothing is left behind');
                    await mend({ primary });
                    const isReplica = async () => (await primary.call('ROLE').catch(() => []))[0] === 'slave';
                    await eventually(isReplica, 'the old primary is a replica');
                    await follows(primary);
                    [primary, replica] = [replica, primary];
                });
            }
        });
    }
});
