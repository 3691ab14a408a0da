// node-redis (the package `redis`): createClient, createCluster and createSentinel.

'use strict';

const slotOf = require('cluster-key-slot');

const { ANSWER_MS, Unanswered } = require('../retry.js');
const { bounded } = require('../timing.js');

/** The classes of errors of its connections. */
const CONNECTION_CLASSES = new Set([
    ...['ConnectionTimeoutError', 'SocketTimeoutError', 'TimeoutError', 'SocketClosedUnexpectedlyError'],
    ...['ClientOfflineError', 'ClientClosedError', 'DisconnectsClientError'],
    ...['RootNodesUnavailableError', 'MaxCommandRedirectionsError'],
]);

/** The primary of a key is not known now: an error of this package, like those of the library. */
class PrimaryUnknownError extends Error {}
CONNECTION_CLASSES.add(PrimaryUnknownError.name);

/** How long a new connection waits to be told the database. */
const DATABASE_MS = 500;

/** Those that are of class Error, without a code: while Sentinels are away or do not agree. */
const CONNECTION_MESSAGES = /^None of the sentinels are available|^no valid master node/;

class NodeRedis {
    #client;
    connectionClasses = CONNECTION_CLASSES;
    connectionMessages = CONNECTION_MESSAGES;
    #isSentinel;
    /** The client of the primary that a client for Sentinels has sent its last request with. */
    #plainOfSentinel;
    /** The database that the caller has selected, as far as the client has told. */
    #database;
    #isDatabaseAsked = false;

    constructor(client) {
        this.#client = client;
        this.isCluster = typeof client.nodeClient === 'function';
        this.#isSentinel = typeof client.getSentinelNode === 'function';
    }

    /** Whether the caller has closed the client: no request will ever be answered. */
    get isClosed() {
        return this.#client.isOpen === false;
    }

    /** Sends a command whose first argument is `key`. */
    async send(key, words) {
        if (this.isCluster) {
            return this.#client.sendCommand(key, false, words);
        }
        if (!this.#isSentinel) {
            const reply = this.#client.sendCommand(words);
            if (!this.#isDatabaseAsked) {
                // In time: it must be known when the client does not answer.
                this.#isDatabaseAsked = true;
                this.#askDatabase();
            }
            return reply;
        }
        // This is what its sendCommand does. It keeps commands back for many seconds while no Sentinel answers, although its
        // connection to the primary lives; so remember how that is reached.
        return this.#client._execute(false, (plain) => {
            this.#plainOfSentinel = plain;
            return plain.sendCommand(words);
        });
    }

    /**
     * Has the client of a cluster learn again who has which slots. It does so when a request is redirected: so give the slot
     * of a node that is silent to one that answers, which redirects.
     */
    async lookUpPrimaryOf(key) {
        const { slots, masters } = this.#client;
        const silent = slots[slotOf(key)]?.master;
        const answering = masters
            .filter((node) => node !== silent)
            .map(async (node) => {
                const client = await this.#client.nodeClient(node);
                await client.sendCommand(['PING']);
                return node;
            });
        const node = await bounded(Promise.any(answering), ANSWER_MS);
        if (node !== undefined && this.#client.slots === slots) {
            slots[slotOf(key)] = slots.find((shard) => shard?.master === node);
        }
    }

    /** Opens a connection of its own to the server that has the key. `onEnd` is called once, when it breaks. */
    async open(key, onEnd) {
        const connection = await this.#plain(key);
        connection.once('end', onEnd);
        // It does not reconnect (see #plain), so it is gone after an error, without 'end'.
        connection.on('error', onEnd);
        try {
            if (!(await bounded(connection.connect().then(() => true), ANSWER_MS))) {
                throw Unanswered.of(this, key, ANSWER_MS);
            }
        } catch (error) {
            close(connection);
            throw error;
        }
        return new Connection(connection, this.isCluster);
    }

    /** Names the server that has the key. Subscriptions to the same server share a connection. */
    async addressOf(key) {
        return this.isCluster ? this.#client.slots[slotOf(key)]?.master?.address : 'primary';
    }

    /** Names the server that has the key, for people. */
    serverOf(key) {
        if (this.isCluster) {
            return this.#client.slots[slotOf(key)]?.master?.address ?? 'the cluster';
        }
        if (this.#isSentinel && this.#plainOfSentinel === undefined) {
            return 'the primary that Sentinel names';
        }
        const { host = 'localhost', port = 6379, path } = (this.#plainOfSentinel ?? this.#client).options?.socket ?? {};
        return path ?? `${host}:${port}`;
    }

    async #plain(key) {
        let primary = this.#client;
        if (this.isCluster) {
            const node = this.#client.slots[slotOf(key)]?.master;
            if (node === undefined) {
                throw new PrimaryUnknownError(`the primary of '${key}' is not known`);
            }
            primary = await this.#client.nodeClient(node);
        }
        if (this.#isSentinel) {
            primary = this.#plainOfSentinel;
            if (primary === undefined) {
                throw new PrimaryUnknownError(`the primary of '${key}' is not known`);
            }
        }
        const { socket, commandOptions, database } = primary.options ?? {};
        const isPlain = !this.isCluster && !this.#isSentinel;
        return primary.duplicate({
            // The caller may have changed the database with SELECT. The rest of the URL is in the other options.
            url: undefined,
            database: isPlain ? await this.#databaseNow(key) : database,
            // duplicate() replaces these as a whole, and the address is among those of the socket.
            // A connection that waits is silent for long, so no timeout may end it.
            socket: { ...socket, reconnectStrategy: false, socketTimeout: undefined },
            commandOptions: { ...commandOptions, timeout: undefined },
        });
    }

    /** Resolves to the database of the client's connection, if need be to that of its last answer. */
    async #databaseNow(key) {
        await bounded(this.#askDatabase(), DATABASE_MS);
        if (this.#database === undefined) {
            throw Unanswered.of(this, key, DATABASE_MS);
        }
        return this.#database;
    }

    /** Learns the database of the client's connection; that of its options where CLIENT INFO is not allowed. */
    async #askDatabase() {
        const told = (info) => {
            const found = / db=(\d+) /.exec(String(info));
            this.#database = found === null ? (this.#client.options?.database ?? 0) : Number(found[1]);
        };
        const refused = (error) => /^NOPERM\b/.test(error.message) && told('');
        await this.#client.sendCommand(['CLIENT', 'INFO']).then(told, refused);
    }
}

class Connection {
    #connection;
    #isCluster;

    constructor(connection, isCluster) {
        this.#connection = connection;
        this.#isCluster = isCluster;
    }

    send(words) {
        return this.#connection.sendCommand(words);
    }

    subscribe(channel, onMessage) {
        const heard = () => onMessage(channel);
        return this.#isCluster ? this.#connection.sSubscribe(channel, heard) : this.#connection.subscribe(channel, heard);
    }

    unsubscribe(channel) {
        return this.#isCluster ? this.#connection.sUnsubscribe(channel) : this.#connection.unsubscribe(channel);
    }

    unref() {
        this.#connection.unref?.();
    }

    ref() {
        this.#connection.ref?.();
    }

    close() {
        close(this.#connection);
    }
}

function close(connection) {
    if (connection.isOpen) {
        // node-redis 4 has no destroy(). Both ways end at once: nothing is owed an answer.
        Promise.resolve(connection.destroy ? connection.destroy() : connection.disconnect()).catch(() => {});
    }
}

module.exports = { NodeRedis };
