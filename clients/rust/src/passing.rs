//! Which errors can pass: the server, or the way to it, is in the way at this moment.
//!
//! The same request may then be sent again, to this server or to the one that has taken over: its token tells that it is
//! the same. All commands have this one table.

use std::error::Error;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError, ServerErrorKind};

use crate::untold::Untold;

/// Codes of the server for which redis-rs has no kind.
const CODES: [&str; 5] = ["UNBLOCKED", "NOREPLICAS", "MISCONF", "BUSY", "OOM"];

/// What UNBLOCKED says to a request that is over: its token was withdrawn, or another has it, or the group is gone. Asked
/// again, a group that was removed would be answered as one that is finished.
const OVER: [&str; 3] = ["released", "superseded", "the group was removed"];

/// What a server says that has no room for another connection. It has no code of its own.
const FULL: &str = "max number of clients";

/// Whether the same request may be sent again.
pub(crate) fn passes(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Io => !is_final(error),
        ErrorKind::Parse
        | ErrorKind::MasterNameNotFoundBySentinel
        | ErrorKind::ClusterConnectionNotFound => true,
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            error.detail().is_some_and(|it| it.starts_with(FULL))
        }
        ErrorKind::Server(kind) => matches!(
            kind,
            ServerErrorKind::Moved
                | ServerErrorKind::Ask
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::ReadOnly
                | ServerErrorKind::BusyLoading
        ),
        ErrorKind::Extension => {
            let (code, detail) = (error.code(), error.detail().unwrap_or_default());
            let is_over = OVER.iter().any(|over| detail.starts_with(over));
            code.is_some_and(|code| CODES.contains(&code))
                && !(code == Some("UNBLOCKED") && is_over)
        }
        _ => false,
    }
}

/// Returns what an error of a connection was made of, by its class.
pub(crate) fn cause<T: Error + 'static>(error: &RedisError) -> Option<&T> {
    let inner: &Arc<dyn Error + Send + Sync> = error.source()?.downcast_ref()?;
    inner.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref()
}

/// Whether a failure to connect is final: all Sentinels have refused, or the certificate is not trusted, has expired or is
/// of another name.
fn is_final(error: &RedisError) -> bool {
    #[cfg(feature = "tls-rustls")]
    if let Some(rustls::Error::InvalidCertificate(_)) = cause(error) {
        return true;
    }
    cause::<Untold>(error).is_some_and(|untold| untold.is_final)
}

/// Whether the connection is of no further use. What arrives on it late would be taken for the next reply.
pub(crate) fn is_of_connection(error: &RedisError) -> bool {
    error.is_io_error() || error.is_timeout() || error.kind() == ErrorKind::Parse
}

/// Whether this answer to RENEW or RELEASE says that the hold is over: another value has replaced the key.
pub(crate) fn tells_the_end(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

/// Whether the server has refused who asks before it looked at the command.
pub(crate) fn is_of_login(error: &RedisError) -> bool {
    matches!(error.code(), Some("WRONGPASS" | "NOAUTH"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: &str, detail: &str) -> RedisError {
        let line = format!("-{code} {detail}\r\n");
        let reply = redis::parse_redis_value(line.as_bytes()).unwrap();
        reply.extract_error().unwrap_err()
    }

    #[test]
    fn answers_of_a_server_that_cannot_serve_now_pass() {
        let codes = "UNBLOCKED READONLY MOVED ASK TRYAGAIN CLUSTERDOWN MASTERDOWN LOADING NOREPLICAS \
                     MISCONF BUSY OOM";
        for code in codes.split(' ') {
            assert!(passes(&answer(code, "1 127.0.0.1:7000")), "{code}");
        }
    }

    #[test]
    fn full_server_passes() {
        assert!(passes(&answer("ERR", "max number of clients reached")));
    }

    #[test]
    fn answers_about_the_request_do_not_pass() {
        let codes = "ERR MISMATCH TOOMANY NOLIMIT QUEUEFULL WRONGTYPE NOPERM NOAUTH CROSSSLOT";
        for code in codes.split(' ') {
            assert!(!passes(&answer(code, "why")), "{code}");
        }
        for over in [
            "released: RELEASE with the token of this request has withdrawn it",
            "superseded: the same token asked again and has taken over the place",
            "the group was removed before it finished",
        ] {
            assert!(!passes(&answer("UNBLOCKED", over)), "{over}");
        }
    }
}
