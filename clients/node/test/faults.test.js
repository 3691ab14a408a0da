// What goes wrong: servers that stop, networks that are cut, connections that break, servers that restart and fail over.

'use strict';

const assert = require('node:assert/strict');
const { setTimeout: sleep } = require('node:timers/promises');

const dsync = require('dsync-client');
const { workersLine } = require('./acl.js');
const { ONE_OF_EACH } = require('./libraries.js');
const { Proxy } = require('./proxy.js');
const { Server, eventually, infoOf, queued, startPair } = require('./servers.js');
const { after, before, describe, test } = require('./story.js');

const { DsyncError, HoldLost, NotAcquired } = dsync;

/** Resolves when the hold is lost. */
const lost = (hold) => eventually(() => hold.signal.aborted, 'the hold is lost');

/** Whether somebody listens to the channel of a place of the key. */
const isHeard = async (server, key) => (await server.call('PUBSUB', 'CHANNELS', `dsync:{${key}}:*`)).length === 1;

/** A server, and two clients: one beside a proxy and one behind it. */
async function world(t, library) {
    const server = await Server.start('--appendonly', 'yes', '--appendfsync', 'always');
    t.after(() => server.end());
    const proxy = await Proxy.start(server.port);
    t.after(() => proxy.end());
    const [direct, proxied] = await Promise.all([server.url, proxy.url].map((url) => library.open(url)));
    t.after(() => {
        for (const client of [direct, proxied]) {
            dsync.closeSubscription(client);
            library.close(client);
        }
    });
    return { server, proxy, direct, proxied };
}

