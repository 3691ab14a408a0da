//! The table of commands behind the tests of the grammar, and a server with a key of each family to try requests on.
//!
//! [`Bench::refused`] is what all these tests have in common: the error names what the test expects and repeats no
//! token, and no key has changed.

use crate::support::steps::any_grant;
use crate::support::*;

/// The length of an argument that is far too long, in bytes.
pub const BIG: usize = 512 * 1024;

/// The token of the holds in [`Bench`]. No error may contain it.
pub const SECRET: &str = "s3cr3t-0f-th3-t3st";

/// A family's key in [`Bench`], and the options of the command that asks for a hold.
pub struct FamilyWords {
    pub key: &'static str,
    /// The command that asks for a hold.
    pub request: &'static str,
    /// The options without a value.
    pub flags: &'static [&'static str],
    /// The options with a value, each with one that is right.
    pub valued: &'static [(&'static str, &'static str)],
    /// Options of other commands, which this one refuses.
    pub foreign: &'static [&'static str],
}

pub const FAMILIES: [FamilyWords; 4] = [
    FamilyWords {
        key: "a-lock",
        request: "DLOCK.ACQUIRE",
        flags: &["SHARED", "EPHEMERAL"],
        valued: &[
            ("PX", "45000"),
            ("BLOCK", "5"),
            ("TOKEN", "its token"),
            ("OWNER", "its owner"),
        ],
        foreign: &["LIMIT", "PERMITS", "NX", "COUNT", "MAX"],
    },
    FamilyWords {
        key: "a-semaphore",
        request: "DSEM.ACQUIRE",
        flags: &["EPHEMERAL"],
        valued: &[
            ("LIMIT", "7"),
            ("PERMITS", "3"),
            ("EX", "45"),
            ("BLOCK", "5"),
            ("TOKEN", "its token"),
            ("OWNER", "its owner"),
        ],
        foreign: &["SHARED", "NX", "COUNT", "MAX"],
    },
    FamilyWords {
        key: "a-group",
        request: "DWG.ADD",
        flags: &["EPHEMERAL"],
        valued: &[
            ("LIMIT", "7"),
            ("PX", "45000"),
            ("BLOCK", "5"),
            ("TOKEN", "its token"),
            ("OWNER", "its owner"),
        ],
        foreign: &["SHARED", "PERMITS", "NX", "MAX"],
    },
    FamilyWords {
        key: "a-once",
        request: "DONCE.BEGIN",
        flags: &["EPHEMERAL"],
        valued: &[
            ("MAX", "7"),
            ("PX", "45000"),
            ("BLOCK", "5"),
            ("TOKEN", "its token"),
            ("OWNER", "its owner"),
        ],
        foreign: &["SHARED", "LIMIT", "PERMITS", "RESULT", "REASON"],
    },
];

impl FamilyWords {
    /// The name of the family's command with this verb: `DLOCK.RENEW` for `RENEW`.
    pub fn command(&self, verb: &str) -> String {
        let name = self.request.split('.').next().expect("a family and a verb");
        format!("{name}.{verb}")
    }
}

/// A command with right arguments, and how many arguments it takes.
pub struct SampleCall {
    pub name: &'static str,
    /// An index of [`FAMILIES`].
    pub family: usize,
    /// Right arguments behind the key.
    pub args: &'static [&'static str],
    /// Bounds of the number of arguments behind the name. The key is one of them.
    pub least: usize,
    pub most: Option<usize>,
}

const fn row(
    name: &'static str,
    family: usize,
    args: &'static [&'static str],
    least: usize,
    most: Option<usize>,
) -> SampleCall {
    SampleCall {
        name,
        family,
        args,
        least,
        most,
    }
}

