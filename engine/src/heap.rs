//! What data take on the heap, for MEMORY USAGE.
//!
//! It is computed and not asked for, because the engine knows no allocator. The figures are those of jemalloc, which
//! the servers use.

/// The entries that a node of a B-tree has room for. One that overflows at its end, where most trees here grow, leaves six
/// behind and gives one to its parent.
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

/// Returns the bytes of a B-tree with so many entries, each of this size, that has grown at its end.
pub fn tree(entries: usize, entry_bytes: usize) -> usize {
    if entries == 0 {
        return 0;
    }
    let mut nodes = nodes(entries);
    let mut bytes = nodes * leaf(entry_bytes);
    while nodes > 1 {
        nodes = self::nodes(nodes - 1);
        bytes += nodes * inner(entry_bytes);
    }
    bytes
}

/// Returns the nodes of a level of a tree with so many entries in this level and those above it.
fn nodes(entries: usize) -> usize {
    1 + entries.saturating_sub(NODE_ROOM).div_ceil(NODE_FILL)
}

/// Returns the bytes of a large B-tree for each of its entries.
pub fn tree_share(entry_bytes: usize) -> usize {
    // Of each level above the leaves a seventh of the one below: a sixth in all.
    (leaf(entry_bytes) + inner(entry_bytes) / (NODE_FILL - 1)) / NODE_FILL
}

fn leaf(entry_bytes: usize) -> usize {
    allocated(NODE_ROOM * entry_bytes + 16)
}

fn inner(entry_bytes: usize) -> usize {
    let edges = (NODE_ROOM + 1) * size_of::<usize>();
    allocated(NODE_ROOM * entry_bytes + 16 + edges)
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
    fn tree_has_the_nodes_into_which_it_was_split() {
        let (leaf, inner) = (192, 320);
        for (entries, leaves, inners) in [
            (0, 0, 0),
            (1, 1, 0),
            (11, 1, 0),
            (12, 2, 1),
            (18, 2, 1),
            (19, 3, 1),
            (81, 11, 1),
            (88, 12, 1),
            (89, 13, 3),
        ] {
            let bytes = leaves * leaf + inners * inner;
            assert_eq!(tree(entries, 16), bytes, "{entries} entries");
        }
        let (leaf, inner) = (112, 224);
        assert_eq!(tree(12, 8), 2 * leaf + inner);
        let share = tree(7_000, 16) / 7_000;
        assert!(share.abs_diff(tree_share(16)) <= 1, "{share}");
    }
}
