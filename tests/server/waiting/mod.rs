//! Clients that wait, leave, come back and send a request again.

mod blocking_denied;
mod busy_script;
mod delivered;
mod ephemeral;
mod kept_places;
mod kept_places_saved;
mod leaving;
mod no_blocking;
mod odd_names;
mod out_of_memory;
mod places;
mod retries;
mod storm;
mod turn_of_grant;
mod undelivered;
mod withdrawal;
