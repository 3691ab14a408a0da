// ioredis (and its fork iovalkey): one server, Sentinel or Cluster.

import type { EventEmitter } from 'node:events';
import type { Socket } from 'node:net';

import slotOf from 'cluster-key-slot';

import { isAnswer, isRefusal, isUntrusted, masked, ofOpening, PrimaryUnknown } from '../answers.js';
import type { Reply } from '../replies.js';
import { connected } from '../retry.js';
import { LOOK_UP_WITHIN_MS } from '../times.js';
import { bounded } from '../timing.js';
import type { Address, Connection, Library, Words } from './library.js';

/** What is used of a client, or of a connection, of ioredis. */
export interface Redis extends EventEmitter {
    readonly status?: string;
    readonly isCluster?: boolean;
    readonly options?: Partial<Address> & {
        path?: string;
        db?: number;
        name?: string;
        sentinels?: readonly Partial<Address>[] | null;
        sentinelUsername?: string;
        sentinelPassword?: string;
        sentinelTLS?: object;
    };
    readonly condition?: { select?: number } | null;
    readonly stream?: Partial<Socket>;
    /** Of a cluster: the addresses that have each slot, the primary first. */
    readonly slots: readonly (readonly string[] | undefined)[];
    call(...words: string[]): Promise<Reply>;
    duplicate(options: object): Redis;
    connect(): Promise<unknown>;
    disconnect(): void;
    nodes(role: 'master'): Redis[];
    refreshSlotsCache(callback: (value: unknown) => void): void;
    subscribe(channel: string): Promise<unknown>;
    unsubscribe(channel: string): Promise<unknown>;
    ssubscribe(channel: string): Promise<unknown>;
    sunsubscribe(channel: string): Promise<unknown>;
}

/** Options of a connection that is thrown away when it breaks. This package opens another one. */
const NO_RECONNECT = {
    lazyConnect: true,
    retryStrategy: () => null,
    sentinelRetryStrategy: () => null,
    autoResubscribe: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: null,
    // A cluster's client sends keys as they are, but would prefix channels.
    keyPrefix: '',
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
        "^Stream isn't writeable|^Node is disconnected|^None of startup nodes|^All sentinels are unreachable",
        "^Cluster isn't ready|^Cluster is disconnect|^Too many Cluster redirections",
    ].join('|'),
);

/** All of them were asked, whatever they have answered. */
const SENTINELS_FAILED = /^All sentinels are unreachable/;

/** Connects, and settles as `then` does. A refusal in the greeting, or of a certificate, is told by an event only. */
function connect(connection: Redis, then = () => Promise.resolve<unknown>(true)): Promise<unknown> {
    return new Promise((resolve, reject) => {
        connection.on('error', (error) => (isAnswer(error) || isUntrusted(error)) && reject(error));
        connection.connect().then(then).then(resolve, reject);
    });
}

export class Ioredis implements Library {
    readonly connectionClasses = CONNECTION_CLASSES;
    readonly connectionMessages = CONNECTION_MESSAGES;
    readonly isCluster: boolean;

    constructor(private readonly client: Redis) {
        this.isCluster = client.isCluster === true;
    }

    get isClosed(): boolean {
        return this.client.status === 'end';
    }

    async send(key: string, words: Words): Promise<Reply> {
        const primary = this.isCluster ? this.#primaryOf(key) : undefined;
        if (primary === undefined) {
            return masked(words, this.client.call(...words));
        }
        // The cluster client sends a command that it does not know to any node, and learns the right one from a redirection.
        try {
            return await masked(words, primary.call(...words));
        } catch (error) {
            if (!/^(MOVED|ASK) /.test((error as Error).message)) {
                throw error;
            }
            return masked(words, this.client.call(...words));
        }
    }

    lookUpPrimaryOf(): Promise<unknown> {
        return new Promise((resolve) => this.client.refreshSlotsCache(resolve));
    }

    async open(key: string, onEnd: () => void, at?: Address): Promise<Connection> {
        const primary = this.isCluster ? this.#primaryOf(key) : this.client;
        if (primary === undefined) {
            throw new PrimaryUnknown(key);
        }
        // The caller may have changed the database with SELECT.
        const db = primary.condition?.select ?? primary.options?.db;
        const connection = primary.duplicate({ ...NO_RECONNECT, db, ...at });
        connection.once('end', onEnd);
        const close = () => connection.disconnect();
        await connected(this, key, connect(connection), close).catch(async (error: unknown) => {
            throw this.client.options?.sentinels ? await this.#explained(error, key) : error;
        });
        const [message, prefix] = this.isCluster ? (['smessage', 's'] as const) : (['message', ''] as const);
        const { stream } = connection;
        return {
            close,
            ref: () => stream?.ref?.(),
            unref: () => stream?.unref?.(),
            send: (commands) => {
                stream?.cork?.();
                const replies = commands.map((words) => masked(words, connection.call(...words)));
                stream?.uncork?.();
                return replies;
            },
            subscribe: (channel, onMessage) => {
                if (connection.listenerCount(message) === 0) {
                    connection.on(message, onMessage);
                }
                return connection[`${prefix}subscribe`](channel);
            },
            unsubscribe: (channel) => connection[`${prefix}unsubscribe`](channel),
        };
    }

    /**
     * Asks each Sentinel for what the client keeps to itself: the address of the primary that has refused, or why none of them
     * tells it.
     */
    async #explained(error: unknown, key: string): Promise<unknown> {
        const isOfPrimary = isAnswer(error) || isUntrusted(error);
        if (!isOfPrimary && !SENTINELS_FAILED.test((error as Error).message)) {
            return error;
        }
        const { sentinels, name = '', ...options } = this.client.options ?? {};
        const { sentinelUsername: username, sentinelPassword: password, sentinelTLS: tls } = options;
        const user = { db: 0, username, password, tls, enableReadyCheck: false };
        const asked = (sentinels ?? []).map(async ({ host = 'localhost', port = 26_379 }) => {
            const sentinel = this.client.duplicate({ ...NO_RECONNECT, ...user, sentinels: undefined, host, port });
            const asking = () => sentinel.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', name);
            const said = await bounded(connect(sentinel, asking), LOOK_UP_WITHIN_MS).catch((thrown: unknown) => thrown);
            sentinel.disconnect();
            return { server: `the Sentinel at ${host}:${port}`, said };
        });
        const told = await Promise.all(asked);
        if (isOfPrimary) {
            const address = told.map(({ said }) => said).find(Array.isArray);
            ofOpening.set(error, address?.join(':'));
            return error;
        }
        const refused = told.filter(({ said }) => isRefusal(said));
        const [first] = refused;
        return first ? new PrimaryUnknown(key, first.server, first.said, refused.length === told.length) : error;
    }

    addressOf(key: string): string | undefined {
        return this.isCluster ? this.client.slots[slotOf(key)]?.[0] : 'primary';
    }

    serverOf(key: string): string {
        const { host, port, path, sentinels, name } = this.client.options ?? {};
        if (this.isCluster) {
            return this.addressOf(key) ?? 'the cluster';
        }
        const { remoteAddress, remotePort } = this.client.stream ?? {};
        const primary = remoteAddress === undefined ? `the primary of '${name}'` : `${remoteAddress}:${remotePort}`;
        return sentinels ? primary : (path ?? `${host}:${port}`);
    }

    #primaryOf(key: string): Redis | undefined {
        const address = this.addressOf(key);
        const isPrimary = ({ options }: Redis) => `${options?.host}:${options?.port}` === address;
        return this.client.nodes('master').find((node) => isPrimary(node) && node.status !== 'end');
    }
}
