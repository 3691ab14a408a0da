// The types of dsync-client. They name no types of ioredis or node-redis, because most users have only one of them.

/** A client of ioredis (Redis, Cluster) or of node-redis (createClient, createCluster, createSentinel). Not a pool. */
export type Client = IoredisClient | NodeRedisClient;

/** What is used of ioredis. */
export interface IoredisClient {
    call(...args: any[]): any;
    duplicate(...args: any[]): any;
}

/** What is used of node-redis. */
export interface NodeRedisClient {
    sendCommand(...args: any[]): any;
    /** The clients of createSentinel in node-redis 5 do not have it. */
    duplicate?(...args: any[]): any;
}

/** How to ask for a hold. All durations are milliseconds. */
export interface HoldOptions {
    /** How long the hold lasts unless renewed. It is renewed at a third of this. 1 to `dsync.max-lease-ms`; default 30000. */
    leaseMs?: number;
    /**
     * How long to wait at most. 0 is a try, answered at once, or given up after two seconds. Default: without limit.
     */
    waitMs?: number;
    /** Gives up the wait when it aborts: the call rejects with its reason. It does not end a hold that was granted. */
    signal?: AbortSignal;
    /** Text for people, at most 128 bytes: who holds. Default: `user@host:pid`. The empty text is none. */
    owner?: string;
    /** How long before the end of its lease a hold counts as lost. Default: a tenth of the lease, at most 2000. */
    marginMs?: number;
    /**
     * How long the server keeps the place in the queue from the last sign of life, 1000 to 60000; default 5000. A process
     * that dies while it waits holds up the others for as long, or for its lease if that is shorter.
     */
    placeMs?: number;
    /**
     * Waits on a connection of its own (with BLOCK) instead of the subscription that all waits of the client share: one
     * connection for each wait, and no permission to subscribe is needed. Default: false.
     */
    ownConnection?: boolean;
}

export interface LockOptions extends HoldOptions {
    /** Together with other shared holds. Default: alone. */
    shared?: boolean;
    /** For how long after its grant a hold that ends earlier keeps the key taken, 1 to `dsync.max-lease-ms`. Default: 0. */
    minHoldMs?: number;
}

export interface SemaphoreOptions extends HoldOptions {
    /** How many permits there are, 1 to 1000000. Default: the limit in force; where there is none, the server says NOLIMIT. */
    limit?: number;
    /** How many permits to take, 1 to 1000000; default 1. */
    permits?: number;
    /** Free permits go to the lane that has the fewest in use. A text of 1 to 128 bytes. Default: the lane of all without one. */
    lane?: string;
    /** How many permits the lane may have in use, 1 to 1000000. Default: as many as there are. */
    laneLimit?: number;
    /** For how long after its grant a hold that ends earlier keeps its permits taken, 1 to `dsync.max-lease-ms`. Default: 0. */
    minHoldMs?: number;
    /** Whether the hold gets an index. For one permit only. Default: false. */
    index?: boolean;
}

export interface GroupOptions extends HoldOptions {
    /** How many members may live at once, 1 to 1000000. Default: the limit in force, or none. */
    limit?: number;
}

export interface BeginOptions extends HoldOptions {
    /** How many attempts there may be in all, whoever makes them, 1 to 1000000. Default: any number. */
    maxAttempts?: number;
}

/** How long a result is kept. */
export interface KeepOptions {
    /** Milliseconds, 1 to ten years. Default: the setting `dsync.once-keep-ms`, which is a day. */
    keepMs?: number;
    /** Until the key is removed. Default: false. */
    forever?: boolean;
}

export interface OnceOptions extends BeginOptions, KeepOptions {
    /** After a failure nobody begins for so long. A function gets the number of the attempt that failed, from 1. */
    retryDelayMs?: number | ((attempt: number) => number);
}

export interface WaitOptions {
    waitMs?: number;
    signal?: AbortSignal;
}

/**
 * A lock, permits of a semaphore, a membership or a run that is held, and renewed until it is released or lost, or until
 * nobody has this object, its signal or a listener there.
 */
export class Hold {
    protected constructor();
    readonly key: string;
    /** The public number of the hold. It only grows, so the resource can refuse a smaller one than it has seen. */
    readonly fence: number;
    /** The lowest number from 0 that no other hold of the semaphore had at the grant; undefined unless it was asked for. */
    readonly index: number | undefined;
    /** Aborts with a HoldLost when the hold is lost; never when it is released. Give it to the work. */
    readonly signal: AbortSignal;
    /** For how long the hold is certain without another renewal; 0 after its end. */
    readonly leftMs: number;
    /** Whether the hold was neither released nor lost. */
    readonly isHeld: boolean;
    /** Throws a HoldLost if the hold is lost. */
    throwIfLost(): void;
    /**
     * Renews the lease now. Resolves to false when the hold had ended: then it is lost. Rejects after two seconds without an
     * answer.
     */
    renew(): Promise<boolean>;
    /**
     * Ends the hold. Resolves to whether the server ended it now: false if it had been released or lost before. Rejects when
     * the server has not answered for a lease and five seconds.
     */
    release(): Promise<boolean>;
    /** Releases the hold. Does not reject. */
    [Symbol.asyncDispose](): Promise<void>;
}

