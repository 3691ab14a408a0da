// A hundred tasks share one connection of ioredis, and one pattern subscription, and pass a lock on: what
// StackExchange.Redis and Lettuce do with their one connection.
//
// The server's address is in DSYNC_URL. Exits non-zero if the lock was not passed on in the order of the places, if two
// tasks held it at once, or if a task needed more than three commands.

'use strict';

const assert = require('node:assert/strict');
const { EventEmitter, once } = require('node:events');
const Redis = require('ioredis');

const TASKS = 100;
const KEEP_MS = 30_000;
const KEY = 'shared:ioredis';

async function main() {
    const shared = new Redis(process.env.DSYNC_URL);
    const subscriber = new Redis(process.env.DSYNC_URL);
    const turns = new EventEmitter();
    turns.setMaxListeners(0);
    subscriber.on('pmessage', (pattern, channel) => turns.emit(channel));
    await subscriber.psubscribe('dsync:*');

    let commands = 0;
    let held = false;
    const call = (...words) => {
        commands += 1;
        return shared.call(...words);
    };

    // Resolves when the turn is announced, or in time to keep the place, because messages can be lost.
    const turn = async (channel) => {
        const signal = AbortSignal.timeout(KEEP_MS / 3);
        await once(turns, channel, { signal }).catch(() => {});
    };

    async function work(task) {
        const token = `task-${task}`;
        for (;;) {
            const reply = await call('DLOCK.ACQUIRE', KEY, 'TOKEN', token, 'PX', 30_000, 'QUEUE', KEEP_MS);
            if (reply[0] !== 'WAITING') {
                assert.equal(held, false, `${token} is not alone`);
                held = true;
                await null;
                held = false;
                assert.equal(await call('DLOCK.RELEASE', KEY, token), 1);
                return reply[1];
            }
            await turn(reply[2]);
        }
    }

    // The tasks start in order, and a connection keeps the order of its requests.
    const fences = await Promise.all(Array.from({ length: TASKS }, (_, task) => work(task)));
    assert.deepEqual(fences, [...fences].sort((a, b) => a - b), 'a task was overtaken');
    assert.ok(commands <= 3 * TASKS, `${commands} commands for ${TASKS} acquisitions`);
    console.log(`ioredis: ${TASKS} tasks on one connection, in order, ${commands} commands`);
    shared.disconnect();
    subscriber.disconnect();
}

main().catch((error) => {
    console.error(error);
    process.exit(1);
});
