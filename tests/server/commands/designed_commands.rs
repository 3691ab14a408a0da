//! The table of all commands as DESIGN.md describes them, and requests made from what COMMAND DOCS says.
//!
//! `command_docs` and `acl_users` compare the server with this table.

use crate::support::*;

/// A command as DESIGN.md describes it.
pub struct DesignedCommand {
    pub name: &'static str,
    /// The arguments behind the name, as the manual writes them.
    pub syntax: &'static str,
    /// The flags of its key, as COMMAND INFO names them; empty where it has no key.
    pub key: &'static str,
    pub tips: &'static str,
    pub jobs: &'static [Job],
}

/// The jobs of the ACL users in docs/acl.md. A command lists the jobs that need it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Job {
    Worker,
    Observer,
    Operator,
}

use Job::{Observer, Operator, Worker};

const READS: &str = "RO access";

const CHANGES: &str = "RW update";

const TELLS: &str = "RW access update";

const REMOVES: &str = "RW delete";

/// The tip of commands whose reply differs from call to call.
const VARIES: &str = "nondeterministic_output";

pub const COMMANDS: [DesignedCommand; 38] = [
    row(
        "DLOCK.ACQUIRE",
        "key [SHARED] [EX seconds | PX milliseconds] [BLOCK milliseconds | QUEUE milliseconds] [TOKEN token] [EPHEMERAL] [OWNER text]",
        TELLS,
        VARIES,
        &[Worker],
    ),
    row("DLOCK.RELEASE", "key token", REMOVES, "", &[Worker]),
    row(
        "DLOCK.RENEW",
        "key token [EX seconds | PX milliseconds]",
        CHANGES,
        "",
        &[Worker],
    ),
    row(
        "DLOCK.CHECK",
        "key token",
        READS,
        VARIES,
        &[Worker, Observer],
    ),
    row("DLOCK.REVOKE", "key fence", REMOVES, "", &[Operator]),
    row("DLOCK.PAUSE", "key milliseconds", TELLS, "", &[Operator]),
    row(
        "DLOCK.INFO",
        "key [COUNT count]",
        READS,
        VARIES,
        &[Worker, Observer, Operator],
    ),
    row(
        "DSEM.ACQUIRE",
        "key [LIMIT limit] [PERMITS permits] [EX seconds | PX milliseconds] [BLOCK milliseconds | QUEUE milliseconds] [TOKEN token] [EPHEMERAL] [OWNER text]",
        TELLS,
        VARIES,
        &[Worker],
    ),
    row("DSEM.LIMIT", "key limit | NONE", TELLS, "", &[Operator]),
    row("DSEM.RELEASE", "key token", REMOVES, "", &[Worker]),
    row(
        "DSEM.RENEW",
        "key token [EX seconds | PX milliseconds]",
        CHANGES,
        "",
        &[Worker],
    ),
    row(
        "DSEM.CHECK",
        "key token",
        READS,
        VARIES,
        &[Worker, Observer],
    ),
    row("DSEM.REVOKE", "key fence", REMOVES, "", &[Operator]),
    row("DSEM.PAUSE", "key milliseconds", TELLS, "", &[Operator]),
    row(
        "DSEM.INFO",
        "key [COUNT count]",
        READS,
        VARIES,
        &[Worker, Observer, Operator],
    ),
    row(
        "DWG.ADD",
        "key [LIMIT limit] [EX seconds | PX milliseconds] [BLOCK milliseconds | QUEUE milliseconds] [TOKEN token] [EPHEMERAL] [OWNER text]",
        TELLS,
        VARIES,
        &[Worker],
    ),
    row("DWG.DONE", "key token [token ...]", REMOVES, "", &[Worker]),
    row("DWG.WAIT", "key [BLOCK milliseconds]", TELLS, "", &[Worker]),
    row("DWG.EXPECT", "key jobs", TELLS, "", &[Worker]),
    row("DWG.RELEASE", "key token", REMOVES, "", &[Worker]),
    row(
        "DWG.RENEW",
        "key token [EX seconds | PX milliseconds]",
        CHANGES,
        "",
        &[Worker],
    ),
    row("DWG.CHECK", "key token", READS, VARIES, &[Worker, Observer]),
    row("DWG.REVOKE", "key fence", REMOVES, "", &[Operator]),
    row("DWG.PAUSE", "key milliseconds", TELLS, "", &[Operator]),
    row(
        "DWG.INFO",
        "key [COUNT count]",
        READS,
        VARIES,
        &[Worker, Observer, Operator],
    ),
    row(
        "DONCE.BEGIN",
        "key [MAX attempts] [EX seconds | PX milliseconds] [BLOCK milliseconds | QUEUE milliseconds] [TOKEN token] [EPHEMERAL] [OWNER text]",
        TELLS,
        VARIES,
        &[Worker],
    ),
    row(
        "DONCE.DONE",
        "key token [RESULT value] [EX seconds | PX milliseconds | PERSIST]",
        CHANGES,
        "",
        &[Worker],
    ),
    row(
        "DONCE.FAIL",
        "key token [REASON text] [DELAY milliseconds]",
        CHANGES,
        "",
        &[Worker],
    ),
    row("DONCE.GET", "key", READS, "", &[Worker, Observer]),
    row("DONCE.RELEASE", "key token", REMOVES, "", &[Worker]),
    row(
        "DONCE.RENEW",
        "key token [EX seconds | PX milliseconds]",
        CHANGES,
        "",
        &[Worker],
    ),
    row(
        "DONCE.CHECK",
        "key token",
        READS,
        VARIES,
        &[Worker, Observer],
    ),
    row("DONCE.REVOKE", "key fence", REMOVES, "", &[Operator]),
    row("DONCE.PAUSE", "key milliseconds", TELLS, "", &[Operator]),
    row(
        "DONCE.INFO",
        "key [COUNT count]",
        READS,
        VARIES,
        &[Worker, Observer, Operator],
    ),
    row(
        "DSYNC.CONTENDED",
        "[COUNT count]",
        "",
        "nondeterministic_output request_policy:all_shards response_policy:special",
        &[Observer, Operator],
    ),
    row(
        "DSYNC.HOLDS",
        "cursor [OWNER pattern] [COUNT count]",
        "",
        "nondeterministic_output request_policy:special response_policy:special",
        &[Observer, Operator],
    ),
    row(
        "DSYNC.LOG",
        "[COUNT count | RESET]",
        "",
        "nondeterministic_output request_policy:all_nodes response_policy:special",
        &[Operator],
    ),
];

