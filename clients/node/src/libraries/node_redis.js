// node-redis (the package `redis`): createClient, createCluster and createSentinel.

'use strict';

const slotOf = require('cluster-key-slot');

/** The classes of errors of its connections. */
const CONNECTION_CLASSES = new Set([
    ...['ConnectionTimeoutError', 'SocketTimeoutError', 'TimeoutError', 'SocketClosedUnexpectedlyError'],
    ...['ClientOfflineError', 'ClientClosedError', 'DisconnectsClientError'],
    ...['RootNodesUnavailableError', 'MaxCommandRedirectionsError'],
]);

/** The primary of a key is not known now: an error of this package, like those of the library. */
class PrimaryUnknownError extends Error {}
CONNECTION_CLASSES.add(PrimaryUnknownError.name);

class NodeRedis {
    #client;
    connectionClasses = CONNECTION_CLASSES;
    #isSentinel;

    constructor(client) {
        this.#client = client;
        this.isCluster = typeof client.nodeClient === 'function';
        this.#isSentinel = typeof client.getSentinelNode === 'function';
        /** Whether a connection moves on to the next primary by itself. */
        this.followsPrimary = this.#isSentinel;
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
        return this.#isSentinel ? this.#client.sendCommand(false, words) : this.#client.sendCommand(words);
    }

    /** Opens a connection of its own to the server that has the key. `onEnd` is called once, when it breaks. */
    async open(key, onEnd) {
        const connection = this.#isSentinel ? this.#client.duplicate() : await this.#plain(key);
        connection.once('end', onEnd);
        // A plain connection does not reconnect (see #plain), so it is gone after an error, without 'end'.
        connection.on('error', this.#isSentinel ? () => {} : onEnd);
        try {
            await connection.connect();
        } catch (error) {
            close(connection);
            throw error;
        }
        return new Connection(connection, this.#isSentinel);
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
        if (this.#isSentinel) {
            return 'the primary that Sentinel names';
        }
        const { host = 'localhost', port = 6379, path } = this.#client.options?.socket ?? {};
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
        const { socket, commandOptions, database } = primary.options ?? {};
        return primary.duplicate({
            // The caller may have changed the database with SELECT. The rest of the URL is in the other options.
            url: undefined,
            database: this.isCluster ? database : await selectedDatabase(primary, database),
            // duplicate() replaces these as a whole, and the address is among those of the socket.
            // A connection that waits is silent for long, so no timeout may end it.
            socket: { ...socket, reconnectStrategy: false, socketTimeout: undefined },
            commandOptions: { ...commandOptions, timeout: undefined },
        });
    }
}

/** Resolves to the database of a client's connection; to the one of its options where CLIENT INFO is not allowed. */
async function selectedDatabase(client, ofOptions) {
    const info = await client.sendCommand(['CLIENT', 'INFO']).catch((error) => {
        if (/^NOPERM\b/.test(error.message)) {
            return '';
        }
        throw error;
    });
    const found = / db=(\d+) /.exec(String(info));
    return found === null ? ofOptions : Number(found[1]);
}

class Connection {
    #connection;
    #isSentinel;

    constructor(connection, isSentinel) {
        this.#connection = connection;
        this.#isSentinel = isSentinel;
    }

    send(words) {
        return this.#isSentinel ? this.#connection.sendCommand(false, words) : this.#connection.sendCommand(words);
    }

    subscribePattern(pattern, onMessage) {
        return this.#connection.pSubscribe(pattern, (_, channel) => onMessage(channel));
    }

    subscribeSharded(channel, onMessage) {
        return this.#connection.sSubscribe(channel, (_, heard) => onMessage(heard));
    }

    unsubscribeSharded(channel) {
        return this.#connection.sUnsubscribe(channel);
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
