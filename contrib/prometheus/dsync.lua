#!lua flags=no-writes,allow-stale
-- Script for redis_exporter: every number of INFO dsync, as pairs of a name and a value.
--
--     redis_exporter -script dsync.lua       (Debian: prometheus-redis-exporter)
--
-- The exporter sends it with EVAL at each scrape and gives each pair as redis_script_values{key="<name>"}, a gauge.
-- docs/metrics.md explains every name. dsync_version and dsync_commit are texts and therefore left out.
--
-- The flags in the first line let the server run the script when it refuses or pauses writes, is out of memory, or is a
-- replica without a link to its primary: these are the times when you want to see the metrics.
local values = {}
for name, value in redis.call('INFO', 'dsync'):gmatch('(dsync_[%w_]+):([^\r\n]*)') do
    if tonumber(value) then
        values[#values + 1] = name
        values[#values + 1] = value
    end
end
return values
