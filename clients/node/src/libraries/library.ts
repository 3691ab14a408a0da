// What this package needs of a client library, and of a connection that it opens with it.

import type { Reply } from '../replies.js';
import { ANSWER_MS, isAnswer, reword, Unanswered } from '../retry.js';
import { bounded } from '../timing.js';

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

/** Returns the connection of a node that ASK has named, which answers for keys of a slot that it does not have yet. */
export function asking(connection: Connection): Connection {
    const send = (commands: readonly Words[]) => {
        const replies = connection.send(commands.flatMap((words) => [['ASKING'] as Words, words]));
        replies.forEach((reply) => void reply.catch(() => {}));
        return replies.filter((_, at) => at % 2 === 1);
    };
    return { ...connection, send };
}

const TOKEN = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/;

/**
 * Settles as the reply does, with an error that does not show the token: ioredis has the command with it, and servers repeat
 * the beginning of the arguments of a command that they do not know.
 */
export async function masked(words: Words, reply: Promise<Reply>): Promise<Reply> {
    try {
        return await reply;
    } catch (error) {
        delete (error as { command?: unknown }).command;
        if (isAnswer(error)) {
            const isUnknown = /^ERR unknown command .?D[A-Z]+\./.test(error.message);
            const missing = 'ERR this server has not loaded the dsync module, or an old version of it: it does not know';
            const token = words.slice(2).find((word) => TOKEN.test(word));
            reword(error, isUnknown ? `${missing} ${words[0]}` : error.message.split(token ?? '\0').join('<token>'));
        }
        throw error;
    }
}

/** Resolves when the connection is there. Closes it when it is not in time. */
export async function connected(of: Library, key: string, connecting: Promise<unknown>, close: () => void): Promise<void> {
    try {
        if (!(await bounded(connecting.then(() => true), ANSWER_MS))) {
            throw Unanswered.of(of, key, ANSWER_MS);
        }
    } catch (error) {
        close();
        throw error;
    }
}
