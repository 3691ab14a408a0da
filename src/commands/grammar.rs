//! What one argument of a command is: how clients write it, which bounds its value has, and how COMMAND DOCS
//! describes it.
//!
//! The parser (`parse`), the documentation (`docs`) and the error texts read the same [`Arg`], so they cannot
//! disagree. The arguments themselves are in `arguments`.

/// One argument: its syntax, its bounds and its description.
#[derive(Clone, Copy)]
pub(super) struct Arg {
    /// The option's word in capitals: it stands before the value, or alone if the argument is a flag.
    /// A positional argument has none.
    pub(super) word: Option<&'static str>,
    /// The value's name in the syntax, as COMMAND DOCS shows it.
    pub(super) name: &'static str,
    /// The argument's name in error texts.
    pub(super) error_name: &'static str,
    pub(super) kind: Kind,
    pub(super) times: Times,
    /// One sentence for COMMAND DOCS. It leaves out the bounds, which `docs` adds from `kind`.
    pub(super) meaning: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Times {
    Once,
    AtMostOnce,
    /// Only the last positional argument can be a list.
    OnceOrMore,
}

#[derive(Clone, Copy)]
pub(super) enum Kind {
    Key,
    /// A word without a value.
    Flag(Flag),
    Integer(IntegerSpec),
    Text(TextSpec),
    /// Exactly one of these alternatives.
    OneOf(&'static [Arg]),
}

#[derive(Clone, Copy)]
pub(super) struct IntegerSpec {
    /// Where `Parsed` keeps the value.
    pub(super) into: Number,
    pub(super) unit: &'static str,
    /// The parser multiplies the value by this and divides the upper bound by it: 1,000 for EX, whose seconds
    /// [`Parsed`](super::row::Parsed) keeps in milliseconds.
    pub(super) factor: u64,
    pub(super) min: u64,
    pub(super) max: Max,
}

#[derive(Clone, Copy)]
pub(super) struct TextSpec {
    /// Where `Parsed` keeps the value.
    pub(super) into: Text,
    /// The shortest length in bytes.
    pub(super) min: u64,
    /// The longest length in bytes.
    pub(super) max: Max,
    /// Whether the value is a token, which must not appear in MONITOR, SLOWLOG or error texts.
    pub(super) is_secret: bool,
}

/// An upper bound, inclusive.
#[derive(Clone, Copy)]
pub(super) enum Max {
    Fixed(u64),
    Setting(BoundSetting),
}

/// The settings that are upper bounds of arguments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BoundSetting {
    MaxLeaseMs,
    MaxResultBytes,
}

impl BoundSetting {
    /// The setting's name, as CONFIG shows it.
    pub(super) fn setting(self) -> &'static str {
        match self {
            BoundSetting::MaxLeaseMs => "dsync.max-lease-ms",
            BoundSetting::MaxResultBytes => "dsync.max-result-bytes",
        }
    }
}

/// The numbers that a request can have: an index into [`Parsed`](super::row::Parsed)'s numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Number {
    /// The one that a command requires, such as the fence of REVOKE: it is there. No command requires two.
    Required,
    /// Milliseconds: a lease, or how long a result is kept.
    Duration,
    BlockMs,
    QueueMs,
    DelayMs,
    MinHoldMs,
    Limit,
    Permits,
    LaneLimit,
    Attempts,
    Count,
}

impl Number {
    /// One more than the last variant's number.
    pub(super) const KINDS: usize = Number::Count as usize + 1;
}

/// The texts that a request can have: an index into [`Parsed`](super::row::Parsed)'s texts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Text {
    Token,
    Owner,
    Lane,
    Result,
    Reason,
    Cursor,
    OwnerPattern,
}

impl Text {
    /// One more than the last variant's number.
    pub(super) const KINDS: usize = Text::OwnerPattern as usize + 1;
}

/// The words without a value that a request can have: an index into [`Parsed`](super::row::Parsed)'s flags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flag {
    Shared,
    Ephemeral,
    Index,
    /// The word `NONE` in place of a limit.
    Unpin,
    /// The word `PERSIST` in place of a duration.
    Persist,
    Reset,
}

impl Flag {
    /// One more than the last variant's number.
    pub(super) const KINDS: usize = Flag::Reset as usize + 1;
}

impl Arg {
    /// An argument written as `name`.
    pub(super) const fn positional(
        name: &'static str,
        error_name: &'static str,
        kind: Kind,
    ) -> Arg {
        Arg {
            word: None,
            name,
            error_name,
            kind,
            times: Times::Once,
            meaning: "",
        }
    }

    /// An argument written as `[WORD name]`.
    pub(super) const fn option(word: &'static str, name: &'static str, kind: Kind) -> Arg {
        Arg {
            word: Some(word),
            error_name: word,
            times: Times::AtMostOnce,
            ..Arg::positional(name, "", kind)
        }
    }

    /// An argument written as `[WORD]`.
    pub(super) const fn flag(word: &'static str, name: &'static str, flag: Flag) -> Arg {
        Arg::option(word, name, Kind::Flag(flag))
    }

    /// The same argument with its sentence for COMMAND DOCS.
    pub(super) const fn means(self, meaning: &'static str) -> Arg {
        Arg { meaning, ..self }
    }

    /// The same argument, optional.
    pub(super) const fn optional(self) -> Arg {
        Arg {
            times: Times::AtMostOnce,
            ..self
        }
    }

    /// The same argument, required: for alternatives of a [`Kind::OneOf`], one of which must be there.
    pub(super) const fn once(self) -> Arg {
        Arg {
            times: Times::Once,
            ..self
        }
    }

    /// The same argument as a list of at least one.
    pub(super) const fn many(self) -> Arg {
        Arg {
            times: Times::OnceOrMore,
            ..self
        }
    }

    pub(super) fn is_optional(&self) -> bool {
        self.times == Times::AtMostOnce
    }

    /// The words that the argument can begin with: those of all alternatives, none for a positional argument.
    pub(super) fn words(&self) -> Vec<&'static str> {
        match self.kind {
            Kind::OneOf(args) => args.iter().flat_map(Arg::words).collect(),
            _ => self.word.into_iter().collect(),
        }
    }
}

impl IntegerSpec {
    pub(super) const fn new(into: Number, unit: &'static str, min: u64, max: u64) -> IntegerSpec {
        IntegerSpec {
            into,
            unit,
            factor: 1,
            min,
            max: Max::Fixed(max),
        }
    }
}
