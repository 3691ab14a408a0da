//! What a command of the module is: the types of the table.
//!
//! One row ([`Row`]) says everything about one command. The parser (`parse`), COMMAND DOCS, COMMAND INFO
//! and the ACL categories (`docs`), the registration (`register`) and the error texts all read it, so what is
//! documented is what is parsed. A row is plain data but for [`Run`], the function that carries it out.

use std::ffi::CStr;

use super::Outcome;
use super::parse::Parsed;
use crate::module::redis::args::Args;
use crate::module::redis::context::Ctx;
use crate::module::redis::docs::KeyUse;
use crate::module::redis::name::KeyName;
use dsync_engine::Family;
use dsync_engine::types::Token;

#[derive(Clone, Copy)]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the tests read replies and errors")
)]
pub(super) struct Row {
    pub(super) name: Name,
    /// One sentence. `{key}` stands for the key in words: "a lock".
    pub(super) summary: &'static str,
    pub(super) terms: Terms,
    /// Positional arguments first; options come in any order after them, each at most once.
    pub(super) args: &'static [Arg],
    /// Every form of reply that is not an error, the usual one first.
    pub(super) replies: &'static [ReplyForm],
    /// The module's own errors; the server's own (OOM, READONLY and so on) follow from the flags.
    pub(super) errors: &'static [ErrorCode],
    pub(super) run: Run,
}

/// What the server is told of a command besides its arguments; many rows have the same.
#[derive(Clone, Copy)]
pub(super) struct Terms {
    pub(super) since: &'static str,
    pub(super) complexity: &'static str,
    /// The server's words, separated by spaces; one it does not know refuses the module.
    pub(super) flags: &'static CStr,
    pub(super) key: KeyUse,
    /// What a client in front of several servers should know, in the server's words; or nothing.
    pub(super) tips: &'static str,
    /// Whose job it is. The ACL categories follow from this and from the flags.
    pub(super) users: &'static [User],
}

/// How a command is carried out.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// Argument 1 is a key of this family.
    OnKey(Family, fn(&Call<'_>) -> Outcome),
    /// The command has no key: it tells of the whole server.
    OnServer(fn(Ctx<'_>, &Parsed<'_>) -> Outcome),
}

/// A request for one key, parsed.
pub(super) struct Call<'a> {
    pub(super) ctx: Ctx<'a>,
    pub(super) args: Args<'a>,
    pub(super) key: KeyName<'a>,
    pub(super) family: Family,
    pub(super) parsed: &'a Parsed<'a>,
}

impl Call<'_> {
    /// The token that a command requires.
    pub(super) fn token(&self) -> Result<Token, String> {
        let text = self.parsed.text(Words::Token);
        text.and_then(Token::parse)
            .ok_or_else(|| "ERR no token".to_owned())
    }
}

impl Row {
    pub(super) fn family(&self) -> Option<Family> {
        match self.run {
            Run::OnKey(family, _) => Some(family),
            Run::OnServer(_) => None,
        }
    }

    /// How many arguments come before the options.
    pub(super) fn required(&self) -> usize {
        let required = self.args.iter().take_while(|arg| !arg.is_optional());
        required.count()
    }
}

/// A command's name: a prefix, a dot, a verb; with a NUL behind it, as C wants it.
#[derive(Clone, Copy)]
pub(super) struct Name([u8; Name::ROOM]);

impl Name {
    const ROOM: usize = 24;

    pub(super) const fn new(prefix: &str, verb: &str) -> Name {
        let mut text = [0; Name::ROOM];
        let (prefix, verb) = (prefix.as_bytes(), verb.as_bytes());
        assert!(prefix.len() + 1 + verb.len() < Name::ROOM, "too long");
        let mut at = 0;
        while at < prefix.len() {
            text[at] = prefix[at];
            at += 1;
        }
        text[at] = b'.';
        at += 1;
        let mut from = 0;
        while from < verb.len() {
            text[at] = verb[from];
            at += 1;
            from += 1;
        }
        Name(text)
    }

