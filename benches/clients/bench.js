// What the Node.js client costs in CPU time, beside the same library's own commands: `bench.js ioredis|redis`, with the port of
// a server that has the module in DSYNC_BENCH_PORT, and the libraries and dsync-client on NODE_PATH. Prints one line of JSON:
// a cycle takes a lock and releases it, of which the raw form is SET NX PX and EVALSHA; a renewal is one of many holds that
// are due, of which the raw form is one PEXPIRE. Both forms take turns, so that what else the machine does meets both.

'use strict';

const { setTimeout: sleep } = require('node:timers/promises');

const dsync = require('dsync-client');

const ROUNDS = 9;
const CYCLES = 1_000;
const HOLDS = 1_000;
const LEASE_MS = 6_000;
const RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

async function connect(name, port) {
    const library = require(name);
    const url = `redis://127.0.0.1:${port}`;
    if (name === 'ioredis') {
        const client = new library.Redis(url);
        return { client, send: (...words) => client.call(...words), close: () => client.disconnect() };
    }
    const client = await library.createClient({ url }).connect();
    return { client, send: (...words) => client.sendCommand(words), close: () => client.destroy() };
}

/** Resolves to the microseconds of CPU time that each of `times` calls of the work costs. */
async function cost(times, work) {
    const before = process.cpuUsage();
    for (let n = 0; n < times; n += 1) {
        await work(n);
    }
    const { user, system } = process.cpuUsage(before);
    return (user + system) / times;
}

/** The CPU time in which `HOLDS` holds are renewed for a lease, for each renewal. Three are due in that time. */
async function renewals(client) {
    const keys = Array.from({ length: HOLDS }, (_, n) => `bench:held:${n}`);
    const holds = await Promise.all(keys.map((key) => dsync.lock(client, key, { leaseMs: LEASE_MS })));
    const us = await cost(1, () => sleep(LEASE_MS));
    holds.forEach((hold) => hold.throwIfLost());
    await Promise.all(holds.map((hold) => hold.release()));
    return us / (3 * HOLDS);
}

function median(values) {
    return [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)];
}

async function main(name, port) {
    const { client, send, close } = await connect(name, port);
    const script = await send('SCRIPT', 'LOAD', RELEASE);
    const raw = async (n) => {
        const token = `${process.pid}:${n}`;
        await send('SET', 'bench:raw', token, 'NX', 'PX', '30000');
        await send('EVALSHA', script, '1', 'bench:raw', token);
    };
    const helper = async () => (await dsync.lock(client, 'bench:helper')).release();
    const renew = () => send('PEXPIRE', 'bench:none', '30000');
    const us = { raw: [], helper: [], command: [], renewal: [] };
    for (let round = -2; round < ROUNDS; round += 1) {
        const found = { raw: await cost(CYCLES, raw), helper: await cost(CYCLES, helper) };
        // The first two rounds are for the compiler.
        Object.entries(found).forEach(([what, value]) => round >= 0 && us[what].push(value));
    }
    for (let round = 0; round < 3; round += 1) {
        us.command.push(await cost(CYCLES, renew));
        us.renewal.push(await renewals(client));
    }
    close();
    const [rawUs, helperUs, commandUs, renewalUs] = Object.values(us).map(median);
    const line = {
        client: name,
        cycle: Number((helperUs / rawUs).toFixed(2)),
        renewal: Number((renewalUs / commandUs).toFixed(2)),
        raw_us: Number(rawUs.toFixed(1)),
        helper_us: Number(helperUs.toFixed(1)),
        renewal_us: Number(renewalUs.toFixed(1)),
        cycles: ROUNDS * CYCLES,
    };
    console.log(JSON.stringify(line));
}

main(process.argv[2], process.env.DSYNC_BENCH_PORT);
