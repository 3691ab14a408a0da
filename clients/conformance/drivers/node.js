// The driver of dsync-client for Node.js: `node.js ioredis|redis own|shared`. Its orders are those of the README.

'use strict';

const readline = require('node:readline');

const dsync = require('dsync-client');

const [name, waits] = process.argv.slice(2);
const library = require(name);
const held = new Map();
const asking = new Map();
let client;

async function connect(mode, ports) {
    const nodes = ports.map((port) => ({ host: '127.0.0.1', port }));
    if (name === 'ioredis') {
        const redis =
            mode === 'cluster'
                ? new library.Cluster(nodes)
                : new library.Redis(mode === 'one' ? nodes[0] : { sentinels: nodes, name: 'locks' });
        redis.on('error', () => {});
        await new Promise((resolve) => redis.once('ready', resolve));
        return redis;
    }
    const rootNodes = nodes.map(({ port }) => ({ url: `redis://127.0.0.1:${port}` }));
    const redis =
        mode === 'cluster'
            ? library.createCluster({ rootNodes })
            : mode === 'one'
              ? library.createClient(rootNodes[0])
              : library.createSentinel({ name: 'locks', sentinelRootNodes: nodes });
    redis.on('error', () => {});
    await redis.connect();
    return redis;
}

async function acquire(order) {
    const giveUp = new AbortController();
    asking.set(order.as, giveUp);
    const options = { leaseMs: order.lease, ownConnection: waits === 'own', signal: giveUp.signal };
    if (order.wait !== null) {
        options.waitMs = order.wait;
    }
    if (order.family === 'once') {
        const { run, result } = await dsync.once.begin(client, order.key, { ...options, maxAttempts: order.attempts });
        if (run === undefined) {
            return { is: 'done', text: result };
        }
        held.set(order.as, run);
        return { is: 'held', fence: run.fence, attempt: run.attempt };
    }
    options.minHoldMs = order.min_hold;
    const { limit, lane, lane_limit: laneLimit, index } = order;
    const hold =
        order.family === 'semaphore'
            ? await dsync.semaphore(client, order.key, { ...options, limit, lane, laneLimit, index })
            : await dsync.lock(client, order.key, options);
    held.set(order.as, hold);
    return { is: 'held', fence: hold.fence, index: hold.index };
}

/** Resolves to whether the hold is lost within so many milliseconds. */
function lost(hold, ms) {
    return new Promise((resolve) => {
        const timer = setTimeout(() => resolve(false), ms);
        const told = () => {
            clearTimeout(timer);
            resolve(true);
        };
        hold.signal.addEventListener('abort', told, { once: true });
        if (hold.signal.aborted) {
            told();
        }
    });
}

async function obey(order) {
    switch (order.do) {
        case 'connect':
            client = await connect(order.mode, order.ports);
            return { is: 'connected' };
        case 'acquire':
            return acquire(order);
        case 'give_up':
            asking.get(order.as).abort(new Error('given up'));
            return { is: 'cancelled' };
        case 'until_lost':
            return { is: (await lost(held.get(order.as), order.ms)) ? 'lost' : 'held' };
        case 'look':
            return { is: held.get(order.as).isHeld ? 'held' : 'lost' };
        case 'show': {
            const hold = held.get(order.as);
            return { is: 'shown', text: require('node:util').inspect(hold, { depth: 9, showHidden: true }) + String(hold) };
        }
        case 'release':
            return { is: (await held.get(order.as).release()) ? 'released' : 'lost' };
        case 'done':
            return { is: (await held.get(order.as).done(order.result)) ? 'done' : 'lost' };
        case 'forget':
            held.delete(order.as);
            asking.delete(order.as);
            // What was awaited just now is still on the stack.
            setTimeout(() => global.gc(), 100);
            return { is: 'forgotten' };
        default:
            throw new Error(`no order ${order.do}`);
    }
}

async function answer(order) {
    let said;
    try {
        said = await obey(order);
    } catch (error) {
        const kinds = [
            [dsync.NotAcquired, 'busy'],
            [dsync.WorkFailed, 'failed'],
            [dsync.HoldLost, 'lost'],
        ];
        const [, kind] = kinds.find(([Class]) => error instanceof Class) ?? [];
        const isGivenUp = asking.get(order.as)?.signal.aborted && order.do === 'acquire';
        said = { is: isGivenUp ? 'given up' : (kind ?? 'error'), text: error.message };
    }
    process.stdout.write(`${JSON.stringify({ id: order.id, ...said })}\n`);
}

readline
    .createInterface({ input: process.stdin })
    .on('line', (line) => answer(JSON.parse(line)))
    .on('close', () => process.exit());