    /// The name of a family's command.
    pub(super) const fn of(family: Family, verb: &str) -> Name {
        Name::new(prefix(family), verb)
    }

    pub(super) const fn as_c_str(&self) -> &CStr {
        match CStr::from_bytes_until_nul(&self.0) {
            Ok(name) => name,
            Err(_) => c"",
        }
    }

    pub(super) fn as_str(&self) -> &str {
        self.as_c_str().to_str().unwrap_or_default()
    }
}

/// What the names of a family's commands begin with.
pub(super) const fn prefix(family: Family) -> &'static str {
    match family {
        Family::Lock => "DLOCK",
        Family::Semaphore => "DSEM",
        Family::Group => "DWG",
        Family::Once => "DONCE",
    }
}

/// A key of the family, in words.
pub(super) const fn key_in_words(family: Family) -> &'static str {
    match family {
        Family::Lock => "a lock",
        Family::Semaphore => "a semaphore",
        Family::Group => "a wait group",
        Family::Once => "a work-once key",
    }
}

/// Whose job a command is: the users that the README has ready-made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum User {
    /// Gets things done.
    Worker,
    /// Looks.
    Observer,
    /// Interferes.
    Operator,
}

/// One argument, as it is typed and as it is described.
#[derive(Clone, Copy)]
pub(super) struct Arg {
    /// The word before the value, or instead of one.
    pub(super) word: Option<&'static str>,
    /// What the syntax calls the value.
    pub(super) name: &'static str,
    /// What an error calls the argument.
    pub(super) called: &'static str,
    pub(super) kind: Kind,
    pub(super) times: Times,
    /// One sentence, without the bounds: they are told from the kind.
    pub(super) meaning: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Times {
    Once,
    AtMostOnce,
    /// The last positional argument.
    OnceOrMore,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Key,
    /// Nothing but its word.
    Flag(Flag),
    Integer(Integer),
    Text(Text),
    /// Exactly one of these.
    OneOf(&'static [Arg]),
}

#[derive(Clone, Copy)]
pub(super) struct Integer {
    pub(super) into: Number,
    pub(super) unit: &'static str,
    /// What the value is multiplied by, and the upper bound divided by: 1,000 for seconds that are kept in
    /// milliseconds.
    pub(super) factor: u64,
    pub(super) least: u64,
    pub(super) most: Most,
}

#[derive(Clone, Copy)]
pub(super) struct Text {
    pub(super) into: Words,
    /// In bytes.
    pub(super) least: u64,
    pub(super) most: Most,
    /// It stays out of MONITOR, SLOWLOG and errors.
    pub(super) is_secret: bool,
}

/// An upper bound.
#[derive(Clone, Copy)]
pub(super) enum Most {
    Is(u64),
    Setting(Bound),
}

/// The settings that bound arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bound {
    MaxLeaseMs,
    MaxResultBytes,
}

impl Bound {
    pub(super) fn setting(self) -> &'static str {
        match self {
            Bound::MaxLeaseMs => "dsync.max-lease-ms",
            Bound::MaxResultBytes => "dsync.max-result-bytes",
        }
    }
}

/// Where [`Parsed`] keeps a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Number {
    /// In milliseconds: a lease, or how long a result is kept.
    Duration,
    BlockMs,
    Limit,
    Permits,
    Attempts,
    Jobs,
    Fence,
    Count,
}

impl Number {
    /// Counted by the last one.
    pub(super) const KINDS: usize = Number::Count as usize + 1;
}

/// Where [`Parsed`] keeps a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Words {
    Token,
    Owner,
    Result,
    Reason,
}

impl Words {
    /// Counted by the last one.
    pub(super) const KINDS: usize = Words::Reason as usize + 1;
}

/// Which words were there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flag {
    Shared,
    Ephemeral,
    /// `NONE` in place of a limit.
    Unpin,
}

