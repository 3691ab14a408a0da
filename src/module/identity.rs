//! Which server this is: the same over its restarts, so that it knows its own files, see [`dsync_engine::Record`].
//!
//! In a cluster it is the node's id, which the node keeps. Elsewhere it is the host name and the port. Rejected: a number
//! in a file of our own, because a copy of a server's directory is another server; and the server's run id, because each
//! start has a new one.

use super::redis::context::Ctx;
use super::redis::gil::GilCell;
use super::redis::{address, cluster};
use crc::{CRC_32_ISO_HDLC, Crc};
use dsync_engine::Identity;

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// The hash of the server's address. Kept, because the process that writes a file cannot ask the server.
static OF_ADDRESS: GilCell<u32> = GilCell::new(u32::default);

/// Reads the server's address, at the start and whenever it may have changed.
pub(crate) fn read_address(ctx: Ctx<'_>) {
    let hash = CRC.checksum(&address::read(ctx));
    OF_ADDRESS.with(|of_address| *of_address = hash);
}

pub(super) fn read() -> Identity {
    let of_node = cluster::own_id().map(|id| CRC.checksum(&id));
    Identity::from_hash(of_node.unwrap_or_else(|| OF_ADDRESS.with(|hash| *hash)))
}
