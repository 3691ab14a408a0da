// The options, and what they may be. An option with a wrong name would otherwise be left out in silence.

import type { Confirmation, Replicas } from './line.js';
import { CONFIRM_AT_MOST_MS, MARGIN_AT_MOST_MS } from './times.js';

/** How to ask for a hold. All durations are milliseconds. */
export interface HoldOptions {
    /** How long the hold lasts unless renewed, which is at a third. 1 to `dsync.max-lease-ms`; default 30000. */
    leaseMs?: number | undefined;
    /** How long to wait at most. 0 is a try, answered at once, or given up after two seconds. Default: without limit. */
    waitMs?: number | undefined;
    /** Gives up the wait when it aborts: the call rejects with its reason. It does not end a hold that was granted. */
    signal?: AbortSignal | undefined;
    /** Text for people, at most 128 bytes: who holds. Default: `user@host:pid`. The empty text is none. */
    owner?: string | undefined;
    /** How long before the end of its lease a hold counts as lost. Default: a tenth of the lease, at most 2000. */
    marginMs?: number | undefined;
    /** The hold is lost so long after its grant at the latest, whatever is renewed. Default: without limit. */
    maxHoldMs?: number | undefined;
    /** How long requests are repeated while nothing answers. Default: 30000. */
    retryForMs?: number | undefined;
    /**
     * How long the server keeps the place in the queue from the last sign of life, 1000 to 60000; default 5000. A process
     * that dies while it waits holds up the others for as long, or for its lease if that is shorter.
     */
    placeMs?: number | undefined;
    /**
     * Waits on a connection of its own (with BLOCK) instead of the subscription that all waits of the client share: one
     * connection for each wait, and no permission to subscribe is needed. Default: false.
     */
    ownConnection?: boolean | undefined;
    /**
     * How many replicas must know a grant, a renewal and a DONE before it counts; `'all'`: as many as the primary has
     * attached, at least one. Default: none.
     */
    replicas?: Replicas | undefined;
    /** Whether the disk of the primary, and of so many replicas, must have it too. Needs Redis 7.2. Default: false. */
    disk?: boolean | undefined;
    /** How long an answer waits to be confirmed before it is asked for again. Default: a tenth of the lease, at most 500. */
    withinMs?: number | undefined;
}

export interface LockOptions extends HoldOptions {
    /** Together with other shared holds. Default: alone. */
    shared?: boolean | undefined;
    /** For how long after its grant a hold that ends earlier keeps the key taken, 1 to `dsync.max-lease-ms`. Default: 0. */
    minHoldMs?: number | undefined;
}

export interface SemaphoreOptions extends HoldOptions {
    /** How many permits there are, 1 to 1000000. Default: the limit in force; without one the server says NOLIMIT. */
    limit?: number | undefined;
    /** How many permits to take, 1 to 1000000; default 1. */
    permits?: number | undefined;
    /** Free permits go to the lane that has the fewest in use. 1 to 128 bytes. Default: the lane of all without one. */
    lane?: string | undefined;
    /** How many permits the lane may have in use, 1 to 1000000. Default: as many as there are. */
    laneLimit?: number | undefined;
    /** For so long after its grant a hold that ends earlier keeps its permits taken, as of a lock. Default: 0. */
    minHoldMs?: number | undefined;
    /** Whether the hold gets an index. For one permit only. Default: false. */
    index?: boolean | undefined;
}

export interface GroupOptions extends HoldOptions {
    /** How many members may live at once, 1 to 1000000. Default: the limit in force, or none. */
    limit?: number | undefined;
}

export interface BeginOptions extends HoldOptions {
    /** How many attempts there may be in all, whoever makes them, 1 to 1000000. Default: any number. */
    maxAttempts?: number | undefined;
}

/** How long a result is kept. */
export interface KeepOptions {
    /** Milliseconds, 1 to ten years. Default: the setting `dsync.once-keep-ms`, which is a day. */
    keepMs?: number | undefined;
    /** Until the key is removed. Default: false. */
    forever?: boolean | undefined;
}

export interface OnceOptions extends BeginOptions, KeepOptions {
    /** After a failure nobody begins for so long. A function gets the number of the attempt that failed, from 1. */
    retryDelayMs?: number | ((attempt: number) => number) | undefined;
    /** Begins again when the work fails here, until it is done or `maxAttempts` are over, which it needs. Default: false. */
    untilDone?: boolean | undefined;
}

export type WaitOptions = Pick<HoldOptions, 'waitMs' | 'signal' | 'retryForMs'>;

export interface AllOfOptions extends HoldOptions {
    /** Acquires the keys in the order given, which must be the same everywhere. Default: in the order of their names. */
    inGivenOrder?: boolean | undefined;
}

const HOLD = [
    ...['leaseMs', 'waitMs', 'signal', 'owner', 'marginMs', 'maxHoldMs', 'retryForMs', 'placeMs', 'ownConnection'],
    ...['replicas', 'disk', 'withinMs'],
];
const KEEP = ['keepMs', 'forever'];
const BEGIN = [...HOLD, 'maxAttempts'];

const NAMES = {
    lock: [...HOLD, 'shared', 'minHoldMs'],
    semaphore: [...HOLD, 'limit', 'permits', 'lane', 'laneLimit', 'minHoldMs', 'index'],
    allOf: [...HOLD, 'inGivenOrder'],
    group: [...HOLD, 'limit'],
    'group.wait': ['waitMs', 'signal', 'retryForMs'],
    'once.begin': BEGIN,
    once: [...BEGIN, ...KEEP, 'retryDelayMs', 'untilDone'],
    'hold.renew': ['leaseMs'],
    'run.done': KEEP,
    'run.fail': ['delayMs'],
};

