// The libraries that the tests run with, so that each story is told once for all of them. A Node that is too old for a
// library leaves it out.

'use strict';

const NODE_MAJOR = Number(process.versions.node.split('.')[0]);

function ioredis(name) {
    const Redis = require(name);
    return {
        name,
        open: async (url, options = {}) => {
            const client = new Redis(url, { maxRetriesPerRequest: null, ...options });
            client.on('error', () => {});
            await new Promise((resolve) => client.once('ready', resolve));
            return client;
        },
        openCluster: async (ports, user = {}) => {
            const nodes = ports.map((port) => ({ host: '127.0.0.1', port }));
            const client = new Redis.Cluster(nodes, { redisOptions: user });
            client.on('error', () => {});
            await new Promise((resolve) => client.once('ready', resolve));
            return client;
        },
        openSentinel: async (port, service) => {
            const sentinels = [{ host: '127.0.0.1', port }];
            const client = new Redis({ sentinels, name: service, maxRetriesPerRequest: null });
            client.on('error', () => {});
            await new Promise((resolve) => client.once('ready', resolve));
            return client;
        },
        close: (client) => client.disconnect(),
    };
}

function nodeRedis(name) {
    const redis = require(name);
    const opened = async (client) => {
        client.on('error', () => {});
        await client.connect();
        return client;
    };
    return {
        name,
        open: (url, options = {}) => opened(redis.createClient({ url, ...options })),
        openCluster: (ports, user = {}) => {
            const rootNodes = ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
            return opened(redis.createCluster({ rootNodes, defaults: user }));
        },
        openSentinel:
            redis.createSentinel &&
            ((port, service) =>
                opened(redis.createSentinel({ name: service, sentinelRootNodes: [{ host: '127.0.0.1', port }] }))),
        close: (client) => (client.destroy ? client.destroy() : client.disconnect()),
    };
}

const NEWEST = NODE_MAJOR >= 20 ? [ioredis('ioredis6'), nodeRedis('redis6')] : [];
const OLDER = [ioredis('ioredis5'), nodeRedis('redis4'), nodeRedis('redis5')];

/** Every library; and the one of each kind that the stories about faults run with, which take long. */
module.exports = { ALL: [...NEWEST, ...OLDER], ONE_OF_EACH: NEWEST.length > 0 ? NEWEST : OLDER.slice(0, 2) };
