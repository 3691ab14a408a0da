//! All that decides what a lock or a semaphore does from now on, written so that two worlds in which the same will happen
//! have the same portrait: moments as the time until then, ranks, fences and turns by their order alone.
//!
//! Left out is what is only told to readers: since when something is held or waits.

use std::fmt::Write;

use super::content::{FormerSeat, ModelHold};
use super::lanes::Turns;
use super::queue::{ModelKeep, ModelSeat, Sitter};
use super::{Model, Name, ms};
use dsync_engine::types::{MonoUs, Now, Token, new_token_buffer};
use dsync_engine::{Family, Request};

/// Numbers of which only the order counts.
struct Order(Vec<u64>);

impl Order {
    fn new(mut numbers: Vec<u64>) -> Order {
        numbers.sort_unstable();
        numbers.dedup();
        Order(numbers)
    }

    fn of(&self, number: u64) -> usize {
        self.0.binary_search(&number).expect("it is one of them")
    }
}

struct Painter<'m> {
    now: Now,
    /// Fences and ranks come from one counter.
    fences: Order,
    turns: Order,
    conn_of: &'m dyn Fn(u64) -> usize,
    text: String,
}

/// Returns the text of a token, which its own output does not show.
fn text(token: Option<&Token>) -> String {
    let mut buffer = new_token_buffer();
    let text = token.map_or(&[][..], |token| token.text(&mut buffer));
    String::from_utf8_lossy(text).into_owned()
}

/// Returns how long it is until then; negative if it is past.
fn until(moment: u64, now: u64) -> i64 {
    moment.wrapping_sub(now) as i64
}

impl Model {
    /// Returns the portrait of a name. `conn_of`: the connection of a client.
    pub fn portrait(&self, name: Name, now: Now, conn_of: &dyn Fn(u64) -> usize) -> String {
        let content = self.content(name);
        let holds = content.map_or(&[][..], |content| &content.holds);
        let queue = self.queues.iter().find(|queue| queue.name == name);
        let seats = self.seats(name);
        let former = holds.iter().filter_map(|hold| hold.former_place.as_ref());
        let ranks = seats.iter().map(|seat| seat.rank);
        let fences = holds.iter().map(|hold| hold.fence);
        let chosen = queue.and_then(|queue| queue.chosen);
        let fences = fences.chain(ranks).chain(chosen);
        let of_lanes = [
            queue.map(|queue| &queue.turns),
            content.map(|content| &content.turns),
        ];
        let turns = of_lanes.into_iter().flatten().flat_map(Turns::all);
        let mut painter = Painter {
            now,
            fences: Order::new(fences.chain(former.map(|seat| seat.rank)).collect()),
            turns: Order::new(turns.map(|(_, turn)| *turn).chain([0]).collect()),
            conn_of,
            text: String::new(),
        };
        painter.paint(format_args!("{:?}", self.value(name).is_some()));
        if let Some(content) = content {
            assert!(matches!(content.family, Family::Lock | Family::Semaphore));
            let closed = content.closed_until_ms();
            let closed = closed.map(|at| at.map(|at| until(at, ms(now))));
            painter.paint(format_args!(
                "{:?} {:?} {:?} {closed:?}",
                content.family, content.asked, content.pinned
            ));
            painter.turns(&content.turns);
        }
        holds.iter().for_each(|hold| painter.hold(hold));
        if let Some(queue) = queue {
            let chosen = chosen.map(|rank| painter.fences.of(rank));
            painter.paint(format_args!("{chosen:?} {:?}", queue.kept_limits));
            painter.paint(format_args!("{}", queue.left));
            painter.turns(&queue.turns);
        }
        seats.iter().for_each(|seat| painter.seat(seat));
        painter.text
    }
}

impl Painter<'_> {
    fn paint(&mut self, words: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{words}").expect("a string takes all");
    }

    fn lease(&self, moment: u64) -> i64 {
        until(moment, self.now.lease.0)
    }

    fn mono(&self, moment: u64) -> i64 {
        until(moment, self.now.mono.0)
    }

    fn turns(&mut self, turns: &Turns) {
        let mut all: Vec<_> = turns.all().collect();
        all.sort_unstable();
        for (lane, turn) in all {
            let turn = self.turns.of(*turn);
            self.paint(format_args!("{lane:?} {turn}"));
        }
    }

    fn hold(&mut self, hold: &ModelHold) {
        let fence = self.fences.of(hold.fence);
        let conn = (self.conn_of)(hold.client);
        self.paint(format_args!(
            "hold {fence} {} {:?} {:?} {:?} {conn} {}",
            text(Some(&hold.token)),
            hold.claim,
            hold.index,
            hold.lane,
            hold.ephemeral
        ));
        let (due, rests) = (self.lease(hold.due_us), self.lease(hold.rests_until_us));
        let rests = hold.min_hold_ms.map(|_| rests);
        let vacant = hold.vacant_until_us.map(|at| self.mono(at));
        self.paint(format_args!(
            "{} {:?} {} {due} {rests:?} {vacant:?} {} {:?} {:?}",
            hold.lease_ms,
            hold.min_hold_ms,
            hold.is_resting,
            hold.renewed,
            hold.ending,
            hold.unheard_ms
        ));
        let deadline = until(hold.deadline_ms, ms(self.now));
        self.paint(format_args!("{deadline}"));
        if let Some(former) = &hold.former_place {
            self.former(former);
        }
    }

    fn former(&mut self, former: &FormerSeat) {
        let rank = self.fences.of(former.rank);
        let keep = self.keep(former.keep.as_ref());
        self.paint(format_args!("of {rank} {keep:?} {:?}", former.bound));
    }

    fn keep(&self, keep: Option<&ModelKeep>) -> Option<(u32, i64)> {
        keep.map(|keep| (keep.ms, self.lease(keep.until_us)))
    }

    fn seat(&mut self, seat: &ModelSeat) {
        let rank = self.fences.of(seat.rank);
        self.paint(format_args!(
            "seat {rank} {:?} {:?} {}",
            seat.claim,
            seat.lane,
            text(seat.token.as_ref())
        ));
        match &seat.sitter {
            Sitter::Waiting { request, .. } => {
                let keep = seat.keep.map(|keep| keep.ms);
                self.paint(format_args!("waits {keep:?}"));
                self.request(request);
            }
            Sitter::Kept { request } => {
                let keep = self.keep(seat.keep.as_ref());
                self.paint(format_args!("kept {keep:?}"));
                self.request(request);
            }
            Sitter::Vacant { until_us, verdict } => {
                let until = self.mono(*until_us);
                self.paint(format_args!("vacant {until} {verdict:?}"));
            }
            Sitter::Watching { .. } => panic!("only a group is watched"),
        }
    }

    fn request(&mut self, request: &Request) {
        let wait = request.wait.filter(|at| *at != MonoUs::NEVER);
        let wait = wait.map(|at| self.mono(at.0));
        let conn = (self.conn_of)(request.client.0);
        self.paint(format_args!(
            "{:?} {:?} {:?} {wait:?} {conn} {} {:?}",
            request.limit, request.lease, request.min_hold, request.ephemeral, request.bound
        ));
    }
}
