//! What the live view shows, and what the keys of the keyboard do. It asks no server and draws nothing itself.

use std::cmp::Reverse;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::report::Report;
use super::sample::{Key, Sample};
use super::table::table;
use crate::glob::Pattern;
use crate::holds::Place;
use crate::info::{self, Info, number, rows, text};
use crate::paint::Tone;
use crate::text::{or_dash, printable, quoted};

const OF_THE_LIST: &str = "↑ ↓ choose   Enter look into   s sort   / filter   q end";

/// By what the keys are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    LongestWait,
    Waiters,
    Held,
    Name,
}

impl Order {
    fn next(self) -> Order {
        match self {
            Order::LongestWait => Order::Waiters,
            Order::Waiters => Order::Held,
            Order::Held => Order::Name,
            Order::Name => Order::LongestWait,
        }
    }

    fn words(self) -> &'static str {
        match self {
            Order::LongestWait => "the longest wait first",
            Order::Waiters => "the most waiters first",
            Order::Held => "the longest held first",
            Order::Name => "by name",
        }
    }

    fn sort(self, keys: &mut [&Key]) {
        let held = |key: &Key| number(key.holder()?, "held_ms");
        match self {
            Order::LongestWait => keys.sort_by_key(|key| Reverse(key.longest_wait_ms)),
            Order::Waiters => keys.sort_by_key(|key| Reverse(key.waiters)),
            Order::Held => keys.sort_by_key(|key| Reverse(held(key))),
            Order::Name => keys.sort_by(|one, other| one.key.cmp(&other.key)),
        }
    }
}

/// Which key is meant, of all servers and databases.
#[derive(Clone, PartialEq, Eq)]
pub struct Chosen {
    pub server: String,
    pub family: String,
    pub place: Place,
}

impl Chosen {
    fn of(key: &Key) -> Chosen {
        Chosen {
            server: key.server.clone(),
            family: key.family.clone(),
            place: Place {
                db: key.db,
                key: key.key.clone(),
            },
        }
    }
}

enum Mode {
    List,
    /// A pattern is typed.
    Filter(String),
    /// One key is looked into; the number is that of the holder under the cursor.
    Key(Chosen, usize),
    /// Whether to end the hold with this fence.
    Question(Chosen, usize, u64),
}

/// What the servers have told.
pub enum Told {
    /// Nothing yet that rates could be counted from, but where to count from.
    Measuring(Sample),
    Samples {
        before: Sample,
        now: Sample,
    },
    Failed(String),
}

impl Told {
    pub fn followed_by(self, now: Sample) -> Told {
        match self {
            Told::Measuring(before) | Told::Samples { now: before, .. } => {
                Told::Samples { before, now }
            }
            Told::Failed(_) => Told::Measuring(now),
        }
    }
}

/// What a key of the keyboard asks for.
#[derive(PartialEq, Eq, Debug)]
pub enum Wish {
    /// Only another picture.
    Nothing,
    /// To ask the servers at once.
    Look,
    /// To end the hold of the chosen key that has this fence.
    Revoke(u64),
    End,
}

pub struct View {
    order: Order,
    filter: String,
    mode: Mode,
    /// The key under the cursor, and its row, which counts when the key is no longer there.
    cursor: (Option<Chosen>, usize),
    /// What the INFO of the key says that is looked into.
    pub info: Option<Info>,
    /// What came of the last wish.
    pub notice: String,
    /// Whether the servers are not asked until somebody goes on.
    pub is_paused: bool,
}

impl View {
    pub fn new() -> View {
        View {
            order: Order::LongestWait,
            filter: String::new(),
            mode: Mode::List,
            cursor: (None, 0),
            info: None,
            notice: String::new(),
            is_paused: false,
        }
    }

    /// Returns the key that is looked into.
    pub fn chosen(&self) -> Option<&Chosen> {
        match &self.mode {
            Mode::Key(chosen, _) | Mode::Question(chosen, ..) => Some(chosen),
            Mode::List | Mode::Filter(_) => None,
        }
    }

