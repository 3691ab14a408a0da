// Work under a hold, for JavaScript that has no `await using`.

'use strict';

const { HoldLost } = require('./errors.js');

/**
 * Runs the work with the hold that `pending` resolves to, and releases it in the end. Resolves to what the work resolves to;
 * rejects as the work does; rejects with HoldLost if the hold ended before the work did, even if the work has not noticed.
 */
async function withHold(pending, work) {
    const hold = await pending;
    let result;
    try {
        result = await work(hold);
        hold.throwIfLost();
    } catch (error) {
        await hold[Symbol.asyncDispose]();
        throw error;
    }
    if (hold._isEnded) {
        return result;
    }
    // Without an answer the lease was still running when the work ended, by the clock that throwIfLost looked at.
    const { isEnded, isFirst } = await hold._release().catch(() => ({ isEnded: true }));
    // An earlier RELEASE, whose answer did not come, may have ended it.
    if (!isEnded && isFirst) {
        throw new HoldLost(hold.key, hold.fence, 'it had ended before the work did');
    }
    return result;
}

module.exports = { withHold };
