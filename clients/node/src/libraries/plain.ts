// What is used of node-redis where one server is spoken to.

import type { EventEmitter } from 'node:events';

import type { Reply } from '../replies.js';
import type { Words } from './library.js';

/** What is used of a client of one server, or of a connection. */
export interface Plain extends EventEmitter {
    readonly isOpen?: boolean;
    readonly isReady?: boolean;
    readonly options?: {
        database?: number;
        disableOfflineQueue?: boolean;
        commandOptions?: object;
        socket?: { host?: string; port?: number; path?: string };
    };
    sendCommand(words: Words): Promise<Reply>;
    duplicate(options: object): Plain;
    connect(): Promise<unknown>;
    /** node-redis 4 does not have it. */
    destroy?(): unknown;
    disconnect(): unknown;
    subscribe(channel: string, listener: () => void): Promise<unknown>;
    unsubscribe(channel: string): Promise<unknown>;
    sSubscribe(channel: string, listener: () => void): Promise<unknown>;
    sUnsubscribe(channel: string): Promise<unknown>;
    ref?(): void;
    unref?(): void;
}

export function close(connection: Plain): void {
    if (connection.isOpen) {
        // node-redis 4 has no destroy(). Both ways end at once: nothing is owed an answer.
        Promise.resolve(connection.destroy ? connection.destroy() : connection.disconnect()).catch(() => {});
    }
}
