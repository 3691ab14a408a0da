// How requests that wait hear of their turn: on the channel of their place. All requests of a client share one connection,
// or, in a cluster, one for each node that has a key somebody waits for.
//
// A message is a hint and can be lost: the request asks again when one comes, when the subscription breaks, and every now
// and then. So a connection that breaks is not mended; the next request that asks opens another one.

import type { Connection, Library } from './libraries/library.js';
import { ANSWER_WITHIN_MS } from './times.js';
import { bounded } from './timing.js';

/** The connection is kept for the next request that waits, without keeping the process alive. */
const IDLE_MS = 5_000;

/** What one waiting request hears on the channel of its place. */
export class Listener {
    /** Whether messages arrive now. */
    isLive = false;
    /** Whether the user may not subscribe to the channel. */
    isRefused = false;
    /** Resolves to whether messages arrive from then on. */
    subscribed: Promise<boolean> = Promise.resolve(false);
    #isWoken = false;
    #wake = () => {};

    constructor(readonly channel: string, private readonly leave: (listener: Listener) => void) {}

    wake(): void {
        this.#isWoken = true;
        this.#wake();
    }

    /** Forgets what was heard so far. Call it before asking: the answer is newer. */
    reset(): void {
        this.#isWoken = false;
    }

    /** Resolves when something was heard since `reset`, after so many milliseconds, or when the signal aborts. */
    async next(ms: number, signal?: AbortSignal): Promise<void> {
        if (!this.#isWoken) {
            await bounded(new Promise<void>((resolve) => (this.#wake = resolve)), ms, signal);
        }
    }

    /** The request hears no more. */
    close(): void {
        this.isLive = false;
        this.leave(this);
    }
}

/** A connection that hears messages, and its listeners. */
class Subscriber {
    readonly #listeners = new Map<string, Listener>();
    readonly #opened: Promise<Connection>;
    #connection: Connection | undefined;
    #idle: NodeJS.Timeout | undefined;

    constructor(library: Library, key: string, private readonly onEnd: (ended: Subscriber) => void) {
        this.#opened = this.#open(library, key);
        // Each listener awaits it too; this one keeps a failure from being an unhandled rejection.
        this.#opened.catch(() => this.end());
    }

    async #open(library: Library, key: string): Promise<Connection> {
        this.#connection = await library.open(key, () => this.end());
        return this.#connection;
    }

    listen(channel: string): Listener {
        clearTimeout(this.#idle);
        this.#connection?.ref();
        const listener = new Listener(channel, () => this.#leave(listener));
        this.#listeners.set(channel, listener);
        listener.subscribed = this.#subscribe(listener);
        return listener;
    }

    async #subscribe(listener: Listener): Promise<boolean> {
        const connection = await this.#opened;
        const isHeard = () => this.#listeners.get(listener.channel) === listener;
        if (!isHeard()) {
            return false;
        }
        const hear = (channel: string) => this.#listeners.get(String(channel))?.wake();
        if (!(await bounded(connection.subscribe(listener.channel, hear).then(() => true), ANSWER_WITHIN_MS))) {
            // The server is frozen or cut off. Another one may be the primary by now.
            this.end();
        }
        listener.isLive = isHeard();
        return listener.isLive;
    }

    #leave(listener: Listener): void {
        if (this.#listeners.get(listener.channel) !== listener) {
            return;
        }
        this.#listeners.delete(listener.channel);
        this.#connection?.unsubscribe(listener.channel).catch(() => {});
        if (this.#listeners.size === 0) {
            this.#connection?.unref();
            this.#idle = setTimeout(() => this.end(), IDLE_MS).unref();
        }
    }

    /** Ends the connection, and wakes who still listens. */
    end(): void {
        clearTimeout(this.#idle);
        this.onEnd(this);
        this.#opened.then((connection) => connection.close()).catch(() => {});
        for (const listener of this.#listeners.values()) {
            listener.isLive = false;
            listener.wake();
        }
        this.#listeners.clear();
    }
}

/** The subscriptions of one client. */
export class Turns {
    readonly #subscribers = new Map<string | undefined, Subscriber>();
    #isWarned = false;

    constructor(private readonly library: Library) {}

    listen(key: string, channel: string): Listener {
        const address = this.library.addressOf(key);
        let subscriber = this.#subscribers.get(address);
        if (subscriber === undefined) {
            subscriber = new Subscriber(this.library, key, (ended) => {
                if (this.#subscribers.get(address) === ended) {
                    this.#subscribers.delete(address);
                }
            });
            this.#subscribers.set(address, subscriber);
        }
        const listener = subscriber.listen(channel);
        listener.subscribed = listener.subscribed.catch((error: unknown) => this.#failed(error as Error, listener));
        return listener;
    }

    #failed(error: Error, listener: Listener): false {
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
    close(): void {
        for (const subscriber of [...this.#subscribers.values()]) {
            subscriber.end();
        }
    }
}
