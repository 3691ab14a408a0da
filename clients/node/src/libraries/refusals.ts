// Why a client of node-redis for Sentinels has no primary. The client itself tells it late, and not who it was.

import { errorMonitor } from 'node:events';

import { isAnswer, isRefusal, isUntrusted, ofOpening, PrimaryUnknown } from '../answers.js';
import { LOOK_UP_WITHIN_MS } from '../times.js';
import { bounded } from '../timing.js';
import type { Address } from './library.js';
import { close, type Plain } from './plain.js';

/** What is used of a client that Sentinels tell who the primary is. */
export interface Sentinel extends Pick<Plain, 'on'> {
    getSentinelNode(): unknown;
    _execute<T>(isReadonly: boolean, work: (plain: Plain) => Promise<T>): Promise<T>;
    /** node-redis 5 does not have it. */
    duplicate?(options: object): Plain;
}

type Options = Record<'sentinelClientOptions' | 'nodeClientOptions', { socket?: object } | undefined> & {
    sentinelRootNodes?: readonly Address[];
};

/** Makes the error for a key. */
type Refusal = ((key: string) => Error) | undefined;

/** A client asks its Sentinels one after the other, and again a second later. */
const BETWEEN_ROUNDS_MS = 800;

export class Refusals {
    /** What the client of node-redis 5 has told by events since it had a primary, which is not who has refused. */
    #heard: { error: unknown; at: number }[] = [];
    #asking: Promise<Refusal> | undefined;

    constructor(private readonly sentinel: Sentinel) {
        // Beside each error there is an event with a text.
        const hear = (error: unknown) => error instanceof Error && this.#heard.push({ error, at: performance.now() });
        if (sentinel.duplicate === undefined) {
            sentinel.on(errorMonitor, hear);
        }
    }

    /** The client has a primary. */
    clear(): void {
        this.#heard = [];
        this.#asking = undefined;
    }

    /** Resolves to the error that tells who has refused the client, if somebody has. */
    async of(key: string): Promise<Error | undefined> {
        this.#asking ??= this.#ask().catch(() => undefined);
        const asking = this.#asking;
        const refusal = await asking;
        // For a moment it counts for all: a request that came a little earlier is repeated.
        const forget = () => {
            this.#asking = this.#asking === asking ? undefined : this.#asking;
        };
        setTimeout(forget, refusal === undefined ? 0 : LOOK_UP_WITHIN_MS).unref();
        return refusal?.(key);
    }

    /**
     * Has a duplicate of the client ask the Sentinels, one after the other, and connect to the primary that the first of them
     * tells. There is an error of each Sentinel that tells none, in their order, and one of the primary, which names it.
     */
    async #ask(): Promise<Refusal> {
        const { sentinelRootNodes: nodes, sentinelClientOptions, nodeClientOptions } = optionsOf(this.sentinel);
        if (nodes === undefined) {
            return this.#refusalHeard();
        }
        const [connectTimeout, socketTimeout, reconnectStrategy] = Array<number>(3).fill(LOOK_UP_WITHIN_MS);
        const hurried = (options?: { socket?: object }) => {
            return { ...options, socket: { ...options?.socket, connectTimeout, socketTimeout, reconnectStrategy } };
        };
        const like = this.sentinel.duplicate?.({
            sentinelClientOptions: hurried(sentinelClientOptions),
            nodeClientOptions: hurried(nodeClientOptions),
            ...{ maxCommandRediscovers: 1, scanInterval: 0, masterPoolSize: 1, replicaPoolSize: 0, reserveClient: false },
            ...{ clientSideCache: undefined, passthroughClientErrorEvents: true },
        }) as Plain;
        const errors: Error[] = [];
        let firstAt: number | undefined;
        let primary: string | undefined;
        const told = new Promise<unknown>((settle) => {
            like.on('error', (error) => {
                if (error instanceof Error) {
                    firstAt ??= performance.now();
                    primary ??= /^Master Client \((.*?)\): /.exec(error.message)?.[1];
                    errors.push(primary === undefined ? error : (error.cause as Error));
                }
                if (primary !== undefined || errors.length === nodes.length) {
                    settle(true);
                }
            });
            like.connect().then(settle, settle);
        });
        await bounded(told, LOOK_UP_WITHIN_MS * (nodes.length + 1));
        close(like);
        const last = errors.at(-1);
        if (primary !== undefined && (isAnswer(last) || isUntrusted(last))) {
            ofOpening.set(last, primary);
            return () => last;
        }
        const [at, refused] = [errors.findIndex(isRefusal), errors.find(isRefusal)];
        // More time has passed when some are of a second round, and a Sentinel of the first has answered.
        const isOneRound = errors.length === nodes.length && performance.now() - (firstAt ?? 0) < BETWEEN_ROUNDS_MS;
        const isFinal = isOneRound && errors.every(isRefusal);
        const server = `the Sentinel at ${nodes[at]?.host}:${nodes[at]?.port}`;
        return primary || !refused ? undefined : (key) => new PrimaryUnknown(key, server, refused, isFinal);
    }

    /** When a second round has begun, all were asked. */
    #refusalHeard(): Refusal {
        const refused = this.#heard.filter(({ error }) => isRefusal(error));
        const [first, last] = [refused[0], refused.at(-1)];
        if (first === undefined || last === undefined) {
            return undefined;
        }
        const isFinal = refused.length === this.#heard.length && last.at - first.at > BETWEEN_ROUNDS_MS;
        return (key) => new PrimaryUnknown(key, 'a Sentinel', last.error, isFinal);
    }
}

/** Returns the options of a client. Only a constructor is given them: so have it duplicate itself with one of our own. */
function optionsOf(sentinel: Sentinel): Partial<Options> {
    const constructor = function (options: Options) {
        return options;
    };
    const like = Object.create(Object.create(sentinel, { constructor: { value: constructor } }) as object) as Sentinel;
    return (sentinel.duplicate?.call(like, {}) ?? {}) as Partial<Options>;
}
