//! What a command of the module is: one row of the table.
//!
//! A row ([`Row`]) says everything about one command. The parser (`parse`), COMMAND DOCS, COMMAND INFO and the ACL
//! categories (`docs`), the registration (`register`) and the error texts all read it, so what is documented is
//! what is parsed. A row is plain data but for [`Run`], the function that carries it out.

use std::ffi::CStr;

use super::Outcome;
use super::grammar::{Arg, Words};
use super::parsed::Parsed;
use super::replies::{ErrorCode, ReplyForm};
use crate::module::redis::args::Args;
use crate::module::redis::context::Ctx;
use crate::module::redis::docs::KeyUse;
use crate::module::redis::name::KeyString;
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
    pub(super) key: KeyString<'a>,
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
