// Reads replies of the server, which differ between RESP2 and RESP3 and between libraries.

'use strict';

/** Reads the reply to ACQUIRE, ADD or BEGIN. */
function outcomeOf(reply) {
    if (reply === null || reply === undefined) {
        return { kind: 'refused' };
    }
    if (reply.length === 2) {
        return { kind: 'granted', fence: Number(reply[1]) };
    }
    switch (String(reply[0])) {
        case 'WAITING':
            return { kind: 'waiting', place: Number(reply[1]), channel: String(reply[2]) };
        case 'RUN':
            return { kind: 'granted', fence: Number(reply[2]), attempt: Number(reply[3]) };
        case 'DONE':
            return { kind: 'done', ...doneOf(reply) };
        case 'FAILED':
            return { kind: 'failed', reason: String(reply[1]), attempts: Number(reply[2]) };
        default:
            // The first is the token, which is random.
            return { kind: 'granted', fence: Number(reply[1]), index: Number(reply[2]) };
    }
}

/** Reads `["DONE", result, attempt]`, or null. */
function doneOf(reply) {
    return reply === null || reply === undefined ? null : { result: textOf(reply[1]), attempt: Number(reply[2]) };
}

/** Reads the holders of the reply to INFO. */
function holdersOf(reply) {
    const holders = fieldsOf(reply)['first-holders'] ?? [];
    return holders.map(fieldsOf).map((holder) => ({
        owner: textOf(holder.owner),
        fence: Number(holder.fence),
        leaseLeftMs: Number(holder['lease-left-ms']),
        heldMs: Number(holder['held-ms']),
        ...('resting-ms' in holder && { restingMs: Number(holder['resting-ms']) }),
    }));
}

/** RESP3 has maps, which the libraries read as objects or Maps; RESP2 has arrays of names and values. */
function fieldsOf(reply) {
    if (reply === null || reply === undefined) {
        return {};
    }
    if (reply instanceof Map) {
        return Object.fromEntries(reply);
    }
    if (!Array.isArray(reply)) {
        return reply;
    }
    const fields = {};
    for (let at = 0; at + 1 < reply.length; at += 2) {
        fields[String(reply[at])] = reply[at + 1];
    }
    return fields;
}

function textOf(value) {
    return value === null || value === undefined ? null : String(value);
}

module.exports = { outcomeOf, doneOf, holdersOf };
