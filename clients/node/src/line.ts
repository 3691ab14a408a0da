// A connection of this package beside the caller's client: for renewals, for a request that blocks, which would keep all
// others of its connection waiting, for what must be confirmed, and for the time in which the caller's client is silent.
//
// What was sent may arrive late, when its caller has given up and has released the token elsewhere. So a connection that
// owes an answer is not closed under it: the answer tells when the token can be released for good.
//
// WAIT and WAITAOF keep all that follows on their connection waiting. So what is asked while one is out is written together
// when it is answered, with one more behind it, for the highest number of replicas. It counts for all that was written
// before on the connection, so what is not confirmed yet takes part in the next one, until its time is over.

import { isAnswer, ofOpening, Unanswered } from './answers.js';
import { DsyncError, NotConfirmed, reasonOf } from './errors.js';
import type { Address, Connection, Library, Words } from './libraries/library.js';
import { outcomeOf, type Reply } from './replies.js';

/** A connection that is used no more waits so long for the answers that it still owes. */
const LINGER_MS = 60_000;
/** How long one WAIT keeps others waiting; it is repeated for those who wait longer. */
const LONGEST_WAIT_MS = 500;

/** So many replicas, or as many as the primary has attached when it answers, at least one. */
export type Replicas = number | 'all';

/** What confirms the answers to a request and to its repetitions. */
export interface Confirmation {
    readonly key: string;
    /** 0 for none: then the disk of the primary is enough. */
    readonly replicas: Replicas;
    readonly withinMs: number;
    readonly isDisk: boolean;
    readonly done?: DoneSoFar;
}

/**
 * What is known of a DONE. Only the first is a write, and WAIT knows what was written on its own connection. So it is
 * confirmed on the line where it was sent first, or not at all. When it is answered there it is not sent again, only what
 * confirms it.
 */
export interface DoneSoFar {
    /** Whether the server answers a repetition as it did the first. */
    readonly isAnsweredAgain: boolean;
    /** The RENEW that comes right before it on another line, in the same write: if that finds the hold, it is the first. */
    renewal?: Words | undefined;
    line?: Line | undefined;
    answer?: Reply;
}

interface Asked {
    words: Words;
    needs: Confirmation | undefined;
    resolve: (reply: Reply) => void;
    reject: (error: unknown) => void;
}

/** What was answered, and counts when it is confirmed. */
interface Unconfirmed extends Asked {
    needs: Confirmation;
    answer: Reply;
    until: number;
}

/** Whether an answer counts only when it is confirmed: a grant, or 1 to RENEW and DONE. */
function isToConfirm(answer: Reply): boolean {
    return outcomeOf(answer).kind === 'granted' || Number(answer) === 1;
}

/** One open connection. */
export class Line {
    #queue: Asked[] = [];
    #unconfirmed: Unconfirmed[] = [];
    #isWriting = false;
    /** The answers that are owed. */
    readonly #owed = new Set<Promise<Reply>>();

    constructor(private readonly connection: Connection) {}

