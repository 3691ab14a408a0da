//! What an error of a server, or of the way to it, means, and what the user can do about it.
//!
//! Codes and classes decide, not texts, where there is one. The server's own words are shown only where they say more
//! than ours, and never the arguments of a command, which a server repeats to a client when it does not know the
//! command: a token could be among them.

use std::error::Error as _;
use std::io;
use std::sync::Arc;

use redis::{ErrorKind, RedisError};
use rustls::{AlertDescription, CertificateError, Error as TlsError};

use crate::acl;
use crate::failure::{Failure, Status};
use crate::servers::Peer;
use crate::text::plain;

const LOG_IN: &str = "Give user and password in DSYNC_URL or with --user and --password-file, or the password in \
                      REDISCLI_AUTH.";

const LOG_IN_AT_SENTINEL: &str = "Give user and password of the sentinels with --sentinel-user and \
                                  --sentinel-password-file.";

impl Failure {
    /// Returns the failure that an answer of a server, or of the way to it, is, in words that name the server.
    pub fn of_server(peer: &Peer, error: &RedisError) -> Failure {
        explain(peer, error)
    }
}

fn explain(peer: &Peer, error: &RedisError) -> Failure {
    let says = |status, what: String, advice: &str| {
        Failure::new(status, format!("{peer}: {what}\n{advice}"))
    };
    let refused = |what: String, advice: &str| says(Status::Refused, what, advice);
    let detail = error.detail().unwrap_or_default();
    let log_in = match peer.is_sentinel {
        true => LOG_IN_AT_SENTINEL,
        false => LOG_IN,
    };
    match error.kind() {
        ErrorKind::AuthenticationFailed => return refused(plain(error), log_in),
        ErrorKind::MasterNameNotFoundBySentinel => {
            let what = "no sentinel names a primary of this name that is up".into();
            return says(Status::Unreachable, what, UNKNOWN_MASTER);
        }
        ErrorKind::ClusterConnectionNotFound => {
            let what =
                "--cluster: no node tells who serves the slots; is this a cluster, and whole?"
                    .into();
            let advice = "For a server that stands alone leave out --cluster (-c).";
            return says(Status::Unreachable, what, advice);
        }
        ErrorKind::Io | ErrorKind::Parse => return of_connection(peer, error),
        _ => {}
    }
    if detail.contains("unknown command") {
        return unknown_command(peer, detail);
    }
    if detail.contains("cluster support disabled") {
        let what = "--cluster: this server is no node of a cluster".into();
        return refused(
            what,
            "Leave out --cluster (-c), or give the --url of a node.",
        );
    }
    match error.code() {
        Some("NOPERM") => {
            let (what, advice) = acl::denial(&peer.user, detail);
            refused(what, &advice)
        }
        Some("NOAUTH" | "WRONGPASS") => refused(plain(error), log_in),
        Some("READONLY") => refused(
            "this is a replica, which takes no writes".into(),
            "Give the primary's address, or use --sentinel or --cluster.",
        ),
        Some("MOVED" | "ASK" | "CROSSSLOT") => refused(
            "this is a node of a cluster, and the key belongs to another one".into(),
            "Add --cluster.",
        ),
        Some("WRONGTYPE") => refused(
            "the key has another type: it is not what the command works on".into(),
            "`redis-cli TYPE KEY` tells what it is. Choose another key, or look who writes to this one.",
        ),
        Some("NOLIMIT") => refused(
            "the semaphore has no limit in force, and none is given".into(),
            "Say how many permits there are: --limit N.",
        ),
        Some("TOOMANY") => refused(
            format!("more permits than the semaphore has: {detail}"),
            "Take fewer with --permits, or raise the limit with DSEM.LIMIT.",
        ),
        Some("QUEUEFULL") => refused(
            format!("too many wait: {detail}"),
            "Come back later. `dsync top` shows which keys they wait for.",
        ),
        Some("NOREPLICAS" | "MISCONF" | "OOM") => says(
            Status::Unreachable,
            plain(error),
            "The server lives, but takes no writes now.",
        ),
        // Asked again, it would be answered as one that is finished.
        Some("UNBLOCKED") if detail.starts_with("the group was removed") => {
            Failure::new(Status::Refused, format!("{peer}: {detail}"))
        }
        // The server lives, but does not serve now: trying later may help.
        Some("LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" | "BUSY" | "UNBLOCKED") => {
            Failure::new(Status::Unreachable, format!("{peer}: {}", plain(error)))
        }
        _ => Failure::new(Status::Refused, format!("{peer}: {}", plain(error))),
    }
}

/// Returns what a sentinel that does not know the primary's name says.
pub fn unknown_master(sentinel: &Peer, master: &str) -> Failure {
    let message = format!("--master '{master}': {sentinel} knows no primary of this name");
    Failure::new(Status::Refused, format!("{message}\n{UNKNOWN_MASTER}"))
}

const UNKNOWN_MASTER: &str =
    "`redis-cli -p PORT SENTINEL MASTERS`, asked of a sentinel, lists the names for --master.";

