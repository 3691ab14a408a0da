// A connection of this package beside the caller's client: for a request that blocks, which would keep all others of its
// connection waiting, and for the time in which the caller's client does not answer.
//
// What was sent may arrive late, when its caller has given up and has released the token elsewhere. So a connection that
// owes an answer is not closed under it: the answer tells when the token can be released for good.

'use strict';

/** A connection that is used no more waits so long for the answers that it still owes. */
const LINGER_MS = 60_000;

class OwnConnection {
    #library;
    #opening;
    /** How many answers each connection owes. */
    #owed = new WeakMap();

    constructor(library) {
        this.#library = library;
    }

    /** Resolves to the connection, which is opened if there is none, or if the last one has broken. */
    opened(key) {
        if (this.#opening === undefined) {
            const forget = () => {
                if (this.#opening === opening) {
                    this.#opening = undefined;
                }
            };
            const opening = this.#library.open(key, forget);
            opening.catch(forget);
            this.#opening = opening;
        }
        return this.#opening;
    }

    /** Sends a command whose first argument is `key`. Settles as its reply does. */
    async send(key, words) {
        const connection = await this.opened(key);
        const owed = this.#owed.get(connection) ?? new Set();
        this.#owed.set(connection, owed);
        const reply = connection.send(words);
        owed.add(reply);
        const settled = () => owed.delete(reply);
        reply.then(settled, settled);
        return reply;
    }

    /** The connection is used no more. It closes when it owes no answer. */
    close() {
        const opening = this.#opening;
        this.#opening = undefined;
        opening?.then(
            (connection) => this.#leave(connection),
            () => {},
        );
    }

    #leave(connection) {
        const owed = this.#owed.get(connection);
        if (owed === undefined || owed.size === 0) {
            connection.close();
            return;
        }
        connection.unref();
        const timer = setTimeout(() => connection.close(), LINGER_MS).unref();
        Promise.allSettled(owed).then(() => {
            clearTimeout(timer);
            connection.close();
        });
    }
}

module.exports = { OwnConnection };
