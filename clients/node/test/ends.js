// Waits of the tests end in time, and so does what the tests have opened.

'use strict';

/** What is open: each has an end(). A test or hook that fails may leave some, which would keep the process alive. */
const open = new Set();

/** Resolves as the promise does; rejects when it takes too long. */
function inTime(promise, what, ms = 30_000) {
    let timer;
    const late = new Promise((_, reject) => {
        timer = setTimeout(() => reject(new Error(`this did not happen in ${ms} ms: ${what}`)), ms);
    });
    return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

module.exports = { inTime, open };