impl Flag {
    /// Counted by the last one.
    pub(super) const KINDS: usize = Flag::Unpin as usize + 1;
}

impl Arg {
    /// `name`
    pub(super) const fn positional(name: &'static str, called: &'static str, kind: Kind) -> Arg {
        Arg {
            word: None,
            name,
            called,
            kind,
            times: Times::Once,
            meaning: "",
        }
    }

    /// `[WORD name]`
    pub(super) const fn option(word: &'static str, name: &'static str, kind: Kind) -> Arg {
        Arg {
            word: Some(word),
            called: word,
            times: Times::AtMostOnce,
            ..Arg::positional(name, "", kind)
        }
    }

    /// `[WORD]`
    pub(super) const fn flag(word: &'static str, name: &'static str, flag: Flag) -> Arg {
        Arg::option(word, name, Kind::Flag(flag))
    }

    pub(super) const fn means(self, meaning: &'static str) -> Arg {
        Arg { meaning, ..self }
    }

    pub(super) const fn optional(self) -> Arg {
        Arg {
            times: Times::AtMostOnce,
            ..self
        }
    }

    pub(super) const fn once(self) -> Arg {
        Arg {
            times: Times::Once,
            ..self
        }
    }

    pub(super) const fn many(self) -> Arg {
        Arg {
            times: Times::OnceOrMore,
            ..self
        }
    }

    pub(super) fn is_optional(&self) -> bool {
        self.times == Times::AtMostOnce
    }

    /// The words that begin it.
    pub(super) fn words(&self) -> Vec<&'static str> {
        match self.kind {
            Kind::OneOf(args) => args.iter().flat_map(Arg::words).collect(),
            _ => self.word.into_iter().collect(),
        }
    }
}

impl Integer {
    pub(super) const fn new(into: Number, unit: &'static str, least: u64, most: u64) -> Integer {
        Integer {
            into,
            unit,
            factor: 1,
            least,
            most: Most::Is(most),
        }
    }
}

/// An error that the command itself can give, besides those of the server; and a request that gets it, or nothing
/// where it takes more than requests one after the other.
#[derive(Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
pub(super) struct ErrorCode {
    pub(super) code: &'static str,
    pub(super) when: &'static str,
    /// As in [`ReplyForm`].
    pub(super) before: &'static [&'static str],
    pub(super) example: &'static str,
}

impl ErrorCode {
    pub(super) const fn new(code: &'static str, when: &'static str) -> ErrorCode {
        ErrorCode {
            code,
            when,
            before: &[],
            example: "",
        }
    }

    pub(super) const fn by(
        self,
        before: &'static [&'static str],
        example: &'static str,
    ) -> ErrorCode {
        ErrorCode {
            before,
            example,
            ..self
        }
    }
}

/// One form of reply, and a request that gets it.
#[derive(Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
pub(super) struct ReplyForm {
    pub(super) when: &'static str,
    pub(super) form: Form,
    /// What was sent before, to a server without keys. `{hold}` stands for the family's request that makes
    /// `a-41` hold `jobs:1`; what follows `B> ` is sent by a second connection, which then waits.
    pub(super) before: &'static [&'static str],
    /// The arguments of the request. `{fence}` stands for the fence in the reply to the line before.
    pub(super) example: &'static str,
}

/// What a reply looks like. RESP3 has nulls and maps; in RESP2 a null is a null bulk string, and a map a flat
/// array of names and values.
#[derive(Clone, Copy)]
#[cfg_attr(not(test), expect(dead_code, reason = "for the documentation"))]
pub(super) enum Form {
    Null,
    Integer,
    /// This number.
    Is(i64),
    Bulk,
    /// This text.
    Word(&'static str),
    /// These elements; the names are the documentation's.
    Array(&'static [(&'static str, Form)]),
    /// Any number of these.
    List(&'static Form),
    Map(&'static [(&'static str, Form)]),
    Either(&'static [Form]),
}
