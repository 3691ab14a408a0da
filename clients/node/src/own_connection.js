// A connection that one request has for itself: BLOCK keeps all other requests of a connection waiting.

'use strict';

class OwnConnection {
    #library;
    #opening;

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

    close() {
        this.#opening?.then(
            (connection) => connection.close(),
            () => {},
        );
        this.#opening = undefined;
    }
}

module.exports = { OwnConnection };
