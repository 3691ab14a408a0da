// The errors of this package. Errors of the server (NOPERM, TOOMANY …) and of the library pass through as they are.

import type { Holder } from './replies.js';

/** The base class of the errors of this package. */
export class DsyncError extends Error {
    override readonly name: string = 'DsyncError';
    constructor(message: string, options?: ErrorOptions) {
        // Without a cause the error has no such property.
        super(message, options?.cause === undefined ? undefined : options);
    }
}

/**
 * The key was not acquired: a try was refused, or the wait ran out. `cause` is the error that kept the last request from an
 * answer, if one did; the message then has its reason and the address of the server.
 */
export class NotAcquired extends DsyncError {
    override readonly name: string = 'NotAcquired';
    /** @internal */
    constructor(
        readonly key: string,
        /** The first who held the key a moment later, three at most; empty where INFO is not allowed or not answered. */
        readonly holders: readonly Holder[],
        state: string,
        server: string,
        cause?: unknown,
    ) {
        const names = holders.map(({ owner, fence, leaseLeftMs, restingMs }) => {
            const who = owner === null ? 'a client without owner' : shown(owner);
            const left = restingMs === undefined ? `${leaseLeftMs} ms left` : `ended, rests for another ${restingMs} ms`;
            return `${who} (fence ${fence}, ${left})`;
        });
        const held = names.length > 0 ? `, held by ${names.join(', ')}` : '';
        const why = cause === undefined ? '' : `: ${server}: ${reasonOf(cause)}`;
        super(`'${shown(key)}' was not acquired${state}${held}${why}`, { cause });
    }
}

/** The hold has ended, or its lease has run out without an answer from the server: somebody else may hold the key now. */
export class HoldLost extends DsyncError {
    override readonly name: string = 'HoldLost';
    /** @internal */
    constructor(readonly key: string, readonly fence: number | string, why: string, cause?: unknown) {
        super(`the hold ${fence} of '${shown(key)}' is lost: ${why}`, { cause });
    }
}

/**
 * Replicas have not confirmed an answer in time, so it does not count: the request was withdrawn, or the work may be done
 * again elsewhere. With `disk` the disk of the primary counts as one of `have` and of `wanted`.
 */
export class NotConfirmed extends DsyncError {
    override readonly name: string = 'NotConfirmed';
    /** Whether asking again changes nothing. @internal */
    readonly _isFinal: boolean;

    /** @internal */
    constructor(readonly key: string, readonly have: number, readonly wanted: number, more: Why = {}) {
        const { isDisk = false, why = '', isFinal = false, cause } = more;
        const what = isDisk ? 'disks' : 'replicas';
        super(`'${shown(key)}' was not confirmed: ${have} of ${wanted} ${what} have it${why && `: ${why}`}`, { cause });
        this._isFinal = isFinal;
    }
}

interface Why {
    isDisk?: boolean;
    why?: string;
    isFinal?: boolean;
    cause?: unknown;
}

/** The work of work-once has failed as often as `maxAttempts` allows. */
export class WorkFailed extends DsyncError {
    override readonly name: string = 'WorkFailed';
    /** `reason` is that of the last attempt. @internal */
    constructor(readonly key: string, readonly reason: string, readonly attempts: number) {
        super(`'${shown(key)}' failed after ${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}: ${shown(reason)}`);
    }
}

/** What this package reads of any error. */
export interface AnyError {
    message: string;
    code?: unknown;
    errors?: readonly AnyError[];
    originalError?: AnyError;
}

/** Returns what an error says. Errors of several addresses, and a time-out of node-redis, have no message of their own. */
export function reasonOf(thrown: unknown): string {
    const error = thrown as AnyError;
    if (error.message) {
        return error.message;
    }
    if (error.errors !== undefined && error.errors.length > 0) {
        return error.errors.map(reasonOf).join(', ');
    }
    return String(error.code ?? error.constructor.name);
}

/** Returns a text that others have written as it can be shown: control, bidi and zero-width characters are escaped. */
export function shown(text: string): string {
    const escaped = (sign: string) => `\\u{${sign.codePointAt(0)?.toString(16)}}`;
    return text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, escaped);
}
