// What a request does about answers that no server gives on demand. A stand-in for an ioredis client plays the server.

'use strict';

const assert = require('node:assert/strict');
const { EventEmitter } = require('node:events');
const { inspect } = require('node:util');

const { ReplyError } = require('ioredis5');
const { MaxRetriesPerRequestError } = require('ioredis5/built/errors');
const nodeRedis = require('redis5');

const dsync = require('dsync-client');
const { eventually } = require('./servers.js');
const { granted, nodeRedisStandIn, standIn, tokenOf } = require('./stand_in.js');
const { test } = require('./story.js');

const PASSING_ANSWERS = [
    'UNBLOCKED force unblock',
    "READONLY You can't write against a read only replica.",
    'MOVED 1234 127.0.0.1:7000',
    'ASK 1234 127.0.0.1:7000',
    'TRYAGAIN Multiple keys request during rehashing of slot',
    'CLUSTERDOWN The cluster is down',
    'MASTERDOWN Link with MASTER is down',
    'LOADING the dataset in memory',
    'NOREPLICAS Not enough good replicas to write.',
    'MISCONF Errors writing to the AOF file',
    'BUSY Redis is busy running a script.',
    "OOM command not allowed when used memory > 'maxmemory'.",
    'ERR max number of clients reached',
];
const LASTING_ANSWERS = [
    'NOPERM no permissions',
    'WRONGPASS invalid username-password pair or user is disabled.',
    'NOAUTH Authentication required.',
    'WRONGTYPE another type',
    'QUEUEFULL too many',
    'ERR syntax',
    'BUSYGROUP another code',
    'UNBLOCKED released: RELEASE with the token of this request has withdrawn it',
    'UNBLOCKED superseded: the same token asked again and has taken over the place',
];
const withCode = (code) => Object.assign(new Error('the message may say anything'), { code });
const CODES = ['ECONNRESET', 'ECONNREFUSED', 'EPIPE', 'ETIMEDOUT', 'EAI_AGAIN', 'ENOTFOUND'];

/** For each library: an error that the server answers, and what breaks with the connection. */
const KINDS = [
    {
        name: 'ioredis',
        client: standIn,
        answered: (message) => new ReplyError(message),
        ofConnection: [
            new Error('Connection is closed.'),
            new Error('Command timed out'),
            new MaxRetriesPerRequestError(20),
            new (Object.getPrototypeOf(MaxRetriesPerRequestError))('Command aborted due to connection close'),
        ],
    },
    {
        name: 'node-redis',
        client: nodeRedisStandIn,
        answered: (message) => new nodeRedis.ErrorReply(message),
        ofConnection: [
            new nodeRedis.SocketClosedUnexpectedlyError(),
            new nodeRedis.ConnectionTimeoutError(),
            new nodeRedis.TimeoutError(),
            new Error('None of the sentinels are available'),
            new nodeRedis.DisconnectsClientError(),
            new nodeRedis.ReconnectStrategyError(withCode('EAI_AGAIN'), withCode('EAI_AGAIN')),
        ],
    },
];

