// Renews a hold at a third of its lease, until it is ended, lost or forgotten.
//
// The timer keeps the renewal alive, and the renewal does not keep the hold alive. So a hold that nobody can reach any more
// is not renewed: an exception came between the grant and the `try`, or its wait has lost a Promise.race.

'use strict';

const { HoldLost } = require('./errors.js');
const { Lease, Moment } = require('./lease.js');
const { ANSWER_MS, Unanswered, isAnswer } = require('./retry.js');
const { bounded } = require('./timing.js');

const SHORTEST_PAUSE_MS = 50;
const SHORTEST_SLICE_MS = 20;

/** Allocating so much makes V8 look for what nobody can reach. It is not written to, so it takes no memory. */
const NUDGE_BYTES = 64 * 1024 * 1024;
const NUDGES_EVERY_MS = 5_000;
let nudgedAt = -Infinity;

/**
 * A process that only waits allocates nothing, and V8 looks for what is forgotten only when something is allocated. So each
 * hold makes it look once, and a process does so at most every five seconds. Returns whether it has.
 */
function nudge() {
    if (performance.now() - nudgedAt < NUDGES_EVERY_MS) {
        return false;
    }
    nudgedAt = performance.now();
    return new ArrayBuffer(NUDGE_BYTES).byteLength > 0;
}

/** Ends the renewals of holds that were collected. Reading a WeakRef now and then instead would keep what it refers to. */
const collected = new FinalizationRegistry((renewal) => renewal.forget());

class Renewal {
    #claim;
    #fence;
    #lease;
    #hold;
    #timer;
    #renewAt;
    #isRenewing = false;
    #isNudged = false;
    /** Whether a renewal was asked for because of a jump of the clocks since the last one that was answered. */
    #isJumpSeen = false;
    #failure;
    /** `held`, `ended` by its user, `lost` or `forgotten`. */
    #state = 'held';

    constructor(claim, fence, sent, hold) {
        this.#claim = claim;
        this.#fence = fence;
        this.#lease = new Lease(claim.leaseMs, claim.marginMs, sent);
        this.#hold = new WeakRef(hold);
        collected.register(hold, this, this);
        this.#renewAt = performance.now() - sent.agoMs + claim.leaseMs / 3;
        this.#look();
    }

    get leftMs() {
        return this.#state === 'held' ? Math.max(0, this.#lease.leftMs) : 0;
    }

    get isEnded() {
        return this.#state === 'ended';
    }

    /** The user ends the hold. */
    end() {
        this.#stop(this.#state === 'lost' ? 'lost' : 'ended');
    }

    /** Looks at the clock whether the hold is lost. */
    loseIfDue() {
        if (this.#state === 'held' && this.#lease.leftMs <= 0) {
            this.#lose(`its lease runs out, and ${this.#claim.server} has not renewed it`, this.#failure);
        }
    }

    /**
     * Renews the lease now. Resolves to whether the hold still lived. Rejects when the answer is overdue; an answer that
     * comes later counts all the same.
     */
    async renew() {
        const sent = new Moment();
        const replaced = (error) => {
            if (!isAnswer(error, 'WRONGTYPE')) {
                throw error;
            }
            return 0;
        };
        const told = this.#claim.send('RENEW', 'PX', this.#lease.leaseMs).catch(replaced);
        const isHeld = await bounded(told.then((answer) => this.#answered(Number(answer) === 1, sent)), ANSWER_MS);
        if (isHeld === undefined) {
            throw Unanswered.of(this.#claim.library, this.#claim.key, ANSWER_MS);
        }
        return isHeld;
    }

    #answered(isHeld, sent) {
        if (this.#state !== 'held') {
            return false;
        }
        if (!isHeld) {
            this.#lose('the server says that it has ended');
            return false;
        }
        this.#lease.renewed(sent);
        this.#failure = undefined;
        this.#renewAt = performance.now() - sent.agoMs + this.#lease.leaseMs / 3;
        this.#isJumpSeen = false;
        this.#look();
        return true;
    }

    /** Nobody has the hold any more. */
    forget() {
        this.#stop('forgotten');
    }

    #stop(state) {
        this.#state = state;
        clearTimeout(this.#timer);
        collected.unregister(this);
    }

    #lose(why, cause) {
        this.#stop('lost');
        const error = new HoldLost(this.#claim.key, this.#fence, why);
        if (cause !== undefined) {
            error.cause = cause;
        }
        this.#hold.deref()?._lose(error);
    }

    /** Does what has come due, and sets the timer for what comes next. */
    #look() {
        clearTimeout(this.#timer);
        this.loseIfDue();
        if (this.#state !== 'held') {
            return;
        }
        if (this.#lease.isBeforeJump && !this.#isJumpSeen) {
            this.#isJumpSeen = true;
            this.#renewAt = performance.now();
        }
        const dueMs = this.#renewAt - performance.now();
        if (dueMs <= 0 && !this.#isRenewing) {
            if (!this.#isNudged) {
                this.#isNudged = nudge();
            }
            this.#renewInBackground();
        }
        // While a renewal is on its way nothing else is sent; but the clock goes on, whether the server answers or not.
        // A timer stands still while the machine is suspended: so it looks at the clocks at least once in a margin.
        const sliceMs = Math.min(this.#lease.leftMs, Math.max(this.#lease.marginMs, SHORTEST_SLICE_MS));
        this.#timer = setTimeout(() => this.#look(), Math.ceil(this.#isRenewing ? sliceMs : Math.min(sliceMs, dueMs)));
        // The hold alone does not keep the process alive.
        this.#timer.unref();
    }

    async #renewInBackground() {
        this.#isRenewing = true;
        try {
            await this.renew();
        } catch (error) {
            this.#failure = error;
            const pauseMs = Math.min(this.#lease.leaseMs / 3, Math.max(SHORTEST_PAUSE_MS, this.#lease.leftMs / 4));
            this.#renewAt = performance.now() + pauseMs;
        } finally {
            this.#isRenewing = false;
            this.#look();
        }
    }
}

module.exports = { Renewal };