    /** Sends a command. Settles as its reply does, when it counts. */
    send(words: Words, needs?: Confirmation): Promise<Reply> {
        return new Promise((resolve, reject) => {
            this.#queue.push({ words, needs, resolve, reject });
            if (!this.#isWriting) {
                this.#isWriting = true;
                process.nextTick(() => void this.#write());
            }
        });
    }

    /** Writes what was asked in this turn, or while it was being confirmed, together. */
    async #write(): Promise<void> {
        while (this.#queue.length > 0 || this.#unconfirmed.length > 0) {
            const asked = this.#queue.splice(0);
            const needs = [...this.#unconfirmed, ...asked].flatMap((one) => one.needs ?? []);
            const isAll = needs.some(({ replicas }) => replicas === 'all');
            // With `all` the primary is asked first how many that is.
            const behind: Words[] = isAll ? [['ROLE']] : this.#confirming(needs, 0);
            const sent = asked.filter((one) => !this.#isAnsweredHere(one));
            const replies = this.#sendNow([...sent.flatMap((one) => this.#commandsOf(one)), ...behind]);
            const answers = sent.map((one) => this.#answered(one, replies.splice(0, this.#commandsOf(one).length)));
            if (needs.length === 0) {
                continue;
            }
            try {
                await Promise.all(answers);
                const told = await Promise.all(replies);
                const attached = isAll ? attachedOf(told[0]) : 0;
                this.#confirm(isAll ? await Promise.all(this.#sendNow(this.#confirming(needs, attached))) : told, attached);
            } catch (error) {
                this.#failed(error);
            }
        }
        this.#isWriting = false;
    }

    #sendNow(commands: readonly Words[]): Promise<Reply>[] {
        const replies = this.connection.send(commands);
        for (const reply of replies) {
            this.#owed.add(reply);
            const settled = () => this.#owed.delete(reply);
            reply.then(settled, settled);
        }
        return replies;
    }

    /** Whether it is a DONE that was answered on this line, and only waits to be confirmed. */
    #isAnsweredHere(asked: Asked): boolean {
        const done = asked.needs?.done;
        if (done !== undefined) {
            done.line ??= this;
        }
        const isHere = done?.line === this && done.answer !== undefined;
        if (isHere) {
            this.#await(asked, done.answer);
        }
        return isHere;
    }

    /** A DONE that may be recorded over another line comes behind its RENEW. */
    #commandsOf({ words, needs }: Asked): Words[] {
        const { renewal, line } = needs?.done ?? {};
        return renewal === undefined || line === this ? [words] : [renewal, words];
    }

    #await(asked: Asked, answer: Reply): void {
        const needs = asked.needs as Confirmation;
        this.#unconfirmed.push({ ...asked, needs, answer, until: performance.now() + needs.withinMs });
    }

    /** Settles the request if its answer counts as it is. Resolves when it is answered. */
    async #answered(asked: Asked, replies: Promise<Reply>[]): Promise<void> {
        const { needs, resolve, reject } = asked;
        const done = needs?.done;
        const [reply, renewed] = replies.reverse();
        try {
            const answer = await reply;
            const isFirst = done?.line === this || Number(await renewed?.catch(() => 0)) === 1;
            if (needs === undefined) {
                resolve(answer);
            } else if (done !== undefined && !isFirst && (isToConfirm(answer) || !done.isAnsweredAgain)) {
                const why = 'it may have been recorded over a connection that has ended';
                reject(new NotConfirmed(needs.key, 0, wantedOf(needs, 1), { why, isFinal: true }));
            } else if (!isToConfirm(answer)) {
                resolve(answer);
            } else {
                if (done !== undefined) {
                    done.line = this;
                    done.answer = answer;
                }
                this.#await(asked, answer);
            }
        } catch (error) {
            if (done?.line === this && isAnswer(error)) {
                // It was refused, so nothing was written.
                done.line = undefined;
            }
            reject(error);
        }
    }

    /** The commands that confirm what is needed, for as long as the most hurried has. */
    #confirming(needs: readonly Confirmation[], attached: number): Words[] {
        const lefts = this.#unconfirmed.map(({ until }) => until - performance.now());
        const ms = Math.min(LONGEST_WAIT_MS, ...needs.map(({ withinMs }) => withinMs), ...lefts);
        const bounds = (kind: readonly Confirmation[]) =>
            [Math.max(...kind.map((one) => replicasOf(one, attached))), Math.max(1, Math.ceil(ms))].map(String);
        const [onDisk, others] = [needs.filter((one) => one.isDisk), needs.filter((one) => !one.isDisk)];
        const wait: Words[] = others.length > 0 ? [['WAIT', ...bounds(others)]] : [];
        return onDisk.length > 0 ? [...wait, ['WAITAOF', '1', ...bounds(onDisk)]] : wait;
    }

    /** Settles what is confirmed, and that whose time is over. `counts` are the answers to WAIT and WAITAOF. */
    #confirm(counts: readonly Reply[], attached: number): void {
        this.#unconfirmed = this.#unconfirmed.filter(({ needs, until, answer, resolve, reject }) => {
            const { key, isDisk } = needs;
            const count = counts.find((one) => Array.isArray(one) === isDisk);
            const [onDisk, copies] = isDisk ? (count as [unknown, unknown]) : [0, count];
            const [have, wanted] = [Number(onDisk) + Number(copies), wantedOf(needs, attached)];
            if (have >= wanted && (!isDisk || Number(onDisk) > 0)) {
                resolve(answer);
            } else if (performance.now() < until) {
                return true;
            } else {
                reject(new NotConfirmed(key, have, wanted, { isDisk }));
            }
            return false;
        });
    }

    /** What confirms was refused, or is not answered any more. */
    #failed(error: unknown): void {
        const message = isAnswer(error) ? error.message : '';
        for (const { needs, reject } of this.#unconfirmed.splice(0)) {
            if (/unknown command .?WAITAOF/i.test(message)) {
                reject(new DsyncError(`disk needs Redis 7.2 or newer, which has WAITAOF: ${message}`, { cause: error }));
            } else if (message !== '' && !/replica/i.test(message)) {
                reject(error);
            } else {
                const { key, isDisk } = needs;
                reject(new NotConfirmed(key, 0, wantedOf(needs, 1), { isDisk, why: reasonOf(error), cause: error }));
            }
        }
    }

    /** The line is used no more. It closes when it owes no answer. */
    leave(): void {
        for (const { reject } of this.#queue.splice(0)) {
            reject(new Unanswered('the connection was given up'));
        }
        if (this.#owed.size === 0) {
            this.connection.close();
            return;
        }
        this.connection.unref();
        const timer = setTimeout(() => this.connection.close(), LINGER_MS).unref();
        void Promise.allSettled(this.#owed).then(() => {
            clearTimeout(timer);
            this.connection.close();
        });
    }
}

