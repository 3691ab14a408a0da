// Waits that end in time.

'use strict';

const { setMaxListeners } = require('node:events');

/** setTimeout takes no more milliseconds than this. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

/**
 * Settles as the promise does. Resolves to undefined instead when `ms` milliseconds pass first, or the signal aborts.
 * A promise that is left behind may reject: nobody is told.
 */
function bounded(promise, ms, signal) {
    return new Promise((resolve, reject) => {
        let timer;
        const finish = (settle, value) => {
            clearTimeout(timer);
            signal?.removeEventListener('abort', giveUp);
            settle(value);
        };
        const giveUp = () => finish(resolve, undefined);
        promise.then(
            (value) => finish(resolve, value),
            (error) => finish(reject, error),
        );
        if (signal?.aborted) {
            giveUp();
            return;
        }
        signal?.addEventListener('abort', giveUp, { once: true });
        if (ms < LONGEST_TIMER_MS) {
            timer = setTimeout(giveUp, Math.max(0, ms));
        }
    });
}

/** Takes the signal of a caller, if there is one. Any number of waits may share it, and Node.js would warn of the eleventh. */
function takeSignal(signal) {
    if (signal === undefined) {
        return;
    }
    if (typeof signal?.addEventListener !== 'function' || typeof signal.aborted !== 'boolean') {
        throw new TypeError('signal must be an AbortSignal');
    }
    setMaxListeners(0, signal);
}

/** Resolves after so many milliseconds, or when the signal aborts. */
function pause(ms, signal) {
    return bounded(new Promise(() => {}), Math.min(ms, LONGEST_TIMER_MS - 1), signal);
}

module.exports = { bounded, pause, takeSignal };
