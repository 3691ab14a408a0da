//! The two sides together: the same requests in the same order, one after the other, and all that comes back compared
//! at once. What is known of the run is known from the old side, which the new one equals until the run fails.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use super::masks::{Masks, difference};
use super::requests;
use super::side::Side;
use crate::fuzz::driver::{SeenGrant, Waiting};
use crate::fuzz::log::{Log, LogLine};
use crate::fuzz::meaning::Meaning;
use crate::fuzz::run_view::RunView;
use crate::fuzz::step::{FuzzRequest, Step};
use crate::support::*;

/// How long one side may be behind the other: for what a server does at a time of its own.
const BEHIND: Duration = Duration::from_secs(5);
const GRANTS_KEPT: usize = 60;

/// The lines that a side shows, and what else is known of it then.
type Look<T> = (Vec<String>, T);

/// A request that is not answered.
struct Sent {
    line: u64,
    words: Vec<String>,
    is_ephemeral: bool,
    database: usize,
    in_transaction: bool,
    since: Instant,
}

#[derive(Default)]
struct Link {
    database: usize,
    resp3: bool,
    /// Whether an EPHEMERAL request was answered.
    is_ephemeral: bool,
    in_transaction: bool,
    pending: VecDeque<Sent>,
}

pub struct Duo {
    pub old: Side,
    pub new: Side,
    links: Vec<Link>,
    grants: VecDeque<SeenGrant>,
    /// The words without a value that only the new module knows: no request has them.
    pub new_flags: BTreeSet<String>,
    /// The commands that have a time behind the key.
    pub timed: BTreeSet<String>,
    /// The log of what is going on; none in a phase of lapses, and while a log is reduced.
    log: Option<Log>,
}

impl Duo {
    #[track_caller]
    pub fn start(old: &Path, new: &Path, connections: usize) -> Duo {
        let mut duo = Duo {
            old: Side::start(old, connections),
            new: Side::start(new, connections),
            links: (0..=connections).map(|_| Link::default()).collect(),
            grants: VecDeque::new(),
            new_flags: BTreeSet::new(),
            timed: BTreeSet::new(),
            log: None,
        };
        let old = duo.old.flags();
        duo.new_flags = &duo.new.flags() - &old;
        duo.timed = duo.new.timed();
        let (old, new) = (duo.old.documents(&old), duo.new.documents(&old));
        duo.expect_same(
            "what the commands and settings say of themselves",
            &old,
            &new,
        );
        duo
    }

    /// Ends a log that went well, and begins another.
    pub fn begin(&mut self, log: Option<Log>) {
        if let Some(log) = std::mem::replace(&mut self.log, log) {
            log.discard();
        }
    }

    /// Carries out a step on both sides, and compares what comes back. Later steps may refer to its line.
    #[track_caller]
    pub fn perform(&mut self, line: u64, step: &Step) {
        if let Some(log) = &mut self.log {
            log.note(&LogLine {
                number: line,
                pause: Duration::ZERO,
                step: step.clone(),
            });
        }
        self.send(line, step);
        self.compare_replies(&step.to_string());
    }

    #[track_caller]
    fn send(&mut self, line: u64, step: &Step) {
        match step {
            Step::Send { on, requests, fin } => {
                let database = self.links[*on].database;
                let words: Vec<Vec<String>> = requests
                    .iter()
                    .map(|request| request.words.clone())
                    .collect();
                for side in [&mut self.old, &mut self.new] {
                    side.send(*on, &words, database);
                }
                requests
                    .iter()
                    .for_each(|request| self.note_sent(line, *on, request));
                if *fin {
                    self.close(*on);
                }
            }
            Step::Close { on } => self.close(*on),
            other => panic!("'{other}' is not for two servers"),
        }
    }

