// Several keys at once.

import { acquire } from './acquire.js';
import { HoldLost } from './errors.js';
import { Hold } from './hold.js';
import type { Client } from './libraries/library.js';
import { Loss } from './loss.js';
import { type AllOfOptions, checkNames, type HoldOptions, type LockOptions, lockWords, number } from './options.js';
import { type SemaphoreOptions, semaphoreWords } from './options.js';
import { TRY_WITHIN_MS, WITHDRAW_WITHIN_MS } from './times.js';
import { bounded } from './timing.js';

/** A key of `allOf`: a text is a lock. */
export type Want =
    | string
    | ({ lock: string } & Omit<LockOptions, keyof HoldOptions>)
    | ({ semaphore: string } & Omit<SemaphoreOptions, keyof HoldOptions>);

/** The holds of `allOf`, released together. */
export class Holds {
    /** In the order in which the keys were given. */
    readonly holds: readonly Hold[];
    readonly #loss = new Loss();

    /** @internal */
    constructor(holds: Hold[]) {
        this.holds = holds;
        const loss = this.#loss;
        for (const hold of holds) {
            // This keeps none of the holds alive.
            hold._onLoss((reason) => loss.tell(reason));
        }
    }

    /** Aborts with a HoldLost when the first hold is lost. */
    get signal(): AbortSignal {
        return this.#loss.signalOf(this);
    }

    /** For how many milliseconds all holds are certain without another renewal. */
    get leftMs(): number {
        return Math.min(...this.holds.map((hold) => hold.leftMs));
    }

    /** Whether none of the holds was released or lost. */
    get isHeld(): boolean {
        return this.leftMs > 0;
    }

    throwIfLost(): void {
        for (const hold of this.holds) {
            hold.throwIfLost();
        }
    }

    /** Releases all. Resolves to whether every one of them ended by that. */
    async release(): Promise<boolean> {
        this.#loss.over();
        const released = this.holds.map((hold) => hold.release());
        await Promise.allSettled(released);
        return (await Promise.all(released)).every(Boolean);
    }

    async [Symbol.asyncDispose](): Promise<void> {
        this.#loss.over();
        await Promise.all(this.holds.map((hold) => hold[Symbol.asyncDispose]()));
    }

    /** Throws a HoldLost: the server has said that a hold had ended before. @internal */
    _throwEnded(why: string): never {
        this.throwIfLost();
        const keys = this.holds.map(({ key }) => key).join("', '");
        throw new HoldLost(keys, this.holds.map(({ fence }) => fence).join(', '), why);
    }

    /** @internal */
    get _isEnded(): boolean {
        return this.holds.every((hold) => hold._isEnded);
    }
}

/**
 * Waits for several keys, which are acquired one after the other in the order of their names, so that no two callers wait
 * for each other. The wait and the signal are for all together; if one cannot be had, the others are released.
 */
export async function allOf(client: Client, keys: readonly Want[], given: AllOfOptions = {}): Promise<Holds> {
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
    const deadline = options.waitMs === undefined ? undefined : performance.now() + number('waitMs', options.waitMs);
    // Together too a try is short; so is each try that a wait becomes when it has run out.
    const tryUntil = deadline === undefined ? undefined : deadline + TRY_WITHIN_MS;
    const holds = new Map<string, Hold>();
    try {
        for (const { family, key, own } of order) {
            // A wait of 0 stays a try, and a wait that has run out becomes one.
            const left = deadline === undefined ? {} : { waitMs: Math.max(0, deadline - performance.now()) };
            const asked = { ...options, ...left, ...own };
            const words = family === 'lock' ? lockWords(asked) : semaphoreWords(asked);
            holds.set(key, (await acquire(client, family, key, asked, words, Hold, tryUntil)) as Hold);
        }
        const all = new Holds(wants.map(({ key }) => holds.get(key) as Hold));
        all.throwIfLost();
        return all;
    } catch (error) {
        // The releases go on if the server does not answer now.
        const released = Promise.all([...holds.values()].map((hold) => hold[Symbol.asyncDispose]()));
        await bounded(released, Math.min(WITHDRAW_WITHIN_MS, (tryUntil ?? Infinity) - performance.now()));
        throw error;
    }
}

interface Wanted {
    family: 'lock' | 'semaphore';
    key: string;
    own: LockOptions & SemaphoreOptions;
}

function wantOf(want: Want): Wanted {
    const { lock, semaphore, ...own }: Partial<Record<Wanted['family'], string>> = typeof want === 'string' ? { lock: want } : want;
    const key = lock ?? semaphore;
    if (key === undefined || (lock !== undefined && semaphore !== undefined)) {
        throw new TypeError('allOf takes texts, { lock } and { semaphore, limit }');
    }
    return { family: lock === undefined ? 'semaphore' : 'lock', key, own };
}
