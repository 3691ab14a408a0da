// A hold, as its user has it.

import type { Claim } from './claim.js';
import { HoldLost } from './errors.js';
import type { Moment } from './lease.js';
import { Loss } from './loss.js';
import { checkNames } from './options.js';
import { Renewal } from './renewal.js';
import type { Granted, Reply } from './replies.js';
import { ANSWER_MS, isAnswer, untilAnswered } from './retry.js';
import { bounded } from './timing.js';

/**
 * The server can know the token for so long after its lease: it adds `dsync.takeover-grace-ms`, which is this by default, to
 * the leases after a restart or a failover.
 */
const TAKEOVER_GRACE_MS = 5_000;

/** How the end of a hold was answered. */
interface End {
    isEnded: boolean;
    /** Whether it was asked for only once. */
    isFirst: boolean;
}

function hasEnded(answer: Reply): boolean {
    return Number(answer) >= 1;
}

/** Whether a request that was sent before the one that was answered 0 has done it. Its own answer may be on the way. */
async function anyHasEnded(earlier: Promise<Reply>[]): Promise<boolean> {
    const ended = earlier.map(async (sent) => hasEnded(await sent) || Promise.reject(new Error('not by this one')));
    return (await bounded(Promise.any(ended), ANSWER_MS).catch(() => false)) === true;
}

/**
 * A lock, permits of a semaphore, a membership or a run that is held, and renewed until it is released or lost, or until
 * nobody has this object, its signal or a listener there.
 */
export class Hold {
    readonly key: string;
    /** The public number of the hold. It only grows, so the resource can refuse a smaller one than it has seen. */
    readonly fence: number;
    /** The lowest number from 0 that no other hold of the semaphore had at the grant; undefined unless it was asked for. */
    readonly index: number | undefined;
    readonly #claim: Claim;
    readonly #renewal: Renewal;
    readonly #loss = new Loss(this);

    /** `sent` is when the request was sent. @internal */
    constructor(claim: Claim, { fence, index }: Granted, sent: Moment) {
        this.#claim = claim;
        this.key = claim.key;
        this.fence = fence;
        this.index = index;
        this.#renewal = new Renewal(claim, fence, sent, this);
    }

    /** Aborts with a HoldLost when the hold is lost; never when it is released. Give it to the work. */
    get signal(): AbortSignal {
        return this.#loss.signal;
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
        this.signal.throwIfAborted();
    }

    /**
     * Renews the lease now; with `leaseMs` that is its length from then on. Resolves to false when the hold had ended: then
     * it is lost. Rejects after two seconds without an answer, and with NotConfirmed.
     */
    async renew(options: { leaseMs?: number } = {}): Promise<boolean> {
        checkNames('hold.renew', options);
        return this.#renewal.renew(options.leaseMs);
    }

    /**
     * Ends the hold. Resolves to whether the server ended it now: false if it had been released or lost before. Rejects when
     * the server has not answered for a lease and five seconds, for two seconds if the hold is lost.
     */
    async release(): Promise<boolean> {
        const { isEnded } = await this._release();
        return isEnded;
    }

    /** Releases the hold. Does not reject: a server that cannot be reached ends the hold with its lease. */
    async [Symbol.asyncDispose](): Promise<void> {
        if (!this._isEnded) {
            await this.release().catch(() => {});
        }
    }

    /** @internal */
    async _release(): Promise<End> {
        try {
            return await this._end('RELEASE');
        } catch (error) {
            // The key has another value now, so the hold has ended, as the answer 0 says it.
            if (isAnswer(error, 'WRONGTYPE')) {
                return { isEnded: false, isFirst: true };
            }
            throw error;
        }
    }

    /** Ends the hold with a verb of its family, tried for a lease and the takeover grace. @internal */
    async _end(verb: 'RELEASE' | 'DONE' | 'FAIL', ...words: string[]): Promise<End> {
        this.#renewal.end();
        this.#loss.over();
        const { library, answerMs } = this.#claim;
        const isShort = verb === 'RELEASE' && this.#renewal.isLost;
        const forMs = isShort ? ANSWER_MS : this.#renewal.leaseMs + TAKEOVER_GRACE_MS;
        const send = () => this.#claim.end(verb, words);
        const { answer, earlier } = await untilAnswered(library, this.key, send, forMs, answerMs);
        const isEnded = hasEnded(answer) || (earlier.length > 0 && (await anyHasEnded(earlier)));
        return { isEnded, isFirst: earlier.length === 0 };
    }

    /** Throws a HoldLost: the server has said that the hold had ended before. @internal */
    _throwEnded(why: string): never {
        this.throwIfLost();
        throw new HoldLost(this.key, this.fence, why);
    }

    /** Whether the caller has ended the hold. @internal */
    get _isEnded(): boolean {
        return this.#renewal.isEnded;
    }

    /** Calls back with the HoldLost when the hold is lost. @internal */
    _onLoss(callback: (error: HoldLost) => void): void {
        this.#loss.onLoss(callback);
    }

    /** The hold is lost. @internal */
    _lose(error: HoldLost): void {
        this.#loss.tell(error);
    }
}
