//! One row of the table of commands.
//!
//! A row ([`Row`]) has everything about one command. The parser (`parse`), COMMAND DOCS, COMMAND INFO and the ACL
//! categories (`docs`), the registration (`register`) and the error texts all read it, so the documentation cannot
//! differ from what the parser accepts. A row is plain data, except for the function in [`Run`].

use std::ffi::CStr;
use std::ops::Range;

use super::grammar::{Arg, Flag, Number, Text};
use crate::module::redis::args::Args;
use crate::module::redis::context::Ctx;
use crate::module::redis::docs::KeyUse;
use crate::module::redis::name::KeyString;
use crate::module::redis::probe;
use crate::module::reply;
use crate::module::run::{NotRun, look};
use dsync_engine::types::Token;
use dsync_engine::{Family, Refusal, WrongType};

#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) name: CommandName,
    /// One sentence. `{key}` is replaced by the key's kind in words: "a lock".
    pub(super) summary: &'static str,
    pub(super) properties: Properties,
    /// Positional arguments first; options come in any order after them, each at most once.
    pub(super) args: &'static [Arg],
    pub(super) run: Run,
}

/// What the module tells the server about a command besides its arguments. Many rows share one value of this.
#[derive(Clone, Copy)]
pub(super) struct Properties {
    /// The first version of dsync with this command.
    pub(super) since: &'static str,
    pub(super) complexity: &'static str,
    /// The flags of `RedisModule_CreateCommand`, separated by spaces. A server that does not know a flag refuses the
    /// module.
    pub(super) flags: &'static CStr,
    pub(super) key: KeyUse,
    /// Tips of COMMAND INFO for clients that use several servers, separated by spaces; empty if there are none.
    pub(super) tips: &'static str,
    /// The users whose work needs the command. The ACL categories follow from this and from the flags.
    pub(super) users: &'static [User],
}

/// The function that carries out a command.
#[derive(Clone, Copy)]
pub(super) enum Run {
    /// Argument 1 is a key of this family.
    OnKey(Family, fn(&Call<'_>) -> CommandResult),
    /// The command has no key: it reports on the whole server.
    OnServer(fn(Ctx<'_>, &Parsed<'_>) -> CommandResult),
}

/// Ok when the command has written its reply; otherwise the error to reply.
pub(super) type CommandResult = Result<(), Failure>;

pub(super) enum Failure {
    WrongType,
    /// The whole line of the error, with its code.
    Error(String),
}

impl From<WrongType> for Failure {
    fn from(WrongType: WrongType) -> Failure {
        Failure::WrongType
    }
}

impl From<NotRun> for Failure {
    fn from(why: NotRun) -> Failure {
        match why {
            NotRun::ReadOnly => Failure::Error(reply::READ_ONLY.to_owned()),
            NotRun::WrongType => Failure::WrongType,
        }
    }
}

impl From<String> for Failure {
    fn from(line: String) -> Failure {
        Failure::Error(line)
    }
}

/// A parsed request for one key, as a row's function gets it.
pub(super) struct Call<'a> {
    pub(super) ctx: Ctx<'a>,
    pub(super) args: Args<'a>,
    pub(super) key: KeyString<'a>,
    pub(super) family: Family,
    pub(super) parsed: &'a Parsed<'a>,
}

impl Call<'_> {
    /// The token of a command that requires one. The parser has made sure that there is one, so the error is never
    /// replied.
    pub(super) fn token(&self) -> Result<Token, String> {
        let text = self.parsed.text(Text::Token);
        text.and_then(Token::parse)
            .ok_or_else(|| "ERR no token".to_owned())
    }

    /// Refuses the command, as the server would, if memory is short and the command would make the key.
    pub(super) fn need_memory_if_absent(&self) -> CommandResult {
        let needs =
            self.lacks_memory() && !look(self.ctx, &self.key, |look| look.exists(self.family))??;
        no_memory(needs)
    }

    /// Refuses the command, as the server would, if memory is short and the command has this text, unless the text is short:
    /// that work has ended is always stored, with a few words about it.
    pub(super) fn need_memory_for(&self, text: Text) -> CommandResult {
        const SHORT: usize = 1_000;
        let is_long = self
            .parsed
            .text(text)
            .is_some_and(|text| text.len() > SHORT);
        no_memory(is_long && self.lacks_memory())
    }

    /// Whether the server would refuse a command with the flag deny-oom. No command of the table has that
    /// flag, because each has uses that need no memory, and these are needed most while memory is short.
    fn lacks_memory(&self) -> bool {
        // The server's flags come first, because the probe is slow.
        self.ctx.facts().out_of_memory() && probe::denies_memory(self.ctx, self.key.bytes())
    }
}