/// The commands that are new in 0.3.0. All others came with 0.1.0.
const NEW_IN_0_3_0: [&str; 7] = [
    "DLOCK.PAUSE",
    "DSEM.PAUSE",
    "DWG.PAUSE",
    "DONCE.PAUSE",
    "DONCE.GET",
    "DSYNC.HOLDS",
    "DSYNC.LOG",
];

impl DesignedCommand {
    /// Whether it changes or ends what belongs to others, or tells of all keys of the server.
    pub fn is_dangerous(&self) -> bool {
        self.key.is_empty() || self.jobs == [Operator]
    }

    /// The first version with this command.
    pub fn since(&self) -> &'static str {
        if NEW_IN_0_3_0.contains(&self.name) {
            "0.3.0"
        } else {
            "0.1.0"
        }
    }
}

const fn row(
    name: &'static str,
    syntax: &'static str,
    key: &'static str,
    tips: &'static str,
    jobs: &'static [Job],
) -> DesignedCommand {
    DesignedCommand {
        name,
        syntax,
        key,
        tips,
        jobs,
    }
}

/// The commands that the module and its servers use among themselves. Servers that can hide a command hide these.
pub const INTERNAL: [&str; 3] = ["DSYN", "DSYNC.APPLY", "DSYNC.PROBE"];

/// An argument as COMMAND DOCS describes it.
pub struct DocArgument {
    pub name: String,
    pub kind: String,
    pub token: Option<String>,
    pub optional: bool,
    pub multiple: bool,
    pub parts: Vec<DocArgument>,
}