for (const { name, client: clientOf, answered, ofConnection } of KINDS) {
    // A name that was not resolved for a moment ended a wait of node-redis. A full disk, a slow script or a full memory ended
    // waits, and DONE was not repeated: the work was done twice.
    test(`${name}: requests are repeated as they are after errors that pass`, async () => {
        const errors = [...PASSING_ANSWERS.map(answered), ...ofConnection, ...CODES.map(withCode)];
        await Promise.all(
            errors.map(async (error) => {
                const left = { 'DLOCK.ACQUIRE': [error], 'DLOCK.RELEASE': [error] };
                const answer = (...words) => left[words[0]].shift() ?? (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 1);
                const client = clientOf(answer);
                const hold = await dsync.lock(client, 'k');
                assert.equal(hold.fence, 7);
                assert.equal(await hold.release(), true);
                const names = client.commands.map(([command]) => command);
                assert.deepEqual(names, ['DLOCK.ACQUIRE', 'DLOCK.ACQUIRE', 'DLOCK.RELEASE', 'DLOCK.RELEASE']);
                assert.equal(new Set(client.commands.map(tokenOf)).size, 1);
            }),
        );
    });

    test(`${name}: other errors end the request, and its place is given up`, async () => {
        const called = Object.assign(new Error('of no class of the library'), { name: 'TimeoutError' });
        for (const error of [...LASTING_ANSWERS.map(answered), called]) {
            const client = clientOf((command) => (command === 'DLOCK.RELEASE' ? 0 : error));
            await assert.rejects(dsync.lock(client, 'k'), (thrown) => thrown === error);
            assert.deepEqual(client.commands.map(([command]) => command), ['DLOCK.ACQUIRE', 'DLOCK.RELEASE']);
        }
    });
}

// ioredis sends a command again by itself when its connection has closed. The 0 that answers the repetition was taken for
// the first answer, and a lock that was released for a lost one.
test('ends go over a connection that repeats nothing by itself', async () => {
    for (const [name, clientOf, call] of [['ioredis', standIn, 'call'], ['node-redis', nodeRedisStandIn, 'sendCommand']]) {
        const client = clientOf((...words) => (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 0));
        const beside = [];
        const { duplicate } = client;
        let isReached = true;
        client.duplicate = () => ({
            ...duplicate(),
            connect: async () => assert.ok(isReached, 'no connection'),
            [call]: async (...words) => {
                beside.push(words.flat()[0]);
                return 0;
            },
        });
        await assert.rejects(dsync.withLock(client, 'k', () => {}), dsync.HoldLost, name);
        assert.deepEqual(beside, ['DLOCK.RELEASE'], name);
        assert.ok(!client.commands.some(([command]) => command === 'DLOCK.RELEASE'));
        dsync.closeSubscription(client);
        // A server that is busy would not answer the caller's client either. Nothing is carried out, and 0 is the first answer.
        const { duplicate: again } = client;
        let isBusy = true;
        const connect = async () => {
            if (isBusy) {
                isBusy = false;
                throw new ReplyError('BUSY Redis is busy running a script.');
            }
        };
        client.duplicate = () => ({ ...again(), connect });
        await assert.rejects(dsync.withLock(client, 'k', () => {}), dsync.HoldLost, name);
        dsync.closeSubscription(client);
        client.duplicate = again;
        // Where none can be opened it goes over the caller's client, and 0 may be the answer to a repetition.
        isReached = false;
        await dsync.withLock(client, 'k', () => {});
        assert.ok(client.commands.some(([command]) => command === 'DLOCK.RELEASE'));
    }
});

test('0 behind a refusal is the first answer, and behind a lost one it is not', async () => {
    const behind = async (error) => {
        const answers = [error, 0];
        const client = standIn((...words) => (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : answers.shift()));
        return (await dsync.lock(client, 'k')).release();
    };
    assert.equal(await behind(new ReplyError('BUSY Redis is busy running a script.')), false);
    assert.equal(await behind(withCode('ECONNRESET')), true);
});

