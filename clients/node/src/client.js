// What this package keeps for each client that a caller gives it: how its library is spoken to, and the turns it hears of.

'use strict';

const { Ioredis } = require('./libraries/ioredis.js');
const { NodeRedis } = require('./libraries/node_redis.js');
const { Turns } = require('./turns.js');

const known = new WeakMap();

/** Returns `{ library, turns }` of a client of ioredis or node-redis, always the same for the same client. */
function clientOf(client) {
    let found = known.get(client);
    if (found === undefined) {
        const library = libraryOf(client);
        found = { library, turns: new Turns(library) };
        known.set(client, found);
    }
    return found;
}

function libraryOf(client) {
    if (typeof client?.duplicate === 'function') {
        if (typeof client.call === 'function') {
            return new Ioredis(client);
        }
        if (typeof client.sendCommand === 'function') {
            return new NodeRedis(client);
        }
    }
    throw new TypeError(
        'dsync needs a client of ioredis (Redis, Cluster) or node-redis (createClient, createCluster, createSentinel), not a pool',
    );
}

/**
 * Closes the subscription through which requests of the client hear of their turn, if it is open. Requests that still wait
 * open it again. Without this call it closes by itself, seconds after the last request has ended.
 */
function closeSubscription(client) {
    known.get(client)?.turns.close();
}

module.exports = { clientOf, closeSubscription };
