// Wait groups.

import { acquire } from './acquire.js';
import { Unanswered } from './answers.js';
import { clientOf } from './client.js';
import { Hold } from './hold.js';
import type { Client, Words } from './libraries/library.js';
import { OwnConnection } from './line.js';
import { checkNames, type GroupOptions, number, option, type WaitOptions } from './options.js';
import { untilAnswered } from './retry.js';
import { ANSWER_WITHIN_MS, BLOCK_AT_MOST_MS, RETRY_FOR_MS } from './times.js';
import { takeSignal } from './timing.js';

/** A member of a wait group. `release`, and the end of `await using`, leave its job owed. */
export class Member extends Hold {
    /** Ends the membership and counts its job. Resolves to whether it counted: not if the member was lost. */
    async done(): Promise<boolean> {
        return this._end('DONE');
    }
}

export class Group {
    readonly key: string;
    readonly #client: Client;
    readonly #options: GroupOptions;

    /** @internal */
    constructor(client: Client, key: string, options: GroupOptions) {
        clientOf(client);
        this.#client = client;
        this.key = key;
        this.#options = options;
    }

    /** Adds a member; waits until fewer than `limit` live. */
    async add(options: GroupOptions = {}): Promise<Member> {
        checkNames('group', options);
        const all = { ...this.#options, ...options };
        return (await acquire(this.#client, 'group', this.key, all, option('LIMIT', 'limit', all.limit), Member)) as Member;
    }

    /**
     * Runs the work as a member: done if it resolves; released, its job still owed, if it rejects. Rejects with HoldLost if
     * the member was lost before the work had ended.
     */
    async run<T>(work: (member: Member) => T | PromiseLike<T>, options: GroupOptions = {}): Promise<T> {
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
        if (!(await member.done())) {
            member._throwEnded('it had ended before its job was done');
        }
        return result;
    }

    /** Says how many jobs the round has in all, 1 to 1000000. Resolves to how many are still owed. */
    async expect(jobs: number): Promise<number> {
        const words: Words = ['DWG.EXPECT', this.key, String(number('jobs', jobs))];
        return Number(await clientOf(this.#client).requests.ask(this.key, words));
    }

    /**
     * Waits until the round is finished, on a connection of its own. Resolves to null if it is not by the end of `waitMs`.
     * Rejects when the group is removed.
     */
    async wait(options: WaitOptions = {}): Promise<{ done: number; lapsed: number } | null> {
        checkNames('group.wait', options);
        const { waitMs, signal, retryForMs = RETRY_FOR_MS } = options;
        takeSignal(signal);
        const { library, requests } = clientOf(this.#client);
        const deadline = waitMs === undefined ? Infinity : performance.now() + number('waitMs', waitMs);
        const words: Words = ['DWG.WAIT', this.key];
        const connection = new OwnConnection(library);
        const answerMs = BLOCK_AT_MOST_MS + ANSWER_WITHIN_MS;
        // The first look needs no connection, and tells after a failure whether the server answers at all. So does the last,
        // which BLOCK 0 would turn into an endless wait.
        let isLook = true;
        const ask = () => {
            const blockMs = Math.ceil(Math.min(BLOCK_AT_MOST_MS, deadline - performance.now()));
            if (isLook || blockMs <= 0) {
                connection.close();
                return requests.send(this.key, words);
            }
            isLook = true;
            return connection.send(this.key, [...words, 'BLOCK', String(blockMs)]);
        };
        try {
            for (;;) {
                const leftMs = Math.max(0, deadline - performance.now());
                const forMs = Math.min(retryForMs, leftMs + ANSWER_WITHIN_MS);
                const asked = untilAnswered(library, this.key, ask, forMs, { answerMs, signal });
                const reply = await asked.catch((error: unknown) => {
                    if (error instanceof Unanswered && performance.now() >= deadline) {
                        return undefined;
                    }
                    throw error;
                });
                if (Array.isArray(reply?.answer)) {
                    return { done: Number(reply.answer[0]), lapsed: Number(reply.answer[1]) };
                }
                if (leftMs === 0 || reply === undefined) {
                    return null;
                }
                isLook = false;
            }
        } finally {
            connection.close();
        }
    }
}

/** Names a wait group. The options are those of all its members. It sends nothing. */
export function group(client: Client, key: string, options: GroupOptions = {}): Group {
    checkNames('group', options);
    return new Group(client, key, options);
}
