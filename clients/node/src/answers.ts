// Which errors are answers of the server, and which may pass. Every request of this package may be sent again as it is: its
// token says that it is the same one.

import { type AnyError, DsyncError, NotConfirmed, reasonOf, shown } from './errors.js';
import type { Library, Words } from './libraries/library.js';
import type { Reply } from './replies.js';

/** The server is in the way, and another one, or the same one later, may answer. */
const PASSING_ANSWER = new RegExp(
    '^(UNBLOCKED|READONLY|MOVED|ASK|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|LOADING|NOREPLICAS|MISCONF|BUSY|OOM' +
        '|ERR max number of clients)(?![\\w-])',
);
/** Another server has the key now, or has become the primary. */
const ELSEWHERE = /^(READONLY|MOVED|ASK|CLUSTERDOWN|MASTERDOWN)(?![\w-])/;
/** The token was withdrawn or has asked again elsewhere, or the group is gone: asking again would change nothing. */
const FINAL_ANSWER = /^UNBLOCKED (released|superseded|the group was removed)/;
/** The codes of Node.js for connections that are refused, closed or too slow, and for names that are not resolved now. */
const PASSING_CODES = new Set<unknown>([
    ...['ECONNREFUSED', 'ECONNRESET', 'ECONNABORTED', 'EPIPE', 'ETIMEDOUT', 'ERR_SOCKET_CONNECTION_TIMEOUT'],
    ...['EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN', 'EADDRNOTAVAIL', 'EAI_AGAIN', 'ENOTFOUND'],
]);

/** The codes of Node.js for a certificate that is not trusted, not valid now, or for another name. */
const CERTIFICATE_CODES = new Set<unknown>([
    ...['DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'],
    ...['UNABLE_TO_GET_ISSUER_CERT', 'UNABLE_TO_GET_ISSUER_CERT_LOCALLY', 'CERT_CHAIN_TOO_LONG', 'INVALID_CA'],
    ...['CERT_HAS_EXPIRED', 'CERT_NOT_YET_VALID', 'CERT_REVOKED', 'CERT_REJECTED', 'CERT_UNTRUSTED'],
    ...['CERT_SIGNATURE_FAILURE', 'INVALID_PURPOSE', 'HOSTNAME_MISMATCH', 'ERR_TLS_CERT_ALTNAME_INVALID'],
]);

/** The answer to a request is overdue. */
export class Unanswered extends DsyncError {
    override readonly name: string = 'Unanswered';
    /** Names the server and the key. */
    static of(library: Library, key: string, ms: number, cause?: unknown): Unanswered {
        const why = cause === undefined ? '' : `: ${reasonOf(cause)}`;
        const message = `${library.serverOf(key)} has not answered for '${shown(key)}' in ${Math.round(ms)} ms${why}`;
        return new Unanswered(message, { cause });
    }
}

/** The client does not know now which server has the key. */
export class PrimaryUnknown extends DsyncError {
    override readonly name: string = 'PrimaryUnknown';
    /** Whether each Sentinel has refused to tell it. @internal */
    readonly _isFinal: boolean;

    /** `cause` is the refusal of the Sentinel of that name. */
    constructor(key: string, sentinel = '', cause?: unknown, isFinal = false) {
        const why = cause === undefined ? '' : `: ${sentinel}: ${reasonOf(cause)}`;
        super(`the primary of '${shown(key)}' is not known${why}`, { cause });
        this._isFinal = isFinal;
    }
}

/**
 * The errors for which a connection was not opened. They may be answers, and none to what was to be sent. With the address of
 * the server where only they tell it.
 */
export const ofOpening = new WeakMap<object, string | undefined>();

/**
 * Whether the same request may be answered later: the one table of this package, for all its commands. What renews or ends a
 * hold is asked again after every error of a greeting: a password may be half-way through its rotation.
 */
export function isRetryable(library: Library, thrown: unknown, isOfHold = false): boolean {
    const isOfGreeting = ofOpening.has(thrown as object) || isUntrusted(thrown) || isAnswer(thrown, 'WRONGPASS', 'NOAUTH');
    if (isOfHold && (isOfGreeting || thrown instanceof PrimaryUnknown)) {
        return true;
    }
    const error = thrown as AnyError;
    if (thrown instanceof NotConfirmed || thrown instanceof PrimaryUnknown) {
        return !thrown._isFinal;
    }
    if (isAnswer(error)) {
        return PASSING_ANSWER.test(error.message) && !FINAL_ANSWER.test(error.message);
    }
    return isOfConnection(library, error);
}

