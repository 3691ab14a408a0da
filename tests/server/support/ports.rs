//! Ports for servers, on 127.0.0.1.
//!
//! They lie below the range from which Linux takes the ports of outgoing connections (32768 and up), so
//! that a port a killed server left for a moment is not taken by some test's client before the server is
//! back; and a cluster node's bus, 10000 higher, lies below it too. A port that was free here can still be
//! taken before the server binds it: the server's own word decides, and the caller then asks again.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u16 = 11_000;
const COUNT: u16 = 10_000;
const BUS_OFFSET: u16 = 10_000;

static TAKEN: AtomicU32 = AtomicU32::new(0);

/// A port nobody listens on, and that this process has not been given before (until it went through all).
pub(super) fn next_port() -> u16 {
    // Processes that run side by side start far from one another.
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
