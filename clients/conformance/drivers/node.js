// The driver of dsync-client for Node.js: `node.js ioredis|redis own|shared`. Its orders are those of the README.

'use strict';

const fs = require('node:fs');
const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');

const dsync = require('dsync-client');

const [name, waits] = process.argv.slice(2);
const library = require(name);
const held = new Map();
const asking = new Map();
/** The signals that are kept of holds which are forgotten. */
const losses = new Map();
let client;

/** How to log in, over TLS if there is an authority to trust. */
function login(user, password, ca) {
    const who = { username: user ?? undefined, password: password ?? undefined };
    const tls = ca == null ? undefined : { ca: fs.readFileSync(ca) };
    return { who, tls };
}

async function connect(order) {
    const { mode, ports, ca } = order;
    const nodes = ports.map((port) => ({ host: '127.0.0.1', port }));
    const { who, tls } = login(order.user, order.password, ca);
    const { who: whoThere } = login(order.sentinel_user, order.sentinel_password, ca);
    if (name === 'ioredis') {
        const sentinels = {
            ...{ sentinels: nodes, name: 'locks' },
            ...{ sentinelUsername: whoThere.username, sentinelPassword: whoThere.password },
            ...{ sentinelTLS: tls, enableTLSForSentinelMode: tls !== undefined },
        };
        const redis =
            mode === 'cluster'
                ? new library.Cluster(nodes)
                : new library.Redis({ ...(mode === 'one' ? nodes[0] : sentinels), ...who, tls });
        // A program need not wait until it is connected: what it asks for waits for that.
        await new Promise((resolve) => redis.once('ready', resolve).once('error', resolve));
        redis.on('error', () => {});
        return redis;
    }
    const socket = tls && { tls: true, ...tls };
    const rootNodes = nodes.map(({ port }) => ({ url: `${tls ? 'rediss' : 'redis'}://127.0.0.1:${port}` }));
    const sentinels = {
        ...{ name: 'locks', sentinelRootNodes: nodes },
        ...{ nodeClientOptions: { ...who, socket }, sentinelClientOptions: { ...whoThere, socket } },
    };
    const redis =
        mode === 'cluster'
            ? library.createCluster({ rootNodes })
            : mode === 'one'
              ? library.createClient({ ...rootNodes[0], ...who, socket })
              : library.createSentinel(sentinels);
    const failed = new Promise((resolve) => redis.on('error', resolve));
    // A client of one server goes on connecting, and tells errors by events only.
    await Promise.race([redis.connect(), ...(mode === 'one' ? [failed] : [])]);
    return redis;
}

/** What the order says; what it does not say, or null, is the default. */
function optionsOf(order, names) {
    const said = Object.entries(names).map(([name, field]) => [name, order[field] ?? undefined]);
    return Object.fromEntries(said);
}

const HOLD = {
    ...{ leaseMs: 'lease', waitMs: 'wait', maxHoldMs: 'max_hold', owner: 'owner', retryForMs: 'retry_for' },
    ...{ replicas: 'replicas', withinMs: 'within', disk: 'disk' },
};
const LOCK = { ...HOLD, minHoldMs: 'min_hold' };
const SEMAPHORE = { ...LOCK, limit: 'limit', lane: 'lane', laneLimit: 'lane_limit', index: 'index' };

async function acquire(order) {
    const giveUp = new AbortController();
    asking.set(order.as, giveUp);
    const own = { ownConnection: waits === 'own', signal: giveUp.signal };
    const { key } = order;
    if (order.family === 'once') {
        const options = { ...own, ...optionsOf(order, HOLD), maxAttempts: order.attempts };
        const begun = await dsync.once.begin(client, key, options);
        if (begun.kind === 'done') {
            return { is: 'done', text: begun.result };
        }
        held.set(order.as, begun.run);
        return { is: 'held', fence: begun.run.fence, attempt: begun.run.attempt };
    }
    const asks = {
        lock: () => dsync.lock(client, key, { ...own, ...optionsOf(order, LOCK) }),
        semaphore: () => dsync.semaphore(client, key, { ...own, ...optionsOf(order, SEMAPHORE) }),
        group: () => dsync.group(client, key).add({ ...own, ...optionsOf(order, HOLD) }),
    };
    const hold = await asks[order.family]();
    held.set(order.as, hold);
    return { is: 'held', fence: hold.fence, index: hold.index };
}

