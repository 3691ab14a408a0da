//! What a server goes through: loading, settings, removed keys, files, kills, restarts and clocks.

mod bad_payloads;
mod dumps;
mod golden;
mod histories_persisted;
mod idle;
mod kills;
mod lease_clock;
mod module_load;
mod persistence;
mod pitfalls;
mod removal;
mod renames;
mod restarts;
mod settings;
mod turns;
mod wrong_clock;