/** The holds of `allOf`. */
export class Holds {
    private constructor();
    /** In the order in which the keys were given. */
    readonly holds: readonly Hold[];
    /** Aborts with a HoldLost when the first hold is lost. */
    readonly signal: AbortSignal;
    readonly leftMs: number;
    readonly isHeld: boolean;
    throwIfLost(): void;
    /** Releases all. Resolves to whether the server ended every one of them now. */
    release(): Promise<boolean>;
    [Symbol.asyncDispose](): Promise<void>;
}

/** A member of a wait group. `release`, and the end of `await using`, leave its job owed. */
export class Member extends Hold {
    private constructor();
    /** Ends the membership and counts its job. Resolves to whether it counted: not if the member was lost. */
    done(): Promise<boolean>;
}

/** A run of work-once. `release`, and the end of `await using`, hand the work back without counting an attempt. */
export class Run extends Hold {
    private constructor();
    /** Which attempt this is, from 1. */
    readonly attempt: number;
    /**
     * The work is done. Resolves to whether it counted: not if a newer attempt has begun. Rejects when the server refuses
     * the result; then the attempt has failed.
     */
    done(result?: Result, options?: KeepOptions): Promise<boolean>;
    /** The attempt has failed; the next begins after `delayMs`, at once by default. Resolves to whether it counted. */
    fail(reason: unknown, options?: { delayMs?: number }): Promise<boolean>;
}

/** What work-once may keep. It is kept as text; an object becomes its JSON; undefined and null become null. */
export type Result = string | number | boolean | bigint | object | null | undefined | void;

export class Group {
    private constructor();
    readonly key: string;
    /** Adds a member; waits until fewer than `limit` live. */
    add(options?: GroupOptions): Promise<Member>;
    /** Runs the work as a member: done if it resolves; released, its job still owed, if it rejects. */
    run<T>(work: (member: Member) => T | PromiseLike<T>, options?: GroupOptions): Promise<T>;
    /** Says how many jobs the round has in all, 1 to 1000000. Resolves to how many are still owed. */
    expect(jobs: number): Promise<number>;
    /** Waits until the round is finished. Resolves to null if it is not by the end of `waitMs`. */
    wait(options?: WaitOptions): Promise<{ done: number; lapsed: number } | null>;
}

/** Waits for a lock. Rejects with NotAcquired when `waitMs` is over. */
export function lock(client: Client, key: string, options?: LockOptions): Promise<Hold>;

/**
 * Holds a lock while the work runs. Resolves to what the work does; rejects with HoldLost if the hold ended before the work
 * did.
 */
export function withLock<T>(
    client: Client,
    key: string,
    work: (hold: Hold) => T | PromiseLike<T>,
    options?: LockOptions,
): Promise<T>;

/** Waits for permits of a semaphore. */
export function semaphore(client: Client, key: string, options?: SemaphoreOptions): Promise<Hold>;

/** Names a wait group. The options are those of all its members. It sends nothing. */
export function group(client: Client, key: string, options?: GroupOptions): Group;

/** Runs the work unless it is done already. Resolves to its result, whoever did it. */
export const once: {
    (client: Client, key: string, work: (run: Run) => Result | PromiseLike<Result>, options?: OnceOptions): Promise<string | null>;
    /** Begins the work, for callers that end the run themselves. */
    begin(
        client: Client,
        key: string,
        options?: BeginOptions,
    ): Promise<{ run: Run; result?: undefined; attempt?: undefined } | { run?: undefined; result: string | null; attempt: number }>;
    /** Resolves to the result if the work is done, otherwise to null. */
    get(client: Client, key: string): Promise<{ result: string | null; attempt: number } | null>;
};

/** A key of `allOf`: a text is a lock. */
export type Want =
    | string
    | ({ lock: string } & Omit<LockOptions, keyof HoldOptions>)
    | ({ semaphore: string } & Omit<SemaphoreOptions, keyof HoldOptions>);

/**
 * Waits for several keys, which are acquired one after the other in the order of their names, so that no two callers wait
 * for each other. With `inGivenOrder` in the order given, which must then be the same everywhere.
 */
export function allOf(client: Client, keys: readonly Want[], options?: HoldOptions & { inGivenOrder?: boolean }): Promise<Holds>;

/** Runs the work with a hold, `withHold(semaphore(…), work)`, and releases it in the end; see withLock. */
export function withHold<H extends Hold | Holds, T>(
    pending: H | PromiseLike<H>,
    work: (hold: H) => T | PromiseLike<T>,
): Promise<T>;

/** Closes the subscription of a client's waits now. Otherwise it closes seconds after the last wait has ended. */
export function closeSubscription(client: Client): void;

/** The base class of the errors of this package. */
export class DsyncError extends Error {}

/** The key was not acquired: a try was refused, or the wait ran out. */
export class NotAcquired extends DsyncError {
    readonly key: string;
    /**
     * Who held the key a moment later; empty where INFO is not allowed or not answered. `restingMs` is for how long a hold
     * that has ended still keeps its place taken (`minHoldMs`); others do not have it.
     */
    readonly holders: ReadonlyArray<{
        owner: string | null;
        fence: number;
        leaseLeftMs: number;
        heldMs: number;
        restingMs?: number;
    }>;
}

/** The hold has ended, or its lease ran out without an answer: another may hold the key. */
export class HoldLost extends DsyncError {
    readonly key: string;
    readonly fence: number | string;
}

/** The work has failed as often as `maxAttempts` allows. */
export class WorkFailed extends DsyncError {
    readonly key: string;
    /** That of the last attempt. */
    readonly reason: string;
    readonly attempts: number;
}
