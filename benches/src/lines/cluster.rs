//! What a cluster of one, two and three primaries serves: the pairs a second that the main threads of its nodes have
//! CPU time for, summed over the nodes.
//!
//! The nodes work one after the other, because three of them would compete for the cores of a small machine. In a real
//! cluster each node has a core of its own. All keys of a node are in one slot: a key costs the same in every slot.

use super::commands::{COMPARE_AND_DELETE_SHA, granted, is_set};
use super::throughput::{load_script, pair_slice};
use crate::bench::{Bench, Side, alternate};
use crate::invalid::Result;
use crate::load::PairOf;
use crate::row::{Row, Samples};
use crate::server::SlotRange;
use crate::words::{numbered, token};
use dsync_testkit::resp::write_request;

/// The most primaries. Each has a hash tag for its keys, and every range of [`SLOTS`] contains the slot of its tag.
const TAGS: [u8; 3] = [b'2', b'1', b'0'];

/// The slots of each node, by the number of primaries. The slots of the tags are 5649, 9842 and 13907.
const SLOTS: [&[SlotRange]; 3] = [
    &[(0, 16_383)],
    &[(0, 7_999), (8_000, 16_383)],
    &[(0, 7_999), (8_000, 11_999), (12_000, 16_383)],
];

struct Tagged {
    lock: PairOf,
    set: PairOf,
}

const PAIRS: [Tagged; 3] = [
    tagged::<{ TAGS[0] }>(),
    tagged::<{ TAGS[1] }>(),
    tagged::<{ TAGS[2] }>(),
];

const fn tagged<const TAG: u8>() -> Tagged {
    Tagged {
        lock: PairOf {
            first: |number, out| {
                write_request(
                    out,
                    &[b"DLOCK.ACQUIRE", &key::<TAG>(number), b"PX", b"3600000"],
                );
            },
            token: granted,
            second: |number, token, out| {
                write_request(out, &[b"DLOCK.RELEASE", &key::<TAG>(number), token]);
            },
        },
        set: PairOf {
            first: |number, out| {
                let (key, token) = (key::<TAG>(number), token(number));
                write_request(out, &[b"SET", &key, &token, b"NX", b"PX", b"3600000"]);
            },
            token: is_set,
            second: |number, _, out| {
                let (key, token) = (key::<TAG>(number), token(number));
                write_request(
                    out,
                    &[b"EVALSHA", COMPARE_AND_DELETE_SHA, b"1", &key, &token],
                );
            },
        },
    }
}

/// `{2}:lock:00000001`.
fn key<const TAG: u8>(number: u64) -> [u8; 17] {
    numbered(
        &[b'{', TAG, b'}', b':', b'l', b'o', b'c', b'k', b':'],
        number,
    )
}

pub fn run(bench: &Bench, rows: &mut Vec<Row>) -> Result<()> {
    let operations = bench.size(6_000, 1_000);
    for slots in SLOTS {
        let mut samples = Samples::default();
        for pair in 0..bench.pairs() {
            let mut ours = bench.cluster(true, slots)?;
            let mut theirs = bench.cluster(false, slots)?;
            theirs.iter_mut().try_for_each(load_script)?;
            let slices = alternate(pair, (&mut ours, &mut theirs), |nodes, is_ours| {
                pairs_a_second(nodes, is_ours, operations)
            })?;
            samples.push_slices(&slices);
        }
        let what = format!(
            "ACQUIRE + RELEASE / SET + EVALSHA, {} primaries",
            slots.len()
        );
        rows.push(Row::new("growth-cluster", what, "pairs/s", samples));
    }
    Ok(())
}

/// Returns the sum over the nodes of the pairs that fit into a second of CPU time.
fn pairs_a_second(nodes: &mut [Side], is_ours: bool, operations: u64) -> Result<f64> {
    let mut sum = 0.0;
    for (node, tagged) in nodes.iter_mut().zip(&PAIRS) {
        let pair = if is_ours { &tagged.lock } else { &tagged.set };
        sum += 1e9 / pair_slice(node, pair, operations)?;
    }
    Ok(sum)
}