pub const COMMANDS: [SampleCall; 35] = [
    row("DLOCK.ACQUIRE", 0, &[], 1, None),
    row("DLOCK.RELEASE", 0, &[SECRET], 2, Some(2)),
    row("DLOCK.RENEW", 0, &[SECRET], 2, None),
    row("DLOCK.CHECK", 0, &[SECRET], 2, Some(2)),
    row("DLOCK.REVOKE", 0, &["1"], 2, Some(2)),
    row("DLOCK.PAUSE", 0, &["1"], 2, Some(2)),
    row("DLOCK.INFO", 0, &[], 1, None),
    row("DSEM.ACQUIRE", 1, &["LIMIT", "3"], 1, None),
    row("DSEM.RELEASE", 1, &[SECRET], 2, Some(2)),
    row("DSEM.RENEW", 1, &[SECRET], 2, None),
    row("DSEM.CHECK", 1, &[SECRET], 2, Some(2)),
    row("DSEM.REVOKE", 1, &["1"], 2, Some(2)),
    row("DSEM.PAUSE", 1, &["1"], 2, Some(2)),
    row("DSEM.INFO", 1, &[], 1, None),
    row("DSEM.LIMIT", 1, &["3"], 2, Some(2)),
    row("DWG.ADD", 2, &[], 1, None),
    row("DWG.DONE", 2, &[SECRET], 2, None),
    row("DWG.WAIT", 2, &[], 1, None),
    row("DWG.EXPECT", 2, &["3"], 2, Some(2)),
    row("DWG.RELEASE", 2, &[SECRET], 2, Some(2)),
    row("DWG.RENEW", 2, &[SECRET], 2, None),
    row("DWG.CHECK", 2, &[SECRET], 2, Some(2)),
    row("DWG.REVOKE", 2, &["1"], 2, Some(2)),
    row("DWG.PAUSE", 2, &["1"], 2, Some(2)),
    row("DWG.INFO", 2, &[], 1, None),
    row("DONCE.BEGIN", 3, &[], 1, None),
    row("DONCE.DONE", 3, &[SECRET], 2, None),
    row("DONCE.FAIL", 3, &[SECRET], 2, None),
    row("DONCE.GET", 3, &[], 1, Some(1)),
    row("DONCE.RELEASE", 3, &[SECRET], 2, Some(2)),
    row("DONCE.RENEW", 3, &[SECRET], 2, None),
    row("DONCE.CHECK", 3, &[SECRET], 2, Some(2)),
    row("DONCE.REVOKE", 3, &["1"], 2, Some(2)),
    row("DONCE.PAUSE", 3, &["1"], 2, Some(2)),
    row("DONCE.INFO", 3, &[], 1, None),
];

pub const KEYS: [&str; 5] = ["a-lock", "a-semaphore", "a-group", "a-once", "a-string"];

/// A server with a held key of each family and a string.
pub struct Bench {
    pub server: Server,
    pub client: Client,
    /// The digests of [`KEYS`] and the number of keys, which no refused request may change.
    pub before: Vec<String>,
}

impl Bench {
    pub fn set_up() -> Bench {
        let server = Server::start();
        let mut client = server.connect();
        call!(
            client,
            "DLOCK.ACQUIRE",
            "a-lock",
            "TOKEN",
            SECRET,
            "EX",
            3_000
        )
        .grant();
        call!(
            client,
            "DSEM.ACQUIRE",
            "a-semaphore",
            "LIMIT",
            2,
            "TOKEN",
            SECRET,
            "EX",
            3_000
        )
        .grant();
        call!(
            client, "DWG.ADD", "a-group", "LIMIT", 1, "TOKEN", SECRET, "EX", 3_000
        )
        .grant();
        any_grant(&call!(
            client,
            "DONCE.BEGIN",
            "a-once",
            "TOKEN",
            SECRET,
            "EX",
            3_000
        ));
        call!(client, "SET", "a-string", "text");
        let mut bench = Bench {
            server,
            client,
            before: Vec::new(),
        };
        bench.before = bench.now();
        bench
    }

    /// The facts that `before` has, as they are at present.
    pub fn now(&mut self) -> Vec<String> {
        let mut facts: Vec<_> = KEYS
            .iter()
            .map(|key| format!("{:?}", call!(self.client, "DEBUG", "DIGEST-VALUE", key)))
            .collect();
        facts.push(format!("{:?}", call!(self.client, "DBSIZE")));
        facts
    }

    /// Asserts that the request is refused, that the error has all the parts and no token, and that no key has changed.
    /// Returns the error.
    #[track_caller]
    pub fn refused<A: AsRef<[u8]>>(&mut self, request: &[A], parts: &[&str]) -> String {
        let reply = self.client.call(request);
        let shown: Vec<_> = request
            .iter()
            .map(|arg| {
                arg.as_ref()[..arg.as_ref().len().min(40)]
                    .escape_ascii()
                    .to_string()
            })
            .collect();
        let shown = shown.join(" ");
        let Reply::Error(text) = &reply else {
            panic!("{shown}: not refused: {reply:?}")
        };
        for part in parts {
            assert!(text.contains(part), "{shown}: no {part:?} in {text:?}");
        }
        assert!(!text.contains(SECRET), "{shown}: a token in {text:?}");
        assert!(text.len() < 300, "{shown}: {} bytes of error", text.len());
        assert!(
            !text.contains(" ,") && !text.contains("  "),
            "{shown}: a word is missing in {text:?}"
        );
        assert_eq!(self.now(), self.before, "{shown}: something has changed");
        text.clone()
    }
}

/// One request of two parts.
pub fn request<'a>(head: &[&'a str], rest: &[&'a str]) -> Vec<&'a str> {
    [head, rest].concat()
}
