//! The holds that DSYNC.HOLDS lists.

use serde_json::{Value as Json, json};

use crate::connect::Node;
use crate::failure::Result;
use crate::text::with_key;

/// How many holds the server looks at for one page: a short turn, and few round trips.
const PAGE: u32 = 1000;

pub struct Hold {
    /// `None` while the server looks for a key that was renamed or moved.
    pub place: Option<Place>,
    pub family: String,
    pub fence: u64,
    pub owner: Option<Vec<u8>>,
    pub client: Option<u64>,
    pub lease_left_ms: u64,
    pub held_ms: u64,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Place {
    pub db: i64,
    pub key: Vec<u8>,
}

type Row = (
    Option<i64>,
    Option<Vec<u8>>,
    String,
    u64,
    Option<Vec<u8>>,
    Option<u64>,
    u64,
    u64,
);

impl Hold {
    fn of((db, key, family, fence, owner, client, lease_left_ms, held_ms): Row) -> Hold {
        let place = db.zip(key).map(|(db, key)| Place { db, key });
        Hold {
            place,
            family,
            fence,
            owner,
            client,
            lease_left_ms,
            held_ms,
        }
    }

    pub fn key(&self) -> Option<&[u8]> {
        self.place.as_ref().map(|place| place.key.as_slice())
    }

    pub fn json(&self, server: &str) -> Json {
        let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
        let fields = json!({
            "server": server,
            "db": self.place.as_ref().map(|place| place.db),
            "key": null,
            "type": self.family,
            "fence": self.fence,
            "owner": self.owner.as_ref().map(text),
            "client": self.client,
            "held_ms": self.held_ms,
            "lease_left_ms": self.lease_left_ms,
        });
        with_key(fields, self.key())
    }
}

/// Lists the holds of one server, of all databases; those of one owner if a pattern is given.
pub fn list(node: &mut Node, owner: Option<&str>) -> Result<Vec<Hold>> {
    first_pages(node, owner, u32::MAX)
}

/// Lists those of the first pages, of [`PAGE`] holds each.
pub fn first_pages(node: &mut Node, owner: Option<&str>, pages: u32) -> Result<Vec<Hold>> {
    let mut holds = Vec::new();
    let mut cursor = "0".to_owned();
    for _ in 0..pages {
        let mut page = redis::cmd("DSYNC.HOLDS");
        page.arg(&cursor).arg("COUNT").arg(PAGE);
        if let Some(pattern) = owner {
            page.arg("OWNER").arg(pattern);
        }
        let (next, rows): (String, Vec<Row>) = node.ask(&page)?;
        holds.extend(rows.into_iter().map(Hold::of));
        if next == "0" {
            break;
        }
        cursor = next;
    }
    Ok(holds)
}
