//! Clients that wait, leave, come back and send a request again.

mod ephemeral;
mod leaving;
mod no_blocking;
mod retries;
mod withdrawal;
