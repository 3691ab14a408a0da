// A hold, as its user has it.

import type { Claim } from './claim.js';
import { HoldLost } from './errors.js';
import type { Moment } from './lease.js';
import { Loss } from './loss.js';
import { checkNames } from './options.js';
import { Renewal } from './renewal.js';
import type { Granted } from './replies.js';
import { untilAnswered } from './retry.js';
import { ANSWER_WITHIN_MS, TAKEOVER_GRACE_MS } from './times.js';

/**
 * A lock, permits of a semaphore, a membership or a run that is held, and renewed until it is released or lost, or until
 * nobody has this object, its signal or a listener there: then it is lost when its lease is over, of which signals are told
 * that depend on its signal.
 */
export class Hold {
    readonly key: string;
    /** The public number of the hold. It only grows, so the resource can refuse a smaller one than it has seen. */
    readonly fence: number;
    /** The lowest number from 0 that no other hold of the semaphore had at the grant; undefined unless it was asked for. */
    readonly index: number | undefined;
    readonly #claim: Claim;
    readonly #renewal: Renewal;
    readonly #loss = new Loss();

    /** `sent` is when the request was sent. @internal */
    constructor(claim: Claim, { fence, index }: Granted, sent: Moment) {
        this.#claim = claim;
        this.key = claim.key;
        this.fence = fence;
        this.index = index;
        this.#renewal = new Renewal(claim, fence, sent, this, this.#loss);
    }

    /** Aborts with a HoldLost when the hold is lost; never when it is released. Give it to the work. */
    get signal(): AbortSignal {
        return this.#loss.signalOf(this);
    }

    /** For how many milliseconds the hold is certain without another renewal; 0 after its end. */
    get leftMs(): number {
        return this.#renewal.leftMs;
    }

    /** Whether the hold was neither released nor lost. */
    get isHeld(): boolean {
        return this.leftMs > 0;
    }

    /** Throws a HoldLost if the hold is lost. It looks at the clock, so it is right even if timers come late. */
    throwIfLost(): void {
        this.#renewal.loseIfDue();
        this.#loss.throwIfTold();
    }

    /**
     * Renews the lease now; with `leaseMs` that is its length from then on. Resolves to false when the hold had ended: then
     * it is lost. Rejects after two seconds without an answer, and with NotConfirmed.
     */
    async renew(options: { leaseMs?: number | undefined } = {}): Promise<boolean> {
        checkNames('hold.renew', options);
        return this.#renewal.renew(options.leaseMs);
    }

    /**
     * Ends the hold. Resolves to whether it ended by that: false if it had been released or lost before. Rejects when the
     * server has not answered for a lease and five seconds, for two seconds if the hold is lost.
     */
    async release(): Promise<boolean> {
        return this._end('RELEASE');
    }

    /** Releases the hold. Does not reject: a server that cannot be reached ends the hold with its lease. */
    async [Symbol.asyncDispose](): Promise<void> {
        if (!this._isEnded) {
            await this.release().catch(() => {});
        }
    }

    /**
     * Ends the hold with a verb of its family, tried for a lease and the takeover grace. Resolves to whether it ended by
     * that. A repetition may find no hold because the request before it has ended it; but DONE of a run is answered again
     * as it was.
     * @internal
     */
    async _end(verb: 'RELEASE' | 'DONE' | 'FAIL', ...words: string[]): Promise<boolean> {
        this.#renewal.end();
        this.#loss.over();
        const { library, answerMs, family } = this.#claim;
        const { state, leaseMs } = this.#renewal;
        const isLost = state === 'lost';
        const forMs = verb === 'RELEASE' && isLost ? ANSWER_WITHIN_MS : leaseMs + TAKEOVER_GRACE_MS;
        const send = () => this.#claim.end(verb, words, isLost ? 0 : this.#renewal.asksForMs);
        const { answer, isFirst } = await untilAnswered(library, this.key, send, forMs, { answerMs, isOfHold: true });
        const isAnsweredAgain = verb === 'DONE' && family === 'once';
        const isToFirst = isFirst && !this.#claim.isEndOverClient;
        const counts = Number(answer) >= 1 || !(isToFirst || isLost || isAnsweredAgain);
        return counts && !(verb === 'RELEASE' && isLost);
    }

    /** Throws a HoldLost: the server has said that the hold had ended before. @internal */
    _throwEnded(why: string): never {
        this.throwIfLost();
        throw new HoldLost(this.key, this.fence, why);
    }

    /** Whether the caller has ended the hold. @internal */
    get _isEnded(): boolean {
        return this.#renewal.state === 'ended';
    }

    /** Calls back with the HoldLost when the hold is lost. @internal */
    _onLoss(callback: (error: HoldLost) => void): void {
        this.#loss.onLoss(callback);
    }
}
