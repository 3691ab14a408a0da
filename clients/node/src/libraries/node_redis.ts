// node-redis (the package `redis`): createClient, createCluster and createSentinel.

import { errorMonitor } from 'node:events';

import slotOf from 'cluster-key-slot';

import { isAnswer, isUntrusted, masked, PrimaryUnknown, Unanswered } from '../answers.js';
import type { Reply } from '../replies.js';
import { connected } from '../retry.js';
import { ANSWER_WITHIN_MS, LOOK_UP_WITHIN_MS } from '../times.js';
import { bounded } from '../timing.js';
import type { Address, Connection, Library, Words } from './library.js';
import { close, type Plain } from './plain.js';
import { Refusals, type Sentinel } from './refusals.js';

interface Node {
    address: string;
}

/** What is used of a client of a cluster. */
interface Cluster {
    readonly masters: Node[];
    readonly slots: ({ master: Node } | undefined)[];
    nodeClient(node: Node): Promise<Plain> | Plain;
    sendCommand(key: string, isReadonly: boolean, words: Words): Promise<Reply>;
}

/** The classes of errors of its connections. */
const CONNECTION_CLASSES = new Set([
    ...['ConnectionTimeoutError', 'SocketTimeoutError', 'TimeoutError', 'SocketClosedUnexpectedlyError'],
    ...['ClientOfflineError', 'ClientClosedError', 'DisconnectsClientError'],
    ...['RootNodesUnavailableError', 'MaxCommandRedirectionsError'],
]);

/** Those that are of class Error, without a code: while Sentinels are away or do not agree. */
const CONNECTION_MESSAGES = /^None of the sentinels are available|^no valid master node/;

export class NodeRedis implements Library {
    readonly connectionClasses = CONNECTION_CLASSES;
    readonly connectionMessages = CONNECTION_MESSAGES;
    readonly #plain: Plain;
    readonly #cluster: Cluster | undefined;
    readonly #sentinel: Sentinel | undefined;
    /** The client of the primary that a client for Sentinels has sent its last request with. */
    #plainOfSentinel: Plain | undefined;
    readonly #refusals: Refusals | undefined;
    #database: Promise<number> | undefined;

    constructor(client: object) {
        this.#plain = client as Plain;
        this.#cluster = 'nodeClient' in client ? (client as Cluster) : undefined;
        this.#sentinel = 'getSentinelNode' in client ? (client as Sentinel) : undefined;
        this.#refusals = this.#sentinel && new Refusals(this.#sentinel);
    }

    get isCluster(): boolean {
        return this.#cluster !== undefined;
    }

    get isClosed(): boolean {
        return this.#plain.isOpen === false;
    }

