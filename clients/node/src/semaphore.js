// Semaphores.

'use strict';

const { acquire } = require('./acquire.js');
const { minHold, option } = require('./claim.js');
const { checkNames } = require('./options.js');

/** Waits for permits of a semaphore, one if not told otherwise. Resolves to the hold. */
async function semaphore(client, key, options = {}) {
    checkNames('semaphore', options);
    const { hold } = await acquire(client, 'semaphore', key, options, wordsOf(options));
    return hold;
}

function wordsOf({ limit, permits, lane, laneLimit, index = false, ...others }) {
    if (lane !== undefined && typeof lane !== 'string') {
        throw new TypeError(`lane must be a text, not ${lane}`);
    }
    if (laneLimit !== undefined && lane === undefined) {
        throw new TypeError(`laneLimit is the limit of a lane, and there is no lane for the ${laneLimit}`);
    }
    if (index && permits !== undefined && permits !== 1) {
        throw new RangeError(`index is for one permit, not ${permits}`);
    }
    return [
        ...option('LIMIT', limit),
        ...option('PERMITS', permits),
        ...option('LANE', lane),
        ...option('LANELIMIT', laneLimit),
        ...minHold(others),
        ...(index ? ['INDEX'] : []),
    ];
}

module.exports = { semaphore };
