// What this package needs of a client library, and of a connection that it opens with it.

import type { Reply } from '../replies.js';

/** A client of ioredis (Redis, Cluster) or of node-redis (createClient, createCluster, createSentinel). Not a pool. */
export type Client = IoredisClient | NodeRedisClient;

/** What is used of ioredis. This package names no types of the libraries, because most users have only one of them. */
export interface IoredisClient {
    call(...args: never[]): unknown;
    duplicate(...args: never[]): unknown;
}

/** What is used of node-redis. */
export interface NodeRedisClient {
    sendCommand(...args: never[]): unknown;
    /** The clients of createSentinel in node-redis 5 do not have it. */
    duplicate?(...args: never[]): unknown;
}

/** Where a node of a cluster is. */
export interface Address {
    host: string;
    port: number;
}

/** A command and its arguments. */
export type Words = [name: string, ...args: string[]];

export interface Library {
    readonly isCluster: boolean;
    /** Whether the caller has closed the client: no request will ever be answered. */
    readonly isClosed: boolean;
    /** The classes of errors of its connections, and the messages of those that have none of their own. */
    readonly connectionClasses: ReadonlySet<string>;
    readonly connectionMessages: RegExp;
    /** Sends a command whose first argument is `key` over the caller's client. */
    send(key: string, words: Words): Promise<Reply>;
    /** Has the client of a cluster learn again who has which slots. */
    lookUpPrimaryOf(key: string): Promise<unknown>;
    /**
     * Opens a connection of its own to the server that has the key; Sentinels are asked anew who that is. Or to the node of
     * its cluster that is at the address. `onEnd` is called once, when it breaks.
     */
    open(key: string, onEnd: () => void, at?: Address): Promise<Connection>;
    /** Names the server that has the key: requests to the same server share a connection. */
    addressOf(key: string): string | undefined;
    /** Names the server that has the key, for people. */
    serverOf(key: string): string;
}

/** A connection of this package. It is thrown away when it breaks. */
export interface Connection {
    /** Sends commands, in one write where the library can. */
    send(commands: readonly Words[]): Promise<Reply>[];
    subscribe(channel: string, onMessage: (channel: string) => void): Promise<unknown>;
    unsubscribe(channel: string): Promise<unknown>;
    /** Whether the connection keeps the process alive. */
    ref(): void;
    unref(): void;
    close(): void;
}
