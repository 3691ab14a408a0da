// dsync-client: locks, fair semaphores, wait groups and work-once keys of the dsync module, for ioredis and node-redis.
// index.d.ts describes every function and option.

'use strict';

const { allOf, Holds } = require('./all_of.js');
const { closeSubscription } = require('./client.js');
const { DsyncError, HoldLost, NotAcquired, WorkFailed } = require('./errors.js');
const { group, Group, Member } = require('./group.js');
const { Hold } = require('./hold.js');
const { lock, withLock } = require('./lock.js');
const { once, Run } = require('./once.js');
const { semaphore } = require('./semaphore.js');
const { withHold } = require('./with_hold.js');

module.exports = {
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
};
