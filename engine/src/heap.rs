//! What data take on the heap, for MEMORY USAGE.
//!
//! It is computed and not asked for, because the engine knows no allocator. The figures are those of jemalloc, which
//! the servers use.

/// The entries that a node of a B-tree has room for, and has on average. Most trees here grow at their end, and the
/// nodes that they leave behind are half full.
const NODE_ROOM: usize = 11;
const NODE_FILL: usize = 7;

/// Returns the bytes of an allocation: the next size class.
pub fn allocated(bytes: usize) -> usize {
    let step = if bytes <= 128 {
        16
    } else {
        bytes.next_power_of_two() / 8
    };
    bytes.next_multiple_of(step)
}

/// Returns the bytes of a B-tree with so many entries, each of this size.
pub fn tree(entries: usize, entry_bytes: usize) -> usize {
    match entries {
        0 => 0,
        1..=NODE_ROOM => leaf(entry_bytes),
        _ => entries * tree_share(entry_bytes),
    }
}

/// Returns the bytes of a large B-tree for each of its entries.
pub fn tree_share(entry_bytes: usize) -> usize {
    let edges = (NODE_ROOM + 1) * size_of::<usize>();
    let inner = allocated(NODE_ROOM * entry_bytes + 16 + edges);
    (leaf(entry_bytes) + inner / NODE_FILL) / NODE_FILL
}

fn leaf(entry_bytes: usize) -> usize {
    allocated(NODE_ROOM * entry_bytes + 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocation_takes_the_next_size_class() {
        for (bytes, taken) in [
            (0, 0),
            (1, 16),
            (16, 16),
            (17, 32),
            (113, 128),
            (129, 160),
            (160, 160),
            (193, 224),
            (256, 256),
            (257, 320),
            (720, 768),
            (1025, 1280),
        ] {
            assert_eq!(allocated(bytes), taken, "{bytes}");
        }
    }

    #[test]
    fn small_tree_is_one_leaf() {
        assert_eq!([0, 1, 11].map(|n| tree(n, 16)), [0, 192, 192]);
        assert_eq!(tree(1000, 16), 1000 * tree_share(16));
    }
}
