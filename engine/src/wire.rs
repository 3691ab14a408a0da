//! Changes as they are written for replicas and the AOF, and as they are read there.
//!
//! A change is one argument: a verb and its fields with a space between them, numbers in decimal. Texts,
//! which may have any bytes, are preceded by their length and a colon: readable in an AOF, and exact. One
//! argument a change, because the server makes an object of every argument, for every grant of every lock.
//!
//! ```text
//! GRANT fence claim lease-ms deadline-unix-ms granted-unix-ms renewed length:token length:owner
//! RENEW fence lease-ms deadline-unix-ms
//! END fence how at-unix-ms
//! LIMIT limit
//! PIN limit|NONE
//! EXPECT jobs at-unix-ms
//! FINISH keep-until-unix-ms
//! VANISH
//! LIMITS limit|NONE pinned|NONE changes
//! FAIL fence at-unix-ms length:reason
//! COMPLETE fence|NONE keep-until-unix-ms length:token result
//! GIVEUP
//! TALLY limit|NONE changes expected|NONE done lost touched-unix-ms keep-until-unix-ms|NONE
//! RECORD attempts touched-unix-ms reason late-length:token|NONE NONE
//! RECORD attempts touched-unix-ms reason late-length:token|NONE keep-until-unix-ms length:token result
//! ```
//!
//! where a result is `NONE` or `length:text`, and a reason `NONE`, `lapsed`, `revoked` or
//! `length:text`. `LIMITS`, `TALLY` and `RECORD` are for rewriting a state into an AOF.

use super::change::{Change, End, Limits, Tally};
use super::hold::Grant;
use super::once::{Completion, Reason, Record};
use super::types::{
    Claim, Fence, LeaseMs, MAX_OWNER_LEN, MAX_PERMITS, MAX_RESULT_LEN, Token, UnixMs,
    new_token_buffer,
};

/// The wire version this engine writes and understands.
pub const WIRE_VERSION: u32 = 1;

/// Why a written change could not be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unreadable {
    /// A verb that this version does not know.
    Verb,
    /// The verb's fields are missing, malformed or out of bounds.
    Fields(&'static str),
}

/// Arguments written one after the other into a single buffer that is used again and again.
#[derive(Default)]
pub struct Arguments {
    bytes: Vec<u8>,
    /// Where each argument ends.
    ends: Vec<usize>,
}

impl Arguments {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().scan(0, |from, end| {
            let argument = self.bytes.get(*from..*end);
            *from = *end;
            argument
        })
    }

    fn word(&mut self, word: &str) {
        self.bytes.extend_from_slice(word.as_bytes());
    }

    fn number(&mut self, n: impl Into<u64>) {
        self.bytes.push(b' ');
        self.digits(n.into());
    }

    fn number_or_none(&mut self, n: Option<impl Into<u64>>) {
        match n {
            Some(n) => self.number(n),
            None => self.word(" NONE"),
        }
    }

    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.bytes.push(b':');
        self.bytes.extend_from_slice(text);
    }

    fn digits(&mut self, n: u64) {
        self.bytes
            .extend_from_slice(itoa::Buffer::new().format(n).as_bytes());
    }

    fn completion(&mut self, done: &Completion) {
        self.number(done.keep_until.0);
        self.text(done.token.text(&mut new_token_buffer()));
        match &done.result {
            None => self.word(" NONE"),
            Some(result) => self.text(result),
        }
    }

    /// The argument is complete.
    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }
}

