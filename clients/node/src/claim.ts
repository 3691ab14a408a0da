// What a caller claims: a key of a family under a token of its own. The token names one request, so that the request may be
// repeated, and is never used again.

import { randomUUID } from 'node:crypto';
import { hostname, userInfo } from 'node:os';

import { isAnswer } from './answers.js';
import { clientOf } from './client.js';
import type { Client, Library, Words } from './libraries/library.js';
import type { Confirmation, DoneSoFar } from './line.js';
import { confirmationOf, type HoldOptions, marginOf, number, TEXT_BYTES, textOption } from './options.js';
import type { Reply } from './replies.js';
import type { Requests } from './requests.js';
import { ANSWER_WITHIN_MS, LEASE_MS, PLACE_KEPT_FOR_MS } from './times.js';
import type { Rounds } from './timing.js';
import type { Turns } from './turns.js';

/** The prefix of each family's commands, and its command that grants. */
const FAMILIES = {
    lock: ['DLOCK', 'ACQUIRE'],
    semaphore: ['DSEM', 'ACQUIRE'],
    group: ['DWG', 'ADD'],
    once: ['DONCE', 'BEGIN'],
} as const;

export type Family = keyof typeof FAMILIES;

export class Claim {
    readonly library: Library;
    readonly requests: Requests;
    readonly renewals: Rounds;
    readonly turns: Turns;
    readonly key: string;
    readonly leaseMs: number;
    readonly maxHoldMs: number;
    readonly placeMs: number;
    readonly needs: Confirmation | undefined;
    /** Not to be shown to anybody. */
    readonly #token = randomUUID();
    readonly #done: DoneSoFar;
    readonly #options: HoldOptions;
    readonly #prefix: string;
    readonly #grant: string;
    readonly #words: string[];
    /** Whether an end went over the caller's client, which may send it again by itself: its answer may be to a repetition. */
    isEndOverClient = false;

    /** `words` are the options of the family in the request. */
    constructor(client: Client, readonly family: Family, key: string, options: HoldOptions, words: string[]) {
        if (typeof key !== 'string' || key === '') {
            throw new TypeError('the key must be a string, and not empty');
        }
        ({ library: this.library, requests: this.requests, renewals: this.renewals, turns: this.turns } = clientOf(client));
        this.key = key;
        this.maxHoldMs = options.maxHoldMs === undefined ? Infinity : number('maxHoldMs', options.maxHoldMs);
        this.leaseMs = Math.min(number('leaseMs', options.leaseMs ?? LEASE_MS), this.maxHoldMs);
        this.#options = options;
        this.#done = { isAnsweredAgain: family === 'once' };
        this.marginOf(this.leaseMs);
        this.needs = confirmationOf(key, this.leaseMs, options);
        this.placeMs = number('placeMs', options.placeMs ?? PLACE_KEPT_FOR_MS);
        [this.#prefix, this.#grant] = FAMILIES[family];
        const owner = textOption('owner', options.owner ?? thisProcess(), 0);
        this.#words = [...words, ...(owner === '' ? [] : ['OWNER', owner])];
    }

    /** The address of the server that has the key, for errors. */
    get server(): string {
        return this.library.serverOf(this.key);
    }

    /** How long before the end of such a lease the hold counts as lost. */
    marginOf(leaseMs: number): number {
        return marginOf(leaseMs, this.#options);
    }

    /** An answer is overdue after this, also one that must be confirmed. */
    get answerMs(): number {
        return ANSWER_WITHIN_MS + (this.needs?.withinMs ?? 0);
    }

    /** The request for the hold; `waiting` is its QUEUE or BLOCK, if it has one. */
    request(waiting: string[]): Words {
        const lease = String(this.leaseMs);
        return [`${this.#prefix}.${this.#grant}`, this.key, 'TOKEN', this.#token, 'PX', lease, ...this.#words, ...waiting];
    }

    /** Sends the request over a connection that all requests of the client share. */
    ask(waiting: string[]): Promise<Reply> {
        return this.#send(this.request(waiting), this.needs);
    }

    /** Renews over the connection of renewals, or where the request was sent. */
    renew(leaseMs: number, isBeside = true): Promise<Reply> {
        const words = this.#renewal(leaseMs);
        const reply = isBeside ? this.requests.sendBeside(this.key, words, this.needs) : this.#send(words, this.needs);
        return reply.catch(noneIfWrongType);
    }

    #renewal(leaseMs: number): Words {
        return [`${this.#prefix}.RENEW`, this.key, this.#token, 'PX', String(leaseMs)];
    }

    /** Sends what ends the hold: RELEASE, DONE or FAIL. `renewMs` is for how long it may be renewed for that, if at all. */
    end(verb: string, words: string[], renewMs = 0): Promise<Reply> {
        const command: Words = [`${this.#prefix}.${verb}`, this.key, this.#token, ...words];
        this.#done.renewal = renewMs > 0 ? this.#renewal(renewMs) : undefined;
        const needs = verb === 'DONE' && this.needs ? { ...this.needs, done: this.#done } : undefined;
        const overClient = () => void (this.isEndOverClient = true);
        return this.requests.sendBeside(this.key, command, needs, overClient).catch(noneIfWrongType);
    }

    /** Takes back the request where it was sent, so that it is not overtaken. */
    withdraw(): Promise<Reply> {
        return this.#send([`${this.#prefix}.RELEASE`, this.key, this.#token], undefined).catch(noneIfWrongType);
    }

    info(): Promise<Reply> {
        return this.requests.send(this.key, [`${this.#prefix}.INFO`, this.key, 'COUNT', '3']);
    }

    #send(words: Words, needs: Confirmation | undefined): Promise<Reply> {
        const { requests, key } = this;
        return needs === undefined ? requests.send(key, words) : requests.sendBeside(key, words, needs);
    }
}

/** The key has another value now: that says what the answer 0 says, that there is no hold. */
function noneIfWrongType(error: unknown): Reply {
    if (isAnswer(error, 'WRONGTYPE')) {
        return 0;
    }
    throw error;
}

let owner: string | undefined;

/** Returns `user@host:pid` of this process, in 128 bytes: the end of a long host name is left out. It is looked up once. */
function thisProcess(): string {
    if (owner === undefined) {
        const [before, after] = [`${userName()}@`, `:${process.pid}`];
        const left = TEXT_BYTES - Buffer.byteLength(before) - Buffer.byteLength(after);
        owner = `${before}${hostname().slice(0, Math.max(0, left))}${after}`;
    }
    return owner;
}

function userName(): string {
    try {
        return userInfo().username;
    } catch {
        // A user id without a name, as in many containers.
        return String(process.geteuid?.());
    }
}
