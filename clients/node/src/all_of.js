// Several keys at once.

'use strict';

const { FAREWELL_MS, TRY_MS, TRY_UNTIL } = require('./acquire.js');
const { ms } = require('./claim.js');
const { lock } = require('./lock.js');
const { Loss } = require('./loss.js');
const { checkNames } = require('./options.js');
const { semaphore } = require('./semaphore.js');
const { bounded } = require('./timing.js');

/** Holds of several keys, released together. */
class Holds {
    #loss = new Loss(this);

    constructor(holds) {
        /** The holds, in the order in which the keys were given. */
        this.holds = holds;
        for (const hold of holds) {
            hold._onLoss((reason) => this.#loss.tell(reason));
        }
    }

    /** Aborts with a HoldLost when the first of the holds is lost. */
    get signal() {
        return this.#loss.signal;
    }

    /** For how many milliseconds all holds are certain without another renewal. */
    get leftMs() {
        return Math.min(...this.holds.map((hold) => hold.leftMs));
    }

    /** Whether none of the holds was released or lost. */
    get isHeld() {
        return this.leftMs > 0;
    }

    throwIfLost() {
        for (const hold of this.holds) {
            hold.throwIfLost();
        }
    }

    /** Releases all holds. Resolves to whether the server ended every one of them now. */
    async release() {
        const { isEnded } = await this._release();
        return isEnded;
    }

    /** As of a hold. For this package only. */
    async _release() {
        this.#loss.over();
        const ended = await Promise.allSettled(this.holds.map((hold) => hold._release()));
        const failed = ended.find(({ status }) => status === 'rejected');
        if (failed !== undefined) {
            throw failed.reason;
        }
        const notEnded = ended.filter(({ value }) => !value.isEnded);
        return { isEnded: notEnded.length === 0, isFirst: notEnded.some(({ value }) => value.isFirst) };
    }

    async [Symbol.asyncDispose]() {
        this.#loss.over();
        await Promise.all(this.holds.map((hold) => hold[Symbol.asyncDispose]()));
    }

    /** The key and the fence of a loss that only the releases found. For this package only. */
    get key() {
        return this.holds.map(({ key }) => key).join("', '");
    }

    get fence() {
        return this.holds.map(({ fence }) => fence).join(', ');
    }

    get _isEnded() {
        return this.holds.every((hold) => hold._isEnded);
    }
}

/**
 * Waits for several keys: a text names a lock, `{ lock, … }` a lock and `{ semaphore, … }` a semaphore, with options of
 * their own. They are acquired one after the other in the order of their names, whatever order they are given in, so no two callers
 * wait for each other. `inGivenOrder` keeps the order of the caller, which must then be the same everywhere. The wait and
 * the signal are for all together. Resolves to the holds once it has them all.
 */
async function allOf(client, keys, given = {}) {
    checkNames('allOf', given);
    const { inGivenOrder = false, ...options } = given;
    const wants = keys.map(wantOf);
    if (new Set(wants.map(({ key }) => key)).size < wants.length) {
        throw new TypeError('allOf was given the same key twice: it would wait for itself');
    }
    if (wants.length === 0) {
        throw new TypeError('allOf needs at least one key');
    }
    const order = inGivenOrder ? wants : [...wants].sort((a, b) => Buffer.compare(Buffer.from(a.key), Buffer.from(b.key)));
    const deadline = options.waitMs === undefined ? undefined : performance.now() + ms('waitMs', options.waitMs);
    // Together too a try is short; so is each try that a wait becomes when it has run out.
    const tryUntil = (deadline ?? Infinity) + TRY_MS;
    const holds = new Map();
    try {
        for (const want of order) {
            // A wait of 0 stays a try, and a wait that has run out becomes one.
            const left = deadline === undefined ? {} : { waitMs: Math.max(0, deadline - performance.now()), [TRY_UNTIL]: tryUntil };
            const acquire = want.isLock ? lock : semaphore;
            holds.set(want, await acquire(client, want.key, { ...options, ...want.options, ...left }));
        }
        const all = new Holds(wants.map((want) => holds.get(want)));
        all.throwIfLost();
        return all;
    } catch (error) {
        // The releases go on if the server does not answer now.
        const released = Promise.all([...holds.values()].map((hold) => hold[Symbol.asyncDispose]()));
        await bounded(released, Math.min(FAREWELL_MS, tryUntil - performance.now()));
        throw error;
    }
}

function wantOf(key) {
    if (typeof key === 'string') {
        return { isLock: true, key, options: {} };
    }
    const { lock: locked, shared, semaphore: limited, limit, permits, lane, laneLimit, minHoldMs, index } = key;
    if (locked !== undefined && limited === undefined) {
        return { isLock: true, key: locked, options: { shared, minHoldMs } };
    }
    if (limited !== undefined && locked === undefined) {
        return { isLock: false, key: limited, options: { limit, permits, lane, laneLimit, minHoldMs, index } };
    }
    throw new TypeError('allOf takes texts, { lock } and { semaphore, limit }');
}

module.exports = { allOf, Holds };
