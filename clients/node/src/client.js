// What this package keeps for each client that a caller gives it: how its library is spoken to, how requests are sent, and
// the turns it hears of.

'use strict';

const { Ioredis } = require('./libraries/ioredis.js');
const { NodeRedis } = require('./libraries/node_redis.js');
const { Requests } = require('./requests.js');
const { Turns } = require('./turns.js');

const known = new WeakMap();

/** Returns `{ library, requests, turns }` of a client of ioredis or node-redis, always the same for the same client. */
function clientOf(client) {
    let found = known.get(client);
    if (found === undefined) {
        const library = libraryOf(client);
        found = { library, requests: new Requests(library), turns: new Turns(library) };
        known.set(client, found);
    }
    return found;
}

function libraryOf(client) {
    const has = (name) => typeof client?.[name] === 'function';
    if (has('call') && has('duplicate')) {
        return new Ioredis(client);
    }
    // createSentinel of node-redis 5 makes clients without duplicate().
    if (has('sendCommand') && (has('duplicate') || has('getSentinelNode'))) {
        return new NodeRedis(client);
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
