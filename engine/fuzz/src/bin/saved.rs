//! What a server does with any saved state: RESTORE on a primary, an RDB file on a replica. The first byte chooses the
//! family, and which of both it is.
//!
//! - Nothing panics, and the engine's invariants hold.
//! - What is read saves to the same strings.
//! - A primary that accepts it serves requests; a replica takes over with it; both come to rest.

#![no_main]

use dsync_engine::Family;
use dsync_engine_fuzz::{Server, assemble, claims, split, strings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((choice, input)) = input.split_first() else {
        return;
    };
    let family = Family::ALL[usize::from(choice % 4)];
    let is_primary = choice & 4 != 0;
    let Ok(loaded) = assemble(family, &split(input)) else {
        return;
    };
    let saved = strings(&loaded.body, loaded.places.iter().cloned());
    let again = assemble(family, &saved).expect("what was saved is read");
    assert_eq!(strings(&again.body, again.places), saved);
    let mut server = match is_primary {
        true => Server::primary(),
        false => Server::replica(),
    };
    if !server.adopt(loaded) {
        return;
    }
    assert_eq!(server.saved(), Some((family, saved)));
    if !is_primary {
        server.take_over();
    }
    for claim in claims(family) {
        server.ask(*claim, b"one more");
    }
    server.live(200);
});
