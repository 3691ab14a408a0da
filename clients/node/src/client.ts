// What this package keeps for each client that a caller gives it: how its library is spoken to, how requests are sent, the
// turns it hears of, and the renewals of its holds.

import { Ioredis, type Redis } from './libraries/ioredis.js';
import type { Client, Library } from './libraries/library.js';
import { NodeRedis } from './libraries/node_redis.js';
import { Requests } from './requests.js';
import { Rounds } from './timing.js';
import { Turns } from './turns.js';

interface Known {
    library: Library;
    requests: Requests;
    turns: Turns;
    renewals: Rounds;
}

const known = new WeakMap<object, Known>();

/** Returns what is kept for a client of ioredis or node-redis, always the same for the same client. */
export function clientOf(client: Client): Known {
    let found = known.get(client);
    if (found === undefined) {
        const library = libraryOf(client);
        found = { library, requests: new Requests(library), turns: new Turns(library), renewals: new Rounds() };
        known.set(client, found);
    }
    return found;
}

function libraryOf(client: Client): Library {
    const has = (name: string) => typeof (client as unknown as Record<string, unknown> | undefined)?.[name] === 'function';
    if (has('call') && has('duplicate')) {
        return new Ioredis(client as unknown as Redis);
    }
    // createSentinel of node-redis 5 makes clients without duplicate().
    if (has('sendCommand') && (has('duplicate') || has('getSentinelNode'))) {
        return new NodeRedis(client);
    }
    throw new TypeError(
        'dsync needs a client of ioredis (Redis, Cluster) or node-redis (createClient, createCluster, createSentinel), ' +
            'not a pool',
    );
}

/**
 * Closes the subscription through which requests of the client hear of their turn, and the connection of its renewals and
 * of what is confirmed, if they are open. Who needs them opens them again. Without this call the first closes five seconds
 * after the last request, the second a minute after the last renewal, and neither keeps the process alive until then.
 */
export function closeSubscription(client: Client): void {
    const found = known.get(client);
    found?.turns.close();
    found?.requests.close();
}