/** Throws a TypeError that names an option which the function does not have. */
export function checkNames(ofWhat: keyof typeof NAMES, options: object): void {
    if (typeof options !== 'object' || options === null) {
        throw new TypeError(`the options of ${ofWhat} must be an object, not ${String(options)}`);
    }
    for (const name of Object.keys(options)) {
        if (!NAMES[ofWhat].includes(name)) {
            throw new TypeError(`${ofWhat} has no option '${name}', only ${NAMES[ofWhat].join(', ')}`);
        }
    }
}

const DAY_MS = 86_400_000;
const COUNT = [1, 1_000_000] as const;
const TIME = [0, Infinity] as const;

/** The least and the most that numbers may be. Those that are not 0 are whole. */
const BOUNDS = {
    ...{ leaseMs: [1, 30 * DAY_MS], minHoldMs: [1, 30 * DAY_MS], keepMs: [1, 3_650 * DAY_MS] },
    ...{ withinMs: [1, Infinity], maxHoldMs: [1, Infinity], placeMs: [1_000, 60_000] },
    ...{ retryDelayMs: [0, 30 * DAY_MS], delayMs: [0, 30 * DAY_MS] },
    ...{ waitMs: TIME, marginMs: TIME, retryForMs: TIME },
    ...{ limit: COUNT, permits: COUNT, laneLimit: COUNT, maxAttempts: COUNT, jobs: COUNT },
} as const;

/** Returns the number that an option is given; throws a RangeError if it may not be that. */
export function number(name: keyof typeof BOUNDS, value: number): number {
    const [least, most] = BOUNDS[name];
    const isWhole = least > 0;
    if (typeof value !== 'number' || !(value >= least && value <= most) || (isWhole && !Number.isSafeInteger(value))) {
        const kind = `${isWhole ? 'whole ' : ''}number${name.endsWith('Ms') ? ' of milliseconds' : ''}`;
        const bounds = most === Infinity ? `, ${least} or more` : ` from ${least} to ${most}`;
        throw new RangeError(`${name} must be a ${kind}${bounds}, not ${String(value)}`);
    }
    return value;
}

/** The words of an option of the request; none if it is not given. */
export function option(word: string, name: keyof typeof BOUNDS, value: number | undefined): string[] {
    return value === undefined ? [] : [word, String(Math.ceil(number(name, value)))];
}

/** Returns a text of so many bytes. */
export function textOption(name: string, value: unknown, least: number): string {
    if (typeof value !== 'string') {
        throw new TypeError(`${name} must be a text, not ${String(value)}`);
    }
    const bytes = Buffer.byteLength(value);
    if (bytes < least || bytes > TEXT_BYTES) {
        throw new RangeError(`${name} must have ${least} to ${TEXT_BYTES} bytes, not ${bytes}`);
    }
    return value;
}

/** Checks the options of a lock, and returns the words of its request. */
export function lockWords(options: LockOptions): string[] {
    checkNames('lock', options);
    return [...(options.shared ? ['SHARED'] : []), ...option('MINHOLD', 'minHoldMs', options.minHoldMs)];
}

/** Checks the options of a semaphore, and returns the words of its request. */
export function semaphoreWords(options: SemaphoreOptions): string[] {
    checkNames('semaphore', options);
    const { limit, permits, lane, laneLimit, minHoldMs, index = false } = options;
    if (laneLimit !== undefined && lane === undefined) {
        throw new TypeError(`laneLimit is the limit of a lane, and there is no lane for the ${laneLimit}`);
    }
    if (index && permits !== undefined && permits !== 1) {
        throw new RangeError(`index is for one permit, not ${permits}`);
    }
    return [
        ...option('LIMIT', 'limit', limit),
        ...option('PERMITS', 'permits', permits),
        ...(lane === undefined ? [] : ['LANE', textOption('lane', lane, 1)]),
        ...option('LANELIMIT', 'laneLimit', laneLimit),
        ...option('MINHOLD', 'minHoldMs', minHoldMs),
        ...(index ? ['INDEX'] : []),
    ];
}

/** How long an owner and a lane may be. */
export const TEXT_BYTES = 128;

/** How long before the end of such a lease a hold counts as lost. */
export function marginOf(leaseMs: number, { marginMs }: HoldOptions): number {
    const margin = number('marginMs', marginMs ?? Math.min(leaseMs / 10, MARGIN_AT_MOST_MS));
    if (margin >= leaseMs) {
        throw new RangeError(`marginMs must be less than leaseMs (${leaseMs}), not ${margin}`);
    }
    return margin;
}

/** Returns what must confirm the answers of a hold; undefined if they count as they are. */
export function confirmationOf(key: string, leaseMs: number, options: HoldOptions): Confirmation | undefined {
    const { replicas, disk, withinMs } = options;
    if (replicas !== undefined && replicas !== 'all' && !(Number.isSafeInteger(replicas) && replicas >= 1)) {
        throw new RangeError(`replicas must be a whole number, 1 or more, or 'all', not ${String(replicas)}`);
    }
    if (disk !== undefined && typeof disk !== 'boolean') {
        throw new TypeError(`disk must be true or false, not ${String(disk)}`);
    }
    const within = number('withinMs', withinMs ?? Math.ceil(Math.min(leaseMs / 10, CONFIRM_AT_MOST_MS)));
    if (replicas === undefined && !disk) {
        if (withinMs !== undefined) {
            throw new TypeError('withinMs is for replicas or disk, and neither is given');
        }
        return undefined;
    }
    return { key, replicas: replicas ?? 0, withinMs: within, isDisk: disk ?? false };
}
