// Locks.

'use strict';

const { acquire } = require('./acquire.js');
const { minHold } = require('./claim.js');
const { checkNames } = require('./options.js');
const { withHold } = require('./with_hold.js');

/** Waits for a lock. Resolves to the hold. */
async function lock(client, key, options = {}) {
    checkNames('lock', options);
    const words = [...(options.shared ? ['SHARED'] : []), ...minHold(options)];
    const { hold } = await acquire(client, 'lock', key, options, words);
    return hold;
}

/** Holds a lock while the work runs, see withHold. */
function withLock(client, key, work, options = {}) {
    return withHold(lock(client, key, options), work);
}

module.exports = { lock, withLock };
