//! The options that say where the server is and who asks. They stand before the subcommand or behind it.
//!
//! Which options belong together is checked in `servers`: clap looks at each side of the subcommand for itself.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};

use crate::duration;

#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Server")]
pub struct Server {
    /// The host of the server, as redis-cli has it [default: 127.0.0.1, where --port is given]
    #[arg(short = 'h', long, global = true)]
    pub host: Option<String>,
    /// The port of the server [default: 6379, where --host is given]
    #[arg(short, long, global = true, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,
    /// Where the server is: HOST:PORT, redis://, rediss:// (TLS) or unix:// [default: DSYNC_URL, REDIS_URL, a profile, or
    /// redis://127.0.0.1:6379]
    ///
    /// redis://USER:PASSWORD@HOST:PORT/DATABASE, rediss:// for TLS, or
    /// unix:///PATH?db=DATABASE&user=USER&pass=PASSWORD. With --cluster it is any node, and may be given several times
    /// (in DSYNC_URL with blanks between the URLs): one that answers is enough. Other users of this machine can see a
    /// password here, but not in DSYNC_URL.
    #[arg(short, long, value_name = "URL", global = true)]
    pub url: Vec<String>,
    /// The server of this name in ~/.config/dsync.toml [default: DSYNC_PROFILE, or the file's default]
    #[arg(long, value_name = "NAME", global = true)]
    pub profile: Option<String>,
    /// The ACL user; it wins over the one in the URL
    #[arg(long, value_name = "NAME", global = true)]
    pub user: Option<String>,
    /// The password; it wins over the one in the URL [default: REDISCLI_AUTH]
    ///
    /// Other users of this machine can see the command line; --password-file and the environment variable REDISCLI_AUTH
    /// are hidden from them.
    #[arg(short = 'a', long, value_name = "PASSWORD", global = true)]
    pub pass: Option<String>,
    /// File whose first line is the password; its mode must not let every user read it (600, 400, 640 or 440)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub password_file: Option<PathBuf>,
    /// The database number; it wins over the one in the URL
    #[arg(short = 'n', long, value_name = "NUMBER", global = true)]
    pub db: Option<i64>,
    /// The server is a node of a cluster: find the node of the key, or ask all primaries
    #[arg(short, long, global = true)]
    pub cluster: bool,
    /// Ask these sentinels for the primary; needs --master. May be given several times
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', global = true)]
    pub sentinel: Vec<String>,
    /// The name of the primary at the sentinels
    #[arg(long, value_name = "NAME", global = true)]
    pub master: Option<String>,
    /// The ACL user at the sentinels
    #[arg(long, value_name = "NAME", global = true)]
    pub sentinel_user: Option<String>,
    /// The password at the sentinels
    #[arg(long, value_name = "PASSWORD", global = true)]
    pub sentinel_pass: Option<String>,
    /// File with the password at the sentinels, as --password-file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub sentinel_password_file: Option<PathBuf>,
    /// Use TLS, as a rediss:// URL does
    #[arg(long, global = true)]
    pub tls: bool,
    /// File with the certificates (PEM) of those who may sign the server's [default: the system's]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub cacert: Option<PathBuf>,
    /// File with the client's certificate (PEM); needs --key
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub cert: Option<PathBuf>,
    /// File with the client's private key (PEM); needs --cert
    #[arg(long = "key", value_name = "FILE", value_hint = ValueHint::FilePath, global = true)]
    pub private_key: Option<PathBuf>,
    /// Use TLS and accept any certificate, also a forged one
    #[arg(long, global = true)]
    pub insecure: bool,
    /// How long connecting may take in all, and how long the server may be silent in an answer [default: 5s]
    ///
    /// Connecting includes the look-up of names, all addresses, TLS, the login, and asking sentinels or nodes of a
    /// cluster. `dsync run` waits so long for each reply, and asks again. Waiting for a lock is not limited by it: see
    /// --wait there.
    #[arg(long, value_name = "TIME", value_parser = duration::parse_positive, global = true)]
    pub timeout: Option<Duration>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    fn parse(line: &str) -> Result<Server, clap::Error> {
        Cli::try_parse_from(line.split_whitespace()).map(|cli| cli.server)
    }

    #[test]
    fn server_options_stand_on_either_side_of_the_subcommand() {
        for line in [
            "dsync -u rediss://h:1 --cacert ca.pem --user u -n 3 --timeout 7s ls --owner web-*",
            "dsync ls --owner web-* -u rediss://h:1 --cacert ca.pem --user u -n 3 --timeout 7s",
            "dsync -u rediss://h:1 --timeout 7s log -f --cacert ca.pem --user u -n 3",
            "dsync --timeout 7s run -u rediss://h:1 --lock a --cacert ca.pem --user u -n 3 -- x -n 4 --user v",
        ] {
            let server = parse(line).unwrap();
            assert_eq!(server.url, ["rediss://h:1"], "{line}");
            assert_eq!(server.db, Some(3), "{line}");
            assert_eq!(server.user.as_deref(), Some("u"), "{line}");
            assert_eq!(server.timeout, Some(Duration::from_secs(7)), "{line}");
        }
    }

    #[test]
    fn addresses_can_be_given_several_times() {
        let server = parse("dsync --sentinel a:1,b:2 --sentinel c:3 --master m ls").unwrap();
        assert_eq!(server.sentinel.len(), 3);
        let server = parse("dsync ls -c -u redis://a -u redis://b").unwrap();
        assert_eq!(server.url.len(), 2);
    }
}
