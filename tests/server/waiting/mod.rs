//! Clients that wait, leave, come back and send a request again.

mod ephemeral;
mod leaving;
mod no_blocking;
mod places;
mod retries;
mod undelivered;
mod withdrawal;
