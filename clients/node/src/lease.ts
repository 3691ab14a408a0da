// When a hold counts as lost, by this process' own clocks: the server's word for it cannot be awaited, because none comes
// when the network is cut. The monotonic clock of Node.js stands still while the machine is suspended, and the wall clock
// can be set; so the one counts on which more time has passed.

/** The clocks differ by more than this only after a suspension, or after somebody has set the wall clock. */
const JUMP_MS = 500;
/** The wall clock has whole milliseconds, and a lease is asked for in whole ones. */
const CLOCK_STEPS_MS = 5;

/** A moment on both clocks. */
export class Moment {
    readonly #monotonicMs = performance.now();
    readonly #wallMs = Date.now();

    /** How long ago it was, suspensions included. */
    get agoMs(): number {
        return Math.max(performance.now() - this.#monotonicMs, Date.now() - this.#wallMs);
    }

    /** Whether this one came first; the wall clock's steps are too long for that. */
    isBefore(other: Moment): boolean {
        return this.#monotonicMs < other.#monotonicMs;
    }

    /** Whether the clocks have parted since: the machine was suspended, or the wall clock was set. */
    get isBeforeJump(): boolean {
        return Date.now() - this.#wallMs - (performance.now() - this.#monotonicMs) > JUMP_MS;
    }
}

/** How long a lease is, and how long before its end the hold counts as lost, so that work can stop in time. */
export interface Term {
    readonly leaseMs: number;
    readonly marginMs: number;
}

export class Lease {
    readonly #granted: Moment;

    /** `sent` is the Moment at which the request that was granted was sent; the server began the lease later than that. */
    constructor(public term: Term, private readonly maxHoldMs: number, public sent: Moment) {
        this.#granted = sent;
    }

    /** The server has renewed at the request that was sent at this Moment. */
    renewed(sent: Moment, term: Term): void {
        if (!sent.isBefore(this.sent)) {
            this.sent = sent;
            this.term = term;
        }
    }

    /** A request for such a lease is on its way. If it is shorter than what is left, only that is certain from now on. */
    asked(sent: Moment, term: Term): void {
        if (term.leaseMs - term.marginMs < this.leftMs) {
            this.renewed(sent, term);
        }
    }

    /** What is left until the hold counts as lost. */
    get leftMs(): number {
        return Math.min(this.term.leaseMs - this.term.marginMs - this.sent.agoMs, this.maxHoldLeftMs);
    }

    /** For how long a renewal may ask at most. */
    get maxHoldLeftMs(): number {
        return this.maxHoldMs === Infinity ? Infinity : this.maxHoldMs - this.#granted.agoMs;
    }

    /** Whether the lease lasts for as long as the hold may, and cannot be renewed. */
    get isLast(): boolean {
        return this.term.leaseMs - this.sent.agoMs > this.maxHoldLeftMs - CLOCK_STEPS_MS;
    }
}