// Finished work was told failed, and ran again, when its connection broke while the password was rotated.
test('refusal of a greeting is no answer to what ends a hold', async () => {
    for (const { client: clientOf, answered } of KINDS) {
        const greetings = ['WRONGPASS', 'NOAUTH', 'NOPERM no select', 'ERR max number of clients reached'].map(answered);
        for (const greeting of greetings) {
            for (const needs of [{}, { replicas: 1 }]) {
                const client = clientOf((...words) => (words[0] === 'DONCE.BEGIN' ? ['RUN', tokenOf(words), 7, 1] : 1));
                const { duplicate } = client;
                const outcome = await dsync.once(client, 'k', () => {
                    dsync.closeSubscription(client);
                    let refusals = 2;
                    client.duplicate = () => ({
                        ...duplicate(),
                        connect: async () => {
                            if (refusals-- > 0) {
                                throw greeting;
                            }
                        },
                    });
                    return 'done';
                }, needs);
                assert.equal(outcome, 'done');
                const ends = client.commands.map(([name]) => name).filter((name) => /DONE$|FAIL/.test(name));
                assert.deepEqual(ends, ['DONCE.DONE'], `${greeting.message} ${JSON.stringify(needs)}`);
            }
        }
        // So does a server that has not been told a password.
        for (const refusal of ['NOAUTH Authentication required.', 'WRONGPASS'].map(answered)) {
            const answers = [refusal, 1];
            const client = clientOf((...words) => (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : answers.shift()));
            assert.equal(await (await dsync.lock(client, 'k')).release(), true);
        }
    }
});

test('refused password is told to who asks, also while the client is silent', async () => {
    const client = standIn(() => new Promise(() => {}));
    client.duplicate = () => ({ ...client, connect: () => Promise.reject(new ReplyError('WRONGPASS')), on: () => {} });
    const begun = performance.now();
    await assert.rejects(dsync.lock(client, 'k'), /WRONGPASS/);
    assert.ok(performance.now() - begun < 10_000, 'it is told when the next request is refused, and not after half a minute');
});

// It was written right behind a greeting that was refused, and carried out as the server's default user.
test('node-redis is given a request when it has been greeted', async () => {
    const { answered } = KINDS.find(({ name }) => name === 'node-redis');
    const answer = (...words) => (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 1);
    const client = Object.assign(new EventEmitter(), nodeRedisStandIn(answer), { isReady: false });
    client.on('error', () => {});
    const isWaiting = () => client.listenerCount('ready') > 0;
    const refused = assert.rejects(dsync.lock(client, 'k', { waitMs: 0 }), /WRONGPASS/);
    await eventually(isWaiting, 'the request waits for the greeting');
    client.emit('error', answered('WRONGPASS invalid username-password pair'));
    await refused;
    const asked = dsync.lock(client, 'k', { waitMs: 0 });
    await eventually(isWaiting, 'the next one waits, too');
    assert.deepEqual(client.commands, []);
    client.isReady = true;
    client.emit('ready');
    assert.equal((await asked).fence, 7);
    assert.equal(client.listenerCount('ready') + client.listenerCount(EventEmitter.errorMonitor), 0);
});

test('result of work is asked for again after errors that pass', async () => {
    const errors = [new ReplyError('LOADING the dataset'), withCode('ECONNRESET')];
    const client = standIn(() => errors.shift() ?? ['DONE', 'r', 1]);
    assert.deepEqual(await dsync.once.get(client, 'k'), { result: 'r', attempt: 1 });
});

test('try is sent once', async () => {
    const client = standIn((name) => (name === 'DLOCK.RELEASE' ? 0 : new ReplyError('READONLY')));
    await assert.rejects(dsync.lock(client, 'k', { waitMs: 0 }), /READONLY/);
    assert.equal(client.commands[0].includes('QUEUE'), false);
    assert.deepEqual(client.commands.map(([name]) => name), ['DLOCK.ACQUIRE', 'DLOCK.RELEASE']);
});

test('error without a message of its own is told by what it stands for', async () => {
    // A name with two addresses where nothing listens: the error of Node.js has an empty message.
    const refused = ['::1', '127.0.0.1'].map((host) => new Error(`connect ECONNREFUSED ${host}:6379`));
    const client = standIn(() => Object.assign(new AggregateError(refused), { code: 'ECONNREFUSED' }));
    client.options = { host: 'localhost', port: 6379 };
    const message = "'k' was not acquired: localhost:6379: connect ECONNREFUSED ::1:6379, connect ECONNREFUSED 127.0.0.1:6379";
    await assert.rejects(dsync.lock(client, 'k', { waitMs: 0 }), { name: 'NotAcquired', message });
});