    send(key: string, words: Words): Promise<Reply> {
        if (this.#cluster !== undefined) {
            return masked(words, this.#cluster.sendCommand(key, false, words));
        }
        if (this.#sentinel !== undefined) {
            return this.#withPrimary(this.#sentinel, key, (plain) => sendGreeted(plain, words));
        }
        const reply = sendGreeted(this.#plain, words);
        // In time: it must be known when the client does not answer.
        void this.#databaseOf(this.#plain);
        return reply;
    }

    /**
     * The client of a cluster learns who has which slots when a request is redirected: so give the slot of a node that is
     * silent to one that answers, which redirects.
     */
    async lookUpPrimaryOf(key: string): Promise<void> {
        const cluster = this.#cluster;
        if (cluster === undefined) {
            return;
        }
        const { slots, masters } = cluster;
        const silent = slots[slotOf(key)]?.master;
        const others = masters.filter((node) => node !== silent);
        const answering = others.map(async (node) => {
            await (await cluster.nodeClient(node)).sendCommand(['PING']);
            return node;
        });
        const node = await bounded(Promise.any(answering), ANSWER_WITHIN_MS);
        if (node !== undefined && cluster.slots === slots) {
            slots[slotOf(key)] = slots.find((shard) => shard?.master === node);
        }
    }

    async open(key: string, onEnd: () => void, at?: Address): Promise<Connection> {
        const connection = await this.#duplicateOf(key, at);
        connection.once('end', onEnd);
        // It does not reconnect, so it is gone after an error, without 'end'.
        connection.on('error', onEnd);
        await connected(this, key, connection.connect(), () => close(connection)).catch(async (error: unknown) => {
            throw (await this.#refusals?.of(key)) ?? error;
        });
        const { isCluster } = this;
        return {
            close: () => close(connection),
            ref: () => connection.ref?.(),
            unref: () => connection.unref?.(),
            // The library writes together what it is given in one turn.
            send: (commands) => commands.map((words) => masked(words, connection.sendCommand(words))),
            subscribe: (channel, onMessage) =>
                connection[isCluster ? 'sSubscribe' : 'subscribe'](channel, () => onMessage(channel)),
            unsubscribe: (channel) => connection[isCluster ? 'sUnsubscribe' : 'unsubscribe'](channel),
        };
    }

    addressOf(key: string): string | undefined {
        return this.#cluster === undefined ? 'primary' : this.#cluster.slots[slotOf(key)]?.master.address;
    }

    serverOf(key: string): string {
        if (this.isCluster) {
            return this.addressOf(key) ?? 'the cluster';
        }
        if (this.#sentinel !== undefined && this.#plainOfSentinel === undefined) {
            return 'the primary that Sentinel names';
        }
        const { host = 'localhost', port = 6379, path } = (this.#plainOfSentinel ?? this.#plain).options?.socket ?? {};
        return path ?? `${host}:${port}`;
    }

    /** Returns a client like that of the primary of the key, which does not reconnect; for the address, if one is given. */
    async #duplicateOf(key: string, at?: Address): Promise<Plain> {
        const primary = await this.#primaryOf(key);
        const { socket, commandOptions } = primary.options ?? {};
        const isOfCaller = primary === this.#plain;
        const database = isOfCaller ? await bounded(this.#databaseOf(primary), LOOK_UP_WITHIN_MS) : primary.options?.database;
        if (isOfCaller && database === undefined) {
            throw Unanswered.of(this, key, LOOK_UP_WITHIN_MS);
        }
        return primary.duplicate({
            // The caller may have changed the database with SELECT. The rest of the URL is in the other options.
            url: undefined,
            database,
            // duplicate() replaces these as a whole, and the address is among those of the socket.
            // A connection that waits is silent for long, so no timeout may end it.
            socket: { ...socket, ...at, reconnectStrategy: false, socketTimeout: undefined },
            commandOptions: { ...commandOptions, timeout: undefined },
        });
    }

    async #primaryOf(key: string): Promise<Plain> {
        let primary: Plain | undefined = this.#plain;
        if (this.#cluster !== undefined) {
            const node = this.#cluster.slots[slotOf(key)]?.master;
            primary = node && (await this.#cluster.nodeClient(node));
        } else if (this.#sentinel !== undefined) {
            // While no Sentinel answers it stays with the primary that it has known last.
            const within = this.#plainOfSentinel === undefined ? ANSWER_WITHIN_MS : LOOK_UP_WITHIN_MS;
            const known = bounded(this.#withPrimary(this.#sentinel, key, async () => {}), within);
            await known.catch((error: unknown) => this.#plainOfSentinel ?? Promise.reject(error));
            primary = this.#plainOfSentinel;
        }
        if (primary === undefined) {
            throw new PrimaryUnknown(key);
        }
        return primary;
    }

    /**
     * This is what sendCommand of a client for Sentinels does. It keeps commands back for many seconds while it has no primary:
     * so ask for the reason meanwhile, early enough for the first sending, and remember how the primary is reached.
     */
    #withPrimary<T>(sentinel: Sentinel, key: string, work: (plain: Plain) => Promise<T>): Promise<T> {
        return new Promise((resolve, reject) => {
            let refusal: unknown;
            const reached = new Promise((settle) => {
                const worked = sentinel._execute(false, (plain) => {
                    settle(true);
                    this.#plainOfSentinel = plain;
                    this.#refusals?.clear();
                    return refusal === undefined ? work(plain) : Promise.reject(refusal);
                });
                worked.then(resolve, reject).finally(() => settle(true));
            });
            void bounded(reached, LOOK_UP_WITHIN_MS / 2).then(async (isReached) => {
                refusal = isReached ? undefined : await this.#refusals?.of(key);
                if (refusal !== undefined) {
                    reject(refusal);
                }
            });
        });
    }

    /**
     * Resolves to the database that the caller has selected, which is asked for once; to that of the options where CLIENT INFO
     * is not allowed.
     */
    #databaseOf(plain: Plain): Promise<number> {
        if (this.#database === undefined) {
            const refused = (error: unknown) => (isAnswer(error, 'NOPERM') ? '' : Promise.reject(error));
            const told = (info: unknown) => Number(/ db=(\d+) /.exec(String(info))?.[1] ?? plain.options?.database ?? 0);
            this.#database = sendGreeted(plain, ['CLIENT', 'INFO']).catch(refused).then(told);
            this.#database.catch(() => (this.#database = undefined));
        }
        return this.#database;
    }
}

/** What waits for each client that is connecting now. */
const greetings = new WeakMap<Plain, Promise<void>>();

/**
 * Sends a command when the client has been greeted. While it connects it writes commands right behind its greeting: the
 * server carries them out as the default user when it refuses the password. What it is given in the very moment in which its
 * connection closes is still written so: a server with passwords should have its default user off.
 */
async function sendGreeted(plain: Plain, words: Words): Promise<Reply> {
    if (plain.isOpen && plain.isReady === false && !plain.options?.disableOfflineQueue) {
        const greeting = greetings.get(plain) ?? greeted(plain);
        greetings.set(plain, greeting);
        await greeting;
    }
    return masked(words, plain.sendCommand(words));
}

/** Resolves when the client is ready, or is closed. Rejects when the server refuses its greeting. */
function greeted(plain: Plain): Promise<void> {
    return new Promise((resolve, reject) => {
        const over = () => {
            ['ready', 'end'].forEach((event) => plain.off(event, over));
            plain.off(errorMonitor, failed);
            greetings.delete(plain);
            resolve();
        };
        const failed = (error: unknown) => {
            const isRefused = isAnswer(error) || isUntrusted(error);
            if (isRefused) {
                reject(error);
            }
            if (isRefused || !plain.isOpen) {
                over();
            }
        };
        ['ready', 'end'].forEach((event) => plain.on(event, over));
        // Where the caller does not listen to errors, they end the process as before.
        plain.on(errorMonitor, failed);
    });
}
