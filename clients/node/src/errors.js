// The errors of this package. Errors of the server (NOPERM, TOOMANY …) and of the library pass through as they are.

'use strict';

/** The base class of the errors of this package. */
class DsyncError extends Error {
    constructor(message, options) {
        super(message, options);
        this.name = new.target.name;
    }
}

/**
 * The key was not acquired: a try was refused, or the wait ran out. `holders` is who held the key a moment later, as far as
 * INFO told: a client without the permission for INFO, or without a connection, gets an empty list. `cause` is the error
 * that kept the last request from an answer, if one did; the message then has its reason and the address of the server.
 */
class NotAcquired extends DsyncError {
    constructor(key, holders, server, cause) {
        const names = holders.map(({ owner, fence, leaseLeftMs, restingMs }) => {
            const who = owner === null ? 'a client without owner' : shown(owner);
            const left = restingMs === undefined ? `${leaseLeftMs} ms left` : `ended, rests for another ${restingMs} ms`;
            return `${who} (fence ${fence}, ${left})`;
        });
        const held = names.length > 0 ? `, held by ${names.join(', ')}` : '';
        const why = cause === undefined ? '' : `: ${server}: ${reasonOf(cause)}`;
        super(`'${shown(key)}' was not acquired${held}${why}`, cause === undefined ? undefined : { cause });
        this.key = key;
        this.holders = holders;
    }
}

/** The hold has ended, or its lease has run out without an answer from the server: somebody else may hold the key now. */
class HoldLost extends DsyncError {
    constructor(key, fence, why) {
        super(`the hold ${fence} of '${shown(key)}' is lost: ${why}`);
        this.key = key;
        this.fence = fence;
    }
}

/** The work of work-once has failed as often as `maxAttempts` allows. `reason` is that of the last attempt. */
class WorkFailed extends DsyncError {
    constructor(key, reason, attempts) {
        super(`'${shown(key)}' failed after ${attempts} ${attempts === 1 ? 'attempt' : 'attempts'}: ${shown(reason)}`);
        this.key = key;
        this.reason = reason;
        this.attempts = attempts;
    }
}

/** Returns what an error says. Errors of several addresses, and a time-out of node-redis, have no message of their own. */
function reasonOf(error) {
    if (error.message) {
        return error.message;
    }
    return error.errors?.length > 0 ? error.errors.map(reasonOf).join(', ') : String(error.code ?? error.constructor.name);
}

/** Returns a text that others have written as it can be shown: control, bidi and zero-width characters are escaped. */
function shown(text) {
    const escaped = (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`;
    return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu, escaped);
}

module.exports = { reasonOf, shown, DsyncError, NotAcquired, HoldLost, WorkFailed };
