// dsync-client: locks, fair semaphores, wait groups and work-once keys of the dsync module, for ioredis and node-redis.

export { allOf, Holds, type Want } from './all_of.js';
export { closeSubscription } from './client.js';
export { DsyncError, HoldLost, NotAcquired, NotConfirmed, WorkFailed } from './errors.js';
export { Group, group, Member } from './group.js';
export { Hold } from './hold.js';
export type { Client, IoredisClient, NodeRedisClient } from './libraries/library.js';
export type { Replicas } from './line.js';
export { lock, semaphore, withHold, withLock } from './lock.js';
export { type Begun, once, type Result, Run } from './once.js';
export type { AllOfOptions, BeginOptions, GroupOptions, HoldOptions, KeepOptions, LockOptions } from './options.js';
export type { OnceOptions, SemaphoreOptions, WaitOptions } from './options.js';
export type { Done, Holder } from './replies.js';