impl Change {
    /// Appends the change as one argument.
    pub fn write(&self, to: &mut Arguments) {
        to.word(self.verb());
        match self {
            Change::Grant(grant) => {
                to.number(grant.fence.0);
                match grant.claim {
                    Claim::Exclusive => to.word(" exclusive"),
                    Claim::Shared => to.word(" shared"),
                    Claim::Member => to.word(" member"),
                    Claim::Run => to.word(" run"),
                    Claim::Permits(n) => to.number(n),
                }
                to.number(grant.lease.0);
                to.number(grant.deadline.0);
                to.number(grant.granted.0);
                to.number(u32::from(grant.renewed));
                to.text(grant.token.text(&mut new_token_buffer()));
                to.text(grant.owner.as_deref().unwrap_or_default());
            }
            Change::Renew {
                fence,
                lease,
                deadline,
            } => {
                to.number(fence.0);
                to.number(lease.0);
                to.number(deadline.0);
            }
            Change::End { fence, how, at } => {
                to.number(fence.0);
                to.word(" ");
                to.word(how.word());
                to.number(at.0);
            }
            Change::Limit(limit) => {
                to.number(*limit);
            }
            Change::Pin(limit) => {
                to.number_or_none(*limit);
            }
            Change::Expect { jobs, at } => {
                to.number(*jobs);
                to.number(at.0);
            }
            Change::Finish { keep_until } => {
                to.number(keep_until.0);
            }
            Change::Limits(limits) => {
                to.number_or_none(limits.limit);
                to.number_or_none(limits.pinned);
                to.number(limits.changes);
            }
            Change::Tally(tally) => {
                to.number_or_none(tally.limit);
                to.number(tally.limit_changes);
                to.number_or_none(tally.expected);
                to.number(tally.done);
                to.number(tally.lost);
                to.number(tally.touched.0);
                to.number_or_none(tally.finished.map(|at| at.0));
            }
            Change::Fail { fence, at, reason } => {
                to.number(fence.0);
                to.number(at.0);
                to.text(reason);
            }
            Change::Complete { fence, done } => {
                to.number_or_none(fence.map(|fence| fence.0));
                to.completion(done);
            }
            Change::Vanish | Change::GiveUp => {}
            Change::Record(record) => {
                to.number(record.attempts);
                to.number(record.touched.0);
                match &record.reason {
                    None => to.word(" NONE"),
                    Some(Reason::Lapsed) => to.word(" lapsed"),
                    Some(Reason::Revoked) => to.word(" revoked"),
                    Some(Reason::Given(text)) => to.text(text),
                }
                match &record.late {
                    None => to.word(" NONE"),
                    Some(token) => to.text(token.text(&mut new_token_buffer())),
                }
                match &record.done {
                    None => to.word(" NONE"),
                    Some(done) => to.completion(done),
                }
            }
        }
        to.end();
    }

    /// Reads what [`Change::write`] has written.
    ///
    /// # Errors
    /// For a verb that is not known here, for fields outside their bounds and for anything left over.
    /// Nothing is trusted: the argument comes from another server or from a file.
    pub fn read(argument: &[u8]) -> Result<Change, Unreadable> {
        let (verb, rest) = split_at_space(argument);
        let mut fields = Fields(rest);
        let change = match verb {
            b"GRANT" => Change::Grant(Grant {
                fence: fields.fence()?,
                claim: fields.claim()?,
                lease: fields.lease()?,
                deadline: fields.moment()?,
                granted: fields.moment()?,
                renewed: fields.number(0, 1)? == 1,
                token: fields.token()?,
                owner: fields.owner()?,
            }),
            b"RENEW" => Change::Renew {
                fence: fields.fence()?,
                lease: fields.lease()?,
                deadline: fields.moment()?,
            },
            b"END" => Change::End {
                fence: fields.fence()?,
                how: End::parse(fields.next()?).ok_or(Unreadable::Fields("how"))?,
                at: fields.moment()?,
            },
            b"LIMIT" => Change::Limit(fields.small(1, MAX_PERMITS)?),
            b"PIN" => Change::Pin(fields.small_or_none(0, MAX_PERMITS)?),
            b"EXPECT" => Change::Expect {
                jobs: fields.small(1, MAX_PERMITS)?,
                at: fields.moment()?,
            },
            b"FINISH" => Change::Finish {
                keep_until: fields.moment()?,
            },
            b"VANISH" => Change::Vanish,
            b"LIMITS" => Change::Limits(Limits {
                limit: fields.small_or_none(1, MAX_PERMITS)?,
                pinned: fields.small_or_none(0, MAX_PERMITS)?,
                changes: fields.number(0, u64::MAX)?,
            }),
            b"TALLY" => Change::Tally(Tally {
                limit: fields.small_or_none(1, MAX_PERMITS)?,
                limit_changes: fields.number(0, u64::MAX)?,
                expected: fields.small_or_none(1, MAX_PERMITS)?,
                done: fields.number(0, u64::MAX)?,
                lost: fields.number(0, u64::MAX)?,
                touched: fields.moment()?,
                finished: fields.moment_or_none()?,
            }),
            b"FAIL" => Change::Fail {
                fence: fields.fence()?,
                at: fields.moment()?,
                reason: fields.text(MAX_RESULT_LEN)?.into(),
            },
            b"COMPLETE" => Change::Complete {
                fence: if fields.is_none() {
                    None
                } else {
                    Some(fields.fence()?)
                },
                done: fields.completion()?,
            },
            b"GIVEUP" => Change::GiveUp,
            b"RECORD" => Change::Record(Record {
                attempts: fields.number(0, u64::MAX)?,
                touched: fields.moment()?,
                reason: fields.reason()?,
                late: if fields.is_none() {
                    None
                } else {
                    Some(fields.token()?)
                },
                done: if fields.is_none() {
                    None
                } else {
                    Some(fields.completion()?)
                },
            }),
            _ => return Err(Unreadable::Verb),
        };
        if fields.0.is_some() {
            return Err(Unreadable::Fields("one is too many"));
        }
        Ok(change)
    }
}