// A command that node-redis gave up after its time-out was told as the empty text.
test('time-out of node-redis, which has no message, is told by its name', async () => {
    const client = nodeRedisStandIn(() => new nodeRedis.TimeoutError());
    client.options = { socket: { host: 'localhost', port: 6379 } };
    const message = "'k' was not acquired: localhost:6379: TimeoutError";
    await assert.rejects(dsync.lock(client, 'k', { waitMs: 0 }), { name: 'NotAcquired', message });
});

test('what others wrote is escaped in errors', async () => {
    const holder = ['owner', 'web\u202e\u200b\x1b[31m\n', 'fence', 7, 'lease-left-ms', 5, 'held-ms', 5];
    const client = standIn((name) => ({ 'DLOCK.INFO': ['first-holders', [holder]], 'DLOCK.RELEASE': 0 })[name] ?? null);
    const refused = dsync.lock(client, 'a\x07b', { waitMs: 0 });
    const held = 'held by web\\u{202e}\\u{200b}\\u{1b}[31m\\u{a} (fence 7, 5 ms left)';
    await assert.rejects(refused, { message: `'a\\u{7}b' was not acquired, ${held}` });
});

// The errors of ioredis have the command with them, and whoever prints such an error prints the token.
test('error of the server does not show the token', async () => {
    const refusal = (name, ...args) => Object.assign(new ReplyError('NOPERM'), { command: { name, args } });
    const client = standIn((...words) => (words[0] === 'DLOCK.RELEASE' ? 0 : refusal(...words)));
    const error = await dsync.lock(client, 'k').catch((thrown) => thrown);
    const shown = inspect(error, { depth: 9 });
    assert.ok(/NOPERM/.test(shown) && !shown.includes(tokenOf(client.commands[0])), shown);
});

test('error of a server without the module says so, names key and address, and shows no token', async () => {
    for (const { client: clientOf, answered } of KINDS) {
        const unknown = ([name, ...args]) =>
            answered(`ERR unknown command '${name}', with args beginning with: ${args.join(' ').slice(0, 30)}`);
        const client = clientOf((...words) => unknown(words));
        client.options = { host: 'db', port: 7, socket: { host: 'db', port: 7 } };
        const missing = 'this server has not loaded the dsync module, or an old version of it: it does not know';
        const message = `ERR ${missing} DLOCK.ACQUIRE ('the:key' at db:7)`;
        const error = await dsync.lock(client, 'the:key').catch((thrown) => thrown);
        assert.equal(error.message, message);
        assert.ok(!inspect(error, { depth: 9 }).includes(tokenOf(client.commands[0]).slice(0, 6)), inspect(error));
        const other = clientOf((...words) => answered(`NOLIMIT said of ${tokenOf(words)}`));
        other.options = client.options;
        const refused = dsync.semaphore(other, 's');
        await assert.rejects(refused, { message: "NOLIMIT said of <token>: give `limit` ('s' at db:7)" });
    }
});

test('error that lasts is the cause when the wait runs out', async () => {
    const client = standIn(() => new ReplyError('READONLY'));
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
    const hold = await dsync.lock(client, 'k', { leaseMs: 10_000 });
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
    // Some times, on a slow machine too, and not hundreds of times.
    assert.ok(asked >= 2 && asked < 10, `it asked ${asked} times`);
});

test('release is repeated after errors that pass, and rejects after others', async () => {
    const errors = [new ReplyError('READONLY'), new Error('Connection is closed.')];
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
            return renewals === 1 ? new ReplyError('READONLY') : 1;
        }
        return words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 1;
    });
    const hold = await dsync.lock(client, 'k', { leaseMs: 3_000 });
    // The stand-in client keeps no process alive, and neither does the hold.
    await eventually(() => renewals >= 2, 'it is renewed');
    assert.ok(hold.isHeld);
    await hold.release();
});

