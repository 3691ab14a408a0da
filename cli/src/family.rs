//! The four families of keys, and which of them a key belongs to.

use redis::{Cmd, FromRedisValue, RedisResult};

use crate::connect::Node;
use crate::failure::{Failure, Result, Status};
use crate::servers::Servers;
use crate::text::printable;

/// A family: the name that lists show, and how the commands begin.
pub type Family = (&'static str, &'static str);

pub const FAMILIES: [Family; 4] = [
    ("lock", "DLOCK"),
    ("semaphore", "DSEM"),
    ("group", "DWG"),
    ("once", "DONCE"),
];

/// Sends the command of each family until one is not answered that the key has another type. Returns the family and the
/// answer; of a key that does not exist, those of the first.
pub fn ask<T: FromRedisValue>(
    servers: &Servers,
    node: &mut Node,
    key: &str,
    command: impl Fn(&str) -> Cmd,
) -> Result<(Family, T)> {
    for family in FAMILIES {
        let reply: RedisResult<T> = servers.ask_about_key(node, &command(family.1))?;
        match reply {
            Ok(reply) => return Ok((family, reply)),
            Err(error) if error.code() == Some("WRONGTYPE") => {}
            Err(error) => return Err(Failure::of_server(&node.peer, &error)),
        }
    }
    let message = format!(
        "'{}' is no key of dsync: it has another type",
        printable(key.as_bytes())
    );
    Err(Failure::new(Status::Nothing, message))
}
