// How often a request is sent again.

import { isAnswer, isRetryable, named, ofOpening, Unanswered } from './answers.js';
import { NotConfirmed } from './errors.js';
import type { Library } from './libraries/library.js';
import type { Reply } from './replies.js';
import { ANSWER_WITHIN_MS, FIRST_PAUSE_MS, LONGEST_PAUSE_MS } from './times.js';
import { bounded, pause } from './timing.js';

/** The pauses between attempts: from 50 ms to a second, with some chance in them so that not all return at once. */
export class Backoff {
    #nextMs = FIRST_PAUSE_MS;

    async pause(atMostMs: number, signal?: AbortSignal): Promise<void> {
        const ms = this.#nextMs * (0.5 + Math.random() / 2);
        this.#nextMs = Math.min(2 * this.#nextMs, LONGEST_PAUSE_MS);
        await pause(Math.min(ms, Math.max(0, atMostMs)), signal);
    }
}

interface Answer {
    answer: Reply;
    /** Whether no sending before it can have been carried out. */
    isFirst: boolean;
}

/** Resolves when the connection is there. Closes it when it is not in time. */
export async function connected(of: Library, key: string, connecting: Promise<unknown>, close: () => void): Promise<void> {
    try {
        if (!(await bounded(connecting.then(() => true), ANSWER_WITHIN_MS))) {
            throw Unanswered.of(of, key, ANSWER_WITHIN_MS);
        }
    } catch (error) {
        close();
        throw error;
    }
}

/**
 * Sends a request for the key until the server answers it, for `forMs` milliseconds at most; an answer is overdue after
 * `answerMs`. `isOfHold` is whether it renews or ends a hold. Rejects when the time is over, on an error that will not pass,
 * when the caller has closed the client, and when the signal aborts.
 */
export async function untilAnswered(
    library: Library,
    key: string,
    send: () => Promise<Reply>,
    forMs: number,
    more: { answerMs?: number; signal?: AbortSignal | undefined; isOfHold?: boolean } = {},
): Promise<Answer> {
    const { answerMs = ANSWER_WITHIN_MS, signal, isOfHold = false } = more;
    const deadline = performance.now() + forMs;
    const backoff = new Backoff();
    let cause: unknown;
    let isFirst = true;
    for (;;) {
        signal?.throwIfAborted();
        try {
            const answer = await bounded(send(), Math.min(answerMs, deadline - performance.now()), signal);
            // No library makes undefined of a reply.
            if (answer !== undefined) {
                return { answer, isFirst };
            }
            isFirst = false;
        } catch (error) {
            // A refusal has carried out nothing.
            isFirst &&= isAnswer(error) || ofOpening.has(error as object);
            if (library.isClosed || !isRetryable(library, error, isOfHold)) {
                throw named(library, key, error);
            }
            cause = error;
        }
        if (performance.now() >= deadline) {
            throw cause instanceof NotConfirmed ? cause : Unanswered.of(library, key, forMs, cause);
        }
        await backoff.pause(deadline - performance.now(), signal);
    }
}
