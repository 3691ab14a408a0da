// Semaphores.

import { acquire } from './acquire.js';
import { Hold } from './hold.js';
import type { Client } from './libraries/library.js';
import { infoOf } from './lock.js';
import { checkNames, minHold, option, type SemaphoreOptions } from './options.js';
import { type Holder, holdersOf } from './replies.js';

/** Waits for permits of a semaphore, one if not told otherwise. */
export async function semaphore(client: Client, key: string, options: SemaphoreOptions = {}): Promise<Hold> {
    checkNames('semaphore', options);
    return (await acquire(client, 'semaphore', key, options, wordsOf(options), Hold)) as Hold;
}

/** Resolves to how many permits are free; null if nobody has used the semaphore, so that the limit is not known. */
semaphore.available = async (client: Client, key: string): Promise<number | null> => {
    const { available = null } = await infoOf(client, 'DSEM', key);
    return available === null ? null : Number(available);
};

/** Resolves to whether no permit is to be had now. It takes nothing. */
semaphore.locked = async (client: Client, key: string): Promise<boolean> => {
    const { state = 'open' } = await infoOf(client, 'DSEM', key);
    return state !== 'open';
};

/** Resolves to who holds permits, ten at most. It takes nothing. */
semaphore.holders = async (client: Client, key: string): Promise<Holder[]> => holdersOf(await infoOf(client, 'DSEM', key));

function wordsOf({ limit, permits, lane, laneLimit, index = false, minHoldMs }: SemaphoreOptions): string[] {
    if (lane !== undefined && typeof lane !== 'string') {
        throw new TypeError(`lane must be a text, not ${String(lane)}`);
    }
    if (laneLimit !== undefined && lane === undefined) {
        throw new TypeError(`laneLimit is the limit of a lane, and there is no lane for the ${laneLimit}`);
    }
    if (index && permits !== undefined && permits !== 1) {
        throw new RangeError(`index is for one permit, not ${permits}`);
    }
    return [
        ...option('LIMIT', limit),
        ...option('PERMITS', permits),
        ...option('LANE', lane),
        ...option('LANELIMIT', laneLimit),
        ...minHold({ minHoldMs }),
        ...(index ? ['INDEX'] : []),
    ];
}
