// Asks for a hold until it is granted, refused, or the caller gives up.
//
// A request that waits takes a place in the server's queue (QUEUE), which needs no connection: so any number of requests can
// share one. It hears of its turn from the client's subscription, or waits on its place with a connection of its own.

import { isAnswer, isRetryable, named, Unanswered } from './answers.js';
import { Claim, type Family } from './claim.js';
import { NotAcquired, NotConfirmed, WorkFailed } from './errors.js';
import type { Hold } from './hold.js';
import { Moment } from './lease.js';
import type { Client } from './libraries/library.js';
import { OwnConnection } from './line.js';
import { type HoldOptions, number } from './options.js';
import { type Done, fieldsOf, type Granted, holdersOf, type Outcome, outcomeOf, type Reply } from './replies.js';
import { Backoff, untilAnswered } from './retry.js';
import { ANSWER_WITHIN_MS, ASK_AGAIN_AFTER_MS, LONGEST_PAUSE_MS, RETRY_FOR_MS, TRY_WITHIN_MS } from './times.js';
import { WITHDRAW_TRY_WITHIN_MS, WITHDRAW_WITHIN_MS } from './times.js';
import { bounded, pause, takeSignal } from './timing.js';
import type { Listener } from './turns.js';

/** How long the caller waits. */
interface Patience {
    isTry: boolean;
    deadline: number;
    retryForMs: number;
}

/** The answer to a request, and when that was sent; or the error that was the end of it. */
interface Answer {
    found: Outcome;
    sent: Moment;
    cause?: unknown;
}

/**
 * Resolves to the hold, or to what is done already. Rejects with NotAcquired, NotConfirmed, WorkFailed, the reason of the
 * signal, or an error that will not pass. A try lasts until `tryUntil` at most.
 */
export async function acquire<H extends Hold>(
    client: Client,
    family: Family,
    key: string,
    options: HoldOptions,
    words: string[],
    Class: new (claim: Claim, found: Granted, sent: Moment) => H,
    tryUntil = performance.now() + TRY_WITHIN_MS,
): Promise<H | Done> {
    takeSignal(options.signal);
    const waitMs = options.waitMs === undefined ? Infinity : number('waitMs', options.waitMs);
    const isTry = waitMs === 0;
    const deadline = isTry ? tryUntil : performance.now() + waitMs;
    const patience = { isTry, deadline, retryForMs: number('retryForMs', options.retryForMs ?? RETRY_FOR_MS) };
    for (;;) {
        const claim = new Claim(client, family, key, options, words);
        const asking = new Asking(claim, options, patience);
        const { found, sent, cause } = await asking.outcome();
        switch (found.kind) {
            case 'granted': {
                const since = await freshSince(claim, sent, isTry ? deadline : Infinity);
                if (since !== undefined) {
                    const hold = new Class(claim, found, since);
                    asking.becomes(hold);
                    return hold;
                }
                // The lease has ended on the way. Its token is used up; ask with another one.
                void asking.withdraw();
                break;
            }
            case 'done':
                return found;
            case 'failed':
                throw new WorkFailed(key, found.reason, found.attempts);
            default: {
                if (cause instanceof NotConfirmed) {
                    throw cause;
                }
                // A try asks for nothing else if it was not answered.
                const isKnown = !isTry || cause === undefined;
                const info = isKnown && (await bounded(claim.info(), withdrawMs(patience)).catch(() => undefined));
                throw new NotAcquired(key, holdersOf(info), stateOf(info), claim.server, cause);
            }
        }
    }
}

function withdrawMs({ isTry, deadline }: Patience): number {
    return isTry ? Math.min(WITHDRAW_TRY_WITHIN_MS, deadline - performance.now()) : WITHDRAW_WITHIN_MS;
}

/**
 * Resolves to the Moment from which the lease of a grant is counted, `sent` or later; undefined if the lease has ended. A
 * grant that came by waiting was asked for long ago, so it is renewed first.
 */
async function freshSince(claim: Claim, sent: Moment, deadline: number): Promise<Moment | undefined> {
    const { library, key, leaseMs, answerMs } = claim;
    if (sent.agoMs <= leaseMs / 10) {
        return sent;
    }
    const renewedAt = new Moment();
    const forMs = Math.min(leaseMs - claim.marginOf(leaseMs), deadline - performance.now());
    const renew = () => claim.renew(leaseMs, false);
    const reply = await untilAnswered(library, key, renew, forMs, { answerMs, isOfHold: true }).catch(() => undefined);
    return Number(reply?.answer) === 1 ? renewedAt : undefined;
}

