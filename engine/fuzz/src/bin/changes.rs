//! What a replica, or a server that loads an AOF, does with any packed strings, one DSYN after the other.
//!
//! - Nothing panics, and the engine's invariants hold after each.
//! - What can be read is written again as it was meant: the same changes.
//! - What was applied can be saved and read, and saves the same then.
//! - The server takes over with it, serves a request, and comes to rest.

#![no_main]

use dsync_engine::change::Change;
use dsync_engine::wire;
use dsync_engine_fuzz::{Server, assemble, checked, claims, split, strings};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut replica = Server::replica();
    for string in split(input) {
        let packed = checked(&string);
        let Ok(unpacked) = wire::open(&packed) else {
            continue;
        };
        let (family, more) = (unpacked.family, unpacked.more);
        let Ok(changes) = unpacked.collect::<Result<Vec<Change>, _>>() else {
            continue;
        };
        let mut again = Vec::new();
        wire::pack(&mut again, family, more, &changes);
        let read = wire::open(&again).map(Iterator::collect::<Result<Vec<Change>, _>>);
        assert_eq!(read, Ok(Ok(changes.clone())));
        replica.follow(family, &changes);
    }
    if let Some((family, saved)) = replica.saved() {
        let loaded = assemble(family, &saved).expect("what was saved is read");
        assert_eq!(strings(&loaded.body, loaded.places), saved);
        replica.take_over();
        for claim in claims(family) {
            replica.ask(*claim, b"one more");
        }
    } else {
        replica.take_over();
    }
    replica.live(200);
});
