// What every library is used for every day, on one server.

'use strict';

const assert = require('node:assert/strict');
const { setTimeout: sleep } = require('node:timers/promises');

const dsync = require('dsync-client');
const { ALL } = require('./libraries.js');
const { Server, eventually, infoOf, queued } = require('./servers.js');
const { after, before, describe, test } = require('./story.js');

const { HoldLost, NotAcquired, WorkFailed } = dsync;

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

        const info = (family, key) => infoOf(server, family, key);
        const waiting = (count, key, family) => queued(server, count, key, family);

        test('lock is held until released, and errors name its holder', async () => {
            const hold = await dsync.lock(client, 'held', { owner: 'web-1' });
            assert.equal(hold.key, 'held');
            assert.ok(hold.isHeld && hold.leftMs > 20_000 && hold.leftMs <= 28_000, `${hold.leftMs}`);
            assert.equal((await info('DLOCK', 'held'))['first-holders'][0][1], hold.fence);
            await assert.rejects(dsync.lock(client, 'held', { waitMs: 0 }), (error) => {
                assert.ok(error instanceof NotAcquired);
                assert.match(error.message, /^'held' was not acquired, held by web-1 \(fence \d+, \d+ ms left\)$/);
                assert.equal(error.holders[0].fence, hold.fence);
                assert.ok(error.holders[0].leaseLeftMs > 20_000);
                return true;
            });
            assert.equal(await hold.release(), true);
            assert.equal(await hold.release(), false);
            assert.ok(!hold.isHeld && hold.leftMs === 0 && !hold.signal.aborted);
            const next = await dsync.lock(client, 'held', { waitMs: 0 });
            assert.ok(next.fence > hold.fence);
            await next.release();
        });

        test('shared locks are held together', async () => {
            const holds = await Promise.all([1, 2].map(() => dsync.lock(client, 'shared', { shared: true, waitMs: 0 })));
            await assert.rejects(dsync.lock(client, 'shared', { waitMs: 0 }), NotAcquired);
            await Promise.all(holds.map((hold) => hold.release()));
        });

        test('a hundred tasks on one connection get the lock in order', async () => {
            const first = await dsync.lock(client, 'line');
            let inside = 0;
            const work = async (hold) => {
                inside += 1;
                assert.equal(inside, 1);
                await null;
                inside -= 1;
                return hold.fence;
            };
            const tasks = Array.from({ length: 100 }, () => dsync.withLock(client, 'line', work));
            await waiting(100, 'line');
            const others = await server.call('CLIENT', 'LIST', 'TYPE', 'pubsub');
            assert.equal(others.trim().split('\n').length, 1, 'all tasks share one subscription');
            await first.release();
            const fences = await Promise.all(tasks);
            assert.deepEqual(fences, [...fences].sort((a, b) => a - b));
        });

        test('tasks with connections of their own get the lock in order', async () => {
            const options = { ownConnection: true };
            const first = await dsync.lock(client, 'own', options);
            const tasks = [];
            for (let n = 1; n <= 5; n += 1) {
                tasks.push(dsync.withLock(client, 'own', (hold) => hold.fence, options));
                await waiting(n, 'own');
            }
            await first.release();
            const fences = await Promise.all(tasks);
            assert.deepEqual(fences, [...fences].sort((a, b) => a - b));
        });

        test('a wait longer than the lease on a connection of its own ends with a whole lease', async () => {
            const first = await dsync.lock(client, 'long', { leaseMs: 60_000 });
            const pending = dsync.lock(client, 'long', { leaseMs: 4_000, ownConnection: true });
            await waiting(1, 'long');
            const isBlocked = async () => {
                const [waiter] = (await info('DLOCK', 'long'))['first-waiters'];
                return waiter[waiter.indexOf('client') + 1] !== null;
            };
            await eventually(isBlocked, 'it waits with its connection');
            await sleep(4_500);
            await first.release();
            const hold = await pending;
            hold.throwIfLost();
            assert.ok(hold.leftMs > 0);
            assert.equal(await hold.release(), true);
        });

        test('connection of its own is in the database that the client has selected', async () => {
            const moved = await library.open(`${server.url}/3`);
            await moved.select(5);
            const first = await dsync.lock(moved, 'db');
            const pending = dsync.lock(moved, 'db', { ownConnection: true });
            const isBlocked = async () => / flags=b db=5 /.test(await server.call('CLIENT', 'LIST'));
            await eventually(isBlocked, 'it waits there');
            assert.equal(await first.release(), true);
            assert.equal(await (await pending).release(), true);
            library.close(moved);
        });

        test('released hold is not renewed any more', async () => {
            const hold = await dsync.lock(client, 'quiet', { leaseMs: 3_000 });
            await hold.release();
            await sleep(1_500);
            assert.equal(hold.signal.aborted, false);
        });

        test('revoked hold aborts the work', async () => {
            const work = async (hold) => {
                assert.equal(await server.call('DLOCK.REVOKE', 'revoked', hold.fence), 1);
                await sleep(30_000, undefined, { signal: hold.signal });
            };
            await assert.rejects(dsync.withLock(client, 'revoked', work, { leaseMs: 6_000 }), (error) => {
                assert.ok(error.name === 'AbortError' && error.cause instanceof HoldLost, `${error}`);
                return true;
            });
        });

        test('loss that the work has not noticed is told in the end', async () => {
            const work = (hold) => server.call('DLOCK.REVOKE', 'unnoticed', hold.fence);
            await assert.rejects(dsync.withLock(client, 'unnoticed', work), HoldLost);
        });

        test('exception of the work releases the lock', async () => {
            const work = () => {
                throw new Error('no disk');
            };
            await assert.rejects(dsync.withLock(client, 'thrown', work), /^Error: no disk$/);
            await (await dsync.lock(client, 'thrown', { waitMs: 0 })).release();
        });

        test('one signal ends any number of waits', async () => {
            const hold = await dsync.lock(client, 'many');
            const warnings = [];
            const warn = (warning) => warnings.push(warning);
            process.on('warning', warn);
            const caller = new AbortController();
            const { signal } = caller;
            const waits = Array.from({ length: 20 }, () => dsync.lock(client, 'many', { signal }));
            await waiting(20, 'many');
            caller.abort(new Error('the user has left'));
            for (const { reason } of await Promise.allSettled(waits)) {
                assert.match(reason.message, /the user has left/);
            }
            process.off('warning', warn);
            assert.deepEqual(warnings, []);
            await hold.release();
        });

        test('signal that has aborted before sends nothing', async () => {
            const signal = AbortSignal.abort();
            await assert.rejects(dsync.lock(client, 'never', { signal }), { name: 'AbortError' });
            assert.equal(await server.call('EXISTS', 'never'), 0);
        });

        test('errors of the server pass through', async () => {
            await server.call('SET', 'text', 'x');
            await assert.rejects(dsync.lock(client, 'text'), /^[A-Za-z]*Error: WRONGTYPE/);
            await assert.rejects(dsync.semaphore(client, 'nolimit'), /NOLIMIT/);
            await assert.rejects(dsync.semaphore(client, 'toomany', { limit: 2, permits: 3 }), /TOOMANY/);
        });

        test('wrong options are refused before anything is sent', async () => {
            for (const [options, message] of [
                [{ leaseMs: 0 }, /leaseMs must be a whole number of milliseconds from 1 to 2592000000, not 0/],
                [{ leaseMs: 1.5 }, /leaseMs/],
                [{ waitMs: -1 }, /waitMs must be a number of milliseconds, 0 or more, not -1/],
                [{ waitMs: NaN }, /waitMs/],
                [{ placeMs: 10 }, /placeMs/],
                [{ leaseMs: 100, marginMs: 100 }, /marginMs must be less than leaseMs/],
                [{ signal: {} }, /AbortSignal/],
            ]) {
                await assert.rejects(dsync.lock(client, 'wrong', options), message);
            }
            await assert.rejects(dsync.lock(client, ''), TypeError);
            await assert.rejects(dsync.lock({}, 'wrong'), TypeError);
            assert.equal(await server.call('EXISTS', 'wrong'), 0);
        });

        test('semaphore admits its limit, and takes permits', async () => {
            const holds = await Promise.all([1, 2].map(() => dsync.semaphore(client, 'sem', { limit: 3 })));
            await assert.rejects(dsync.semaphore(client, 'sem', { limit: 3, permits: 2, waitMs: 0 }), NotAcquired);
            const pending = dsync.semaphore(client, 'sem', { limit: 3, permits: 2 });
            await waiting(1, 'sem', 'DSEM');
            await holds[0].release();
            await (await pending).release();
            await holds[1].release();
        });

        test('keys are acquired in the order of their names', async () => {
            const b = await dsync.lock(client, 'all:b');
            const pending = dsync.allOf(client, ['all:b', { semaphore: 'all:a', limit: 1 }]);
            await waiting(1, 'all:b');
            await assert.rejects(dsync.semaphore(client, 'all:a', { limit: 1, waitMs: 0 }), NotAcquired);
            await b.release();
            const all = await pending;
            assert.deepEqual(all.holds.map(({ key }) => key), ['all:b', 'all:a']);
            assert.equal(await all.release(), true);
            assert.equal(await all.release(), false);
        });

        test('keys are acquired in the order given where that is asked for', async () => {
            const b = await dsync.lock(client, 'given:b');
            const caller = new AbortController();
            const pending = dsync.allOf(client, ['given:b', 'given:a'], { inGivenOrder: true, signal: caller.signal });
            await waiting(1, 'given:b');
            await (await dsync.lock(client, 'given:a', { waitMs: 0 })).release();
            caller.abort();
            await assert.rejects(pending, { name: 'AbortError' });
            await b.release();
        });

        test('keys that cannot all be had are released', async () => {
            const b = await dsync.lock(client, 'some:b');
            await assert.rejects(dsync.allOf(client, ['some:a', 'some:b'], { waitMs: 200 }), NotAcquired);
            await (await dsync.lock(client, 'some:a', { waitMs: 0 })).release();
            await b.release();
            await assert.rejects(dsync.allOf(client, ['same', 'same']), /the same key twice/);
        });

        test('loss of one of several keys aborts the work under all', async () => {
            const work = async (all) => {
                await server.call('DLOCK.REVOKE', 'both:b', all.holds[1].fence);
                await sleep(30_000, undefined, { signal: all.signal });
            };
            const pending = dsync.withHold(dsync.allOf(client, ['both:a', 'both:b'], { leaseMs: 6_000 }), work);
            await assert.rejects(pending, (error) => error.cause instanceof HoldLost && error.cause.key === 'both:b');
            await (await dsync.lock(client, 'both:a', { waitMs: 0 })).release();
        });

        test('group is waited for until its jobs are done', async () => {
            const group = dsync.group(client, 'batch', { limit: 2 });
            assert.equal(await group.expect(3), 3);
            assert.equal(await group.wait({ waitMs: 0 }), null);
            assert.equal(await group.wait({ waitMs: 100 }), null);
            const finished = group.wait({ waitMs: 30_000 });
            assert.equal(await group.run(async () => 'first'), 'first');
            const member = await group.add();
            assert.equal(await member.done(), true);
            assert.equal(await member.done(), false);
            await assert.rejects(group.run(() => Promise.reject(new Error('no disk'))), /no disk/);
            await group.run(() => {});
            assert.deepEqual(await finished, { done: 3, lapsed: 0 });
            assert.deepEqual(await group.wait({ waitMs: 0 }), { done: 3, lapsed: 0 });
        });

        test('caller that aborts stops waiting for the group', async () => {
            const group = dsync.group(client, 'left');
            await group.expect(1);
            const caller = new AbortController();
            const finished = group.wait({ signal: caller.signal });
            await waiting(1, 'left', 'DWG');
            caller.abort(new Error('the user has left'));
            await assert.rejects(finished, /the user has left/);
            await waiting(0, 'left', 'DWG');
        });

        test('wait for a group that is removed fails', async () => {
            const group = dsync.group(client, 'removed');
            await group.expect(1);
            const finished = assert.rejects(group.wait(), /UNBLOCKED the group was removed/);
            await waiting(1, 'removed', 'DWG');
            await server.call('DEL', 'removed');
            await finished;
        });

        test('member that was lost does not count', async () => {
            const group = dsync.group(client, 'lost-member');
            const work = (member) => server.call('DWG.REVOKE', 'lost-member', member.fence);
            await assert.rejects(group.run(work), HoldLost);
        });

        test('work that fails begins again until its attempts are over, where that is asked for', async () => {
            let runs = 0;
            const work = () => {
                runs += 1;
                throw new Error('no disk');
            };
            const failed = dsync.once(client, 'again', work, { maxAttempts: 3, untilDone: true });
            await assert.rejects(failed, ({ name, reason, cause }) => `${name} ${reason} ${cause.message}` === 'WorkFailed no disk no disk');
            assert.equal(runs, 3);
            await assert.rejects(dsync.once(client, 'again', work, { untilDone: true }), /untilDone needs maxAttempts/);
        });

        test('work is done once, and everybody gets its result', async () => {
            let runs = 0;
            const work = async (run) => {
                runs += 1;
                assert.equal(run.attempt, 1);
                await waiting(4, 'report', 'DONCE');
                return { pages: 7 };
            };
            const results = await Promise.all(Array.from({ length: 5 }, () => dsync.once(client, 'report', work)));
            assert.deepEqual(results, Array(5).fill({ pages: 7 }));
            assert.equal(runs, 1);
            assert.deepEqual(await dsync.once.get(client, 'report'), { result: { pages: 7 }, attempt: 1 });
            assert.equal((await server.call('DONCE.GET', 'report'))[1], '{"pages":7}');
            assert.equal(await dsync.once.get(client, 'no-report'), null);
        });

        test('work without a result is done too, for as long as asked', async () => {
            assert.equal(await dsync.once(client, 'forever', () => {}, { forever: true }), null);
            assert.equal(await dsync.once(client, 'forever', () => assert.fail('it is done')), null);
            assert.equal((await info('DONCE', 'forever'))['kept-until-unix-ms'], null);
            await dsync.once(client, 'hour', () => {}, { keepMs: 3_600_000 });
            const left = (await info('DONCE', 'hour'))['kept-until-unix-ms'] - Date.now();
            assert.ok(left > 3_500_000 && left <= 3_601_000, `${left}`);
        });

        test('work that fails is taken over by who waits', async () => {
            const failing = dsync.once(client, 'handed', async () => {
                await waiting(1, 'handed', 'DONCE');
                throw new Error('no disk');
            });
            await eventually(async () => (await info('DONCE', 'handed')).state === 'running', 'the work has begun');
            const taking = dsync.once(client, 'handed', (run) => `attempt ${run.attempt}`);
            await assert.rejects(failing, /^Error: no disk$/);
            assert.equal(await taking, 'attempt 2');
        });

        test('work that fails too often is given up', async () => {
            const work = () => Promise.reject(new Error('no disk'));
            const attempt = () => dsync.once(client, 'given-up', work, { maxAttempts: 2 });
            await assert.rejects(attempt(), /^Error: no disk$/);
            await assert.rejects(attempt(), /^Error: no disk$/);
            await assert.rejects(attempt(), (error) => {
                assert.ok(error instanceof WorkFailed);
                assert.equal(error.message, "'given-up' failed after 2 attempts: no disk");
                assert.deepEqual([error.reason, error.attempts], ['no disk', 2]);
                return true;
            });
        });

        test('failed work is delayed', async () => {
            const work = () => Promise.reject(new Error('no disk'));
            const options = { retryDelayMs: (attempt) => attempt * 600_000 };
            await assert.rejects(dsync.once(client, 'delayed', work, options), /no disk/);
            const { state, 'delay-left-ms': left } = await info('DONCE', 'delayed');
            assert.equal(state, 'delayed');
            assert.ok(left > 500_000 && left <= 600_000, `${left}`);
            await assert.rejects(dsync.once(client, 'jitter', work, { retryDelayMs: () => 600_000.5 }), /no disk/);
            assert.equal((await info('DONCE', 'jitter')).state, 'delayed');
        });

        test('run ends when the function for its delay fails', async () => {
            const retryDelayMs = () => {
                throw new Error('no table');
            };
            const work = () => Promise.reject(new Error('no disk'));
            await assert.rejects(dsync.once(client, 'no-delay', work, { retryDelayMs }), /no disk/);
            await assert.rejects(dsync.once(client, 'no-delay', work, { retryDelayMs: () => -1 }), /no disk/);
            const { state, 'last-reason': reason } = await info('DONCE', 'no-delay');
            assert.deepEqual([state, reason], ['idle', 'no disk']);
            // Work that is done has no delay.
            assert.equal(await dsync.once(client, 'no-delay', () => 'report', { retryDelayMs }), 'report');
        });

        test('run is ended by its caller', async () => {
            const { run } = await dsync.once.begin(client, 'begun');
            assert.equal(await run.release(), true);
            const { run: second } = await dsync.once.begin(client, 'begun');
            assert.equal(second.attempt, 1, 'a release is no attempt');
            assert.equal(await second.fail('no disk'), true);
            const { run: third } = await dsync.once.begin(client, 'begun');
            assert.equal(third.attempt, 2);
            assert.equal(await third.done(7), true);
            assert.deepEqual(await dsync.once.begin(client, 'begun'), { kind: 'done', result: '7', attempt: 2 });
        });
    });
}
