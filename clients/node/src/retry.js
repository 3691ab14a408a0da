// Which errors may pass, and how often a request is sent again. Every request of this package may be sent again as it is:
// its token says that it is the same one.

'use strict';

const { bounded, pause } = require('./timing.js');
const { DsyncError, reasonOf } = require('./errors.js');

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;

/** The server is in the way, and another one, or the same one later, may answer. */
const PASSING_ANSWER =
    /^(UNBLOCKED|READONLY|MOVED|ASK|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|LOADING|NOREPLICAS|MISCONF|BUSY|OOM)(?![\w-])/;
/** The token was withdrawn or has asked again elsewhere, or the group is gone: asking again would change nothing. */
const FINAL_ANSWER = /^UNBLOCKED (released|superseded|the group was removed)/;
/** The codes of Node.js for connections that are refused, closed or too slow, and for names that are not resolved now. */
const PASSING_CODES = new Set([
    ...['ECONNREFUSED', 'ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT', 'ERR_SOCKET_CONNECTION_TIMEOUT'],
    ...['EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN', 'EADDRNOTAVAIL', 'EAI_AGAIN', 'ENOTFOUND'],
]);

/** Whether the same request may be answered later: the one table of this package, for all its commands. */
function isRetryable(library, error) {
    const classes = classesOf(error);
    if (classes.some((name) => ANSWER_CLASSES.has(name))) {
        return PASSING_ANSWER.test(error.message) && !FINAL_ANSWER.test(error.message);
    }
    return isOfConnection(library, error, classes);
}

/** Whether the server has answered with the error of this code. */
function isAnswer(error, code) {
    return classesOf(error).some((name) => ANSWER_CLASSES.has(name)) && error.message.split(' ', 1)[0] === code;
}

function isOfConnection(library, error, classes = classesOf(error)) {
    return (
        PASSING_CODES.has(error.code) ||
        // An error for several addresses, and one of node-redis that has given up to connect again.
        [...(error.errors ?? []), error.originalError].some((one) => one && isOfConnection(library, one)) ||
        classes.some((name) => library.connectionClasses.has(name)) ||
        // ioredis has classes for a few of these errors only.
        (library.connectionMessages?.test(error.message) ?? false)
    );
}

/** What the libraries make of an error that the server answers. */
const ANSWER_CLASSES = new Set(['ReplyError', 'ErrorReply']);

/**
 * Returns the names of the classes of an error. The classes themselves are in the caller's copy of the library, which this
 * package cannot import. `error.name` would not do: anything may be called a TimeoutError.
 */
function classesOf(error) {
    const names = [];
    for (let at = Object.getPrototypeOf(error); at !== null && at !== Error.prototype; at = Object.getPrototypeOf(at)) {
        names.push(at.constructor?.name);
    }
    return names;
}

/** The pauses between attempts: from 50 ms to a second, with some chance in them so that clients do not return all at once. */
class Backoff {
    #nextMs = FIRST_PAUSE_MS;

    reset() {
        this.#nextMs = FIRST_PAUSE_MS;
    }

    async pause(atMostMs, signal) {
        const ms = this.#nextMs * (0.5 + Math.random() / 2);
        this.#nextMs = Math.min(2 * this.#nextMs, LONGEST_PAUSE_MS);
        await pause(Math.min(ms, Math.max(0, atMostMs)), signal);
    }
}

/**
 * Sends a request for the key until the server answers it, for `forMs` milliseconds at most. Rejects then, on an error that will not
 * pass, and when the caller has closed the client.
 */
async function untilAnswered(library, key, send, forMs) {
    const deadline = performance.now() + forMs;
    const backoff = new Backoff();
    let cause;
    for (;;) {
        try {
            const reply = await bounded(
                send().then((answer) => ({ answer })),
                deadline - performance.now(),
            );
            if (reply !== undefined) {
                return reply.answer;
            }
        } catch (error) {
            if (library.isClosed || !isRetryable(library, error)) {
                throw error;
            }
            cause = error;
        }
        if (performance.now() >= deadline) {
            const why = cause === undefined ? '' : `: ${reasonOf(cause)}`;
            const message = `${library.serverOf(key)} has not answered for '${key}' in ${Math.round(forMs)} ms${why}`;
            throw new DsyncError(message, cause === undefined ? undefined : { cause });
        }
        await backoff.pause(deadline - performance.now());
    }
}

module.exports = { Backoff, isAnswer, isRetryable, untilAnswered };
