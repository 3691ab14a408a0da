// The libraries that the tests run with, so that each story is told once for all of them. A Node that is too old for a
// library leaves it out.

'use strict';

const { inTime, open } = require('./ends.js');

const NODE_MAJOR = Number(process.versions.node.split('.')[0]);

/** Returns the library with clients that are closed at the end of the file at the latest. */
function withEnds({ name, close, ...ways }) {
    const ends = new Map();
    const opened = (way) => async (...words) => {
        const client = await inTime(way(...words), `a client of ${name} is ready`);
        const end = { end: () => close(client) };
        ends.set(client, end);
        open.add(end);
        return client;
    };
    const closed = (client) => {
        open.delete(ends.get(client));
        close(client);
    };
    const bounded = Object.entries(ways).map(([way, make]) => [way, make && opened(make)]);
    return { name, close: closed, ...Object.fromEntries(bounded) };
}

function ioredis(name) {
    const Redis = require(name);
    const ready = async (client) => {
        client.on('error', () => {});
        await new Promise((resolve) => client.once('ready', resolve));
        return client;
    };
    return withEnds({
        name,
        open: (url, options = {}) => ready(new Redis(url, { maxRetriesPerRequest: null, ...options })),
        openCluster: (ports, user = {}) => {
            const nodes = ports.map((port) => ({ host: '127.0.0.1', port }));
            return ready(new Redis.Cluster(nodes, { redisOptions: user }));
        },
        openTls: (port, ca) => ready(new Redis({ host: 'localhost', port, tls: { ca }, maxRetriesPerRequest: null })),
        openSentinel: (ports, service, sentinelPassword) => {
            const sentinels = ports.map((port) => ({ host: '127.0.0.1', port }));
            return ready(new Redis({ sentinels, name: service, sentinelPassword, maxRetriesPerRequest: null }));
        },
        close: (client) => client.disconnect(),
    });
}

function nodeRedis(name) {
    const redis = require(name);
    const ready = async (client) => {
        client.on('error', () => {});
        await client.connect();
        return client;
    };
    return withEnds({
        name,
        open: (url, options = {}) => ready(redis.createClient({ url, ...options })),
        openCluster: (ports, user = {}) => {
            const rootNodes = ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
            return ready(redis.createCluster({ rootNodes, defaults: user }));
        },
        openTls: (port, ca) => ready(redis.createClient({ socket: { host: 'localhost', port, tls: true, ca } })),
        openSentinel:
            redis.createSentinel &&
            ((ports, service, password) => {
                const sentinelRootNodes = ports.map((port) => ({ host: '127.0.0.1', port }));
                const sentinelClientOptions = password === undefined ? {} : { password };
                return ready(redis.createSentinel({ name: service, sentinelRootNodes, sentinelClientOptions }));
            }),
        close: (client) => {
            // Both ways reject or throw when the client is closed already.
            Promise.resolve()
                .then(() => (client.destroy ? client.destroy() : client.disconnect()))
                .catch(() => {});
        },
    });
}

const NEWEST = NODE_MAJOR >= 20 ? [ioredis('ioredis6'), nodeRedis('redis6')] : [];
const OLDER = [ioredis('ioredis5'), nodeRedis('redis4'), nodeRedis('redis5')];

/**
 * Every library; those that the conformance suite does not play; and the one of each kind that the other stories about faults
 * run with, which take long.
 */
module.exports = { ALL: [...NEWEST, ...OLDER], OLDER, ONE_OF_EACH: NEWEST.length > 0 ? NEWEST : OLDER.slice(0, 2) };