fn no_memory(is_so: bool) -> CommandResult {
    match is_so {
        true => Err(reply::words(Refusal::OutOfMemory).into()),
        false => Ok(()),
    }
}

/// The arguments of one request as values. The parser (`parse`) fills them in. Each is within the bounds that the command's
/// row gives for it.
#[derive(Default)]
pub(super) struct Parsed<'a> {
    /// By [`Number`]. Valid only where `has_number` has the bit.
    pub(super) numbers: [u64; Number::KINDS],
    /// One bit for each [`Number`]: whether the request has it.
    pub(super) has_number: u32,
    /// By [`Text`]. None where the request does not have it.
    pub(super) texts: [Option<&'a [u8]>; Text::KINDS],
    /// By [`Flag`]: whether the request has the word.
    pub(super) flags: [bool; Flag::KINDS],
    /// The positions of the tokens among the arguments: they are neighbours.
    pub(super) secrets: Range<usize>,
}

impl<'a> Parsed<'a> {
    pub(super) fn number(&self, number: Number) -> Option<u64> {
        let was_given = self.has_number & (1 << number as u32) != 0;
        was_given.then(|| self.numbers[number as usize])
    }

    /// The number of a command that requires one: the parser has made sure that there is one.
    pub(super) fn required_number(&self) -> u64 {
        self.numbers[Number::Required as usize]
    }

    /// [`number`](Self::number) for numbers whose bounds fit 32 bits.
    pub(super) fn number_u32(&self, number: Number) -> Option<u32> {
        self.number(number)
            .map(|n| u32::try_from(n).unwrap_or(u32::MAX))
    }

    /// The text, if the request has it; the first one if the argument is a list.
    pub(super) fn text(&self, text: Text) -> Option<&'a [u8]> {
        self.texts[text as usize]
    }

    pub(super) fn has(&self, flag: Flag) -> bool {
        self.flags[flag as usize]
    }

    /// The positions of the arguments that must not appear in MONITOR and SLOWLOG.
    pub(super) fn secrets(&self) -> Range<usize> {
        self.secrets.clone()
    }
}

impl Row {
    pub(super) fn family(&self) -> Option<Family> {
        match self.run {
            Run::OnKey(family, _) => Some(family),
            Run::OnServer(_) => None,
        }
    }

    /// How many positional arguments come before the options.
    pub(super) fn required(&self) -> usize {
        let required = self.args.iter().take_while(|arg| !arg.is_optional());
        required.count()
    }
}

/// A command's name: prefix, dot, verb, and a NUL behind them for C.
#[derive(Clone, Copy)]
pub(super) struct CommandName([u8; CommandName::ROOM]);

impl CommandName {
    /// Bytes, with the NUL.
    const ROOM: usize = 24;

    pub(super) const fn new(prefix: &str, verb: &str) -> CommandName {
        let mut text = [0; CommandName::ROOM];
        let (prefix, verb) = (prefix.as_bytes(), verb.as_bytes());
        assert!(
            prefix.len() + 1 + verb.len() < CommandName::ROOM,
            "too long"
        );
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
        CommandName(text)
    }

    /// The name of a family's command.
    pub(super) const fn of(family: Family, verb: &str) -> CommandName {
        CommandName::new(prefix(family), verb)
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

/// The prefix of the names of a family's commands.
pub(super) const fn prefix(family: Family) -> &'static str {
    match family {
        Family::Lock => "DLOCK",
        Family::Semaphore => "DSEM",
        Family::Group => "DWG",
        Family::Once => "DONCE",
    }
}

/// The kind of key that a family has, in words, for summaries.
pub(super) const fn key_in_words(family: Family) -> &'static str {
    match family {
        Family::Lock => "a lock",
        Family::Semaphore => "a semaphore",
        Family::Group => "a wait group",
        Family::Once => "a work-once key",
    }
}

/// The `type` of a family's keys in replies.
pub(super) const fn type_name(family: Family) -> &'static str {
    match family {
        Family::Lock => "lock",
        Family::Semaphore => "semaphore",
        Family::Group => "group",
        Family::Once => "once",
    }
}

/// The ready-made users of docs/acl.md that need commands of the module, by the work they do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum User {
    /// Takes, renews and ends its own holds.
    Worker,
    /// Only reads.
    Observer,
    /// Changes or ends what belongs to others.
    Operator,
}
