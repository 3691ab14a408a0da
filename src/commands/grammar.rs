//! What an argument is: how it is typed, what bounds it, and what is told of it.

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

/// Where [`Parsed`](super::parsed::Parsed) keeps a number.
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

/// Where [`Parsed`](super::parsed::Parsed) keeps a text.
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
