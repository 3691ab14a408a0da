// Waits that end in time.

'use strict';

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

/** Resolves after so many milliseconds, or when the signal aborts. */
function pause(ms, signal) {
    return bounded(new Promise(() => {}), Math.min(ms, LONGEST_TIMER_MS - 1), signal);
}

module.exports = { bounded, pause };
