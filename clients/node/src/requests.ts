// How the requests of a client are sent: over the caller's client, which all of them share; renewals and ends over a connection
// of this package beside it, and what must be confirmed over another one; in a cluster one for each node. Libraries may send a
// command again by themselves, and 0 tells something else when it is the first answer to an end.
//
// A primary can be frozen or cut off while another one is promoted, and the client stays with its connection for as long as
// nothing closes it. So when an answer is overdue the primary is looked up afresh. In a cluster the client itself does that.
// Elsewhere requests go over the one of the renewals until the client has answered: Sentinels or the name server are
// asked anew when it is opened. The client is left as it is, because its owner may have commands on the way.

import { askedOf, isAnswer, isElsewhere, isRefusal } from './answers.js';
import { NotConfirmed } from './errors.js';
import type { Address, Library, Words } from './libraries/library.js';
import { type Confirmation, type Line, OwnConnection } from './line.js';
import type { Reply } from './replies.js';
import { untilAnswered } from './retry.js';
import { ANSWER_WITHIN_MS, RETRY_FOR_MS } from './times.js';
import { bounded } from './timing.js';

/** A connection beside the client is kept so long for the next request. */
const IDLE_MS = 60_000;

export class Requests {
    /** The connections beside the client, by their kind and the address of their server. */
    readonly #beside = new Map<string, OwnConnection>();
    #idle: NodeJS.Timeout | undefined;
    /** How many requests of the caller's client are overdue. Not counted in a cluster. */
    #overdue = 0;
    #lookUp: Promise<unknown> | undefined;

    constructor(private readonly library: Library) {}

    /** Sends a command whose first argument is `key`. Settles as its reply does, also when that comes late. */
    send(key: string, words: Words): Promise<Reply> {
        const { isCluster, isClosed } = this.library;
        if (this.#overdue > 0 && !isClosed) {
            return this.sendBeside(key, words, undefined, (error) => {
                if (isRefusal(error)) {
                    throw error;
                }
            });
        }
        const reply = this.library.send(key, words);
        const answered = () => {
            this.#overdue -= 1;
        };
        return watched(reply, ANSWER_WITHIN_MS, () => {
            if (isCluster) {
                this.#lookUpPrimaryOf(key, words);
                return;
            }
            this.#overdue += 1;
            reply.then(answered, answered);
        });
    }

    /** Sends it until it is answered. */
    async ask(key: string, words: Words): Promise<Reply> {
        const { answer } = await untilAnswered(this.library, key, () => this.send(key, words), RETRY_FOR_MS);
        return answer;
    }

    /**
     * Sends it beside the caller's client. What is sent in one turn is one pipeline, confirmed as a whole. Calls back with
     * the error for which it goes over the client after all.
     */
    sendBeside(key: string, words: Words, needs?: Confirmation, onClient: (error: unknown) => void = () => {}): Promise<Reply> {
        if (this.library.isClosed) {
            this.close();
            return this.library.send(key, words);
        }
        // WAIT must not keep the renewals of other holds waiting.
        const server = `${needs ? 'confirmed' : 'plain'} ${this.library.addressOf(key)}`;
        let own = this.#ownFor(server);
        this.#idle = this.#idle?.refresh() ?? setTimeout(() => this.close(), IDLE_MS).unref();
        const again = () => {
            own.close();
            this.#lookUpPrimaryOf(key, words);
        };
        // While none can be opened, what need not be confirmed goes over the caller's client, unless the server would not
        // answer that either.
        const overClient = (error: unknown) => {
            if (isAnswer(error, 'LOADING', 'BUSY', 'MASTERDOWN')) {
                throw error;
            }
            onClient(error);
            return this.library.send(key, words);
        };
        // The key has moved ahead of its slot.
        const moved = async (error: unknown): Promise<Reply> => {
            const at = this.library.isCluster ? askedOf(error) : undefined;
            if (at === undefined) {
                throw error;
            }
            own = this.#ownFor(`${server}, ${at.host}:${at.port} by ASK`, at);
            return own.opened(key).then((line) => line.send(words, needs), needs ? undefined : overClient);
        };
        const sent = (line: Line) => line.send(words, needs).catch(moved);
        const reply = own.opened(key).then(sent, needs ? undefined : overClient);
        reply.catch((error: unknown) => {
            const isUnheard = error instanceof NotConfirmed && error.cause !== undefined;
            if (isUnheard || !(error instanceof NotConfirmed || isAnswer(error)) || isElsewhere(error)) {
                again();
            }
        });
        return watched(reply, ANSWER_WITHIN_MS + (needs?.withinMs ?? 0), again);
    }

    #ownFor(server: string, at?: Address): OwnConnection {
        const own = this.#beside.get(server) ?? new OwnConnection(this.library, false, at);
        this.#beside.set(server, own);
        return own;
    }

    /** Closes the connections beside the client. Requests open them again. */
    close(): void {
        clearTimeout(this.#idle);
        this.#idle = undefined;
        this.#beside.forEach((own) => own.close());
        this.#beside.clear();
    }

    /** Has the client of a cluster learn who has the key: it follows when a request of its own is redirected. */
    #lookUpPrimaryOf(key: string, [name]: Words): void {
        if (!this.library.isCluster) {
            return;
        }
        const over = () => (this.#lookUp = undefined);
        const inVain: Words = [name.replace(/\..*/, '.RENEW'), key, 'nobody'];
        const redirected = () => bounded(this.library.send(key, inVain), ANSWER_WITHIN_MS);
        this.#lookUp ??= this.library.lookUpPrimaryOf(key).then(redirected).then(over, over);
    }
}

/** Calls back if the reply is overdue. */
function watched(reply: Promise<Reply>, ms: number, onOverdue: () => void): Promise<Reply> {
    const timer = setTimeout(onOverdue, ms).unref();
    const settled = () => clearTimeout(timer);
    reply.then(settled, settled);
    return reply;
}