/** Whether the server has answered with an error, of one of these codes if any are given. */
export function isAnswer(thrown: unknown, ...codes: string[]): thrown is Error {
    const isAnswered = classesOf(thrown).some((name) => ANSWER_CLASSES.has(name));
    return isAnswered && (codes.length === 0 || codes.includes((thrown as Error).message.split(' ', 1)[0] ?? ''));
}

/** Whether the certificate of the server is refused here. */
export function isUntrusted(thrown: unknown): thrown is Error {
    return CERTIFICATE_CODES.has((thrown as AnyError).code);
}

/** Whether the server refuses the user, its certificate is refused, or Sentinels refuse to tell who the primary is. */
export function isRefusal(thrown: unknown): boolean {
    const isOfSentinels = thrown instanceof PrimaryUnknown && thrown.cause !== undefined;
    return isOfSentinels || isUntrusted(thrown) || isAnswer(thrown, 'WRONGPASS', 'NOAUTH', 'NOPERM');
}

/** Returns the error; one of the server with the key and the address. */
export function named(library: Library, key: string, error: unknown): unknown {
    const where = ` ('${shown(key)}' at ${ofOpening.get(error as object) ?? library.serverOf(key)})`;
    if ((isAnswer(error) || isUntrusted(error)) && !error.message.endsWith(where)) {
        reword(error, `${error.message}${isAnswer(error, 'NOLIMIT') ? ': give `limit`' : ''}${where}`);
    }
    return error;
}

function reword(error: Error, message: string): void {
    // Its stack begins with its message.
    error.stack = (error.stack ?? '').replace(error.message, () => message);
    error.message = message;
}

const TOKEN = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/;

/**
 * Settles as the reply does, with an error that does not show the token: ioredis has the command with it, and servers repeat
 * the beginning of the arguments of a command that they do not know.
 */
export async function masked(words: Words, reply: Promise<Reply>): Promise<Reply> {
    try {
        return await reply;
    } catch (error) {
        delete (error as { command?: unknown }).command;
        if (isAnswer(error)) {
            const isUnknown = /^ERR unknown command .?D[A-Z]+\./.test(error.message);
            const missing = 'ERR this server has not loaded the dsync module, or an old version of it: it does not know';
            const token = words.slice(2).find((word) => TOKEN.test(word));
            reword(error, isUnknown ? `${missing} ${words[0]}` : error.message.split(token ?? '\0').join('<token>'));
        }
        throw error;
    }
}

/** Whether the server that has answered is not the one to ask. */
export function isElsewhere(thrown: unknown): boolean {
    return isAnswer(thrown) && ELSEWHERE.test(thrown.message);
}

/** The node that ASK names, if it names its host. */
export function askedOf(thrown: unknown): { host: string; port: number } | undefined {
    const [, host, port] = (isAnswer(thrown) && /^ASK \d+ ([^?].*):(\d+)$/.exec(thrown.message)) || [];
    return host === undefined ? undefined : { host, port: Number(port) };
}

function isOfConnection(library: Library, error: AnyError): boolean {
    return (
        error instanceof Unanswered ||
        PASSING_CODES.has(error.code) ||
        // An error for several addresses, and one of node-redis that has given up to connect again.
        [...(error.errors ?? []), error.originalError].some((one) => one !== undefined && isOfConnection(library, one)) ||
        classesOf(error).some((name) => library.connectionClasses.has(name)) ||
        // ioredis has classes for a few of these errors only.
        library.connectionMessages.test(error.message)
    );
}

/** What the libraries make of an error that the server answers. */
const ANSWER_CLASSES = new Set(['ReplyError', 'ErrorReply']);

/**
 * Returns the names of the classes of an error. The classes themselves are in the caller's copy of the library, which this
 * package cannot import. `error.name` would not do: anything may be called a TimeoutError.
 */
function classesOf(error: unknown): string[] {
    const names = [];
    let at = Object.getPrototypeOf(error) as object | null;
    for (; at !== null && at !== Error.prototype; at = Object.getPrototypeOf(at) as object | null) {
        names.push(at.constructor.name);
    }
    return names;
}
