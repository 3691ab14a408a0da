//! What a server says of itself, each time on a new connection.

use std::time::Duration;

use crate::call;
use crate::eventually::eventually;
use crate::flavour::Flavour;
use crate::reply::Reply;
use crate::server::Server;

/// The deadline for a replica's synchronisation.
const SYNC_WITHIN: Duration = Duration::from_secs(30);

impl Server {
    /// The reply to a line as it is typed into `redis-cli`; panics if it is an error.
    #[track_caller]
    pub fn ask(&self, line: impl AsRef<str>) -> Reply {
        let reply = self.connect().ask(&line);
        assert!(!reply.is_error(), "{:?}: {reply:?}", line.as_ref());
        reply
    }

    /// The reply to a line of words, also an error; `None` if the server is gone, or closes the connection because its
    /// role changes.
    pub fn try_ask(&self, line: &str) -> Option<Reply> {
        let words: Vec<&str> = line.split_whitespace().collect();
        self.try_connect().ok()?.try_call(&words)
    }

    /// Whether the server answers ROLE as a primary.
    pub fn is_primary(&self) -> bool {
        matches!(self.try_ask("ROLE"), Some(Reply::Array(role)) if role[0] == "master")
    }

    /// A field of INFO, if the server answers and has it.
    pub fn find_info(&self, section: &str, field: &str) -> Option<String> {
        let Some(Reply::Bulk(info)) = self.try_ask(&format!("INFO {section}")) else {
            return None;
        };
        let info = String::from_utf8_lossy(&info).into_owned();
        let value = |line: &str| {
            line.strip_prefix(field)?
                .strip_prefix(':')
                .map(str::to_owned)
        };
        info.lines().find_map(value)
    }

    /// A field of INFO; panics with the section if it is not there.
    #[track_caller]
    pub fn info(&self, section: &str, field: &str) -> String {
        let info = self.info_section(section);
        let value = info
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        match value {
            Some(value) => value.to_owned(),
            None => panic!("no {field} in INFO {section}:\n{info}"),
        }
    }

    /// A field of INFO that is a whole number.
    #[track_caller]
    pub fn info_number(&self, section: &str, field: &str) -> u64 {
        let value = self.info(section, field);
        match value.parse() {
            Ok(number) => number,
            Err(_) => panic!("{field} of INFO {section} is not a whole number: {value:?}"),
        }
    }

    /// A whole section of INFO.
    #[track_caller]
    pub fn info_section(&self, section: &str) -> String {
        call!(self.connect(), "INFO", section).as_str().to_owned()
    }

    #[track_caller]
    pub fn flavour(&self) -> Flavour {
        Flavour::from_info(&self.info_section("server"))
    }

    /// `DEBUG DIGEST-VALUE` of a key in database 0: equal on two servers where the values are equal.
    #[track_caller]
    pub fn digest(&self, key: impl AsRef<[u8]>) -> String {
        let reply = call!(self.connect(), "DEBUG", "DIGEST-VALUE", key.as_ref());
        match reply.as_array() {
            [digest] => digest.as_str().to_owned(),
            _ => panic!("expected one digest, received {reply:?}"),
        }
    }

    /// Waits until this replica has synchronised with its primary.
    #[track_caller]
    pub fn wait_for_sync(&self) {
        eventually("a replica with its link up", SYNC_WITHIN, || {
            self.info("replication", "master_link_status") == "up"
        });
    }

    /// Waits until this replica has applied everything that `primary` has replicated by now.
    #[track_caller]
    pub fn wait_to_catch_up_with(&self, primary: &Server) {
        let target = primary.info_number("replication", "master_repl_offset");
        eventually("a replica at its primary's offset", SYNC_WITHIN, || {
            let info = self.info_section("replication");
            let offset = info
                .lines()
                .find_map(|line| line.strip_prefix("slave_repl_offset:")?.parse().ok());
            offset.is_some_and(|offset: u64| offset >= target)
        });
    }
}
