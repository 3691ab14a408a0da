// Work that is done once for the whole fleet.

import { acquire } from './acquire.js';
import { isAnswer } from './answers.js';
import type { Claim } from './claim.js';
import { clientOf } from './client.js';
import { reasonOf, WorkFailed } from './errors.js';
import { Hold } from './hold.js';
import type { Moment } from './lease.js';
import type { Client } from './libraries/library.js';
import { type BeginOptions, checkNames, type KeepOptions, number, type OnceOptions, option } from './options.js';
import { type Done, type Granted, outcomeOf } from './replies.js';

/** A reason is for people to read. The server takes much longer ones. */
const REASON_BYTES = 1_000;

/** What work-once may keep. It is kept as text; an object becomes its JSON; undefined and null become null. */
// eslint-disable-next-line @typescript-eslint/no-invalid-void-type -- work that returns nothing
export type Result = string | number | boolean | bigint | object | null | undefined | void;

/** A run to do, or what is done already. */
export type Begun = { kind: 'run'; run: Run } | Done;

/** A run of work-once. `release`, and the end of `await using`, hand the work back without counting an attempt. */
export class Run extends Hold {
    /** Which attempt this is, from 1. Above 1 an earlier one failed, or died: it may have done a part of the work. */
    readonly attempt: number;

    /** @internal */
    constructor(claim: Claim, found: Granted, sent: Moment) {
        super(claim, found, sent);
        this.attempt = Number(found.attempt);
    }

    /**
     * The work is done. Resolves to whether it counted: not if a newer attempt has begun. Rejects when the server refuses
     * the result; then the attempt has failed.
     */
    async done(result?: Result, options: KeepOptions = {}): Promise<boolean> {
        checkNames('run.done', options);
        return this._done(textOf(result), kept(options));
    }

    /** `delay` is that of the failure which a refused result becomes. @internal */
    async _done(text: string | null, words: string[], delay?: () => number | undefined): Promise<boolean> {
        try {
            return await this._end('DONE', ...(text === null ? [] : ['RESULT', text]), ...words);
        } catch (error) {
            if (isAnswer(error)) {
                await this._fail(error, delay);
            }
            throw error;
        }
    }

    /** The attempt has failed; the next begins after `delayMs`, at once by default. Resolves to whether it counted. */
    async fail(reason: unknown, options: { delayMs?: number | undefined } = {}): Promise<boolean> {
        checkNames('run.fail', options);
        const { delayMs } = options;
        const delay = option('DELAY', 'delayMs', delayMs);
        return this._end('FAIL', 'REASON', cut(String(reason)), ...delay);
    }

    /** Tells a failure, with no delay if that cannot be told: nobody else can begin before the run has ended. @internal */
    async _fail(error: unknown, delay?: () => number | undefined): Promise<void> {
        const reason = error instanceof Error ? reasonOf(error) : error;
        let delayMs;
        try {
            delayMs = number('retryDelayMs', delay?.() ?? 0);
        } catch {
            // A function of the caller, which has failed too.
        }
        await this.fail(reason, { delayMs }).catch(() => {});
    }
}

/**
 * Runs the work unless it is done already. Resolves to its value, whoever did it, as JSON keeps it; undefined becomes null. If
 * another process does the work, waits for it, and takes over if that one fails. Rejects as the work does when it fails here,
 * unless `untilDone` is given, and with WorkFailed when `maxAttempts` have failed.
 */
export async function once<T>(
    client: Client,
    key: string,
    work: (run: Run) => T | PromiseLike<T>,
    options: OnceOptions = {},
): Promise<T> {
    checkNames('once', options);
    const { retryDelayMs, untilDone = false, maxAttempts } = options;
    if (typeof retryDelayMs === 'number') {
        number('retryDelayMs', retryDelayMs);
    }
    if (untilDone && maxAttempts === undefined) {
        throw new TypeError('untilDone needs maxAttempts');
    }
    const words = kept(options);
    let failure: unknown;
    for (;;) {
        const begun = await begin(client, key, options).catch((error: unknown) => {
            throw error instanceof WorkFailed && failure !== undefined ? Object.assign(error, { cause: failure }) : error;
        });
        if (begun.kind === 'done') {
            return valueOf(begun.result) as T;
        }
        const { run } = begun;
        const delay = () => (typeof retryDelayMs === 'function' ? retryDelayMs(run.attempt) : retryDelayMs);
        let text;
        try {
            text = JSON.stringify((await work(run)) ?? null);
        } catch (error) {
            await run._fail(error, delay);
            if (untilDone) {
                failure = error;
                continue;
            }
            throw error;
        }
        if (!run._isEnded && !(await run._done(text, words, delay))) {
            run._throwEnded('another attempt has begun since');
        }
        return valueOf(text) as T;
    }
}

/** Returns the value of a result; that of another program may be no JSON, and is a text. */
function valueOf(text: string | null): unknown {
    try {
        return JSON.parse(text ?? 'null');
    } catch {
        return text;
    }
}

/** Begins the work, for callers that end the run themselves. */
once.begin = async (client: Client, key: string, options: BeginOptions = {}): Promise<Begun> => {
    checkNames('once.begin', options);
    return begin(client, key, options);
};

/** Resolves to the value if the work is done, otherwise to null. It begins nothing. */
once.get = async (client: Client, key: string): Promise<{ result: unknown; attempt: number } | null> => {
    const found = outcomeOf(await clientOf(client).requests.ask(key, ['DONCE.GET', key]));
    return found.kind === 'done' ? { result: valueOf(found.result), attempt: found.attempt } : null;
};

async function begin(client: Client, key: string, options: BeginOptions): Promise<Begun> {
    const found = await acquire(client, 'once', key, options, option('MAX', 'maxAttempts', options.maxAttempts), Run);
    return found instanceof Run ? { kind: 'run', run: found } : found;
}

/** The words of DONE for how long its result is kept. */
function kept({ keepMs, forever = false }: KeepOptions): string[] {
    if (forever && keepMs !== undefined) {
        throw new TypeError('forever is given instead of keepMs, and not beside it');
    }
    return forever ? ['PERSIST'] : option('PX', 'keepMs', keepMs);
}

/** A result is kept as text. An object becomes its JSON, here as for everybody who gets it later. */
function textOf(result: Result): string | null {
    if (result === undefined || result === null) {
        return null;
    }
    return typeof result === 'object' ? JSON.stringify(result) : String(result);
}

/** Cuts a text to the bytes of a reason, between two characters. */
function cut(text: string): string {
    return new TextDecoder().decode(Buffer.from(text).subarray(0, REASON_BYTES), { stream: true });
}
