// The names of the options that each function takes: an option with a wrong name would otherwise be left out in silence.

'use strict';

const HOLD = ['leaseMs', 'waitMs', 'signal', 'owner', 'marginMs', 'placeMs', 'ownConnection'];
const KEEP = ['keepMs', 'forever'];
const BEGIN = [...HOLD, 'maxAttempts'];

const OPTIONS = {
    lock: [...HOLD, 'shared', 'minHoldMs'],
    semaphore: [...HOLD, 'limit', 'permits', 'lane', 'laneLimit', 'minHoldMs', 'index'],
    allOf: [...HOLD, 'inGivenOrder'],
    group: [...HOLD, 'limit'],
    'group.wait': ['waitMs', 'signal'],
    'once.begin': BEGIN,
    once: [...BEGIN, ...KEEP, 'retryDelayMs'],
    'run.done': KEEP,
    'run.fail': ['delayMs'],
};

/** Throws a TypeError that names an option which the function does not have. */
function checkNames(ofWhat, options) {
    for (const name of Object.keys(options)) {
        if (!OPTIONS[ofWhat].includes(name)) {
            throw new TypeError(`${ofWhat} has no option '${name}', only ${OPTIONS[ofWhat].join(', ')}`);
        }
    }
}

module.exports = { checkNames };
