// Locks and semaphores, and work under them.

import { acquire } from './acquire.js';
import type { Holds } from './all_of.js';
import { clientOf } from './client.js';
import { Hold } from './hold.js';
import type { Client } from './libraries/library.js';
import { type LockOptions, lockWords, type SemaphoreOptions, semaphoreWords } from './options.js';
import { fieldsOf, type Holder, holdersOf } from './replies.js';

/** Waits for a lock. Rejects with NotAcquired when `waitMs` is over. */
export async function lock(client: Client, key: string, options: LockOptions = {}): Promise<Hold> {
    return (await acquire(client, 'lock', key, options, lockWords(options), Hold)) as Hold;
}

/** Resolves to whether anybody has the lock; a hold that has ended and rests included. It takes nothing. */
lock.locked = async (client: Client, key: string): Promise<boolean> =>
    Number((await infoOf(client, 'DLOCK', key)).holders) > 0;

/** Resolves to who holds the lock, 1,000 at most. It takes nothing. */
lock.holders = async (client: Client, key: string): Promise<Holder[]> => holdersOf(await infoOf(client, 'DLOCK', key));

/** Waits for permits of a semaphore, one if not told otherwise. */
export async function semaphore(client: Client, key: string, options: SemaphoreOptions = {}): Promise<Hold> {
    return (await acquire(client, 'semaphore', key, options, semaphoreWords(options), Hold)) as Hold;
}

/** Resolves to how many permits are free; null if nobody has used the semaphore, so that the limit is not known. */
semaphore.available = async (client: Client, key: string): Promise<number | null> => {
    const { available = null } = await infoOf(client, 'DSEM', key);
    return available === null ? null : Number(available);
};

/** Resolves to whether no permit is free. It takes nothing. */
semaphore.locked = async (client: Client, key: string): Promise<boolean> => (await semaphore.available(client, key)) === 0;

/** Resolves to who holds permits, 1,000 at most. It takes nothing. */
semaphore.holders = async (client: Client, key: string): Promise<Holder[]> => holdersOf(await infoOf(client, 'DSEM', key));

/** Asks INFO about a key. Resolves to no fields if there is no such key. */
async function infoOf(client: Client, prefix: 'DLOCK' | 'DSEM', key: string): Promise<Record<string, unknown>> {
    return fieldsOf(await clientOf(client).requests.ask(key, [`${prefix}.INFO`, key, 'COUNT', '1000']));
}

/**
 * Holds a lock while the work runs. Resolves to what the work does; rejects with HoldLost if the hold ended before the work
 * did.
 */
export function withLock<T>(
    client: Client,
    key: string,
    work: (hold: Hold) => T | PromiseLike<T>,
    options: LockOptions = {},
): Promise<T> {
    return withHold(lock(client, key, options), work);
}

/**
 * Runs the work with the hold that `pending` resolves to, and releases it in the end. Resolves to what the work resolves to;
 * rejects as the work does; rejects with HoldLost if the hold ended before the work did, even if the work has not noticed.
 */
export async function withHold<H extends Hold | Holds, T>(
    pending: H | PromiseLike<H>,
    work: (hold: H) => T | PromiseLike<T>,
): Promise<T> {
    const hold = await pending;
    let result;
    try {
        result = await work(hold);
        hold.throwIfLost();
    } catch (error) {
        await hold[Symbol.asyncDispose]();
        throw error;
    }
    if (hold._isEnded) {
        return result;
    }
    // Without an answer the lease was still running when the work ended, by the clock that throwIfLost looked at.
    if (!(await hold.release().catch(() => true))) {
        hold._throwEnded('it had ended before the work did');
    }
    return result;
}