describe('faults', { concurrency: true }, () => {
    for (const library of ONE_OF_EACH) {
        describe(`${library.name}, one server`, { concurrency: 4 }, () => {
            test('hold is lost when the network is cut, and given back when it is mended', async (t) => {
                const { proxy, direct, proxied } = await world(t, library);
                const hold = await dsync.lock(proxied, 'k', { leaseMs: 3_000 });
                proxy.cut();
                await lost(hold);
                assert.ok(hold.signal.reason instanceof HoldLost);
                await assert.rejects(hold.release(), DsyncError);
                const next = dsync.lock(direct, 'k');
                proxy.mend();
                await (await next).release();
            });

            test('hold outlives a network that is cut for less than its lease', async (t) => {
                const { proxy, proxied } = await world(t, library);
                const hold = await dsync.lock(proxied, 'k', { leaseMs: 9_000 });
                proxy.cut();
                // Its first renewal is on the way now, without an answer.
                await eventually(() => hold.leftMs < 4_500, 'a renewal is due');
                proxy.mend();
                await eventually(() => hold.leftMs > 5_000, 'the hold is renewed');
                assert.equal(await hold.release(), true);
            });

            test('caller gives up at once when the network is cut, and its place is withdrawn when it is mended', async (t) => {
                const { server, proxy, direct, proxied } = await world(t, library);
                const hold = await dsync.lock(direct, 'k');
                const caller = new AbortController();
                const aborted = dsync.lock(proxied, 'k', { signal: caller.signal, placeMs: 60_000 });
                const timedOut = dsync.lock(proxied, 'k', { waitMs: 3_000, placeMs: 60_000 });
                const refused = assert.rejects(timedOut, (error) => {
                    assert.ok(error instanceof NotAcquired);
                    assert.match(error.cause.message, /the server has not answered/);
                    return true;
                });
                await queued(server, 2, 'k');
                proxy.cut();
                caller.abort(new Error('the user has left'));
                await assert.rejects(aborted, /the user has left/);
                await refused;
                await queued(server, 2, 'k');
                proxy.mend();
                await queued(server, 0, 'k');
                await hold.release();
            });

            test('request that is answered after its caller has left is withdrawn', async (t) => {
                const { server, proxy, direct, proxied } = await world(t, library);
                const caller = new AbortController();
                proxy.cut();
                const pending = dsync.lock(proxied, 'k', { signal: caller.signal });
                caller.abort(new Error('the user has left'));
                await assert.rejects(pending, /the user has left/);
                proxy.mend();
                const next = await dsync.lock(direct, 'k');
                const fence = await next.release().then(() => next.fence);
                // Nothing is left of the late request: its grant was released, not left to its lease.
                const free = async () => (await server.call('EXISTS', 'k')) === 0;
                await eventually(free, 'the lock is free');
                assert.ok(fence > 0);
            });

            // RELEASE ended the grant of the place. Then the BLOCK arrived, and was granted to a connection nobody read.
            test('BLOCK that arrives after its caller has left leaves nothing behind', async (t) => {
                const { server, proxy, direct, proxied } = await world(t, library);
                const hold = await dsync.lock(direct, 'k');
                const caller = new AbortController();
                proxy.delay('BLOCK');
                const long = { leaseMs: 120_000, placeMs: 60_000 };
                const pending = dsync.lock(proxied, 'k', { signal: caller.signal, ownConnection: true, ...long });
                await eventually(() => proxy.isLate, 'the BLOCK is on its way');
                await hold.release();
                assert.equal(await server.call('EXISTS', 'k'), 1, 'its place is granted');
                caller.abort(new Error('the user has left'));
                await assert.rejects(pending, /the user has left/);
                await eventually(async () => (await server.call('EXISTS', 'k')) === 0, 'the grant is given back');
                const grants = async () => {
                    const info = await server.call('INFO', 'dsync');
                    return Number(/dsync_lock_granted_at_once:(\d+)/.exec(info)[1]);
                };
                const before = await grants();
                proxy.arrive();
                await eventually(async () => (await grants()) > before, 'the late BLOCK is granted');
                await eventually(async () => (await server.call('EXISTS', 'k')) === 0, 'the late grant is given back');
            });

            // The server was away for longer than what was left of the lease. It had added its takeover grace, and still held
            // the lock, but nobody released it any more.
            test('release is repeated until the takeover grace is over', async (t) => {
                const { server, direct } = await world(t, library);
                // From the start on the server gives the hold its lease anew, in which the library connects again.
                const hold = await dsync.lock(direct, 'k', { leaseMs: 4_000 });
                await server.crash();
                const released = hold.release();
                released.catch(() => {});
                await sleep(4_500);
                await server.startAgain();
                assert.equal(await released, true);
            });

            test('release that is not answered says which server and key', async (t) => {
                const { proxy, proxied } = await world(t, library);
                const hold = await dsync.lock(proxied, 'k', { leaseMs: 1_000 });
                proxy.cut();
                const said = new RegExp(`127.0.0.1:${proxy.port} has not answered for 'k'`);
                await assert.rejects(hold.release(), said);
            });

            for (const ownConnection of [false, true]) {
                const how = ownConnection ? 'on connections of their own' : 'on a shared connection';

                test(`requests that wait ${how} keep their places when all connections break`, async (t) => {
                    const { server, direct } = await world(t, library);
                    const hold = await dsync.lock(direct, 'k');
                    const order = [];
                    const waiting = [];
                    for (const name of ['first', 'second', 'third']) {
                        const work = () => order.push(name);
                        // They would ask again by themselves after 20 s.
                        waiting.push(dsync.withLock(direct, 'k', work, { ownConnection, placeMs: 60_000 }));
                        await queued(server, waiting.length, 'k');
                    }
                    const isSubscribed = async () => {
                        const channels = await server.call('PUBSUB', 'CHANNELS', 'dsync:*');
                        return channels.length === (ownConnection ? 0 : 3);
                    };
                    await eventually(isSubscribed, 'they have subscribed');
                    await server.call('CLIENT', 'KILL', 'TYPE', 'pubsub', 'SKIPME', 'yes');
                    await server.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
                    await eventually(isSubscribed, 'they have subscribed again', 15_000);
                    assert.equal(await hold.release(), true);
                    await Promise.all(waiting);
                    assert.deepEqual(order, ['first', 'second', 'third']);
                });

                test(`hold and places ${how} outlive a restart of the server`, async (t) => {
                    const { server, direct } = await world(t, library);
                    const hold = await dsync.lock(direct, 'k');
                    const order = [];
                    const waiting = [];
                    for (const name of ['first', 'second']) {
                        const work = () => order.push(name);
                        waiting.push(dsync.withLock(direct, 'k', work, { ownConnection }));
                        await queued(server, waiting.length, 'k');
                    }
                    await server.crash();
                    const released = hold.release();
                    await server.startAgain();
                    assert.equal(await released, true);
                    await Promise.all(waiting);
                    assert.deepEqual(order, ['first', 'second']);
                });
            }

            test('lost connection does not stop the wait for a group', async (t) => {
                const { server, direct } = await world(t, library);
                const group = dsync.group(direct, 'g');
                await group.expect(1);
                const finished = group.wait();
                await queued(server, 1, 'g', 'DWG');
                await server.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
                await group.run(() => {});
                assert.deepEqual(await finished, { done: 1, lapsed: 0 });
            });

            test('client that its user closes ends the wait', async (t) => {
                const { server, direct, proxied } = await world(t, library);
                const hold = await dsync.lock(direct, 'k');
                const pending = assert.rejects(dsync.lock(proxied, 'k'), /clos|abort|disconnect/i);
                await queued(server, 1, 'k');
                library.close(proxied);
                // The subscription is a connection of its own; its end wakes the request.
                await server.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
                await pending;
                await hold.release();
            });

            // The subscription was to dsync:*, which the documented line does not allow: the worker asked once a second.
            test('worker of docs/acl.md hears of its turn', async (t) => {
                const { server, direct } = await world(t, library);
                await server.call('ACL', 'SETUSER', 'worker', ...workersLine({ password: 'secret' }));
                const client = await library.open(`redis://worker:secret@127.0.0.1:${server.port}`);
                const hold = await dsync.lock(direct, 'jobs:1', { owner: 'web-1' });
                await assert.rejects(dsync.lock(client, 'jobs:1', { waitMs: 0 }), /held by web-1/);
                const next = dsync.lock(client, 'jobs:1', { leaseMs: 3_000 });
                await eventually(() => isHeard(server, 'jobs:1'), 'it listens to the channel of its place');
                await hold.release();
                const granted = await next;
                assert.equal(await granted.renew(), true);
                assert.equal(await granted.release(), true);
                dsync.closeSubscription(client);
                library.close(client);
            });

            test('user who may not see the holder is told no names', async (t) => {
                const { server, direct } = await world(t, library);
                await server.call('ACL', 'SETUSER', 'blind', 'on', '>secret', '~*', '+@all', '-dlock.info');
                const client = await library.open(`redis://blind:secret@127.0.0.1:${server.port}`);
                const hold = await dsync.lock(direct, 'k');
                await assert.rejects(dsync.lock(client, 'k', { waitMs: 0 }), (error) => {
                    assert.equal(error.message, "'k' was not acquired");
                    assert.deepEqual(error.holders, []);
                    return true;
                });
                await hold.release();
                library.close(client);
            });

            test('user who may not subscribe gets the turn by asking', async (t) => {
                const { server } = await world(t, library);
                const name = `plain-${library.name}`;
                const rights = ['on', '>secret', 'resetchannels', '~*', '+@all'];
                await server.call('ACL', 'SETUSER', name, ...rights);
                const client = await library.open(`redis://${name}:secret@127.0.0.1:${server.port}`);
                const hold = await dsync.lock(client, 'k');
                const warned = new Promise((resolve) => process.once('warning', resolve));
                const next = dsync.lock(client, 'k');
                assert.match((await warned).message, /NOPERM/);
                await hold.release();
                await (await next).release();
                library.close(client);
            });
        });

        describe(`${library.name}, failover`, () => {
            let servers;
            before(async () => {
                servers = await startPair();
            });
            after(() => servers.forEach((server) => server.end()));

            test('hold and place go over to the new primary', async () => {
                const [primary, replica] = servers;
                const proxy = await Proxy.start(primary.port);
                const client = await library.open(proxy.url);
                const hold = await dsync.lock(client, 'k');
                const order = [];
                const waiting = [];
                for (const name of ['first', 'second']) {
                    waiting.push(dsync.withLock(client, 'k', () => order.push(name), { placeMs: 15_000 }));
                    await queued(primary, waiting.length, 'k');
                }
                await primary.call('FAILOVER');
                const isPrimary = async () => (await replica.call('ROLE'))[0] === 'master';
                await eventually(isPrimary, 'the replica is the primary');
                // The connections still lead to the old primary, which answers READONLY.
                const released = hold.release();
                const isReadonly = async () => (await primary.call('INFO', 'errorstats')).includes('errorstat_READONLY');
                await eventually(isReadonly, 'a request was refused');
                // Nothing is announced at a replica.
                const isLeft = async () => (await primary.call('PUBSUB', 'CHANNELS', 'dsync:*')).length === 0;
                await eventually(isLeft, 'the subscription there is given up');
                proxy.turn(replica.port);
                assert.equal(await released, true);
                await Promise.all(waiting);
                assert.deepEqual(order, ['first', 'second']);
                assert.deepEqual(await infoOf(replica, 'DLOCK', 'k'), {});
                dsync.closeSubscription(client);
                library.close(client);
                proxy.end();
            });
        });
    }
});
