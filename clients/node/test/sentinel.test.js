// Clients that Sentinels tell who the primary is.

'use strict';

const assert = require('node:assert/strict');
const { test } = require('node:test');

const dsync = require('dsync-client');
const { ONE_OF_EACH } = require('./libraries.js');
const { Server, eventually, queued, startPair } = require('./servers.js');

const SERVICE = 'locks';

for (const library of ONE_OF_EACH.filter(({ openSentinel }) => openSentinel)) {
    test(`${library.name}: hold and place go over to the primary that Sentinel chooses`, async (t) => {
        const [primary, replica] = await startPair();
        t.after(() => [primary, replica].forEach((server) => server.end()));
        const sentinel = await Server.startSentinel(SERVICE, primary.port);
        t.after(() => sentinel.end());
        const client = await library.openSentinel(sentinel.port, SERVICE);
        t.after(() => {
            dsync.closeSubscription(client);
            library.close(client);
        });

        const hold = await dsync.lock(client, 'k');
        const order = [];
        const waiting = [];
        for (const name of ['first', 'second']) {
            waiting.push(dsync.withLock(client, 'k', () => order.push(name)));
            await queued(primary, waiting.length, 'k');
        }
        const failover = async () => (await sentinel.call('SENTINEL', 'FAILOVER', SERVICE).catch(() => '')) === 'OK';
        await eventually(failover, 'Sentinel knows the replica');
        const isPrimary = async () => (await replica.call('ROLE'))[0] === 'master';
        await eventually(isPrimary, 'the replica is the primary');
        assert.equal(await hold.release(), true);
        await Promise.all(waiting);
        assert.deepEqual(order, ['first', 'second']);
    });
}
