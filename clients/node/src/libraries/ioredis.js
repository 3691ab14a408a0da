// ioredis (and its fork iovalkey): one server, Sentinel or Cluster.

'use strict';

const slotOf = require('cluster-key-slot');

const { ANSWER_MS, Unanswered } = require('../retry.js');
const { bounded } = require('../timing.js');

/** Options of a connection that is thrown away when it breaks. This package opens another one. */
const NO_RECONNECT = {
    lazyConnect: true,
    retryStrategy: () => null,
    autoResubscribe: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: null,
    // A connection that waits is silent for long.
    commandTimeout: undefined,
    socketTimeout: undefined,
};

/** The classes of errors of its connections. */
const CONNECTION_CLASSES = new Set(['MaxRetriesPerRequestError', 'ClusterAllFailedError', 'AbortError']);
/** Those that are of class Error, without a code. */
const CONNECTION_MESSAGES = new RegExp(
    [
        '^Connection is closed|^Command timed out|^Socket timeout|^connect ETIMEDOUT|^timeout$',
        '^Stream isn\'t writeable|^Node is disconnected|^None of startup nodes|^All sentinels are unreachable',
        '^Cluster isn\'t ready|^Cluster is disconnect|^Too many Cluster redirections',
    ].join('|'),
);

class Ioredis {
    #client;
    connectionClasses = CONNECTION_CLASSES;
    connectionMessages = CONNECTION_MESSAGES;

    constructor(client) {
        this.#client = client;
        this.isCluster = client.isCluster === true;
    }

    /** Whether the caller has closed the client: no request will ever be answered. */
    get isClosed() {
        return this.#client.status === 'end';
    }

    /** Sends a command whose first argument is `key`. */
    async send(key, [name, ...words]) {
        const primary = this.isCluster ? this.#primaryOf(key) : undefined;
        if (primary === undefined) {
            return withoutCommand(this.#client.call(name, ...words));
        }
        // The cluster client sends a command that it does not know to any node, and learns the right one from a redirection.
        try {
            return await withoutCommand(primary.call(name, ...words));
        } catch (error) {
            if (!/^(MOVED|ASK) /.test(error.message)) {
                throw error;
            }
            return withoutCommand(this.#client.call(name, ...words));
        }
    }

    /** Has the client of a cluster learn again who has which slots. */
    lookUpPrimaryOf() {
        return new Promise((resolve) => this.#client.refreshSlotsCache(resolve));
    }

    /**
     * Opens a connection of its own to the server that has the key; Sentinels are asked anew who that is. `onEnd` is called
     * once, when it breaks.
     */
    async open(key, onEnd) {
        const primary = this.isCluster ? this.#primaryOf(key) : this.#client;
        if (primary === undefined) {
            throw new Error('Connection is closed: the primary of the key is not known');
        }
        // The caller may have changed the database with SELECT.
        const db = primary.condition?.select ?? primary.options.db;
        const connection = primary.duplicate({ ...NO_RECONNECT, db });
        connection.on('error', () => {});
        connection.once('end', onEnd);
        try {
            if (!(await bounded(connection.connect().then(() => true), ANSWER_MS))) {
                throw Unanswered.of(this, key, ANSWER_MS);
            }
        } catch (error) {
            connection.disconnect();
            throw error;
        }
        return new Connection(connection, this.isCluster);
    }

    /** Names the server that has the key. Subscriptions to the same server share a connection. */
    async addressOf(key) {
        return this.isCluster ? this.#client.slots[slotOf(key)]?.[0] : 'primary';
    }

    /** Names the server that has the key, for people. */
    serverOf(key) {
        const { host, port, path, sentinels, name } = this.#client.options ?? {};
        if (this.isCluster) {
            return this.#client.slots[slotOf(key)]?.[0] ?? 'the cluster';
        }
        return sentinels ? `the primary of '${name}'` : (path ?? `${host}:${port}`);
    }

    #primaryOf(key) {
        const address = this.#client.slots[slotOf(key)]?.[0];
        const isPrimary = ({ options }) => `${options.host}:${options.port}` === address;
        return this.#client.nodes('master').find((node) => isPrimary(node) && node.status !== 'end');
    }
}

/** The errors of ioredis have the command with them, and it has the token, which is not to be printed. */
async function withoutCommand(reply) {
    try {
        return await reply;
    } catch (error) {
        if (error.command !== undefined) {
            delete error.command;
        }
        throw error;
    }
}

class Connection {
    #connection;
    #isCluster;

    constructor(connection, isCluster) {
        this.#connection = connection;
        this.#isCluster = isCluster;
    }

    send([name, ...words]) {
        return withoutCommand(this.#connection.call(name, ...words));
    }

    async subscribe(channel, onMessage) {
        const event = this.#isCluster ? 'smessage' : 'message';
        if (this.#connection.listenerCount(event) === 0) {
            this.#connection.on(event, (heard) => onMessage(heard));
        }
        await (this.#isCluster ? this.#connection.ssubscribe(channel) : this.#connection.subscribe(channel));
    }

    async unsubscribe(channel) {
        await (this.#isCluster ? this.#connection.sunsubscribe(channel) : this.#connection.unsubscribe(channel));
    }

    unref() {
        this.#connection.stream?.unref?.();
    }

    ref() {
        this.#connection.stream?.ref?.();
    }

    close() {
        this.#connection.disconnect();
    }
}

module.exports = { Ioredis };
