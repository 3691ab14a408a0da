// Which errors may pass, and how often a request is sent again. Every request of this package may be sent again as it is:
// its token says that it is the same one.

'use strict';

const { bounded, pause } = require('./timing.js');
const { DsyncError, reasonOf, shown } = require('./errors.js');

/** An answer that has not come in this time is overdue: the request is sent again, and the primary looked up afresh. */
const ANSWER_MS = 2_000;
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

/** The answer to a request is overdue. */
class Unanswered extends DsyncError {
    /** Names the server and the key. */
    static of(library, key, ms, cause) {
        const why = cause === undefined ? '' : `: ${reasonOf(cause)}`;
        const message = `${library.serverOf(key)} has not answered for '${shown(key)}' in ${Math.round(ms)} ms${why}`;
        return new Unanswered(message, cause === undefined ? undefined : { cause });
    }
}

/** Whether the same request may be answered later: the one table of this package, for all its commands. */
function isRetryable(library, error) {
    if (isAnswer(error)) {
        return PASSING_ANSWER.test(error.message) && !FINAL_ANSWER.test(error.message);
    }
    return isOfConnection(library, error);
}

/** Whether the server has answered with an error, of this code if one is given. */
function isAnswer(error, code) {
    const isAnswered = classesOf(error).some((name) => ANSWER_CLASSES.has(name));
    return isAnswered && (code === undefined || error.message.split(' ', 1)[0] === code);
}

function isOfConnection(library, error) {
    return (
        error instanceof Unanswered ||
        PASSING_CODES.has(error.code) ||
        // An error for several addresses, and one of node-redis that has given up to connect again.
        [...(error.errors ?? []), error.originalError].some((one) => one && isOfConnection(library, one)) ||
        classesOf(error).some((name) => library.connectionClasses.has(name)) ||
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
 * Sends a request for the key until the server answers it, for `forMs` milliseconds at most. Resolves to the answer, and to
 * the promises of those that were sent earlier. Rejects when the time is over, on an error that will not pass, and when the
 * caller has closed the client.
 */
async function untilAnswered(library, key, send, forMs) {
    const deadline = performance.now() + forMs;
    const backoff = new Backoff();
    const sent = [];
    let cause;
    for (;;) {
        try {
            sent.push(send());
            const reply = sent.at(-1).then((answer) => ({ answer, earlier: sent.slice(0, -1) }));
            const found = await bounded(reply, Math.min(ANSWER_MS, deadline - performance.now()));
            if (found !== undefined) {
                return found;
            }
        } catch (error) {
            if (library.isClosed || !isRetryable(library, error)) {
                throw error;
            }
            cause = error;
        }
        if (performance.now() >= deadline) {
            throw Unanswered.of(library, key, forMs, cause);
        }
        await backoff.pause(deadline - performance.now());
    }
}

module.exports = { ANSWER_MS, Backoff, Unanswered, isAnswer, isRetryable, untilAnswered };