/** Says whether the key is paused, or its work is delayed. */
function stateOf(info: Reply): string {
    const { 'paused-ms': pausedMs, 'delay-left-ms': delayMs } = fieldsOf(info);
    const paused = Number(pausedMs) > 0 ? `, paused for another ${String(pausedMs)} ms` : '';
    return paused || (Number(delayMs) > 0 ? `, delayed for another ${String(delayMs)} ms` : '');
}

/** One token on its way to a hold. */
class Asking {
    readonly #signal: AbortSignal | undefined;
    readonly #ownConnection: OwnConnection | undefined;
    #listener: Listener | undefined;
    /** The requests that are not answered yet. One that is overdue may arrive late, and be granted then. */
    readonly #unanswered = new Set<Promise<Answer>>();
    /** Whether a request was not answered, and was sent again. */
    #isRepeated = false;
    /** Whether the server may have a place, or a hold that nobody has read of, for the token. */
    #mayHold = false;
    /** What was answered last, if it was not confirmed. */
    #notConfirmed: NotConfirmed | undefined;

    constructor(
        private readonly claim: Claim,
        { signal, ownConnection = false }: HoldOptions,
        private readonly patience: Patience,
    ) {
        this.#signal = signal;
        this.#ownConnection = ownConnection ? new OwnConnection(claim.library) : undefined;
    }

    /** Resolves to the outcome, and to when the request for it was sent. */
    async outcome(): Promise<Answer> {
        try {
            return await this.#ask();
        } finally {
            this.#listener?.close();
            this.#ownConnection?.close();
            if (this.#mayHold) {
                await bounded(this.withdraw(), withdrawMs(this.patience));
            }
        }
    }

