// How the requests of a client are sent: over the caller's client, which all of them share.
//
// A primary can be frozen or cut off while another one is promoted, and the client stays with its connection for as long as
// nothing closes it. So when an answer is overdue the primary is looked up afresh. In a cluster the client itself does that.
// Elsewhere requests take a detour until the client has answered: a connection of this package, for which Sentinels or the
// name server are asked anew. The client is left as it is, because its owner may have commands on the way.

'use strict';

const { OwnConnection } = require('./own_connection.js');
const { ANSWER_MS } = require('./retry.js');

class Requests {
    #library;
    #detour;
    /** How many requests of the caller's client are overdue. Not counted in a cluster. */
    #overdue = 0;
    #lookUp;

    constructor(library) {
        this.#library = library;
        this.#detour = new OwnConnection(library);
    }

    /** Sends a command whose first argument is `key`. Settles as its reply does, also when that comes late. */
    send(key, words) {
        const { isCluster, isClosed } = this.#library;
        if (isCluster) {
            return this.#watched(this.#library.send(key, words), () => this.#lookUpPrimaryOf(key));
        }
        if (this.#overdue > 0 && !isClosed) {
            // The next request opens another connection, to the primary of then.
            return this.#watched(this.#detour.send(key, words), () => this.#detour.close());
        }
        const reply = this.#library.send(key, words);
        const answered = () => {
            this.#overdue -= 1;
            if (this.#overdue === 0) {
                this.#detour.close();
            }
        };
        return this.#watched(reply, () => {
            this.#overdue += 1;
            reply.then(answered, answered);
        });
    }

    #watched(reply, onOverdue) {
        const timer = setTimeout(onOverdue, ANSWER_MS).unref();
        const settled = () => clearTimeout(timer);
        reply.then(settled, settled);
        return reply;
    }

    #lookUpPrimaryOf(key) {
        const over = () => {
            this.#lookUp = undefined;
        };
        if (this.#lookUp === undefined) {
            this.#lookUp = this.#library.lookUpPrimaryOf(key).then(over, over);
        }
    }
}

module.exports = { Requests };