    pub fn press(&mut self, key: KeyEvent, told: &Told) -> Wish {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Wish::End;
        }
        self.notice.clear();
        let is_typing = matches!(self.mode, Mode::Filter(_) | Mode::Question(..));
        if !is_typing && matches!(key.code, KeyCode::Char('p' | ' ')) {
            self.is_paused = !self.is_paused;
            return Wish::Nothing;
        }
        let (mode, wish) = match std::mem::replace(&mut self.mode, Mode::List) {
            Mode::List => self.press_in_list(key.code, told),
            Mode::Filter(text) => (self.press_in_filter(key.code, text), Wish::Nothing),
            Mode::Key(chosen, holder) => self.press_in_key(key.code, chosen, holder),
            Mode::Question(chosen, holder, fence) => {
                let wish = match key.code {
                    KeyCode::Char('y' | 'Y') => Wish::Revoke(fence),
                    _ => {
                        self.notice = "nothing was revoked".into();
                        Wish::Nothing
                    }
                };
                (Mode::Key(chosen, holder), wish)
            }
        };
        self.mode = mode;
        wish
    }

    fn press_in_list(&mut self, code: KeyCode, told: &Told) -> (Mode, Wish) {
        match code {
            KeyCode::Char('q') | KeyCode::Esc => return (Mode::List, Wish::End),
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('/') => return (Mode::Filter(String::new()), Wish::Nothing),
            KeyCode::Up | KeyCode::Char('k') => self.move_cursor(told, -1),
            KeyCode::Down | KeyCode::Char('j') => self.move_cursor(told, 1),
            KeyCode::Enter => {
                let keys = self.keys(told);
                if let Some(key) = keys.get(self.row(&keys)) {
                    let chosen = Chosen::of(key);
                    self.info = None;
                    return (Mode::Key(chosen, 0), Wish::Look);
                }
            }
            _ => {}
        }
        (Mode::List, Wish::Nothing)
    }

    fn press_in_filter(&mut self, code: KeyCode, mut text: String) -> Mode {
        match code {
            KeyCode::Esc => return Mode::List,
            KeyCode::Enter => {
                self.filter = text;
                return Mode::List;
            }
            KeyCode::Backspace => drop(text.pop()),
            KeyCode::Char(c) => text.push(c),
            _ => {}
        }
        Mode::Filter(text)
    }

    fn press_in_key(&mut self, code: KeyCode, chosen: Chosen, holder: usize) -> (Mode, Wish) {
        let last = self.holds().len().saturating_sub(1);
        let holder = holder.min(last);
        let holder = match code {
            KeyCode::Char('q') | KeyCode::Esc => return (Mode::List, Wish::Nothing),
            KeyCode::Up | KeyCode::Char('k') => holder.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => (holder + 1).min(last),
            KeyCode::Char('r') => match self.holds().get(holder) {
                Some((fence, _)) => {
                    let mode = Mode::Question(chosen, holder, *fence);
                    return (mode, Wish::Nothing);
                }
                None => holder,
            },
            _ => holder,
        };
        (Mode::Key(chosen, holder), Wish::Nothing)
    }

    fn move_cursor(&mut self, told: &Told, by: isize) {
        let keys = self.keys(told);
        let last = keys.len().saturating_sub(1);
        let row = self.row(&keys).saturating_add_signed(by).min(last);
        let chosen = keys.get(row).map(|key| Chosen::of(key));
        self.cursor = (chosen, row);
    }

    /// Returns the row of the key under the cursor.
    fn row(&self, keys: &[&Key]) -> usize {
        let (chosen, row) = &self.cursor;
        let is_chosen = |key: &&Key| Some(&Chosen::of(key)) == chosen.as_ref();
        let last = keys.len().saturating_sub(1);
        keys.iter().position(is_chosen).unwrap_or(*row).min(last)
    }

    /// Returns the keys that fit the filter, in the order that was asked for.
    fn keys<'a>(&self, told: &'a Told) -> Vec<&'a Key> {
        let Told::Samples { now, .. } = told else {
            return Vec::new();
        };
        // What has nothing of a pattern may stand anywhere in a name.
        let is_pattern = self.filter.contains(['*', '?', '[', '\\']);
        let pattern = match is_pattern {
            true => Pattern::new(self.filter.as_bytes()),
            false => Pattern::new(format!("*{}*", self.filter).as_bytes()),
        };
        let fits = |key: &&Key| pattern.fits(&key.key);
        let mut keys: Vec<&Key> = now.keys.iter().filter(fits).collect();
        self.order.sort(&mut keys);
        keys
    }

    /// Returns the fence and the owner of the holds of the key that is looked into.
    fn holds(&self) -> Vec<(u64, String)> {
        let info = self.info.iter();
        let rows = info.flat_map(|info| rows(info, "first_holders"));
        let hold = |row| {
            let owner = or_dash(text(row, "owner").map(str::as_bytes));
            Some((number(row, "fence")?, owner))
        };
        rows.filter_map(hold).collect()
    }

    /// Returns the picture, of at most so many lines.
    pub fn lines(&self, told: &Told, height: usize) -> Vec<(Tone, String)> {
        let mut lines = match (&self.mode, told) {
            (_, Told::Failed(failure)) => {
                let mut lines = vec![(Tone::Bad, "dsync top: no answer; trying again".to_owned())];
                lines.push((Tone::Plain, String::new()));
                lines.extend(failure.lines().map(|line| (Tone::Plain, line.to_owned())));
                lines
            }
            (_, Told::Measuring(_)) => vec![(Tone::Plain, "dsync top: measuring …".to_owned())],
            (Mode::List | Mode::Filter(_), Told::Samples { before, now }) => {
                let head = Report::of(before, now).lines();
                self.list(told, head, now.servers.len() > 1, height)
            }
            (Mode::Key(chosen, _) | Mode::Question(chosen, ..), Told::Samples { .. }) => {
                match &self.info {
                    Some(info) => info::lines(&chosen.place.key, info),
                    None => {
                        let name = quoted(&chosen.place.key);
                        vec![(Tone::Plain, format!("there is no key {name} now"))]
                    }
                }
            }
        };
        lines.truncate(height.saturating_sub(2));
        lines.push((Tone::Plain, String::new()));
        lines.push((Tone::Heading, self.last_line()));
        lines
    }

    /// Returns the lines of the list, so many of its rows that the one under the cursor is among them.
    fn list(
        &self,
        told: &Told,
        mut lines: Vec<(Tone, String)>,
        has_servers: bool,
        height: usize,
    ) -> Vec<(Tone, String)> {
        let keys = self.keys(told);
        let order = self.order.words();
        lines.push((
            Tone::Plain,
            match self.filter.as_str() {
                "" => format!("keys: {order}"),
                filter => format!("keys: {order}; only '{}'", printable(filter.as_bytes())),
            },
        ));
        lines.push((Tone::Plain, String::new()));
        if keys.is_empty() {
            let nobody = match self.filter.as_str() {
                "" => "Nobody waits.",
                _ => "Nobody waits for such a key.",
            };
            lines.push((Tone::Plain, nobody.to_owned()));
            return lines;
        }
        let mut rows = table(&keys, has_servers).lines().into_iter();
        lines.extend(rows.next());
        // Behind the rows there are an empty line, the last one, and, where not all rows fit, how many do not.
        let room = height.saturating_sub(lines.len() + 2).max(1);
        let room = if keys.len() > room {
            room.max(2) - 1
        } else {
            room
        };
        let row = self.row(&keys);
        let first = (row + 1).saturating_sub(room);
        let shown = rows.enumerate().skip(first).take(room);
        lines.extend(shown.map(|(nth, (tone, line))| match nth == row {
            true => (Tone::Selected, line),
            false => (tone, line),
        }));
        if keys.len() > room {
            let hidden = keys.len() - room;
            lines.push((Tone::Plain, format!("… and {hidden} more")));
        }
        lines
    }

    /// Returns what the keys of the keyboard do now, or what is asked.
    fn last_line(&self) -> String {
        if !self.notice.is_empty() {
            return self.notice.clone();
        }
        let pause = match self.is_paused {
            true => "PAUSED, p goes on",
            false => "p pause",
        };
        let owner_of = |nth: usize| match self.holds().get(nth) {
            Some((fence, owner)) => format!("fence {fence} of {owner}"),
            None => "no hold".into(),
        };
        match &self.mode {
            Mode::List => format!("{pause}   {OF_THE_LIST}"),
            Mode::Filter(text) => {
                let text = printable(text.as_bytes());
                format!("only keys like: {text}_   (* ? [a-z]; Enter, or Esc for no other)")
            }
            Mode::Key(_, holder) => {
                let held = owner_of(*holder);
                format!("{pause}   {held}   ↑ ↓ another   r revoke   Esc back")
            }
            Mode::Question(_, holder, fence) => match self.holds().get(*holder) {
                Some((now, owner)) if now == fence => {
                    format!("Revoke fence {fence} of {owner}? [y/N]")
                }
                _ => format!("Revoke fence {fence}? It may have ended. [y/N]"),
            },
        }
    }
}