const leaseOf = (words) => Number(words[words.indexOf('PX') + 1]);

test('renewal with another lease counts from then on, a shorter one as soon as it is asked for', async () => {
    let isSilent = false;
    const client = standIn((...words) => (isSilent ? new Promise(() => {}) : words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 1));
    const hold = await dsync.lock(client, 'k', { leaseMs: 30_000 });
    assert.equal(await hold.renew({ leaseMs: 90_000 }), true);
    assert.ok(hold.leftMs > 80_000 && hold.leftMs <= 88_000, `${hold.leftMs}`);
    isSilent = true;
    hold.renew({ leaseMs: 10_000 }).catch(() => {});
    assert.ok(hold.leftMs <= 9_000, `${hold.leftMs}`);
    assert.deepEqual(client.commands.map(leaseOf), [30_000, 90_000].concat(client.commands.length > 2 ? [10_000] : []));
    await assert.rejects(hold.renew({ lease: 5 }), /hold.renew has no option 'lease'/);
    await assert.rejects(hold.renew({ leaseMs: 0 }), /leaseMs must be a whole number/);
});

// A hint to the collector of garbage must not end the process.
test('hold is renewed where memory is short', async (context) => {
    const { ArrayBuffer } = globalThis;
    let refused = 0;
    globalThis.ArrayBuffer = class {
        constructor() {
            refused += 1;
            throw new RangeError('Array buffer allocation failed');
        }
    };
    context.after(() => (globalThis.ArrayBuffer = ArrayBuffer));
    const client = standIn((...words) => (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 1));
    const hold = await dsync.lock(client, 'k', { leaseMs: 600 });
    await eventually(() => refused > 0, 'a hint that is refused');
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    assert.ok(hold.isHeld);
    await hold.release();
});

// The server goes by the last that arrives: it had the hold for 3 s, where the caller counted on 90.
test('renewal without an answer, which may arrive later, bounds a longer one by hand', async () => {
    let renewals = 0;
    const client = standIn((...words) => {
        if (words[0] !== 'DLOCK.RENEW') {
            return words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 1;
        }
        renewals += 1;
        return renewals === 1 ? new Promise(() => {}) : 1;
    });
    const hold = await dsync.lock(client, 'k', { leaseMs: 3_000 });
    await eventually(() => renewals === 1, 'a renewal of the background');
    assert.equal(await hold.renew({ leaseMs: 90_000 }), true);
    assert.ok(hold.leftMs < 3_000, `${hold.leftMs}`);
    await eventually(() => hold.leftMs > 80_000, 'the background asks for the new lease at once');
});

// Their moments may lie within one step of the wall clock.
test('renewal directly behind the grant counts', async () => {
    for (let round = 0; round < 200; round++) {
        const client = standIn((...words) => (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 1));
        const hold = await dsync.lock(client, `k${round}`, { leaseMs: 30_000 });
        await hold.renew({ leaseMs: 90_000 });
        assert.ok(hold.leftMs > 80_000, `round ${round}: ${hold.leftMs}`);
        await hold.renew({ leaseMs: 20_000 });
        assert.ok(hold.leftMs < 20_000, `round ${round}: ${hold.leftMs}`);
        await hold.release();
    }
});

test('renewals ask for no more than what is left of maxHoldMs, and the loss says so', async () => {
    const client = standIn((...words) => (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 1));
    const hold = await dsync.lock(client, 'k', { leaseMs: 900, maxHoldMs: 1_500 });
    const began = performance.now();
    await eventually(() => hold.signal.aborted, 'the hold is lost');
    assert.match(hold.signal.reason.message, /it was held for as long as maxHoldMs allows, 1500 ms/);
    const leases = client.commands.map(leaseOf);
    assert.equal(leases[0], 900);
    assert.ok(leases.at(-1) < 900 && leases.every((lease) => lease <= 900), `${leases}`);
    assert.ok(performance.now() - began >= 600);
});