fn unknown_command(peer: &Peer, detail: &str) -> Failure {
    const OURS: [&str; 5] = ["DSYNC.", "DLOCK.", "DSEM.", "DWG.", "DONCE."];
    let command = acl::quoted_word(detail).unwrap_or_default().to_uppercase();
    if command == "SENTINEL" {
        let message =
            format!("{peer}: --sentinel: this server is no sentinel\nTheir usual port is 26379.");
        return Failure::new(Status::Refused, message);
    }
    let message = if OURS.iter().any(|prefix| command.starts_with(prefix)) {
        format!(
            "{peer}: this server has not loaded the dsync module, or an old version of it: it does not know {command}\n\
             Load the module with a line `loadmodule FILE` in the server's configuration, or give another --url."
        )
    } else if command == "WAITAOF" {
        format!("{peer}: --disk needs WAITAOF, which this server lacks: Redis has it from 7.2 on")
    } else {
        format!("{peer}: this server does not know the command {command}")
    };
    Failure::new(Status::Refused, message)
}

/// Explains what went wrong on the way.
fn of_connection(peer: &Peer, error: &RedisError) -> Failure {
    // A sentinel has refused, and the others were not reached.
    if let Some(refusal) = io_error(error).and_then(|it| it.source()?.downcast_ref()) {
        return explain(peer, refusal).that_may_pass();
    }
    let (what, advice) = if let Some(tls) = tls_error(error) {
        of_tls(tls)
    } else if error.is_timeout() && peer.has_tls {
        (
            plain(error),
            "Is this the right address, and has its port TLS? For a port without TLS write redis:// and leave out --tls, \
             --cacert, --cert, --key and --insecure.",
        )
    } else if error.kind() == ErrorKind::Parse {
        (
            "the answer is not one of a Redis or Valkey server".into(),
            "Is this the right address? If its port wants TLS, write rediss:// or add --tls.",
        )
    } else if !peer.has_tls && hung_up(error) {
        (
            format!("the server closed the connection ({})", plain(error)),
            "If this port wants TLS, write rediss:// or add --tls, with --cacert FILE for an authority of your own.",
        )
    } else if error.detail().is_some() && peer.has_tls {
        // The cluster's client passes on the texts of its nodes only.
        (
            plain(error),
            "Is this the right address? For an authority of your own give --cacert FILE; for a port without TLS write \
             redis:// and leave out --tls.",
        )
    } else if error.detail().is_some() {
        (
            plain(error),
            "Is this the right address? For a port with TLS write rediss:// or add --tls.",
        )
    } else {
        (
            plain(error),
            match peer.is_sentinel {
                true => "Is this the right address? Give it with --sentinel.",
                false => "Is this the right address? Give it with --url, --profile or DSYNC_URL.",
            },
        )
    };
    Failure::new(Status::Unreachable, format!("{peer}: {what}\n{advice}"))
}

fn of_tls(error: &TlsError) -> (String, &'static str) {
    match error {
        TlsError::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => (
            "its certificate is for another host".into(),
            "Give the address with a host that stands in the certificate.",
        ),
        TlsError::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => (
            "its certificate has expired".into(),
            "It needs a new one. Is the clock of this machine right?",
        ),
        TlsError::InvalidCertificate(CertificateError::UnknownIssuer) => (
            "its certificate is signed by an authority that this machine does not know".into(),
            "Give the authority's certificate with --cacert FILE.",
        ),
        TlsError::InvalidCertificate(_) => (
            format!("its certificate is not accepted: {error}"),
            "Give the certificate of the authority that signed it with --cacert FILE.",
        ),
        TlsError::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::HandshakeFailure,
        ) => (
            format!("the server does not accept this client's certificate: {error}"),
            "Give one that the server's authority has signed, with --cert FILE and --key FILE.",
        ),
        TlsError::InvalidMessage(_) => (
            "this port does not speak TLS".into(),
            "Write redis:// instead of rediss://, and leave out --tls, --cacert, --cert, --key and --insecure.",
        ),
        other => (
            format!("no TLS connection: {other}"),
            "Is this the right address? --cacert FILE names the authority; for a port without TLS write redis://.",
        ),
    }
}

/// Finds the TLS error inside the library's.
fn tls_error(error: &RedisError) -> Option<&TlsError> {
    io_error(error)?.get_ref()?.downcast_ref()
}

fn io_error(error: &RedisError) -> Option<&io::Error> {
    type Shared = Arc<dyn std::error::Error + Send + Sync>;
    error.source()?.downcast_ref::<Shared>()?.downcast_ref()
}

/// Whether the server closed the connection, as a port with TLS does.
fn hung_up(error: &RedisError) -> bool {
    error.is_connection_dropped() && !error.is_connection_refusal() && error.detail().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_a_server_repeats_are_never_shown() {
        let detail = "unknown subcommand 'X', with args beginning with: 'k' 'TOKEN' 'secret'";
        let peer = Peer {
            address: "h:1".into(),
            user: "default".into(),
            has_tls: false,
            is_sentinel: false,
        };
        for error in [
            redis::make_extension_error("ERR".into(), Some(detail.into())),
            redis::make_extension_error("OTHER".into(), Some(detail.into())),
            RedisError::from((ErrorKind::Io, "no startup node", detail.into())),
            RedisError::from((ErrorKind::Client, "refused", detail.into())),
            RedisError::from(io::Error::other(detail)),
        ] {
            let message = Failure::of_server(&peer, &error).message;
            assert!(message.starts_with("h:1: "), "{message}");
            assert!(message.contains("unknown subcommand 'X'"), "{message}");
            assert!(!message.contains("secret"), "{message}");
        }
    }
}