const MISSING: Unreadable = Unreadable::Fields("one is missing");

/// Up to the next space, and what is behind it, if there is one.
fn split_at_space(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == b' ') {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

/// Takes a verb's fields one by one, each checked against its bounds.
struct Fields<'a>(Option<&'a [u8]>);

impl<'a> Fields<'a> {
    fn next(&mut self) -> Result<&'a [u8], Unreadable> {
        let (field, rest) = split_at_space(self.0.ok_or(MISSING)?);
        self.0 = rest;
        Ok(field)
    }

    /// Takes the next field if it is the word for nothing.
    fn is_none(&mut self) -> bool {
        let (field, rest) = split_at_space(self.0.unwrap_or_default());
        let none = field == b"NONE";
        if none {
            self.0 = rest;
        }
        none
    }

    fn token(&mut self) -> Result<Token, Unreadable> {
        Token::parse(self.text(Token::MAX_LEN)?).ok_or(Unreadable::Fields("token"))
    }

    fn reason(&mut self) -> Result<Option<Reason>, Unreadable> {
        if self.is_none() {
            return Ok(None);
        }
        let rest = self.0.unwrap_or_default();
        let (word, behind) = split_at_space(rest);
        let reason = match word {
            b"lapsed" => Reason::Lapsed,
            b"revoked" => Reason::Revoked,
            _ => return Ok(Some(Reason::Given(self.text(MAX_RESULT_LEN)?.into()))),
        };
        self.0 = behind;
        Ok(Some(reason))
    }

    fn completion(&mut self) -> Result<Completion, Unreadable> {
        Ok(Completion {
            keep_until: self.moment()?,
            token: self.token()?,
            result: if self.is_none() {
                None
            } else {
                Some(self.text(MAX_RESULT_LEN)?.into())
            },
        })
    }

    fn text(&mut self, most: usize) -> Result<&'a [u8], Unreadable> {
        let rest = self.0.ok_or(MISSING)?;
        let colon = rest.iter().position(|byte| *byte == b':').ok_or(MISSING)?;
        let len = usize::try_from(number_within(&rest[..colon], 0, most as u64)?).unwrap_or(most);
        let (text, rest) = rest[colon + 1..].split_at_checked(len).ok_or(MISSING)?;
        self.0 = match rest {
            [] => None,
            [b' ', rest @ ..] => Some(rest),
            _ => return Err(Unreadable::Fields("a text is longer than it says")),
        };
        Ok(text)
    }

    fn number(&mut self, least: u64, most: u64) -> Result<u64, Unreadable> {
        number_within(self.next()?, least, most)
    }

    fn small(&mut self, least: u32, most: u32) -> Result<u32, Unreadable> {
        small_within(self.next()?, least, most)
    }

    fn small_or_none(&mut self, least: u32, most: u32) -> Result<Option<u32>, Unreadable> {
        match self.next()? {
            b"NONE" => Ok(None),
            field => small_within(field, least, most).map(Some),
        }
    }

    fn moment(&mut self) -> Result<UnixMs, Unreadable> {
        self.number(0, UnixMs::MAX.0).map(UnixMs)
    }

    fn moment_or_none(&mut self) -> Result<Option<UnixMs>, Unreadable> {
        match self.next()? {
            b"NONE" => Ok(None),
            field => number_within(field, 0, UnixMs::MAX.0).map(|n| Some(UnixMs(n))),
        }
    }

    fn fence(&mut self) -> Result<Fence, Unreadable> {
        self.number(1, Fence::MAX.0).map(Fence)
    }

    fn lease(&mut self) -> Result<LeaseMs, Unreadable> {
        self.small(1, LeaseMs::MAX.0).map(LeaseMs)
    }

    fn claim(&mut self) -> Result<Claim, Unreadable> {
        Ok(match self.next()? {
            b"exclusive" => Claim::Exclusive,
            b"shared" => Claim::Shared,
            b"member" => Claim::Member,
            b"run" => Claim::Run,
            permits => Claim::Permits(small_within(permits, 1, MAX_PERMITS)?),
        })
    }

    fn owner(&mut self) -> Result<Option<Box<[u8]>>, Unreadable> {
        match self.text(MAX_OWNER_LEN)? {
            b"" => Ok(None),
            owner if owner.len() <= MAX_OWNER_LEN => Ok(Some(owner.into())),
            _ => Err(Unreadable::Fields("owner")),
        }
    }
}

