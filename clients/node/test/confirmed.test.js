// Confirmed holds, where no server answers as it must on demand. What servers do the conformance suite tests.

'use strict';

const assert = require('node:assert/strict');

const { ReplyError } = require('ioredis5');

const dsync = require('dsync-client');
const { eventually } = require('./servers.js');
const { granted, standIn } = require('./stand_in.js');
const { test } = require('./story.js');

const name = ([command, ...words]) => (/^(WAIT|WAITAOF|ROLE)$/.test(command) ? [command, ...words].join(' ') : `${command} ${words[0]}`);
const namesOf = ({ commands }) => commands.map(name);

/** Answers as a server does whose replicas answer WAIT with `have()`. */
const server = (have) => (...words) => {
    const [command] = words;
    if (command === 'WAIT') {
        return have();
    }
    return command === 'DLOCK.ACQUIRE' ? granted(words) : command === 'DONCE.BEGIN' ? ['RUN', 'token', 7, 1] : 1;
};

// WAIT keeps its connection waiting: a thousand requests would have waited for one another.
test('what is asked while one WAIT is out is confirmed by the next, for the highest number', async () => {
    const waits = [];
    const client = standIn(server(() => new Promise((resolve) => waits.push(resolve))));
    const ask = (key, replicas) => dsync.lock(client, key, { replicas, leaseMs: 10_000 });
    const first = ask('a', 1);
    await eventually(() => waits.length === 1, 'a WAIT is out');
    const others = [ask('b', 1), ask('c', 2), ask('d', 1)];
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.deepEqual(namesOf(client), ['DLOCK.ACQUIRE a', 'WAIT 1 500']);
    waits[0](1);
    await first;
    await eventually(() => waits.length === 2, 'the next WAIT is out');
    assert.deepEqual(namesOf(client).slice(2), ['DLOCK.ACQUIRE b', 'DLOCK.ACQUIRE c', 'DLOCK.ACQUIRE d', 'WAIT 2 500']);
    waits[1](2);
    await Promise.all(others);
});

test('request that needs no confirmation is answered while WAIT is out', async () => {
    const client = standIn((...words) => (words[0] === 'WAIT' ? new Promise(() => {}) : words[0] === 'DLOCK.ACQUIRE' ? null : 0));
    await assert.rejects(dsync.lock(client, 'k', { replicas: 1, waitMs: 0 }), dsync.NotAcquired);
});

test('renewals of all holds that are due have one WAIT', async () => {
    const client = standIn(server(() => 1));
    const keys = Array.from({ length: 20 }, (_, n) => `k${n}`);
    const holds = await Promise.all(keys.map((key) => dsync.lock(client, key, { replicas: 1, leaseMs: 3_000 })));
    client.commands.length = 0;
    await eventually(() => client.commands.length > 0, 'they are renewed');
    await eventually(() => client.commands.filter(([command]) => command === 'DLOCK.RENEW').length >= 20, 'all are renewed');
    assert.deepEqual(namesOf(client).slice(0, 21), [...keys.map((key) => `DLOCK.RENEW ${key}`), 'WAIT 1 300']);
    await Promise.all(holds.map((hold) => hold.release()));
});

test('all are as many as the primary has attached when it answers, and two kinds are confirmed together', async () => {
    const client = standIn((...words) =>
        words[0] === 'ROLE'
            ? ['master', 7, [['::1', '1', '7'], ['::1', '2', '7']]]
            : words[0] === 'WAITAOF' ? [1, 2] : server(() => 2)(...words),
    );
    const all = dsync.lock(client, 'a', { replicas: 'all' });
    const disk = dsync.lock(client, 'b', { replicas: 1, disk: true });
    await Promise.all([all, disk]);
    // ROLE was answered first, which has taken some of the time.
    const names = namesOf(client).map((one) => one.replace(/ 4\d\d$/, ' 500'));
    assert.deepEqual(names, ['DLOCK.ACQUIRE a', 'DLOCK.ACQUIRE b', 'ROLE', 'WAIT 2 500', 'WAITAOF 1 1 500']);
});

test('DONE that is not confirmed is not sent again on its connection, only WAIT', async () => {
    const counts = [1, 0, 0, 1];
    // It is answered when its time is over.
    const client = standIn(server(() => new Promise((resolve) => setTimeout(resolve, 20, counts.shift()))));
    const begun = await dsync.once.begin(client, 'k', { replicas: 1, withinMs: 10, leaseMs: 10_000 });
    assert.equal(await begun.run.done('r'), true);
    const asked = namesOf(client).filter((words) => !words.startsWith('WAIT'));
    assert.deepEqual([asked, counts], [['DONCE.BEGIN k', 'DONCE.DONE k'], []]);
});

/** The same, but the connection ends at the first DONE. A RENEW after that finds `found` holds, and another DONE `done`. */
const endsAtDone = (found, done = found) => {
    let isCut = false;
    return (...words) => {
        if (words[0].endsWith('.DONE') && !isCut) {
            isCut = true;
            return new Error('Connection is closed.');
        }
        const afterwards = { 'DONCE.DONE': done, 'DWG.DONE': done, 'DONCE.RENEW': found, 'DWG.RENEW': found };
        return afterwards[words[0]] ?? (words[0] === 'DWG.ADD' ? granted(words) : server(() => 1)(...words));
    };
};

