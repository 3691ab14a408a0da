// Wait groups.

'use strict';

const { acquire } = require('./acquire.js');
const { clientOf } = require('./client.js');
const { ms, option, texts } = require('./claim.js');
const { HoldLost } = require('./errors.js');
const { Hold } = require('./hold.js');
const { checkNames } = require('./options.js');
const { OwnConnection } = require('./own_connection.js');
const { ANSWER_MS, Backoff, Unanswered, isRetryable, untilAnswered } = require('./retry.js');
const { bounded, takeSignal } = require('./timing.js');

/** A WAIT is repeated so often, so that a server which has vanished is noticed. */
const LONGEST_BLOCK_MS = 2_000;
const EXPECT_FOR_MS = 10_000;

/** A member of a wait group. `done` counts its job; `release`, or the end of `await using`, leaves the job owed. */
class Member extends Hold {
    /** Ends the membership and counts its job. Resolves to whether it counted: not if the member had been lost. */
    async done() {
        const { isEnded } = await this._end(['DONE']);
        return isEnded;
    }
}

class Group {
    #client;
    #library;
    #requests;
    #options;

    constructor(client, key, options) {
        this.#client = client;
        ({ library: this.#library, requests: this.#requests } = clientOf(client));
        this.key = key;
        this.#options = options;
    }

    /** Adds a member, and waits until fewer than `limit` live, if there is a limit. Resolves to the member. */
    async add(options = {}) {
        checkNames('group', options);
        const all = { ...this.#options, ...options };
        const { hold } = await acquire(this.#client, 'group', this.key, all, option('LIMIT', all.limit), { Class: Member });
        return hold;
    }

    /**
     * Runs the work as a member: done if the work resolves, released if it rejects, so that its job stays owed. Rejects with
     * HoldLost if the member was lost before the work had ended.
     */
    async run(work, options = {}) {
        const member = await this.add(options);
        let result;
        try {
            result = await work(member);
        } catch (error) {
            await member[Symbol.asyncDispose]();
            throw error;
        }
        if (member._isEnded) {
            return result;
        }
        const { isEnded, isFirst } = await member._end(['DONE']);
        if (!isEnded && isFirst) {
            member.throwIfLost();
            throw new HoldLost(this.key, member.fence, 'it had ended before its job was done');
        }
        return result;
    }

    /** Says how many jobs the round has in all. Resolves to how many are still owed. */
    async expect(jobs) {
        const send = () => this.#requests.send(this.key, texts(['DWG.EXPECT', this.key, jobs]));
        const { answer } = await untilAnswered(this.#library, this.key, send, EXPECT_FOR_MS);
        return Number(answer);
    }

    /**
     * Waits until the round is finished. Resolves to `{ done, lapsed }`, or to null when it is not finished after `waitMs`.
     * It waits on a connection of its own, because a round has no place in a queue. Rejects when the group is removed.
     */
    async wait(options = {}) {
        checkNames('group.wait', options);
        const { waitMs, signal } = options;
        takeSignal(signal);
        const deadline = waitMs === undefined ? Infinity : performance.now() + ms('waitMs', waitMs);
        const words = (more = []) => texts(['DWG.WAIT', this.key, ...more]);
        const backoff = new Backoff();
        const connection = new OwnConnection(this.#library);
        let isFirst = true;
        try {
            for (;;) {
                signal?.throwIfAborted();
                const leftMs = Math.max(0, deadline - performance.now());
                try {
                    // The first look needs no connection. So does the last, which BLOCK 0 would turn into an endless wait.
                    const blockMs = Math.ceil(Math.min(LONGEST_BLOCK_MS, leftMs));
                    const isLook = isFirst || blockMs === 0;
                    const reply = isLook
                        ? await bounded(this.#requests.send(this.key, words()), ANSWER_MS, signal)
                        : await bounded(connection.send(this.key, words(['BLOCK', blockMs])), blockMs + ANSWER_MS, signal);
                    if (Array.isArray(reply)) {
                        return { done: Number(reply[0]), lapsed: Number(reply[1]) };
                    }
                    signal?.throwIfAborted();
                    if (reply === undefined) {
                        throw Unanswered.of(this.#library, this.key, ANSWER_MS);
                    }
                    isFirst = false;
                    backoff.reset();
                } catch (error) {
                    connection.close();
                    // The next look tells whether the server answers at all.
                    isFirst = true;
                    if (this.#library.isClosed || !isRetryable(this.#library, error)) {
                        throw error;
                    }
                    await backoff.pause(deadline - performance.now(), signal);
                }
                signal?.throwIfAborted();
                if (leftMs === 0) {
                    return null;
                }
            }
        } finally {
            connection.close();
        }
    }
}

/** Returns the wait group of the key. `options` are those of all its members. */
function group(client, key, options = {}) {
    checkNames('group', options);
    return new Group(client, key, options);
}

module.exports = { group, Group, Member };