    fn note_sent(&mut self, line: u64, on: usize, request: &FuzzRequest) {
        let link = &mut self.links[on];
        let word = |at: usize| request.words.get(at).map_or("", String::as_str);
        match (word(0), word(1)) {
            ("MULTI", _) => link.in_transaction = true,
            ("EXEC", _) => link.in_transaction = false,
            ("SELECT", database) => link.database = database.parse().unwrap_or(0),
            ("HELLO", "3") => link.resp3 = true,
            _ => {}
        }
        link.pending.push_back(Sent {
            line,
            words: request.words.clone(),
            is_ephemeral: requests::is_ephemeral(request),
            database: link.database,
            in_transaction: link.in_transaction,
            since: Instant::now(),
        });
    }

    fn close(&mut self, on: usize) {
        self.old.close(on);
        self.new.close(on);
        self.links[on] = Link::default();
    }

    #[track_caller]
    fn compare_replies(&mut self, what: &str) {
        let ((old, old_masks), (new, new_masks)) = self.look_until_same(|side| {
            side.read();
            side.shown()
        });
        if let Some(log) = &mut self.log {
            log.remark(old.clone());
        }
        self.expect_same(&format!("what follows from: {what}"), &old, &new);
        self.note_heard(old_masks, new_masks);
    }

