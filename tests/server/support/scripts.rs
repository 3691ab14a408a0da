//! Lua for tests in which a script keeps the server busy.

/// Lua code that is busy for this many milliseconds of processor time: never less by the clock, more on a busy machine.
/// Put it where the script shall be busy.
///
/// INFO is the only clock that runs within a script on every server: TIME stands still from Redis 7.2 on, and 7.2 has
/// no `os.clock`. The empty loop is there because the server handles other events after a number of Lua steps, however
/// long they take.
pub fn busy_for(ms: u32) -> String {
    format!(
        "local function ms() local cpu = redis.call('INFO', 'cpu') \
         return (string.match(cpu, 'used_cpu_user:([%d.]+)') + string.match(cpu, 'used_cpu_sys:([%d.]+)')) * 1000 end \
         local start = ms() repeat for _ = 1, 10000 do end until ms() - start > {ms} "
    )
}
