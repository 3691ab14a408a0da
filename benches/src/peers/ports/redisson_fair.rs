//! Redisson's fair lock (redisson/redisson, `RedissonFairLock.java`): a list of those who wait, with a deadline for
//! each.
//!
//! - Acquire: a script. It drops the first in the list whose deadline has passed (LINDEX, ZSCORE; ZREM, LPOP). If the
//!   lock is free (EXISTS) and nobody waits or the worker is first (EXISTS, LINDEX), it takes the lock: LPOP, ZREM, a
//!   ZINCRBY for everybody who waits (ZRANGE), HSET, PEXPIRE. Otherwise HEXISTS; one that stands in the list already
//!   (ZSCORE) gets PTTL; another one enters it: LINDEX, ZSCORE or PTTL, ZADD, RPUSH. The rest goes as in `redisson.rs`,
//!   with a channel for each worker.
//! - Release: a script: GET of the latch, the same cleaning, EXISTS, HEXISTS, HINCRBY, DEL, SET of the latch, and
//!   `PUBLISH` to the first in the list. Then `DEL latch`.
//!
//! A place in the list lasts five minutes more than the one before it (`fairLockWaitTimeout`), by the workers' clocks.
//! The work of a hand-off grows with the number of those who wait, because of ZINCRBY.

use std::time::Instant;

use super::redisson::{Commands, LATCH_MS, Subscription, left, released, wait_subscribed};
use super::{Algorithm, KEY, Script, Terms, unix_time};
use crate::invalid::Result;

const QUEUE: &[u8] = b"redisson_lock_queue:{shared}";
const DEADLINES: &[u8] = b"redisson_lock_timeout:{shared}";
const CHANNEL: &[u8] = b"redisson_lock__channel:{shared}";
const PLACE_MS: &[u8] = b"300000";

/// Both scripts begin with it.
const DROP_STALE: &str = "
    local lock, queue, deadlines = KEYS[1], KEYS[2], KEYS[3]
    local me, now = ARGV[1], tonumber(ARGV[2])
    local function drop_stale()
        local first = redis.call('LINDEX', queue, 0)
        while first do
            local deadline = redis.call('ZSCORE', deadlines, first)
            if not deadline or tonumber(deadline) > now then return end
            redis.call('ZREM', deadlines, first)
            redis.call('LPOP', queue)
            first = redis.call('LINDEX', queue, 0)
        end
    end";

const ACQUIRE: &str = "
    local lease, place_ms = ARGV[3], tonumber(ARGV[4])
    drop_stale()
    if redis.call('EXISTS', lock) == 0
        and (redis.call('EXISTS', queue) == 0 or redis.call('LINDEX', queue, 0) == me) then
        redis.call('LPOP', queue)
        redis.call('ZREM', deadlines, me)
        for _, waiter in ipairs(redis.call('ZRANGE', deadlines, 0, -1)) do
            redis.call('ZINCRBY', deadlines, -place_ms, waiter)
        end
        redis.call('HSET', lock, me, 1)
        redis.call('PEXPIRE', lock, lease)
        return false
    end
    if redis.call('HEXISTS', lock, me) == 1 then
        redis.call('HINCRBY', lock, me, 1)
        redis.call('PEXPIRE', lock, lease)
        return false
    end
    if redis.call('ZSCORE', deadlines, me) then
        return math.max(0, redis.call('PTTL', lock))
    end
    local last = redis.call('LINDEX', queue, -1)
    local left
    if last and redis.call('ZSCORE', deadlines, last) then
        left = tonumber(redis.call('ZSCORE', deadlines, last)) - now
    else
        left = redis.call('PTTL', lock)
    end
    if redis.call('ZADD', deadlines, left + now + place_ms, me) == 1 then
        redis.call('RPUSH', queue, me)
    end
    return left";

const RELEASE: &str = "
    local channel, latch, latch_ms = KEYS[4], KEYS[5], ARGV[3]
    local function wake_first()
        local first = redis.call('LINDEX', queue, 0)
        if first then redis.call('PUBLISH', channel .. ':' .. first, 0) end
    end
    local answered = redis.call('GET', latch)
    if answered then return tonumber(answered) end
    drop_stale()
    if redis.call('EXISTS', lock) == 0 then
        wake_first()
        redis.call('SET', latch, 1, 'PX', latch_ms)
        return 1
    end
    if redis.call('HEXISTS', lock, me) == 0 then return false end
    redis.call('HINCRBY', lock, me, -1)
    redis.call('DEL', lock)
    redis.call('SET', latch, 1, 'PX', latch_ms)
    wake_first()
    return 1";

struct RedissonFair {
    commands: Commands,
    subscription: Subscription,
    me: [u8; 36],
    lease_ms: String,
    acquire: Script,
    release: Script,
}

pub fn make(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    let mut commands = Commands::connect(terms)?;
    let me = commands.requests.draw();
    Ok(Box::new(RedissonFair {
        me,
        lease_ms: terms.lease_ms.unwrap_or(30_000).to_string(),
        acquire: commands.load(&[DROP_STALE, ACQUIRE].concat())?,
        release: commands.load(&[DROP_STALE, RELEASE].concat())?,
        subscription: Subscription::new(terms, [CHANNEL, b":", &me].concat())?,
        commands,
    }))
}

impl Algorithm for RedissonFair {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        let Self {
            commands,
            acquire,
            lease_ms,
            me,
            ..
        } = self;
        let client = commands.settled()?;
        wait_subscribed(&mut self.subscription, until, || {
            let now_ms = unix_time()?.as_millis().to_string();
            let arguments: [&[u8]; 4] = [me, now_ms.as_bytes(), lease_ms.as_bytes(), PLACE_MS];
            acquire.call(client, &[KEY, QUEUE, DEADLINES], &arguments, left)
        })
    }

    fn release(&mut self) -> Result<()> {
        let latch = self.commands.latch();
        let now_ms = unix_time()?.as_millis().to_string();
        let keys: [&[u8]; 5] = [KEY, QUEUE, DEADLINES, CHANNEL, &latch];
        let arguments: [&[u8]; 3] = [&self.me, now_ms.as_bytes(), LATCH_MS];
        let client = self.commands.settled()?;
        self.release.call(client, &keys, &arguments, released)?;
        self.commands.forget(&latch)
    }
}