// WAIT behind a repeated DONE, which writes nothing, counts replicas that may not have the first one.
test('DONE whose connection has ended cannot be confirmed on another', async () => {
    const client = standIn(endsAtDone(0, 1));
    const begun = await dsync.once.begin(client, 'k', { replicas: 1 });
    await assert.rejects(begun.run.done('r'), (error) => {
        assert.ok(error instanceof dsync.NotConfirmed);
        assert.deepEqual([error.key, error.have, error.wanted], ['k', 0, 1]);
        return true;
    });
    assert.ok(!namesOf(client).some((words) => words.includes('FAIL')), 'work that is done does not fail');
});

// It was called not confirmed after a sending that had never arrived.
test('DONE behind a RENEW that finds the hold is the first, and confirmed', async () => {
    const client = standIn(endsAtDone(1));
    const begun = await dsync.once.begin(client, 'k', { replicas: 1, leaseMs: 10_000, maxHoldMs: 5_000 });
    assert.equal(await begun.run.done('r'), true);
    assert.deepEqual(namesOf(client).slice(3), ['WAIT 1 500', 'DONCE.RENEW k', 'DONCE.DONE k', 'WAIT 1 500']);
    const [, , , lease] = client.commands.find(([command]) => command === 'DONCE.RENEW').slice(1);
    assert.ok(Number(lease) < 5_000, lease);
    const member = await dsync.group(standIn(endsAtDone(1)), 'k').add({ replicas: 1 });
    assert.equal(await member.done(), true);
});

// 0 may be the answer to a repetition, and nobody knows which replicas have the first.
test('DONE of a member that may be recorded is not confirmed by 0', async () => {
    const member = await dsync.group(standIn(endsAtDone(0)), 'k').add({ replicas: 1 });
    await assert.rejects(member.done(), dsync.NotConfirmed);
    const begun = await dsync.once.begin(standIn(endsAtDone(0)), 'k', { replicas: 1 });
    assert.equal(await begun.run.done('r'), false, 'another attempt has begun');
});

test('WAIT that is not allowed is told at once, and the grant is given back', async () => {
    const refused = new ReplyError("NOPERM this user has no permissions to run the 'wait' command");
    const client = standIn(server(() => refused));
    await assert.rejects(dsync.lock(client, 'k', { replicas: 1 }), (error) => error === refused);
    assert.deepEqual(namesOf(client), ['DLOCK.ACQUIRE k', 'WAIT 1 500', 'DLOCK.RELEASE k']);
});

test('replica that says so is asked no more, and the request is repeated until retryForMs is over', async () => {
    const client = standIn(server(() => new ReplyError('ERR WAIT cannot be used with replica instances.')));
    await assert.rejects(dsync.lock(client, 'k', { replicas: 2, retryForMs: 200 }), (error) => {
        assert.ok(error instanceof dsync.NotConfirmed);
        assert.match(error.message, /^'k' was not confirmed: 0 of 2 replicas have it: ERR WAIT cannot be used/);
        return true;
    });
    assert.ok(namesOf(client).filter((words) => words === 'DLOCK.ACQUIRE k').length > 1, 'it was repeated');
});

test('nonsense is refused before anything is sent', async () => {
    const client = standIn(() => assert.fail('nothing is to be sent'));
    for (const [options, error, message] of [
        [{ replicas: 0 }, 'RangeError', /replicas must be a whole number, 1 or more, or 'all', not 0/],
        [{ replicas: 'some' }, 'RangeError', /not some/],
        [{ replicas: 1, withinMs: 0 }, 'RangeError', /withinMs must be a whole number of milliseconds, 1 or more, not 0/],
        [{ withinMs: 5 }, 'TypeError', /withinMs is for replicas or disk/],
        [{ disk: 1 }, 'TypeError', /disk must be true or false, not 1/],
        [{ maxHoldMs: 0 }, 'RangeError', /maxHoldMs/],
        [{ retryForMs: -1 }, 'RangeError', /retryForMs/],
    ]) {
        await assert.rejects(dsync.lock(client, 'k', options), { name: error, message });
    }
});

// A confirmed hold was lost while the slot of its key was half-way to another node.
test('confirmed renewals and ends go to the node that ASK names, behind ASKING', async () => {
    const asked = [];
    const answers = { ASKING: 'OK', WAIT: 1 };
    const connection = (address) => ({
        ...standIn(() => 1),
        status: 'ready',
        options: { host: '127.0.0.1', port: 7001 },
        duplicate: ({ host, port }) => connection(host === undefined ? address : `${host}:${port}`),
        call: async (...words) => {
            if (words[0] === 'DONCE.BEGIN') {
                return ['RUN', words[words.indexOf('TOKEN') + 1], 7, 1];
            }
            if (address === 'here' && words[0].startsWith('DONCE')) {
                throw new ReplyError('ASK 1234 127.0.0.1:7002');
            }
            asked.push(address === 'here' ? 'here' : `${address} ${words[0]}`);
            return answers[words[0]] ?? 1;
        },
    });
    const node = connection('here');
    const slots = Array.from({ length: 16_384 }, () => ['127.0.0.1:7001']);
    const client = { ...node, isCluster: true, slots, nodes: () => [node], refreshSlotsCache: (callback) => callback() };
    const outcome = await dsync.once.begin(client, 'k', { replicas: 1, leaseMs: 900 });
    await eventually(() => asked.filter((line) => line.endsWith('RENEW')).length > 3, 'it is renewed');
    assert.equal(outcome.run.isHeld, true);
    assert.equal(await outcome.run.done('r'), true);
    const there = asked.filter((line) => line !== 'here').map((line) => line.replace('127.0.0.1:7002 ', ''));
    assert.deepEqual(there.slice(0, 2), ['ASKING', 'DONCE.RENEW']);
    const end = there.indexOf('DONCE.DONE');
    assert.equal(there[end - 1], 'ASKING');
    dsync.closeSubscription(client);
});