function replicasOf({ replicas }: Confirmation, attached: number): number {
    return replicas === 'all' ? Math.max(1, attached) : replicas;
}

/** With `disk` the disk of the primary counts too. */
function wantedOf(needs: Confirmation, attached: number): number {
    return replicasOf(needs, attached) + (needs.isDisk ? 1 : 0);
}

/** Reads how many replicas a primary has, from the reply to ROLE. A replica has none that confirm. */
function attachedOf(role: Reply): number {
    const [name, , replicas] = role as unknown[];
    return String(name) === 'master' && Array.isArray(replicas) ? replicas.length : 0;
}

/** Returns the connection of a node that ASK has named, which answers for keys of a slot that it does not have yet. */
function asking(connection: Connection): Connection {
    const send = (commands: readonly Words[]) => {
        const replies = connection.send(commands.flatMap((words) => [['ASKING'] as Words, words]));
        replies.forEach((reply) => void reply.catch(() => {}));
        return replies.filter((_, at) => at % 2 === 1);
    };
    return { ...connection, send };
}

/** A line that is opened when it is needed, and again when it has broken. */
export class OwnConnection {
    #opening: Promise<Line> | undefined;

    /** `keepsAlive` says whether it keeps the process alive. `at` is the node that ASK has named, if any. */
    constructor(private readonly library: Library, private readonly keepsAlive = true, private readonly at?: Address) {}

    /** Resolves to the line, which is opened if there is none, or if the last one has broken. */
    opened(key: string): Promise<Line> {
        if (this.#opening === undefined) {
            const forget = () => {
                this.#opening = this.#opening === opening ? undefined : this.#opening;
            };
            const opened = (connection: Connection) => {
                if (!this.keepsAlive) {
                    connection.unref();
                }
                return new Line(this.at === undefined ? connection : asking(connection));
            };
            const refused = (error: unknown) => {
                forget();
                ofOpening.set(error as object, ofOpening.get(error as object));
                throw error;
            };
            const opening = this.library.open(key, forget, this.at).then(opened, refused);
            opening.catch(() => {});
            this.#opening = opening;
        }
        return this.#opening;
    }

    /** Sends a command whose first argument is `key`. Settles as its reply does, when it counts. */
    async send(key: string, words: Words, needs?: Confirmation): Promise<Reply> {
        return (await this.opened(key)).send(words, needs);
    }

    /** The connection is used no more. It closes when it owes no answer. */
    close(): void {
        const opening = this.#opening;
        this.#opening = undefined;
        opening?.then((line) => line.leave()).catch(() => {});
    }
}
