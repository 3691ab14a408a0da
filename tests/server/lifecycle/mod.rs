//! What a server goes through: loading the module, settings, removed keys, files, kills, restarts and clocks.

mod bad_payloads;
mod clock_jump;
mod dumps;
mod fences_of_starts;
mod forged_payloads;
mod golden;
mod histories_persisted;
mod idle;
mod kills;
pub(crate) mod lapse_wave;
mod leaks;
mod lease_clock;
mod leaving_dsync;
mod many_lapses;
mod many_removals;
mod module_load;
mod moved_keys;
pub(crate) mod payload;
mod persistence;
mod removal;
mod restarts;
mod settings;
mod turns;
mod unbounded_payloads;
mod unopened_keys;
mod writes_refused;
mod wrong_clock;
