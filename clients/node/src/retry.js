// Which errors may pass, and how often a request is sent again. Every request of this package may be sent again as it is:
// its token says that it is the same one.

'use strict';

const { bounded, pause } = require('./timing.js');
const { DsyncError } = require('./errors.js');

const FIRST_PAUSE_MS = 50;
const LONGEST_PAUSE_MS = 1_000;

/** The server was in the way, and another one, or the same one later, may answer. */
const OF_SERVER = /^(UNBLOCKED|READONLY|MOVED|ASK|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|LOADING|NOREPLICAS)\b/;
/** The connection was in the way. The libraries have no error class in common for this, only these texts. */
const OF_CONNECTION = new RegExp(
    [
        'ECONN|EPIPE|ETIMEDOUT|EHOSTUNREACH|ENETUNREACH',
        'Connection is closed|Stream isn\'t writeable|Command timed out|max retries per request', // ioredis
        'Cluster redirections|ClusterAllFailed|Failed to refresh slots',
        'Socket closed|closed unexpectedly|client is offline|Disconnects client|Timeout', // node-redis
        'command redirections|None of the root nodes',
    ].join('|'),
    'i',
);

function isRetryable(error) {
    return OF_SERVER.test(error.message) || OF_CONNECTION.test(`${error.name} ${error.code} ${error.message}`);
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
 * Sends a request until the server answers it, for `forMs` milliseconds at most. Rejects then, on an error that will not
 * pass, and when the caller has closed the client.
 */
async function untilAnswered(library, send, forMs) {
    const deadline = performance.now() + forMs;
    const backoff = new Backoff();
    for (;;) {
        try {
            const reply = await bounded(
                send().then((answer) => ({ answer })),
                deadline - performance.now(),
            );
            if (reply === undefined) {
                throw new DsyncError(`the server has not answered in ${Math.round(forMs)} ms`);
            }
            return reply.answer;
        } catch (error) {
            if (library.isClosed || performance.now() >= deadline || !isRetryable(error)) {
                throw error;
            }
        }
        await backoff.pause(deadline - performance.now());
    }
}

module.exports = { Backoff, isRetryable, untilAnswered };
