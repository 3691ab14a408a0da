// The same package for `import`. There is one copy of its state, whichever way it is loaded.

import dsync from './index.js';

export const {
    lock,
    withLock,
    semaphore,
    group,
    once,
    allOf,
    withHold,
    closeSubscription,
    Hold,
    Holds,
    Group,
    Member,
    Run,
    DsyncError,
    NotAcquired,
    HoldLost,
    WorkFailed,
} = dsync;
