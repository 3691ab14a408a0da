// What a caller claims: a key of a family under a token of its own. The token names one request, so that the request may be
// repeated, and is never used again.

'use strict';

const { randomUUID } = require('node:crypto');
const { hostname, userInfo } = require('node:os');

const { clientOf } = require('./client.js');

const LEASE_MS = 30_000;
const LONGEST_MARGIN_MS = 2_000;
const PLACE_MS = 5_000;
const OWNER_BYTES = 128;

/** The prefix of each family's commands, and its command that grants. */
const FAMILIES = {
    lock: ['DLOCK', 'ACQUIRE'],
    semaphore: ['DSEM', 'ACQUIRE'],
    group: ['DWG', 'ADD'],
    once: ['DONCE', 'BEGIN'],
};

class Claim {
    #prefix;
    #grant;
    #words;

    /** `words` are the options of the family in the request. */
    constructor(client, family, key, options, words) {
        if (typeof key !== 'string' || key === '') {
            throw new TypeError('the key must be a string, and not empty');
        }
        const { library, requests, turns } = clientOf(client);
        this.library = library;
        this.requests = requests;
        this.turns = turns;
        this.key = key;
        this.token = randomUUID();
        this.leaseMs = wholeMs('leaseMs', options.leaseMs ?? LEASE_MS, 1);
        this.marginMs = ms('marginMs', options.marginMs ?? Math.min(this.leaseMs / 10, LONGEST_MARGIN_MS));
        if (this.marginMs >= this.leaseMs) {
            throw new RangeError(`marginMs must be less than leaseMs (${this.leaseMs}), not ${this.marginMs}`);
        }
        this.placeMs = wholeMs('placeMs', options.placeMs ?? PLACE_MS, 1_000);
        [this.#prefix, this.#grant] = FAMILIES[family];
        const owner = options.owner ?? thisProcess();
        this.#words = [...words, ...(owner === '' ? [] : ['OWNER', owner])];
    }

    /** The address of the server that has the key, for errors. */
    get server() {
        return this.library.serverOf(this.key);
    }

    /** The request for the hold; `waiting` is its QUEUE or BLOCK, if it has one. */
    request(waiting) {
        const words = [`${this.#prefix}.${this.#grant}`, this.key, 'TOKEN', this.token, 'PX', this.leaseMs];
        return texts([...words, ...this.#words, ...waiting]);
    }

    /** Sends a command of the token: RELEASE, RENEW, DONE or FAIL. */
    send(verb, ...words) {
        return this.requests.send(this.key, texts([`${this.#prefix}.${verb}`, this.key, this.token, ...words]));
    }

    info(count) {
        return this.requests.send(this.key, texts([`${this.#prefix}.INFO`, this.key, 'COUNT', count]));
    }
}

/** Returns `user@host:pid` of this process, in 128 bytes: the end of a long host name is left out. */
function thisProcess() {
    const [before, after] = [`${userName()}@`, `:${process.pid}`];
    const left = OWNER_BYTES - Buffer.byteLength(before) - Buffer.byteLength(after);
    return `${before}${hostname().slice(0, Math.max(0, left))}${after}`;
}

function userName() {
    try {
        return userInfo().username;
    } catch {
        // A user id without a name, as in many containers.
        return String(process.geteuid());
    }
}

/** The libraries take texts and Buffers. */
function texts(words) {
    return words.map((word) => (Buffer.isBuffer(word) ? word : String(word)));
}

/** The words of an option of the request; none if it is not given. */
function option(name, value) {
    return value === undefined ? [] : [name, value];
}

/** The same of `minHoldMs`, which locks and semaphores have. */
function minHold({ minHoldMs }) {
    return option('MINHOLD', minHoldMs === undefined ? undefined : wholeMs('minHoldMs', minHoldMs, 1));
}

function ms(name, value) {
    if (typeof value !== 'number' || !(value >= 0)) {
        throw new RangeError(`${name} must be a number of milliseconds, 0 or more, not ${value}`);
    }
    return value;
}

function wholeMs(name, value, least) {
    if (!Number.isSafeInteger(value) || value < least) {
        throw new RangeError(`${name} must be a whole number of milliseconds, ${least} or more, not ${value}`);
    }
    return value;
}

module.exports = { Claim, minHold, ms, option, texts };