impl DocArgument {
    pub fn read(reply: &Reply) -> DocArgument {
        let word = |field: &str| reply.find_field(field).map(|text| text.as_str().to_owned());
        let flags = reply.find_field("flags").map_or(&[][..], Reply::as_array);
        let arg = DocArgument {
            name: word("name").expect("every argument has a name"),
            kind: word("type").expect("every argument has a type"),
            token: word("token"),
            optional: flags.iter().any(|flag| *flag == "optional"),
            multiple: flags.iter().any(|flag| *flag == "multiple"),
            parts: arguments(reply),
        };
        assert_eq!(arg.kind == "oneof", !arg.parts.is_empty(), "{reply:?}");
        let summary = word("summary").expect("every argument says what it means");
        let is_sentence = summary.ends_with('.') && summary.matches(". ").count() == 0;
        assert!(is_sentence, "{reply:?}");
        // Numbers and texts have bounds.
        let has_bounds = summary.contains(" to ") && summary.ends_with(").");
        assert_eq!(
            has_bounds,
            ["integer", "string"].contains(&arg.kind.as_str()),
            "{reply:?}"
        );
        if arg.kind == "key" {
            assert_eq!(*reply.field("key_spec_index"), 0, "{reply:?}");
        }
        arg
    }

    /// The argument as the manual writes it, with `[` and `]` around what is optional.
    pub fn syntax(&self) -> String {
        let mut text = match self.kind.as_str() {
            "oneof" => self
                .parts
                .iter()
                .map(DocArgument::syntax)
                .collect::<Vec<_>>()
                .join(" | "),
            "pure-token" => self.token.clone().expect("a word"),
            _ => self
                .token
                .iter()
                .chain([&self.name])
                .cloned()
                .collect::<Vec<_>>()
                .join(" "),
        };
        if self.multiple {
            text = format!("{text} [{text} ...]");
        }
        if self.optional {
            format!("[{text}]")
        } else {
            text
        }
    }

    /// Every way to write it in a request, as words; one for each alternative.
    pub fn ways(&self, key: &str) -> Vec<Vec<String>> {
        let value = match self.kind.as_str() {
            "oneof" => return self.parts.iter().flat_map(|part| part.ways(key)).collect(),
            "pure-token" => None,
            "key" => Some(key),
            "integer" => Some("5"),
            "string" if self.name == "cursor" => Some("0"),
            "string" => Some("text"),
            other => panic!("no argument here is a {other}"),
        };
        let words = self.token.as_deref().into_iter().chain(value);
        vec![words.map(str::to_owned).collect()]
    }
}

/// The arguments of an entry of COMMAND DOCS, or the alternatives of an argument.
pub fn arguments(reply: &Reply) -> Vec<DocArgument> {
    let list = reply
        .find_field("arguments")
        .map_or(&[][..], Reply::as_array);
    list.iter().map(DocArgument::read).collect()
}

/// Makes requests for a server from its COMMAND DOCS, each with a key of its own.
pub struct Requests {
    pub server: Server,
    pub client: Client,
    pub keys: usize,
}

impl Requests {
    pub fn set_up() -> Requests {
        let server = Server::start();
        let client = server.connect();
        Requests {
            server,
            client,
            keys: 0,
        }
    }

    pub fn docs(&mut self, name: &str) -> Reply {
        let docs = call!(self.client, "COMMAND", "DOCS", name);
        docs.field(name).clone()
    }

    pub fn args(&mut self, name: &str) -> Vec<DocArgument> {
        arguments(&self.docs(name))
    }

    pub fn new_key(&mut self) -> String {
        self.keys += 1;
        format!("key:{}", self.keys)
    }

    /// The request without any option, on a new key.
    pub fn bare(&mut self, name: &str, args: &[DocArgument]) -> Vec<String> {
        let key = self.new_key();
        let required = args.iter().filter(|arg| !arg.optional);
        let words = required.flat_map(|arg| arg.ways(&key).swap_remove(0));
        [name.to_owned()].into_iter().chain(words).collect()
    }
}

/// The texts of an array or a set, with blanks between them.
pub fn joined(reply: &Reply) -> String {
    let words: Vec<_> = reply
        .as_array()
        .iter()
        .map(|word| word.as_str().to_owned())
        .collect();
    words.join(" ")
}
