// Reads replies of the server, which differ between RESP2 and RESP3 and between libraries.

/** What a library makes of a reply. */
export type Reply = unknown;

export interface Granted {
    kind: 'granted';
    fence: number;
    index?: number;
    attempt?: number;
}

/** Work that is done. */
export interface Done {
    kind: 'done';
    /** A text, or null for none. */
    result: string | null;
    /** The number of the attempt that did it, from 1. */
    attempt: number;
}

export type Outcome =
    | Granted
    | Done
    | { kind: 'refused' }
    | { kind: 'waiting'; channel: string }
    | { kind: 'failed'; reason: string; attempts: number };

/** Who holds a key. */
export interface Holder {
    /** A text for people; null where the holder gave none. */
    owner: string | null;
    fence: number;
    leaseLeftMs: number;
    heldMs: number;
    /** For how long a hold that has ended still keeps its place taken (`minHoldMs`); others do not have it. */
    restingMs?: number;
}

/** Reads the reply to ACQUIRE, ADD or BEGIN. */
export function outcomeOf(reply: Reply): Outcome {
    if (!Array.isArray(reply)) {
        return { kind: 'refused' };
    }
    const words: unknown[] = reply;
    if (words.length === 2) {
        return { kind: 'granted', fence: Number(words[1]) };
    }
    switch (String(words[0])) {
        case 'WAITING':
            return { kind: 'waiting', channel: String(words[2]) };
        case 'RUN':
            return { kind: 'granted', fence: Number(words[2]), attempt: Number(words[3]) };
        case 'DONE':
            return { kind: 'done', result: textOf(words[1]), attempt: Number(words[2]) };
        case 'FAILED':
            return { kind: 'failed', reason: String(words[1]), attempts: Number(words[2]) };
        default:
            // The first is the token, which is random.
            return { kind: 'granted', fence: Number(words[1]), index: Number(words[2]) };
    }
}

/** Reads the holders of the reply to INFO. */
export function holdersOf(reply: Reply): Holder[] {
    const holders = (fieldsOf(reply)['first-holders'] ?? []) as Reply[];
    return holders.map(fieldsOf).map((holder) => ({
        owner: textOf(holder.owner),
        fence: Number(holder.fence),
        leaseLeftMs: Number(holder['lease-left-ms']),
        heldMs: Number(holder['held-ms']),
        ...('resting-ms' in holder && { restingMs: Number(holder['resting-ms']) }),
    }));
}

/** RESP3 has maps, which the libraries read as objects or Maps; RESP2 has arrays of names and values. */
export function fieldsOf(reply: Reply): Record<string, unknown> {
    if (!reply) {
        return {};
    }
    if (reply instanceof Map) {
        return Object.fromEntries(reply as Map<string, unknown>);
    }
    if (!Array.isArray(reply)) {
        return reply as Record<string, unknown>;
    }
    const words: unknown[] = reply;
    const pairs = words.flatMap((name, at) => (at % 2 === 0 ? [[String(name), words[at + 1]] as const] : []));
    return Object.fromEntries(pairs);
}

function textOf(value: unknown): string | null {
    return value === null || value === undefined ? null : String(value);
}