for (const { name, client: clientOf, answered } of KINDS) {
    // SET over the key ended the hold, RENEW was answered WRONGTYPE, and the work was told only when the lease had run out.
    test(`${name}: hold whose key has another value is lost at the renewal`, async () => {
        const wrong = answered('WRONGTYPE Operation against a key holding the wrong kind of value');
        const client = clientOf((...words) => (words[0] === 'DLOCK.ACQUIRE' ? granted(words) : wrong));
        const hold = await dsync.lock(client, 'k', { leaseMs: 3_000 });
        await eventually(() => hold.signal.aborted, 'the hold is lost');
        assert.match(hold.signal.reason.message, /the server says that it has ended/);
        assert.equal(await hold.release(), false);
        await assert.rejects(dsync.withLock(client, 'k', () => {}), dsync.HoldLost);
    });
}

/** The wall clock goes on by so much, as after a suspension: the monotonic clock of Node.js stands still meanwhile. */
function suspend(t, forMs) {
    const now = Date.now;
    t.mock.method(Date, 'now', () => now() + forMs);
}

for (const { name, client: clientOf } of KINDS) {
    const answer = (renewals) => (...words) => {
        renewals.push(...(words[0] === 'DLOCK.RENEW' ? [words] : []));
        return words[0] === 'DLOCK.ACQUIRE' ? granted(words) : 1;
    };

    // A laptop was closed for longer than the lease. When it was opened the hold said for seconds that it was held.
    test(`${name}: hold is lost when the machine was suspended for longer than its lease`, async (t) => {
        const hold = await dsync.lock(clientOf(answer([])), 'k', { leaseMs: 60_000 });
        suspend(t, 61_000);
        assert.ok(!hold.isHeld && hold.leftMs === 0);
        const told = eventually(() => hold.signal.aborted, 'the loss is told', 10_000);
        await told;
        assert.throws(() => hold.throwIfLost(), dsync.HoldLost);
    });

    test(`${name}: hold is renewed at once when the machine was suspended for less than its lease`, async (t) => {
        const renewals = [];
        const hold = await dsync.lock(clientOf(answer(renewals)), 'k', { leaseMs: 60_000 });
        suspend(t, 30_000);
        assert.ok(hold.leftMs < 30_000);
        await eventually(() => renewals.length > 0, 'it is renewed', 10_000);
        await eventually(() => hold.leftMs > 50_000, 'it has a new lease', 10_000);
        await hold.release();
    });
}

// `lease: 5` for leaseMs was left out in silence, and the hold lasted for thirty seconds.
test('unknown option is an error that names it, and nothing is sent', async () => {
    const client = standIn(() => assert.fail('nothing is to be sent'));
    const work = () => assert.fail('nothing is granted');
    const wrong = { leaseMs: 5_000, lease: 5 };
    for (const call of [
        () => dsync.lock(client, 'k', wrong),
        () => dsync.withLock(client, 'k', work, wrong),
        () => dsync.semaphore(client, 'k', wrong),
        async () => dsync.group(client, 'k', wrong),
        () => dsync.group(client, 'k').add(wrong),
        () => dsync.group(client, 'k').run(work, wrong),
        () => dsync.group(client, 'k').wait({ waitMs: 1, lease: 5 }),
        () => dsync.once(client, 'k', work, wrong),
        () => dsync.once.begin(client, 'k', wrong),
        () => dsync.allOf(client, ['k'], wrong),
    ]) {
        await assert.rejects(call(), { name: 'TypeError', message: /has no option 'lease', only / });
    }
});

test('errors keep their names in a bundle, which renames classes', () => {
    class t extends dsync.NotAcquired {}
    class u extends dsync.HoldLost {}
    assert.deepEqual([new t('k', [], '', 'host').name, new u('k', 7, 'why').name], ['NotAcquired', 'HoldLost']);
});
