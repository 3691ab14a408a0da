//! Ports for servers on 127.0.0.1.
//!
//! The ports, and the cluster bus 10000 above each, are below 32768, where Linux begins to take ports for outgoing
//! connections: so no client takes the port of a killed server before it is started again. A port that is free here can
//! still be taken before the server binds it; then the server says so and the caller takes the next port.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 11_000;
const COUNT: u16 = 10_000;
const BUS_OFFSET: u16 = 10_000;

static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A free port that this process has not used before, until it has used all of them.
pub fn next_port() -> u16 {
    // Test processes that run at the same time begin at ports far apart.
    let start = std::process::id().wrapping_mul(7919);
    for _ in 0..COUNT {
        let step = start.wrapping_add(TAKEN.fetch_add(1, Ordering::Relaxed));
        let offset = u16::try_from(step % u32::from(COUNT)).expect("below COUNT, which is a u16");
        let port = FIRST + offset;
        if is_free(port) && is_free(port + BUS_OFFSET) {
            return port;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT);
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
