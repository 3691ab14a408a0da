//! Lua for the stories in which a script keeps the server busy.

/// Begins a script that does nothing for this many milliseconds of the processor's time: never less by
/// the clock, more on a machine under load.
///
/// INFO is the only clock that goes on within a script on every server. TIME stands still from Redis 7.2
/// on, and 7.2 has no `os.clock`. The empty loop is for the server, which looks up from a script after so
/// many steps of Lua, however long they took.
pub fn busy_for(ms: u32) -> String {
    format!(
        "local function ms() local cpu = redis.call('INFO', 'cpu') \
         return (string.match(cpu, 'used_cpu_user:([%d.]+)') + string.match(cpu, 'used_cpu_sys:([%d.]+)')) * 1000 end \
         local start = ms() repeat for _ = 1, 10000 do end until ms() - start > {ms} "
    )
}