/** Resolves to whether the signal aborts within so many milliseconds. */
function aborts(signal, ms) {
    return new Promise((resolve) => {
        const timer = setTimeout(() => resolve(false), ms);
        const told = () => {
            clearTimeout(timer);
            resolve(true);
        };
        signal.addEventListener('abort', told, { once: true });
        if (signal.aborted) {
            told();
        }
    });
}

async function workOnce({ key, value, attempts, failures = 0, until_done: untilDone }) {
    let runs = 0;
    const work = () => {
        runs += 1;
        if (runs <= failures) {
            throw new Error('no disk');
        }
        return value;
    };
    try {
        const options = { maxAttempts: attempts, untilDone: untilDone ?? undefined };
        return { is: 'value', value: await dsync.once(client, key, work, options), runs };
    } catch (error) {
        return { is: 'failed', text: `${error.name}: ${error.message}`, runs };
    }
}

/**
 * Nothing of this program refers to the hold any more, and the collector has run often enough to have found that. What was
 * awaited last may still be on the stack, so each run is in a turn of its own.
 */
async function forget(as) {
    const hold = new WeakRef(held.get(as));
    held.delete(as);
    asking.delete(as);
    for (let run = 0; run < 20; run += 1) {
        await sleep(10);
        global.gc();
        await sleep(0);
        if (hold.deref() === undefined) {
            break;
        }
    }
    return { is: 'forgotten' };
}

async function obey(order) {
    switch (order.do) {
        case 'connect':
            client = await connect(order);
            return { is: 'connected' };
        case 'acquire':
            return acquire(order);
        case 'give_up':
            asking.get(order.as).abort(new Error('given up'));
            return { is: 'cancelled' };
        case 'until_lost':
            return { is: (await aborts(losses.get(order.as) ?? held.get(order.as).signal, order.ms)) ? 'lost' : 'held' };
        case 'renew':
            return { is: (await held.get(order.as).renew({ leaseMs: order.lease })) ? 'renewed' : 'lost' };
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
        case 'fail':
            await held.get(order.as).fail(order.reason);
            return { is: 'failed' };
        case 'locked':
            return { is: (await dsync[order.family].locked(client, order.key)) ? 'locked' : 'free' };
        case 'holders':
            return { is: 'holders', fences: (await dsync.lock.holders(client, order.key)).map(({ fence }) => fence) };
        case 'once':
            return workOnce(order);
        case 'forget':
            if (order.keep === 'signal' || order.keep === 'callback') {
                return { is: 'cannot', why: 'who has the signal, or listens to it, has the hold' };
            }
            if (order.keep === 'derived') {
                losses.set(order.as, AbortSignal.any([held.get(order.as).signal]));
            }
            return forget(order.as);
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
            [dsync.NotConfirmed, 'not confirmed'],
            [dsync.WorkFailed, 'failed'],
            [dsync.HoldLost, 'lost'],
        ];
        const [, kind] = kinds.find(([Class]) => error instanceof Class) ?? [];
        const isGivenUp = asking.get(order.as)?.signal.aborted && order.do === 'acquire';
        const { message: text, have, wanted } = error;
        said = { is: isGivenUp ? 'given up' : (kind ?? 'error'), text, have, wanted };
    }
    process.stdout.write(`${JSON.stringify({ id: order.id, ...said })}\n`);
}

readline
    .createInterface({ input: process.stdin })
    .on('line', (line) => answer(JSON.parse(line)))
    .on('close', () => process.exit());
