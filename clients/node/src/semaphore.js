// Semaphores.

'use strict';

const { acquire } = require('./acquire.js');
const { checkNames } = require('./options.js');

/** Waits for permits of a semaphore, one if not told otherwise. Resolves to the hold. */
async function semaphore(client, key, options = {}) {
    checkNames('semaphore', options);
    const words = options.limit === undefined ? [] : ['LIMIT', options.limit];
    if (options.permits !== undefined) {
        words.push('PERMITS', options.permits);
    }
    const { hold } = await acquire(client, 'semaphore', key, options, words);
    return hold;
}

module.exports = { semaphore };
