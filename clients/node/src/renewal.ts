// Renews holds at a third of their leases, until they are ended, lost or forgotten; and tells a loss when it is due, whether
// the server answers or not, and whether anybody has the hold or not.
//
// All holds of a client have one timer: what is due goes in one pipeline, over a connection beside the caller's client.
//
// The timer keeps a renewal alive, and what tells the loss; but not the hold, once it was to be renewed. So a hold that
// nobody can reach any more is not renewed for long: an exception came between the grant and the `try`, or its wait has lost
// a Promise.race.

import { isAnswer, isRetryable, named, Unanswered } from './answers.js';
import type { Claim } from './claim.js';
import { HoldLost } from './errors.js';
import { Lease, Moment, type Term } from './lease.js';
import type { Loss } from './loss.js';
import { number } from './options.js';
import type { Reply } from './replies.js';
import { ANSWER_WITHIN_MS } from './times.js';
import { bounded } from './timing.js';

const SHORTEST_PAUSE_MS = 50;
const SHORTEST_SLICE_MS = 20;

/** Allocating so much makes V8 look for what nobody can reach. It is not written to, so it takes no memory. */
const NUDGE_BYTES = 64 * 1024 * 1024;
const NUDGES_EVERY_MS = 5_000;
let nudgedAt = -Infinity;

/**
 * A process that only waits allocates nothing, and V8 looks for what is forgotten only when something is allocated. So each
 * hold makes it look three times, and a process does so at most every five seconds. Returns whether it has.
 */
function nudge(): boolean {
    if (performance.now() - nudgedAt < NUDGES_EVERY_MS) {
        return false;
    }
    nudgedAt = performance.now();
    try {
        new ArrayBuffer(NUDGE_BYTES);
    } catch {
        // V8 looks for what it can free before it refuses.
    }
    return true;
}

type State = 'held' | 'ended' | 'lost';

/** Ends the renewals of holds that were collected. Reading a WeakRef now and then instead would keep what it refers to. */
const collected = new FinalizationRegistry<Renewal>((renewal) => (renewal.isForgotten = true));

/** The renewal of one hold. */
export class Renewal {
    readonly #lease: Lease;
    /** The hold, until it is renewed for the first time: most have ended by then, and need nothing that watches them. */
    #hold: object | undefined;
    /** Whether nobody has the hold any more: it is not renewed again. */
    isForgotten = false;
    /** The lease that is asked for, and the last one that the server has granted. */
    #leaseMs: number;
    #grantedMs: number;
    /** What a renewal without an answer has asked for. It may arrive behind a later one, and the server goes by the last. */
    #unanswered: Term | undefined;
    #renewAt: number;
    #isRenewing = false;
    /** The first one may come while the hold is still on the stack, or in a generation that is not looked at. */
    #nudgesLeft = 3;
    /** Whether a renewal was asked for because of a jump of the clocks since the last one that was answered. */
    #isJumpSeen = false;
    #failure: unknown;
    #state: State = 'held';

    /** `loss` is what tells it; it does not keep `hold` alive. */
    constructor(
        private readonly claim: Claim,
        private readonly fence: number,
        sent: Moment,
        hold: object,
        private readonly loss: Loss,
    ) {
        this.#leaseMs = this.#grantedMs = claim.leaseMs;
        this.#lease = new Lease({ leaseMs: claim.leaseMs, marginMs: claim.marginOf(claim.leaseMs) }, claim.maxHoldMs, sent);
        this.#hold = hold;
        this.#renewAt = this.#thirdAfter(sent);
        claim.renewals.add(this);
        claim.renewals.lookIn(this.look());
    }

    get leftMs(): number {
        return this.#state === 'held' ? Math.max(0, this.#lease.leftMs) : 0;
    }

    get state(): State {
        return this.#state;
    }

    /** For how long the server can know the hold: its lease. */
    get leaseMs(): number {
        return this.#leaseMs;
    }

