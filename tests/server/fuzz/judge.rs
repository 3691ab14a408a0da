//! The driver reads a reply: it checks it against the contract and the ledger, and remembers grants.

use std::collections::BTreeMap;
use std::time::Instant;

use super::driver::{Driver, SeenGrant};
use super::known_hold::granted;
use super::link::{Part, Pending};
use super::meaning::Meaning;
use super::replies::{self, Situation};
use super::step::{Connection, OPERATOR, Step};
use crate::support::Reply;

/// How many grants are remembered, for later requests to refer to.
const SEEN_GRANTS: usize = 48;
/// How many tokens are remembered with their fences.
const FENCES: usize = 50_000;

impl Driver {
    /// Takes the reply to the oldest request of a connection, and panics if the contract forbids it.
    #[track_caller]
    pub(super) fn answered(&mut self, on: usize, reply: &Reply) {
        let now = Instant::now();
        let link = self.links[on].as_mut().expect("the connection is open");
        let line = link.pending.front().and_then(|first| first.parts().first());
        let line = line.map_or(String::new(), |part| format!(" to {}", part.line));
        let ms = now.duration_since(self.start).as_millis();
        self.heard
            .push(format!("{ms} ms: {}{line}: {reply:?}", Connection(on)));
        let link = self.link(on);
        let Some(pending) = link.pending.pop_front() else {
            panic!(
                "{} was answered {reply:?}, and had asked for nothing",
                Connection(on)
            );
        };
        link.first_since = now;
        let silent_since = std::mem::replace(&mut link.silent_since, now);
        if on == OPERATOR
            && let Some((turn, aim)) = self.turns.pop_front()
        {
            turn.into_iter()
                .for_each(|turn| self.conditions.answered(turn, now));
            if let Some(aimed) = aim.and_then(|on| self.links[on].as_mut()) {
                aimed.unblocks.close(now);
            }
        }
        match pending {
            Pending::Request(part) => self.judge(on, &part, reply, silent_since),
            Pending::Queued { request, sent } => {
                if *reply != "QUEUED" {
                    let meaning = Meaning::of(&request.words);
                    let situation = self.situation(on, sent, false);
                    let known = reply.is_error()
                        && replies::check(&request, &meaning, reply, &situation).is_ok();
                    assert!(known, "{request:?} in a transaction was answered {reply:?}");
                }
            }
            Pending::All { parts, sent } => self.judge_all(on, &parts, reply, sent, silent_since),
        }
    }

    fn situation(&mut self, on: usize, sent: Instant, may_wait: bool) -> Situation {
        let refusals = self.conditions.refusals(sent);
        let link = self.link(on);
        Situation {
            refusals,
            may_wait,
            ended_early: link.unblocks.covers(sent) || link.subscribed,
            is_repeat: false,
            took: sent.elapsed(),
        }
    }

    /// Checks the reply to one request, also as a part of the reply to EXEC or a script.
    #[track_caller]
    fn judge(&mut self, on: usize, part: &Part, reply: &Reply, silent_since: Instant) {
        let mut situation = self.situation(on, part.entry.sent, !part.entry.is_try);
        situation.is_repeat = self.ledger.is_repeat(&part.entry);
        if let Err(why) = replies::check(&part.request, &part.entry.meaning, reply, &situation) {
            panic!(
                "{}: {} was answered {reply:?}: {why}",
                Connection(on),
                describe(part)
            );
        }
        self.count(part, reply);
        self.ledger
            .answered(&part.entry, reply, silent_since, Instant::now());
        if let (Meaning::Ask(ask), Some((token, fence))) = (&part.entry.meaning, granted(reply)) {
            let spelled = match ask.token {
                Some(_) => token.clone(),
                None => format!("$token:{}", part.line),
            };
            if self.fences.len() >= FENCES {
                self.fences.clear();
                self.made.clear();
            }
            if ask.token.is_none() {
                self.made.insert(part.line, token.clone());
            }
            self.fences.insert(token, fence);
            self.seen_grants.push_back(SeenGrant {
                database: part.entry.database,
                key: ask.key.clone(),
                family: ask.claim.family(),
                token: spelled,
            });
            if self.seen_grants.len() > SEEN_GRANTS {
                self.seen_grants.pop_front();
            }
        }
    }

    fn count(&mut self, part: &Part, reply: &Reply) {
        let name = part.request.words.first().map_or("", String::as_str);
        let outcome = match reply {
            Reply::Error(text) => text.split(' ').next().unwrap_or_default(),
            Reply::Nil => "nil",
            Reply::Int(0) => "0",
            Reply::Int(_) => "n",
            Reply::Array(items) => match items.first() {
                Some(kind) if *kind == "DONE" => "DONE",
                Some(kind) if *kind == "FAILED" => "FAILED",
                _ => "array",
            },
            _ => "other",
        };
        *self.counts.entry(format!("{name} {outcome}")).or_default() += 1;
    }

    /// How often each command got each kind of reply.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Checks the reply to EXEC or to a script, which has the replies to all its requests.
    #[track_caller]
    fn judge_all(
        &mut self,
        on: usize,
        parts: &[Part],
        reply: &Reply,
        sent: Instant,
        silent_since: Instant,
    ) {
        if let Reply::Array(items) = reply {
            assert_eq!(items.len(), parts.len(), "{}: {reply:?}", Connection(on));
            for (part, item) in parts.iter().zip(items) {
                self.judge(on, part, item, silent_since);
            }
            return;
        }
        let refusals = self.conditions.refusals(sent);
        let known = match reply {
            // A watched key was changed.
            Reply::Nil => true,
            Reply::Error(text) => {
                text.starts_with("EXECABORT") || refusals.iter().any(|code| text.starts_with(code))
            }
            _ => parts.is_empty(),
        };
        assert!(
            known,
            "{}: EXEC or a script was answered {reply:?}",
            Connection(on)
        );
        let now = Instant::now();
        parts
            .iter()
            .for_each(|part| self.ledger.lost(&part.entry, now));
    }
}

/// The request as the log spells it, for messages.
pub(super) fn describe(part: &Part) -> String {
    let step = Step::one(OPERATOR, part.request.clone()).to_string();
    let words = step.strip_prefix("op ").unwrap_or(&step);
    format!(
        "line {}, '{words}' in database {}",
        part.line, part.entry.database
    )
}