    /** The token has become a hold. What arrives when that has ended would be granted anew, so it is given back then. */
    becomes(hold: Hold): void {
        void this.#whenAnswered((found) => {
            const isAnother = found?.kind === 'waiting' || (found?.kind === 'granted' && found.fence !== hold.fence);
            return !hold.isHeld || isAnother ? this.#giveBack() : undefined;
        });
    }

    /**
     * Gives up what the token has. Otherwise the turn would come to a request that nobody waits for, and hold up the others.
     * Resolves when nothing of it is on its way any more.
     */
    withdraw(): Promise<unknown> {
        // A request can arrive after the RELEASE: they are on different connections.
        return Promise.all([this.#giveBack(), ...this.#whenAnswered(() => this.#giveBack())]);
    }

    /** Calls back with the answer of each request that is on its way; with undefined if its connection has broken. */
    #whenAnswered(callback: (found: Outcome | undefined) => Promise<unknown> | undefined): Promise<unknown>[] {
        return [...this.#unanswered].map(async (asked) => {
            const answer = await asked.catch(() => undefined);
            return callback(answer?.found);
        });
    }

    async #giveBack(): Promise<void> {
        const { library, key, leaseMs } = this.claim;
        await untilAnswered(library, key, () => this.claim.withdraw(), leaseMs).catch(() => {});
    }

    async #ask(): Promise<Answer> {
        const { library, key } = this.claim;
        const { isTry, retryForMs } = this.patience;
        const waiting = isTry ? [] : ['QUEUE', String(this.claim.placeMs)];
        let backoff = new Backoff();
        let refusedAt = -Infinity;
        let failingSince: number | undefined;
        for (;;) {
            this.#signal?.throwIfAborted();
            this.#listener?.reset();
            let answer: Answer;
            try {
                // Over a connection that the requests of the client share.
                answer = await this.#send(() => this.claim.ask(waiting), Math.min(this.claim.answerMs, this.#leftMs));
            } catch (error) {
                this.#isRepeated = true;
                this.#signal?.throwIfAborted();
                if (library.isClosed || !isRetryable(library, error)) {
                    throw named(library, key, error);
                }
                if (isTry || this.#leftMs <= 0) {
                    // The time was over before the answer was overdue, and the one before said that others hold.
                    const isKnown = error instanceof Unanswered && performance.now() - refusedAt < ANSWER_WITHIN_MS;
                    const cause = this.#notConfirmed ?? (isKnown ? undefined : error);
                    return { found: { kind: 'refused' }, sent: new Moment(), cause };
                }
                failingSince ??= performance.now();
                if (performance.now() - failingSince >= retryForMs) {
                    throw this.#notConfirmed ?? Unanswered.of(library, key, retryForMs, error);
                }
                if (error instanceof Unanswered || (error as Error).message.startsWith('READONLY')) {
                    // The primary is frozen or cut off, or has become a replica: nothing is announced there.
                    this.claim.turns.close();
                }
                await backoff.pause(this.#leftMs, this.#signal);
                continue;
            }
            backoff = new Backoff();
            failingSince = undefined;
            if (answer.found.kind !== 'waiting' || this.#leftMs <= 0) {
                return answer;
            }
            refusedAt = performance.now();
            if (this.#ownConnection === undefined) {
                await this.#hear(answer.found.channel);
                continue;
            }
            const turn = await this.#waitOn(this.#ownConnection);
            if (turn !== undefined) {
                return turn;
            }
        }
    }

    get #leftMs(): number {
        return this.patience.deadline - performance.now();
    }

    /** Sends the request. Rejects when nobody waits for its answer any more: its time is over, or the signal has aborted. */
    async #send(send: () => Promise<Reply>, forMs: number): Promise<Answer> {
        const sent = new Moment();
        this.#mayHold = true;
        const asked = send().then((reply) => ({ found: outcomeOf(reply), sent }));
        this.#unanswered.add(asked);
        const answered = () => this.#unanswered.delete(asked);
        asked.then(answered, answered);
        try {
            const answer = await bounded(asked, forMs, this.#signal);
            if (answer === undefined) {
                this.#isRepeated = true;
                throw new Unanswered('the server has not answered');
            }
            this.#mayHold = answer.found.kind === 'waiting';
            this.#notConfirmed = undefined;
            return answer;
        } catch (error) {
            this.#notConfirmed = error instanceof NotConfirmed ? error : this.#notConfirmed;
            throw error;
        }
    }

    /** Waits until the turn is announced, or until it is time to ask again. */
    async #hear(channel: string): Promise<void> {
        if (this.#listener?.isRefused) {
            await this.#pauseUnheard();
        } else if (this.#listener?.isLive && this.#listener.channel === channel) {
            await this.#listener.next(Math.min(this.#askEveryMs, this.#leftMs), this.#signal);
        } else {
            this.#listener?.close();
            this.#listener = this.claim.turns.listen(this.claim.key, channel);
            const forMs = Math.min(LONGEST_PAUSE_MS, this.#leftMs);
            // The turn may have come before the subscription: ask once more.
            if (!(await bounded(this.#listener.subscribed, forMs, this.#signal))) {
                await this.#pauseUnheard();
            }
        }
    }

    #pauseUnheard(): Promise<void> {
        return pause(Math.min(LONGEST_PAUSE_MS, this.#leftMs), this.#signal);
    }

    get #askEveryMs(): number {
        return Math.min(ASK_AGAIN_AFTER_MS, this.claim.placeMs / 3);
    }

    /** Waits on the place, with BLOCK. Resolves to the outcome if it is known then, otherwise to undefined: ask again. */
    async #waitOn(own: OwnConnection): Promise<Answer | undefined> {
        const { library, key, needs } = this.claim;
        const blockMs = Math.ceil(Math.min(this.#askEveryMs, this.#leftMs));
        if (blockMs <= 0) {
            return undefined;
        }
        try {
            const line = await bounded(own.opened(key), blockMs, this.#signal);
            if (line === undefined) {
                return undefined;
            }
            const words = this.claim.request(['BLOCK', String(blockMs)]);
            const forMs = blockMs + (needs?.withinMs ?? 0) + ANSWER_WITHIN_MS;
            const answer = await this.#send(() => line.send(words, needs), forMs);
            if (answer.found.kind === 'refused') {
                // A BLOCK that ran out leaves the place in the queue.
                this.#mayHold = true;
                return undefined;
            }
            return answer;
        } catch (error) {
            own.close();
            // A request of this token that was overdue has arrived late, and has taken over the place.
            const isBySelf = this.#isRepeated && isAnswer(error, 'UNBLOCKED');
            if (!isBySelf && !isRetryable(library, error)) {
                throw named(library, key, error);
            }
            if (!(error instanceof Unanswered)) {
                await this.#pauseUnheard();
            }
            return undefined;
        }
    }
}