    /** For how long a renewal asks now: the server does not keep the hold for longer than it may be held. */
    get asksForMs(): number {
        return Math.floor(Math.min(this.#leaseMs, this.#lease.maxHoldLeftMs));
    }

    /** The user ends the hold. */
    end(): void {
        this.loseIfDue();
        if (this.#state === 'held') {
            this.#stop('ended');
        }
    }

    /** Looks at the clock whether the hold is lost. */
    loseIfDue(leftMs = this.#lease.leftMs): void {
        if (this.#state !== 'held' || leftMs > 0) {
            return;
        }
        if (this.#lease.isLast) {
            this.#lose(`it was held for as long as maxHoldMs allows, ${this.claim.maxHoldMs} ms`);
        } else if (this.isForgotten) {
            this.#lose('it was not renewed, because the program does not refer to it any more');
        } else {
            this.#lose(`its lease runs out, and ${this.claim.server} has not renewed it`, this.#failure);
        }
    }

    /**
     * Renews the lease now, with another length if one is given, which counts from then on. Resolves to whether the hold
     * still lived. Rejects when the answer is overdue; an answer that comes later counts all the same.
     */
    renew(leaseMs = this.#leaseMs): Promise<boolean> {
        this.claim.marginOf(number('leaseMs', leaseMs));
        this.#leaseMs = leaseMs;
        return this.#renew(this.claim.answerMs);
    }

    async #renew(answerMs: number): Promise<boolean> {
        const sent = new Moment();
        const wantedMs = this.#leaseMs;
        const leaseMs = Math.max(1, this.asksForMs);
        const asked = { leaseMs, marginMs: Math.min(this.claim.marginOf(this.#leaseMs), leaseMs) };
        const certain = this.#unanswered !== undefined && this.#unanswered.leaseMs < leaseMs ? this.#unanswered : asked;
        this.#unanswered = certain;
        if (this.#state === 'held') {
            this.#lease.asked(sent, certain);
        }
        const heard = (answer: Reply) => {
            if (this.#state !== 'held') {
                return false;
            }
            if (Number(answer) !== 1) {
                this.#lose('the server says that it has ended');
                return false;
            }
            this.#grantedMs = wantedMs;
            this.#unanswered = undefined;
            this.#failure = undefined;
            this.#isJumpSeen = false;
            this.#isRenewing = false;
            this.#lease.renewed(sent, certain);
            this.#renewAt = certain === asked ? this.#thirdAfter(sent) : performance.now();
            this.claim.renewals.lookIn(this.look());
            return this.leftMs > 0;
        };
        const refused = (error: unknown) => {
            // A lease that the server does not take counts no more.
            if (isAnswer(error) && !isRetryable(this.claim.library, error, true)) {
                this.#leaseMs = this.#grantedMs;
            }
            throw named(this.claim.library, this.claim.key, error);
        };
        const isHeld = await bounded(this.claim.renew(leaseMs).then(heard, refused), answerMs);
        if (isHeld === undefined) {
            throw Unanswered.of(this.claim.library, this.claim.key, answerMs);
        }
        return isHeld;
    }

    #thirdAfter(sent: Moment): number {
        return performance.now() - sent.agoMs + this.#leaseMs / 3;
    }

    #stop(state: State): void {
        this.#state = state;
        this.#hold = undefined;
        this.claim.renewals.delete(this);
        collected.unregister(this);
    }

    #lose(why: string, cause?: unknown): void {
        this.#stop('lost');
        this.loss.tell(new HoldLost(this.claim.key, this.fence, why, cause));
    }

    /** Does what has come due. Returns in how many milliseconds it must look again. */
    look(): number {
        const { leftMs } = this.#lease;
        this.loseIfDue(leftMs);
        if (this.#state !== 'held') {
            return Infinity;
        }
        if (this.#lease.sent.isBeforeJump && !this.#isJumpSeen) {
            this.#isJumpSeen = true;
            this.#renewAt = performance.now();
        }
        const dueMs = this.isForgotten ? Infinity : this.#renewAt - performance.now();
        // What is due soon goes along.
        if (dueMs <= this.#leaseMs / 100 && !this.#isRenewing) {
            if (this.#hold !== undefined) {
                collected.register(this.#hold, this, this);
                this.#hold = undefined;
            }
            this.#nudgesLeft -= Number(this.#nudgesLeft > 0 && nudge());
            void this.#renewInBackground();
        }
        // While a renewal is on its way nothing else is sent; but the clock goes on, whether the server answers or not.
        // A timer stands still while the machine is suspended: so it looks at the clocks at least once in a margin.
        const sliceMs = Math.min(leftMs, Math.max(this.#lease.term.marginMs, SHORTEST_SLICE_MS));
        return this.#isRenewing ? sliceMs : Math.min(sliceMs, dueMs);
    }

    async #renewInBackground(): Promise<void> {
        this.#isRenewing = true;
        // A renewal without an answer is repeated after a tenth of the lease.
        const pauseMs = Math.max(SHORTEST_PAUSE_MS, this.#leaseMs / 10);
        const began = performance.now();
        try {
            await this.#renew(Math.min(this.claim.answerMs, pauseMs + this.claim.answerMs - ANSWER_WITHIN_MS));
        } catch (error) {
            this.#isRenewing = false;
            this.#failure = error;
            this.#renewAt = Math.max(performance.now(), began + pauseMs);
            this.claim.renewals.lookIn(this.look());
        }
    }
}