    /// Looks at both sides until they show the same lines, but no longer than [`BEHIND`]. Returns the last look at
    /// each.
    #[track_caller]
    fn look_until_same<T>(&mut self, look: impl Fn(&mut Side) -> Look<T>) -> (Look<T>, Look<T>) {
        let deadline = Instant::now() + BEHIND;
        loop {
            let late = Instant::now() >= deadline;
            let (old, new) = (look(&mut self.old), look(&mut self.new));
            if old.0 == new.0 || late {
                return (old, new);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Both sides have answered the same.
    fn note_heard(&mut self, old_masks: Masks, new_masks: Masks) {
        self.old.masks = old_masks;
        self.new.masks = new_masks;
        let (old, new) = (self.old.take_heard(), self.new.take_heard());
        let both = old.iter().zip(&new).enumerate();
        for (on, (old, new)) in both {
            for (old, new) in old.iter().zip(new) {
                if matches!(old, Reply::Push(_)) {
                    continue;
                }
                if matches!(old, Reply::Simple(text) if text == "(closed)") {
                    self.links[on] = Link::default();
                    continue;
                }
                let Some(sent) = self.links[on].pending.pop_front() else {
                    continue;
                };
                self.links[on].is_ephemeral |= sent.is_ephemeral;
                let Meaning::Ask(ask) = Meaning::of(&sent.words) else {
                    continue;
                };
                if sent.in_transaction {
                    continue;
                }
                let (Some((old_token, old_fence)), Some((new_token, new_fence))) =
                    (granted(old), granted(new))
                else {
                    continue;
                };
                let token = match &ask.token {
                    Some(token) => token.clone(),
                    None => format!("$token:{}", sent.line),
                };
                self.old.made.insert(token.clone(), old_token);
                self.new.made.insert(token.clone(), new_token);
                self.old.fences.insert(token.clone(), old_fence);
                self.new.fences.insert(token.clone(), new_fence);
                self.grants.push_back(SeenGrant {
                    database: sent.database,
                    key: ask.key,
                    family: ask.claim.family(),
                    token,
                });
                if self.grants.len() > GRANTS_KEPT {
                    self.grants.pop_front();
                }
            }
        }
    }

    /// Returns whether the connection may have EPHEMERAL holds.
    pub fn is_ephemeral(&self, on: usize) -> bool {
        self.links[on].is_ephemeral
    }

    /// Compares what can be seen when a burst is over, and clears both sides for the next one.
    #[track_caller]
    pub fn end_burst(&mut self) {
        self.compare_views();
        self.compare_files();
        self.clear();
        self.begin(None);
    }

    /// Compares everything that can be seen of the servers at rest.
    #[track_caller]
    fn compare_views(&mut self) {
        self.set_clocks();
        // After a flush the holds of removed keys are counted until they are freed, bit by bit.
        let ((old, ()), (new, ())) = self.look_until_same(|side| (side.info(), ()));
        self.expect_same("INFO", &old, &new);
        let (old, new) = (self.old.view(), self.new.view());
        self.expect_same("the servers at rest", &old, &new);
    }

    #[track_caller]
    fn compare_files(&mut self) {
        self.set_clocks();
        let (old, new) = (self.old.files(), self.new.files());
        self.expect_same("the files", &old, &new);
    }

    fn set_clocks(&mut self) {
        self.old.masks.set_clock();
        self.new.masks.set_clock();
    }

    /// Ends all connections and removes all keys, and forgets the names.
    #[track_caller]
    fn clear(&mut self) {
        for on in 0..self.links.len() {
            let waits = if self.is_ephemeral(on) {
                self.load(on)
            } else {
                0
            };
            for _ in 0..waits {
                let unblock = Step::operator(&[&format!("CLIENT UNBLOCK $client:{on}")]);
                self.send(0, &unblock);
                self.compare_replies("the end of a wait");
            }
            self.close(on);
            self.compare_replies("the end of a connection");
        }
        self.old.clear();
        self.new.clear();
        self.compare_replies("FLUSHALL");
        self.grants.clear();
        self.old.masks.begin();
        self.new.masks.begin();
    }

    /// Sends these steps, waits until nothing is held and nobody waits, and returns all that came out of each side. Of
    /// things that happen at the same moment the order is luck, so lines are sorted.
    #[track_caller]
    pub fn let_lapse(&mut self, steps: &[Step]) -> (Vec<String>, Vec<String>) {
        for side in [&mut self.old, &mut self.new] {
            side.masks.any_order = true;
            side.masks.begin();
        }
        steps.iter().for_each(|step| self.send(0, step));
        let outcome = |side: &mut Side| {
            side.wait_for_lapses();
            let mut lines = side.shown().0;
            lines.extend(side.info());
            lines.extend(side.view());
            lines.extend(side.files());
            lines
        };
        (outcome(&mut self.old), outcome(&mut self.new))
    }

    #[track_caller]
    pub fn expect_same(&mut self, what: &str, old: &[String], new: &[String]) {
        let Some(difference) = difference(old, new) else {
            return;
        };
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/differential");
        let paths = [("old", old), ("new", new)].map(|(name, lines)| {
            let path = directory.join(format!("{name}-{}.txt", std::process::id()));
            let written = fs::create_dir_all(&directory)
                .and_then(|()| fs::write(&path, lines.join("\n") + "\n"));
            written.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
            path.display().to_string()
        });
        panic!(
            "the modules differ in {what}\n{difference}\nall of it: diff {}",
            paths.join(" ")
        );
    }
}

/// The token and the fence in a grant.
fn granted(reply: &Reply) -> Option<(String, i64)> {
    let Reply::Array(items) = reply else {
        return None;
    };
    items.windows(2).find_map(|pair| match pair {
        [Reply::Bulk(token), Reply::Int(fence)] => {
            Some((String::from_utf8(token.clone()).ok()?, *fence))
        }
        _ => None,
    })
}

impl RunView for Duo {
    fn connections(&self) -> usize {
        self.links.len() - 1
    }

    fn load(&self, on: usize) -> usize {
        self.links[on].pending.len()
    }

    fn is_resp3(&self, on: usize) -> bool {
        self.links[on].resp3
    }

    fn database(&self, on: usize) -> usize {
        self.links[on].database
    }

    fn seen_grants(&self) -> &VecDeque<SeenGrant> {
        &self.grants
    }

    fn waiting(&self) -> Vec<Waiting> {
        let links = self.links.iter().enumerate();
        let waiting = links.filter_map(|(on, link)| {
            let sent = link.pending.front()?;
            let meaning = Meaning::of(&sent.words);
            meaning.block_ms()?;
            let (key, family, token) = match meaning {
                Meaning::Ask(ask) => (ask.key, ask.claim.family(), ask.token),
                _ => (sent.words.get(1)?.clone(), Family::Group, None),
            };
            Some(Waiting {
                on,
                database: sent.database,
                key,
                family,
                token: token.filter(|token| (1..=128).contains(&token.len())),
                since: sent.since,
            })
        });
        waiting.collect()
    }
}
