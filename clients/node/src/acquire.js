// Asks for a hold until it is granted, refused, or the caller gives up.
//
// A request that waits takes a place in the server's queue (QUEUE), which needs no connection: so any number of requests can
// share one. It hears of its turn from the client's subscription, or waits on its place with a connection of its own.

'use strict';

const { Claim, ms } = require('./claim.js');
const { NotAcquired, WorkFailed } = require('./errors.js');
const { Hold } = require('./hold.js');
const { Moment } = require('./lease.js');
const { OwnConnection } = require('./own_connection.js');
const { holdersOf, outcomeOf } = require('./replies.js');
const { ANSWER_MS, Backoff, Unanswered, isAnswer, isRetryable, untilAnswered } = require('./retry.js');
const { bounded, pause, takeSignal } = require('./timing.js');

/** How often a request asks again while it hears of nothing. */
const UNHEARD_ASKS_EVERY_MS = 1_000;
/** A subscription can be at a server that the key has left, or that is frozen. */
const LONGEST_SILENCE_MS = 2_000;
/** How long who gives up waits for the server to confirm it, or to say who holds. */
const FAREWELL_MS = 1_000;
/** How long a try lasts at most, whatever the server does. */
const TRY_MS = 2_000;
/** The option by which `allOf` tells the deadline of all its tries. */
const TRY_UNTIL = Symbol('until when a try lasts');

/**
 * Resolves to `{ hold }`, or to `{ done }` for work that is done already. Rejects with NotAcquired, WorkFailed, the reason
 * of the signal, or an error that will not pass.
 */
async function acquire(client, family, key, options, words, { Class = Hold } = {}) {
    takeSignal(options.signal);
    const waitMs = options.waitMs === undefined ? Infinity : ms('waitMs', options.waitMs);
    const isTry = waitMs === 0;
    const deadline = isTry ? (options[TRY_UNTIL] ?? performance.now() + TRY_MS) : performance.now() + waitMs;
    for (;;) {
        const claim = new Claim(client, family, key, options, words);
        const asking = new Asking(claim, options, isTry, deadline);
        const { found, sent, cause } = await asking.outcome();
        switch (found.kind) {
            case 'granted': {
                const since = await freshSince(claim, sent, isTry ? deadline : Infinity);
                if (since !== undefined) {
                    const hold = new Class(claim, found, since);
                    asking.becomes(hold);
                    return { hold };
                }
                // The lease has ended on the way. Its token is used up; ask with another one.
                asking.withdraw();
                break;
            }
            case 'done':
                return { done: { result: found.result, attempt: found.attempt } };
            case 'failed':
                throw new WorkFailed(key, found.reason, found.attempts);
            default: {
                // A try asks for nothing else if it was not answered.
                const isOver = isTry && cause !== undefined;
                const patienceMs = isTry ? Math.min(FAREWELL_MS, deadline - performance.now()) : FAREWELL_MS;
                const told = isOver ? [] : await holders(claim, patienceMs);
                throw new NotAcquired(key, told, claim.server, cause);
            }
        }
    }
}

/**
 * Resolves to the Moment from which the lease of a grant is counted, `sent` or later; undefined if the lease has ended. A
 * grant that came by waiting was asked for long ago, so it is renewed first.
 */
async function freshSince(claim, sent, deadline) {
    if (sent.agoMs <= claim.marginMs) {
        return sent;
    }
    const renewedAt = new Moment();
    const renew = () => claim.send('RENEW', 'PX', claim.leaseMs);
    const forMs = Math.min(claim.leaseMs - claim.marginMs, deadline - performance.now());
    const reply = await untilAnswered(claim.library, claim.key, renew, forMs).catch(() => undefined);
    return Number(reply?.answer) === 1 ? renewedAt : undefined;
}

async function holders(claim, patienceMs) {
    const reply = await bounded(claim.info(5), patienceMs).catch(() => null);
    return holdersOf(reply);
}

/** One token on its way to a hold. */
class Asking {
    #claim;
    #signal;
    #isTry;
    #deadline;
    #ownConnection;
    #listener;
    /** The requests that are not answered yet. One that is overdue may arrive late, and be granted then. */
    #unanswered = new Set();
    /** Whether a request was not answered, and was sent again. */
    #isRepeated = false;
    /** Whether the server may have a place, or a hold that nobody has read of, for the token. */
    #mayHold = false;

    constructor(claim, { signal, ownConnection = false }, isTry, deadline) {
        this.#claim = claim;
        this.#signal = signal;
        this.#isTry = isTry;
        this.#deadline = deadline;
        if (ownConnection) {
            this.#ownConnection = new OwnConnection(claim.library);
        }
    }

