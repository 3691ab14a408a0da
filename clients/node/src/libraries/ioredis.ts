// ioredis (and its fork iovalkey): one server, Sentinel or Cluster.

import slotOf from 'cluster-key-slot';

import { isAnswer, masked, PrimaryUnknown } from '../answers.js';
import type { Reply } from '../replies.js';
import { connected } from '../retry.js';
import type { Address, Connection, Library, Words } from './library.js';

/** What is used of a client, or of a connection, of ioredis. */
export interface Redis {
    readonly status?: string;
    readonly isCluster?: boolean;
    readonly options?: { host?: string; port?: number; path?: string; db?: number; sentinels?: unknown; name?: string };
    readonly condition?: { select?: number } | null;
    readonly stream?: { ref?(): void; unref?(): void; cork?(): void; uncork?(): void };
    /** Of a cluster: the addresses that have each slot, the primary first. */
    readonly slots: readonly (readonly string[] | undefined)[];
    call(...words: string[]): Promise<Reply>;
    duplicate(options: object): Redis;
    connect(): Promise<unknown>;
    disconnect(): void;
    nodes(role: 'master'): Redis[];
    refreshSlotsCache(callback: (value: unknown) => void): void;
    on(event: string, listener: (word: string) => void): void;
    once(event: string, listener: () => void): void;
    listenerCount(event: string): number;
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
        // It tells a greeting that was refused by its event only.
        let refusal: unknown;
        connection.on('error', (error) => (refusal ??= isAnswer(error) ? error : undefined));
        connection.once('end', onEnd);
        const close = () => connection.disconnect();
        const connecting = connection.connect().catch((error: unknown) => Promise.reject(refusal ?? error));
        await connected(this, key, connecting, close);
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

    addressOf(key: string): string | undefined {
        return this.isCluster ? this.client.slots[slotOf(key)]?.[0] : 'primary';
    }

    serverOf(key: string): string {
        const { host, port, path, sentinels, name } = this.client.options ?? {};
        if (this.isCluster) {
            return this.addressOf(key) ?? 'the cluster';
        }
        return sentinels ? `the primary of '${name}'` : (path ?? `${host}:${port}`);
    }

    #primaryOf(key: string): Redis | undefined {
        const address = this.addressOf(key);
        const isPrimary = ({ options }: Redis) => `${options?.host}:${options?.port}` === address;
        return this.client.nodes('master').find((node) => isPrimary(node) && node.status !== 'end');
    }
}
