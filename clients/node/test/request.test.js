// What a request does about answers that no server gives on demand. A stand-in for an ioredis client plays the server.

'use strict';

const assert = require('node:assert/strict');
const { test } = require('node:test');

const dsync = require('dsync-client');
const { eventually } = require('./servers.js');

/** Returns a client that answers each command with what `answer` returns for it, and keeps the commands. */
function standIn(answer) {
    const commands = [];
    const call = async (...words) => {
        commands.push(words);
        const reply = answer(...words);
        if (reply instanceof Error) {
            throw reply;
        }
        return reply;
    };
    return { commands, status: 'ready', call, duplicate: () => assert.fail('nothing is to be subscribed to') };
}

const tokenOf = (words) => (words[0] === 'DLOCK.ACQUIRE' ? words[words.indexOf('TOKEN') + 1] : words[2]);
const granted = (words) => [tokenOf(words), 7];

test('request is repeated with the same token after errors that pass', async () => {
    const errors = [
        'UNBLOCKED force unblock',
        "READONLY You can't write against a read only replica.",
        'MOVED 1234 127.0.0.1:7000',
        'ASK 1234 127.0.0.1:7000',
        'TRYAGAIN Multiple keys request during rehashing of slot',
        'CLUSTERDOWN The cluster is down',
        'MASTERDOWN Link with MASTER is down',
        'LOADING the dataset in memory',
        'NOREPLICAS Not enough good replicas to write.',
        'Connection is closed.',
        'Socket closed unexpectedly',
        'read ECONNRESET',
        'connect ECONNREFUSED 127.0.0.1:6379',
        'Command timed out',
        'Reached the max retries per request limit (which is 20).',
    ].map((message) => new Error(message));
    const expected = errors.length + 1;
    const client = standIn((...words) => errors.shift() ?? granted(words));
    const hold = await dsync.lock(client, 'k');
    assert.equal(hold.fence, 7);
    assert.equal(client.commands.length, expected);
    assert.equal(new Set(client.commands.map(tokenOf)).size, 1);
    await hold.release();
});

test('other errors end the request, and its place is given up', async () => {
    for (const message of ['NOPERM no permissions', 'WRONGTYPE another type', 'QUEUEFULL too many', 'ERR syntax', 'OOM full']) {
        const client = standIn((name) => (name === 'DLOCK.RELEASE' ? 0 : new Error(message)));
        await assert.rejects(dsync.lock(client, 'k'), { message });
        assert.deepEqual(client.commands.map(([name]) => name), ['DLOCK.ACQUIRE', 'DLOCK.RELEASE']);
    }
});

test('try is sent once', async () => {
    const client = standIn((name) => (name === 'DLOCK.RELEASE' ? 0 : new Error('READONLY')));
    await assert.rejects(dsync.lock(client, 'k', { waitMs: 0 }), /READONLY/);
    assert.equal(client.commands[0].includes('QUEUE'), false);
    assert.deepEqual(client.commands.map(([name]) => name), ['DLOCK.ACQUIRE', 'DLOCK.RELEASE']);
});

test('error that lasts is the cause when the wait runs out', async () => {
    const client = standIn(() => new Error('READONLY'));
    await assert.rejects(dsync.lock(client, 'k', { waitMs: 100 }), (error) => {
        assert.ok(error instanceof dsync.NotAcquired);
        assert.equal(error.cause.message, 'READONLY');
        return true;
    });
});

test('grant that arrives after its caller has left is released, even if its withdrawal came first', async () => {
    let arrive;
    const late = new Promise((resolve) => (arrive = resolve));
    const client = standIn((name) => (name === 'DLOCK.ACQUIRE' ? late : 0));
    const caller = new AbortController();
    const pending = dsync.lock(client, 'k', { signal: caller.signal });
    caller.abort();
    await assert.rejects(pending, { name: 'AbortError' });
    assert.deepEqual(client.commands.map(([name]) => name), ['DLOCK.ACQUIRE', 'DLOCK.RELEASE']);
    arrive(granted(client.commands[0]));
    await eventually(() => client.commands.length === 3, 'the late grant is answered');
    assert.deepEqual(client.commands[2], ['DLOCK.RELEASE', 'k', tokenOf(client.commands[0])]);
});

test('grant that was long on its way is renewed first, and asked for anew if it had ended', async () => {
    const slowly = (reply) => new Promise((resolve) => setTimeout(resolve, 1_500, reply));
    let isFirst = true;
    const client = standIn((...words) => {
        if (words[0] === 'DLOCK.RENEW') {
            return 0;
        }
        if (words[0] === 'DLOCK.ACQUIRE' && isFirst) {
            isFirst = false;
            return slowly(granted(words));
        }
        return words[0] === 'DLOCK.ACQUIRE' ? [tokenOf(words), 8] : 1;
    });
    const hold = await dsync.lock(client, 'k', { leaseMs: 60_000, marginMs: 1_000 });
    assert.equal(hold.fence, 8);
    const names = client.commands.map(([name]) => name);
    assert.deepEqual(names, ['DLOCK.ACQUIRE', 'DLOCK.RENEW', 'DLOCK.RELEASE', 'DLOCK.ACQUIRE']);
    const tokens = client.commands.map(tokenOf);
    assert.ok(tokens[0] === tokens[1] && tokens[1] === tokens[2] && tokens[2] !== tokens[3]);
    await hold.release();
});

test('request that cannot subscribe asks about once a second', async () => {
    const client = standIn((name) => (name === 'DLOCK.ACQUIRE' ? ['WAITING', 1, 'dsync:{k}:9'] : 0));
    await assert.rejects(dsync.lock(client, 'k', { waitMs: 1_500 }), dsync.NotAcquired);
    const asked = client.commands.filter(([name]) => name === 'DLOCK.ACQUIRE').length;
    assert.ok(asked >= 2 && asked <= 4, `it asked ${asked} times`);
});

test('release is repeated after errors that pass, and rejects after others', async () => {
    const errors = [new Error('READONLY'), new Error('Connection is closed.')];
    const client = standIn((...words) => (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : (errors.shift() ?? 1)));
    const hold = await dsync.lock(client, 'k');
    assert.equal(await hold.release(), true);
    const refusing = standIn((...words) => (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : new Error('NOPERM')));
    await assert.rejects((await dsync.lock(refusing, 'k')).release(), /NOPERM/);
});

test('renewal that fails is tried again before the lease is over', async () => {
    let renewals = 0;
    const client = standIn((...words) => {
        if (words[0] === 'DLOCK.RENEW') {
            renewals += 1;
            return renewals === 1 ? new Error('READONLY') : 1;
        }
        return words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 1;
    });
    const hold = await dsync.lock(client, 'k', { leaseMs: 3_000 });
    // The stand-in client keeps no process alive, and neither does the hold.
    await eventually(() => renewals >= 2, 'it is renewed');
    assert.ok(hold.isHeld);
    await hold.release();
});