    /** Resolves to the outcome, and to when the request for it was sent. */
    async outcome() {
        try {
            return await this.#ask();
        } finally {
            this.#listener?.close();
            this.#ownConnection?.close();
            if (this.#mayHold) {
                await bounded(this.withdraw(), this.#isTry ? Math.min(FAREWELL_MS, this.#leftMs) : FAREWELL_MS);
            }
        }
    }

    /** The token has become a hold. What arrives when that has ended would be granted anew, so it is given back then. */
    becomes(hold) {
        this.#whenAnswered((answer) => {
            const isAnother = answer?.found.kind === 'waiting' || (answer?.found.fence ?? hold.fence) !== hold.fence;
            return !hold.isHeld || isAnother ? this.#giveBack() : undefined;
        });
    }

    /**
     * Gives up what the token has. Otherwise the turn would come to a request that nobody waits for, and hold up the others.
     * Resolves when nothing of it is on its way any more.
     */
    withdraw() {
        // A request can arrive after the RELEASE: they are on different connections.
        return Promise.all([this.#giveBack(), ...this.#whenAnswered(() => this.#giveBack())]);
    }

    /** Calls back with the answer of each request that is on its way; with undefined if its connection has broken. */
    #whenAnswered(callback) {
        return [...this.#unanswered].map((asked) => asked.catch(() => undefined).then(callback));
    }

    #giveBack() {
        const { library, key, leaseMs } = this.#claim;
        return untilAnswered(library, key, () => this.#claim.send('RELEASE'), leaseMs).catch(() => {});
    }

    async #ask() {
        const waiting = this.#isTry ? [] : ['QUEUE', this.#claim.placeMs];
        const backoff = new Backoff();
        let refusedAt = -Infinity;
        for (;;) {
            this.#signal?.throwIfAborted();
            this.#listener?.reset();
            const { answer, error } = await this.#askOnce(waiting);
            if (answer === undefined) {
                this.#isRepeated = true;
                this.#signal?.throwIfAborted();
                if (this.#claim.library.isClosed || !isRetryable(this.#claim.library, error)) {
                    throw error;
                }
                if (this.#isTry || this.#leftMs <= 0) {
                    // The time was over before the answer was overdue, and the one before said that others hold.
                    const isKnown = error instanceof Unanswered && performance.now() - refusedAt < ANSWER_MS;
                    return { found: { kind: 'refused' }, cause: isKnown ? undefined : error };
                }
                if (error instanceof Unanswered || error.message.startsWith('READONLY')) {
                    // The primary is frozen or cut off, or has become a replica: nothing is announced there.
                    this.#claim.turns.close();
                }
                await backoff.pause(this.#leftMs, this.#signal);
                continue;
            }
            backoff.reset();
            if (answer.found.kind !== 'waiting' || this.#leftMs <= 0) {
                return answer;
            }
            refusedAt = performance.now();
            const turn = await this.#wait(answer.found.channel);
            if (turn !== undefined) {
                return turn;
            }
        }
    }

    /** Asks over the caller's client. Resolves to the answer, or to the error. */
    async #askOnce(waiting) {
        const { requests, key } = this.#claim;
        try {
            const shared = (words) => requests.send(key, words);
            const answer = await this.#send(shared, waiting, Math.min(ANSWER_MS, this.#leftMs));
            return { answer, error: new Unanswered('the server has not answered') };
        } catch (error) {
            return { error };
        }
    }

    get #leftMs() {
        return this.#deadline - performance.now();
    }

    /** Sends the request. Resolves to undefined when nobody waits for its answer any more. */
    async #send(through, waiting, forMs) {
        const sent = new Moment();
        this.#mayHold = true;
        const asked = through(this.#claim.request(waiting)).then((reply) => ({ found: outcomeOf(reply), sent }));
        this.#unanswered.add(asked);
        const answered = () => this.#unanswered.delete(asked);
        asked.then(answered, answered);
        const answer = await bounded(asked, forMs, this.#signal);
        if (answer === undefined) {
            this.#isRepeated = true;
        } else {
            this.#mayHold = answer.found.kind === 'waiting';
        }
        return answer;
    }

    /** Waits for the turn of the place. Resolves to the outcome if it is known then, otherwise to undefined: ask again. */
    async #wait(channel) {
        if (this.#ownConnection !== undefined) {
            return this.#waitOnConnection();
        }
        if (this.#listener?.isRefused) {
            await pause(Math.min(UNHEARD_ASKS_EVERY_MS, this.#leftMs), this.#signal);
            return undefined;
        }
        if (!this.#listener?.isLive || this.#listener.channel !== channel) {
            this.#listener?.close();
            this.#listener = this.#claim.turns.listen(this.#claim.key, channel);
            const forMs = Math.min(UNHEARD_ASKS_EVERY_MS, this.#leftMs);
            const isSubscribed = await bounded(this.#listener.subscribed, forMs, this.#signal);
            if (isSubscribed !== true) {
                await pause(Math.min(UNHEARD_ASKS_EVERY_MS, this.#leftMs), this.#signal);
            }
            // The turn may have come before the subscription: ask once more.
            return undefined;
        }
        await this.#listener.next(Math.min(this.#askEveryMs, this.#leftMs), this.#signal);
        return undefined;
    }

    get #askEveryMs() {
        return Math.min(LONGEST_SILENCE_MS, this.#claim.placeMs / 3);
    }

    async #waitOnConnection() {
        const forMs = Math.ceil(Math.min(this.#askEveryMs, this.#leftMs));
        if (forMs <= 0) {
            return undefined;
        }
        try {
            const connection = await bounded(this.#ownConnection.opened(this.#claim.key), forMs, this.#signal);
            if (connection === undefined) {
                return undefined;
            }
            const through = (words) => this.#ownConnection.send(this.#claim.key, words);
            const answer = await this.#send(through, ['BLOCK', forMs], forMs + UNHEARD_ASKS_EVERY_MS);
            if (answer === undefined) {
                this.#ownConnection.close();
            }
            if (answer?.found.kind === 'refused') {
                // A BLOCK that ran out leaves the place in the queue.
                this.#mayHold = true;
                return undefined;
            }
            return answer;
        } catch (error) {
            this.#ownConnection.close();
            // A request of this token that was overdue has arrived late, and has taken over the place.
            const isBySelf = this.#isRepeated && isAnswer(error, 'UNBLOCKED');
            if (!isBySelf && !isRetryable(this.#claim.library, error)) {
                throw error;
            }
            await pause(Math.min(UNHEARD_ASKS_EVERY_MS, this.#leftMs), this.#signal);
            return undefined;
        }
    }
}

module.exports = { acquire, FAREWELL_MS, TRY_MS, TRY_UNTIL };
