// How requests that wait hear of their turn: on the channel of their place. All requests of a client share one connection,
// or, in a cluster, one for each node that has a key somebody waits for.
//
// A message is a hint and can be lost: the request asks again when one comes, when the subscription breaks, and every now
// and then. So a connection that breaks is not mended; the next request that asks opens another one.

'use strict';

const { ANSWER_MS } = require('./retry.js');
const { bounded } = require('./timing.js');

/** The connection is kept for the next request that waits, without keeping the process alive. */
const IDLE_MS = 5_000;

/** What one waiting request hears on the channel of its place. */
class Listener {
    #isWoken = false;
    #wake = () => {};
    #leave = () => {};
    #isClosed = false;

    constructor(channel) {
        this.channel = channel;
        /** Whether messages arrive now. */
        this.isLive = false;
        /** Whether the user may not subscribe to the channel. */
        this.isRefused = false;
    }

    wake() {
        this.#isWoken = true;
        this.#wake();
    }

    /** Forgets what was heard so far. Call it before asking: the answer is newer. */
    reset() {
        this.#isWoken = false;
    }

    /** Resolves when something was heard since `reset`, after so many milliseconds, or when the signal aborts. */
    async next(ms, signal) {
        if (!this.#isWoken) {
            await bounded(new Promise((resolve) => (this.#wake = resolve)), ms, signal);
        }
    }

    /** `leave` is called when the request hears no more. */
    joined(leave) {
        this.#leave = leave;
        if (this.#isClosed) {
            leave();
        }
    }

    close() {
        this.#isClosed = true;
        this.isLive = false;
        this.#leave();
    }
}

/** A connection that hears messages, and its listeners. */
class Subscriber {
    #listeners = new Map();
    #idle;
    #onEnd;

    constructor(library, key, onEnd) {
        this.#onEnd = onEnd;
        this.opened = this.#open(library, key);
        // Each listener awaits it too; this one keeps a failure from being an unhandled rejection.
        this.opened.catch(() => this.end());
    }

    async #open(library, key) {
        this.connection = await library.open(key, () => this.end());
        return this.connection;
    }

    async join(listener) {
        clearTimeout(this.#idle);
        this.connection?.ref();
        this.#listeners.set(listener.channel, listener);
        listener.joined(() => this.#leave(listener));
        const connection = await this.opened;
        if (this.#listeners.get(listener.channel) !== listener) {
            return;
        }
        const subscribing = connection.subscribe(listener.channel, (channel) => this.#hear(channel)).then(() => true);
        if (!(await bounded(subscribing, ANSWER_MS))) {
            // The server is frozen or cut off. Another one may be the primary by now.
            this.end();
        } else if (this.#listeners.get(listener.channel) === listener) {
            listener.isLive = true;
        }
    }

    #leave(listener) {
        if (this.#listeners.get(listener.channel) !== listener) {
            return;
        }
        this.#listeners.delete(listener.channel);
        this.connection?.unsubscribe(listener.channel).catch(() => {});
        if (this.#listeners.size === 0) {
            this.connection?.unref();
            this.#idle = setTimeout(() => this.end(), IDLE_MS);
            this.#idle.unref();
        }
    }

    #hear(channel) {
        this.#listeners.get(String(channel))?.wake();
    }

    /** Ends the connection, and wakes who still listens. */
    end() {
        clearTimeout(this.#idle);
        this.#onEnd(this);
        this.opened.then(
            (connection) => connection.close(),
            () => {},
        );
        for (const listener of this.#listeners.values()) {
            listener.isLive = false;
            listener.wake();
        }
        this.#listeners.clear();
    }
}

/** The subscriptions of one client. */
class Turns {
    #library;
    #subscribers = new Map();
    #isWarned = false;

    constructor(library) {
        this.#library = library;
    }

    /** Returns a listener. Its `subscribed` resolves to whether messages arrive from then on. */
    listen(key, channel) {
        const listener = new Listener(channel);
        listener.subscribed = this.#subscribe(listener, key).then(
            () => listener.isLive,
            (error) => this.#failed(error, listener),
        );
        return listener;
    }

    async #subscribe(listener, key) {
        const address = await this.#library.addressOf(key);
        let subscriber = this.#subscribers.get(address);
        if (subscriber === undefined) {
            const forget = (ended) => {
                if (this.#subscribers.get(address) === ended) {
                    this.#subscribers.delete(address);
                }
            };
            subscriber = new Subscriber(this.#library, key, forget);
            this.#subscribers.set(address, subscriber);
        }
        await subscriber.join(listener);
    }

    #failed(error, listener) {
        listener.isRefused = /^NOPERM\b/.test(error.message);
        if (listener.isRefused && !this.#isWarned) {
            this.#isWarned = true;
            process.emitWarning(
                'dsync asks for its turn once a second, because its user may not subscribe ' +
                    '(allow +subscribe +unsubscribe, ' +
                    `in a cluster +ssubscribe +sunsubscribe, and for keys jobs:* &dsync:{jobs:*): ${error.message}`,
            );
        }
        return false;
    }

    /** Ends all connections. Requests that still wait open them again, perhaps to another server. */
    close() {
        for (const subscriber of [...this.#subscribers.values()]) {
            subscriber.end();
        }
    }
}

module.exports = { Turns };
