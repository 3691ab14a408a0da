//! Redisson's rate limiter (redisson/redisson, `RedissonRateLimiter.java`): the grants of the last span in a sorted set, by
//! the callers' clocks.
//!
//! - Once: HSETNX of rate, interval, keepAliveTime and type.
//! - Acquire: a script: HGET of rate, interval and type; GET of what is free; ZRANGEBYSCORE of the grants that are over, and
//!   where there are any, ZREMRANGEBYSCORE and SET. Where enough is free, ZADD and DECRBY. Otherwise it answers how long
//!   the oldest grant still counts, and 3 ms: the caller sleeps so long and asks again. HGET and PTTL in the end.
//! - Nothing is given back.
//!
//! The caller's clock says what is over. Here all callers have the same one, which favours the original.

use std::time::{Duration, Instant};

use super::{Algorithm, KEY, SPAN_MS, Script, Terms, Tokens, is_one, pause, unix_time};
use crate::client::{Client, wrong};
use crate::invalid::Result;
use dsync_testkit::resp::Frame;

const FREE: &[u8] = b"{shared}:value";
const GRANTS: &[u8] = b"{shared}:permits";

const ACQUIRE: &str = "
    local config, free_key, grants = KEYS[1], KEYS[2], KEYS[3]
    local permits, now, id = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
    local rate = tonumber(redis.call('HGET', config, 'rate'))
    local interval = tonumber(redis.call('HGET', config, 'interval'))
    redis.call('HGET', config, 'type')
    local function sum(entries)
        local all = 0
        for _, entry in ipairs(entries) do
            local _, each = struct.unpack('Bc0I', entry)
            all = all + each
        end
        return all
    end
    local function grant()
        redis.call('ZADD', grants, now, struct.pack('Bc0I', #id, id, permits))
        redis.call('DECRBY', free_key, permits)
    end
    local free = redis.call('GET', free_key)
    local wait_ms = false
    if free then
        free = tonumber(free)
        local over = sum(redis.call('ZRANGEBYSCORE', grants, 0, now - interval))
        if over > 0 then
            redis.call('ZREMRANGEBYSCORE', grants, 0, now - interval)
            free = free + over
            if free > rate then free = rate - sum(redis.call('ZRANGE', grants, 0, -1)) end
            redis.call('SET', free_key, free)
        end
        if free < permits then
            local first = redis.call('ZRANGE', grants, 0, 0, 'WITHSCORES')
            wait_ms = 3 + interval - (now - tonumber(first[2]))
        else
            grant()
        end
    else
        redis.call('SET', free_key, rate)
        grant()
    end
    redis.call('HGET', config, 'keepAliveTime')
    redis.call('PTTL', config)
    return wait_ms";

struct RedissonRate {
    client: Client,
    tokens: Tokens,
    acquire: Script,
}

pub fn make(terms: &Terms) -> Result<Box<dyn Algorithm>> {
    let mut client = terms.client()?;
    let rate = terms.permits.unwrap_or(1).to_string();
    let span = SPAN_MS.to_string();
    for (field, value) in [
        ("rate", rate.as_str()),
        ("interval", &span),
        ("keepAliveTime", "0"),
        ("type", "0"),
    ] {
        let words = [b"HSETNX", KEY, field.as_bytes(), value.as_bytes()];
        client.call(&words, is_one)?;
    }
    Ok(Box::new(RedissonRate {
        acquire: Script::load(&mut client, ACQUIRE)?,
        tokens: terms.tokens(),
        client,
    }))
}

impl Algorithm for RedissonRate {
    fn acquire(&mut self, until: Instant) -> Result<bool> {
        loop {
            let now_ms = unix_time()?.as_millis().to_string();
            let id = self.tokens.draw();
            let (keys, arguments): ([&[u8]; 3], [&[u8]; 3]) =
                ([KEY, FREE, GRANTS], [b"1", now_ms.as_bytes(), &id[..16]]);
            let wait = self
                .acquire
                .call(&mut self.client, &keys, &arguments, wait)?;
            match wait {
                None => return Ok(true),
                Some(delay) if !pause(delay, until) => return Ok(false),
                Some(_) => {}
            }
        }
    }

    fn release(&mut self) -> Result<()> {
        Ok(())
    }
}

fn wait(reply: &Frame<'_>) -> Result<Option<Duration>> {
    match reply {
        Frame::Nil => Ok(None),
        Frame::Int(ms @ 0..) => Ok(Some(Duration::from_millis(*ms as u64))),
        _ => Err(wrong("how long to wait, or nil", reply)),
    }
}