fn number_within(field: &[u8], least: u64, most: u64) -> Result<u64, Unreadable> {
    std::str::from_utf8(field)
        .ok()
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
        .and_then(|text| text.parse().ok())
        .filter(|n| (least..=most).contains(n))
        .ok_or(Unreadable::Fields("a number"))
}

fn small_within(field: &[u8], least: u32, most: u32) -> Result<u32, Unreadable> {
    let n = number_within(field, u64::from(least), u64::from(most))?;
    u32::try_from(n).map_err(|_| Unreadable::Fields("a number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> Vec<Change> {
        let grant = |claim, token: &[u8], owner: Option<&[u8]>| {
            Change::Grant(Grant {
                fence: Fence(7),
                token: Token::parse(token).expect("legal"),
                claim,
                lease: LeaseMs(30_000),
                deadline: UnixMs(1_700_000_030_000),
                granted: UnixMs(1_700_000_000_000),
                renewed: owner.is_some(),
                owner: owner.map(Into::into),
            })
        };
        let mut all = vec![
            grant(
                Claim::Exclusive,
                b"8f14e45f-ceea-467f-a8f5-6d1e2c3b4a59",
                None,
            ),
            grant(Claim::Shared, b"a b\r\n\0\xff", Some(b"\xffNONE")),
            grant(
                Claim::Permits(MAX_PERMITS),
                &[b'x'; 128],
                Some(&[b'o'; 128]),
            ),
            grant(Claim::Member, b"NONE", None),
            Change::Renew {
                fence: Fence::MAX,
                lease: LeaseMs::MAX,
                deadline: UnixMs::MAX,
            },
            Change::Limit(1),
            Change::Pin(Some(0)),
            Change::Pin(None),
            Change::Expect {
                jobs: 3,
                at: UnixMs(1),
            },
            Change::Finish {
                keep_until: UnixMs(2),
            },
            Change::Vanish,
            Change::Limits(Limits {
                limit: Some(3),
                pinned: None,
                changes: u64::MAX,
            }),
            Change::Tally(Tally {
                limit: None,
                limit_changes: 1,
                expected: Some(2),
                done: 3,
                lost: 4,
                touched: UnixMs(5),
                finished: Some(UnixMs(6)),
            }),
        ];
        let done = |result: Option<&[u8]>| Completion {
            token: Token::parse(b"a token").expect("legal"),
            result: result.map(Into::into),
            keep_until: UnixMs(8),
        };
        let record = |reason, late: Option<&[u8]>, done| {
            let late = late.map(|late| Token::parse(late).expect("legal"));
            Change::Record(Record {
                attempts: 2,
                touched: UnixMs(3),
                reason,
                late,
                done,
            })
        };
        all.extend([
            Change::Fail {
                fence: Fence(1),
                at: UnixMs(2),
                reason: b" NONE ".as_slice().into(),
            },
            Change::Complete {
                fence: Some(Fence(1)),
                done: done(None),
            },
            Change::Complete {
                fence: None,
                done: done(Some(b"")),
            },
            Change::Complete {
                fence: None,
                done: done(Some(b"NONE")),
            },
            Change::GiveUp,
            record(None, None, None),
            record(Some(Reason::Lapsed), Some(b"NONE"), None),
            record(
                Some(Reason::Revoked),
                None,
                Some(done(Some(&[b' '; 70_000]))),
            ),
            record(
                Some(Reason::Given(b"lapsed".as_slice().into())),
                None,
                Some(done(None)),
            ),
        ]);
        all.extend(End::ALL.map(|(how, _)| Change::End {
            fence: Fence(1),
            how,
            at: UnixMs(0),
        }));
        all
    }

    #[test]
    fn what_is_written_is_read_back() {
        let changes = every_kind();
        let mut written = Arguments::default();
        changes.iter().for_each(|change| change.write(&mut written));
        let read: Result<Vec<_>, _> = written.iter().map(Change::read).collect();
        assert_eq!(read, Ok(changes));
    }

    #[test]
    fn whatever_is_cut_short_or_goes_on_is_refused_or_another_change() {
        for change in every_kind() {
            let mut written = Arguments::default();
            change.write(&mut written);
            let argument = written.iter().next().expect("written").to_vec();
            for kept in 0..argument.len() {
                // A number that is cut is another number; a field that is missing is an error.
                let read = Change::read(&argument[..kept]);
                assert_ne!(read, Ok(change.clone()), "{change:?} cut to {kept} bytes");
            }
            let longer = [argument.as_slice(), b" 1"].concat();
            assert!(
                Change::read(&longer).is_err(),
                "{change:?} with a field too many"
            );
        }
    }

    #[test]
    fn it_reads_well() {
        let grant = &every_kind()[1];
        let mut written = Arguments::default();
        grant.write(&mut written);
        let end = Change::End {
            fence: Fence(7),
            how: End::Lapsed,
            at: UnixMs(8),
        };
        end.write(&mut written);
        let lines: Vec<_> = written
            .iter()
            .map(|line| line.escape_ascii().to_string())
            .collect();
        assert_eq!(
            lines,
            [
                r"GRANT 7 shared 30000 1700000030000 1700000000000 1 7:a b\r\n\x00\xff 5:\xffNONE",
                "END 7 lapsed 8",
            ]
        );
    }

    #[test]
    fn fields_out_of_bounds_are_refused() {
        for line in [
            "LIMIT",
            "LIMIT ",
            "LIMIT 0",
            "LIMIT 1000001",
            "LIMIT +1",
            "LIMIT 1x",
            "LIMIT NONE",
            "PIN -1",
            "EXPECT 0 1",
            "RENEW 0 1 1",
            "RENEW 9007199254740992 1 1",
            "RENEW 1 0 1",
            "RENEW 1 2592000001 1",
            "RENEW 1 1 281474976710656",
            "END 1 stolen 1",
            "VANISH ",
            "GRANT 1 0 1 1 1 0 1:t 1:o",
            "GRANT 1 member 1 1 1 2 1:t 1:o",
            "GRANT 1 member 1 1 1 0 0: 1:o",
            "GRANT 1 member 1 1 1 0 129:t 1:o",
            "GRANT 1 member 1 1 1 0 2:t 1:o",
            "GRANT 1 member 1 1 1 0 1:tt 1:o",
            "GRANT 1 member 1 1 1 0 1:t 2:o",
            "LIMITS 0 NONE 1",
            "LIMITS 1 NONE 18446744073709551616",
        ] {
            let read = Change::read(line.as_bytes());
            assert!(
                matches!(read, Err(Unreadable::Fields(_))),
                "{line}: {read:?}"
            );
        }
        for line in ["", "EXPLODE", " GRANT", "grant 1"] {
            assert_eq!(
                Change::read(line.as_bytes()),
                Err(Unreadable::Verb),
                "{line}"
            );
        }
    }
}
