// A leader in Node.js: `leader.js ioredis|redis own|shared keeps|forgets`.

'use strict';

const { setTimeout: sleep } = require('node:timers/promises');
const { inspect } = require('node:util');

const dsync = require('dsync-client');

const STEPS = 150;
const [name, waits, way] = process.argv.slice(2);
const { DSYNC_URL: url, LEADER_KEY: key, LEADER_LEASE: lease } = process.env;
const options = { leaseMs: Number(lease), ownConnection: waits === 'own' };

function tell(what) {
    console.error(String(what), inspect(what, { depth: 9, showHidden: true }));
}

async function lead(fence, isLost) {
    for (let step = 0; step < STEPS; step += 1) {
        const start = process.hrtime.bigint();
        if (step % 10 === 0) {
            global.gc();
        }
        await sleep(2 + Math.random() * 18);
        const end = process.hrtime.bigint();
        if (isLost()) {
            return;
        }
        process.stdout.write(`${fence} ${start} ${end}\n`);
    }
}

/** Resolves to what is kept of a hold: its fence, and a signal that is made of its own, or a listener there. */
async function forgotten(client, isOver) {
    const hold = await dsync.lock(client, key, options);
    tell(hold);
    const { fence, signal } = hold;
    if (Math.random() < 0.5) {
        const derived = AbortSignal.any([signal]);
        return { fence, isLost: () => derived.aborted };
    }
    const told = { isLost: false };
    // A listener keeps the hold until it is removed.
    signal.addEventListener('abort', () => (told.isLost = true), { signal: isOver });
    return { fence, isLost: () => told.isLost };
}

async function standForElection(client) {
    if (way === 'keeps') {
        return dsync.withLock(client, key, (hold) => lead(hold.fence, () => !hold.isHeld), options);
    }
    const term = new AbortController();
    const { fence, isLost } = await forgotten(client, term.signal);
    await lead(fence, isLost);
    term.abort();
}

async function main() {
    const library = require(name);
    const client = name === 'ioredis' ? new library.Redis(url) : library.createClient({ url });
    client.on('error', tell);
    if (name === 'redis') {
        await client.connect();
    }
    setInterval(global.gc, 1000);
    for (;;) {
        await standForElection(client).catch((error) => (tell(error), sleep(200)));
    }
}

main();
