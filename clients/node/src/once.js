// Work that is done once for the whole fleet.

'use strict';

const { acquire } = require('./acquire.js');
const { option, texts } = require('./claim.js');
const { clientOf } = require('./client.js');
const { HoldLost, reasonOf } = require('./errors.js');
const { Hold } = require('./hold.js');
const { checkNames } = require('./options.js');
const { doneOf } = require('./replies.js');
const { isAnswer, untilAnswered } = require('./retry.js');

/** A reason is for people to read. The server takes much longer ones. */
const REASON_CHARACTERS = 1_000;

const GET_FOR_MS = 10_000;

/** A run of the work: the hold of who does it. It ends by done, fail or release; otherwise its lease ends it, as failed. */
class Run extends Hold {
    constructor(claim, found, sent) {
        super(claim, found, sent);
        /** Which attempt this is, from 1. Above 1 an earlier one failed, or died: it may have done a part of the work. */
        this.attempt = found.attempt;
    }

    /**
     * The work is done: everybody gets the result, a text or null, for `keepMs` milliseconds (by default for as long as the
     * setting dsync.once-keep-ms says), or `forever`. Resolves to whether it counted: not if a newer attempt has begun.
     * Rejects when the server refuses the result; then the attempt has failed.
     */
    async done(result, options = {}) {
        checkNames('run.done', options);
        try {
            return await this._done(textOf(result), options);
        } catch (error) {
            if (isAnswer(error)) {
                await this.fail(reasonOf(error)).catch(() => {});
            }
            throw error;
        }
    }

    /** Ends the run as done, and does not judge it when the result is refused. For this package only. */
    async _done(text, { keepMs, forever = false }) {
        const kept = forever ? ['PERSIST'] : keepMs === undefined ? [] : ['PX', keepMs];
        const { isEnded } = await this._end(['DONE', ...(text === null ? [] : ['RESULT', text]), ...kept]);
        return isEnded;
    }

    /** This attempt has failed. The next begins at once, or in `delayMs` milliseconds. Resolves to whether it counted. */
    async fail(reason, options = {}) {
        checkNames('run.fail', options);
        const { delayMs } = options;
        const delay = delayMs === undefined ? [] : ['DELAY', delayMs];
        const { isEnded } = await this._end(['FAIL', 'REASON', String(reason).slice(0, REASON_CHARACTERS), ...delay]);
        return isEnded;
    }
}

/**
 * Runs the work unless it is done already, and resolves to its result, a text or null: of this call or of the one that did
 * it. If another process does the work, waits for it, and takes over if that one fails. Rejects as the work does when it
 * fails here, and with WorkFailed when `maxAttempts` have failed.
 */
async function once(client, key, work, options = {}) {
    checkNames('once', options);
    const { run, result } = await begun(client, key, options);
    if (run === undefined) {
        return result;
    }
    const { keepMs, forever, retryDelayMs } = options;
    let text;
    let counted;
    try {
        text = textOf(await work(run));
        if (run._isEnded) {
            return text;
        }
        counted = await run._done(text, { keepMs, forever });
    } catch (error) {
        // Without a newer attempt nobody else can begin before the lease is over; so say now that this one has failed.
        const delayMs = typeof retryDelayMs === 'function' ? retryDelayMs(run.attempt) : retryDelayMs;
        await run.fail(error instanceof Error ? reasonOf(error) : error, { delayMs }).catch(() => {});
        throw error;
    }
    if (!counted) {
        run.throwIfLost();
        throw new HoldLost(key, run.fence, 'another attempt has begun since');
    }
    return text;
}

/**
 * Begins the work, for callers that end the run themselves. Resolves to `{ run }`, or to `{ result, attempt }` if the work is
 * done already.
 */
async function begin(client, key, options = {}) {
    checkNames('once.begin', options);
    return begun(client, key, options);
}

async function begun(client, key, options) {
    const words = option('MAX', options.maxAttempts);
    const { hold, done } = await acquire(client, 'once', key, options, words, { Class: Run });
    return hold === undefined ? done : { run: hold };
}

/** Resolves to `{ result, attempt }` if the work is done, otherwise to null. It begins nothing. */
async function get(client, key) {
    const { library, requests } = clientOf(client);
    const send = () => requests.send(key, texts(['DONCE.GET', key]));
    const { answer } = await untilAnswered(library, key, send, GET_FOR_MS);
    return doneOf(answer);
}

/** A result is kept as text. An object becomes its JSON, here as for everybody who gets it later. */
function textOf(result) {
    if (result === undefined || result === null) {
        return null;
    }
    return typeof result === 'object' ? JSON.stringify(result) : String(result);
}

once.begin = begin;
once.get = get;

module.exports = { once, Run };
