//! Sends work over several connections and keeps the server's pipe full.
//!
//! Each connection (a *lane*) has one batch of commands under way. One thread goes round the lanes: it reads the
//! replies of a batch, checks every one of them, and sends the lane's next batch, while the server works on the
//! other lanes' batches. So the server finds something to read whenever it looks, as under real load, and batches of
//! one command are pipeline 1.

use crate::client::{Client, expect, wrong};
use crate::invalid::Result;
use dsync_testkit::resp::Frame;

/// Lanes of a throughput measurement.
pub const LANES: usize = 16;

/// What is sent, and what must come back.
pub trait Work {
    /// Appends the next batch of a lane and returns how many replies it will get: none when nothing is left.
    fn fill(&mut self, lane: usize, out: &mut Vec<u8>) -> usize;

    /// Looks at reply number `at` of the lane's batch.
    fn check(&mut self, lane: usize, at: usize, reply: &Frame<'_>) -> Result<()>;
}

/// Returns when all work is done. An error at the first wrong reply.
pub fn drive(lanes: &mut [Client], work: &mut impl Work) -> Result<()> {
    let mut expected = vec![0; lanes.len()];
    for (lane, client) in lanes.iter_mut().enumerate() {
        expected[lane] = work.fill(lane, &mut client.out);
        client.flush()?;
    }
    while expected.iter().any(|&count| count > 0) {
        for (lane, client) in lanes.iter_mut().enumerate() {
            if expected[lane] == 0 {
                continue;
            }
            for at in 0..expected[lane] {
                client.receive(|reply| work.check(lane, at, reply))?;
            }
            expected[lane] = work.fill(lane, &mut client.out);
            client.flush()?;
        }
    }
    Ok(())
}

/// `total` single commands. Operation `n` is what `write` appends for the number `n`.
pub struct Single<W> {
    total: u64,
    depth: usize,
    next: u64,
    write: W,
    is_right: fn(&Frame<'_>) -> bool,
}

impl<W: FnMut(u64, &mut Vec<u8>)> Single<W> {
    pub fn new(total: u64, depth: usize, write: W, is_right: fn(&Frame<'_>) -> bool) -> Self {
        Self {
            total,
            depth,
            next: 0,
            write,
            is_right,
        }
    }
}

impl<W: FnMut(u64, &mut Vec<u8>)> Work for Single<W> {
    fn fill(&mut self, _lane: usize, out: &mut Vec<u8>) -> usize {
        let count = (self.depth as u64).min(self.total - self.next);
        for number in self.next..self.next + count {
            (self.write)(number, out);
        }
        self.next += count;
        count as usize
    }

    fn check(&mut self, _lane: usize, _at: usize, reply: &Frame<'_>) -> Result<()> {
        if (self.is_right)(reply) {
            Ok(())
        } else {
            Err(wrong("what the command answers", reply))
        }
    }
}

/// How a pair of commands is written: a first one that gets something, and a second one that gives it back.
pub struct PairOf {
    pub first: fn(u64, &mut Vec<u8>),
    /// The token in the first command's reply; empty where the client chose it; None where the reply is wrong.
    pub token: for<'a> fn(&Frame<'a>) -> Option<&'a [u8]>,
    pub second: fn(u64, &[u8], &mut Vec<u8>),
}

/// `total` pairs. A lane sends a batch of first commands, and, with the tokens of their replies, a batch of second
/// ones, as two calls of a client would. The reply to each second command must be 1.
pub struct Pairs<'a> {
    pair: &'a PairOf,
    total: u64,
    depth: usize,
    next: u64,
    lanes: Vec<Lane>,
}

#[derive(Default)]
struct Lane {
    /// Numbers and tokens of the first commands that were answered.
    held: Vec<(u64, Vec<u8>)>,
    /// Whether the batch under way consists of second commands.
    is_second: bool,
    begin: u64,
}

impl<'a> Pairs<'a> {
    pub fn new(pair: &'a PairOf, total: u64, depth: usize) -> Self {
        Self {
            pair,
            total,
            depth,
            next: 0,
            lanes: (0..LANES).map(|_| Lane::default()).collect(),
        }
    }
}

impl Work for Pairs<'_> {
    fn fill(&mut self, lane: usize, out: &mut Vec<u8>) -> usize {
        let state = &mut self.lanes[lane];
        if !state.held.is_empty() {
            for (number, token) in &state.held {
                (self.pair.second)(*number, token, out);
            }
            state.is_second = true;
            let count = state.held.len();
            state.held.clear();
            return count;
        }
        let count = (self.depth as u64).min(self.total - self.next);
        (state.begin, state.is_second) = (self.next, false);
        for number in self.next..self.next + count {
            (self.pair.first)(number, out);
        }
        self.next += count;
        count as usize
    }

    fn check(&mut self, lane: usize, at: usize, reply: &Frame<'_>) -> Result<()> {
        let state = &mut self.lanes[lane];
        if state.is_second {
            return expect(*reply == Frame::Int(1), "1", reply);
        }
        let token = (self.pair.token)(reply).ok_or_else(|| wrong("a grant", reply))?;
        state.held.push((state.begin + at as u64, token.to_vec()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(
        clippy::redundant_closure_for_method_calls,
        reason = "the method is not general enough over the reply's lifetime"
    )]
    fn single_work_is_cut_into_batches() {
        let mut work = Single::new(
            5,
            2,
            |number, out| out.push(number as u8),
            |reply| reply.is_ok(),
        );
        let mut out = Vec::new();
        let counts: Vec<_> = (0..4).map(|lane| work.fill(lane, &mut out)).collect();
        assert_eq!(counts, [2, 2, 1, 0]);
        assert_eq!(out, [0, 1, 2, 3, 4]);
        assert!(work.check(0, 0, &Frame::Simple(b"OK")).is_ok());
        assert!(work.check(0, 0, &Frame::Nil).is_err());
    }

    #[test]
    fn pairs_give_back_what_the_same_lane_got() {
        let pair = PairOf {
            first: |number, out| out.push(number as u8),
            token: |reply| reply.bulk(),
            second: |number, token, out| out.extend([&[number as u8], token].concat()),
        };
        let mut work = Pairs::new(&pair, 3, 2);
        let mut out = Vec::new();
        assert_eq!((work.fill(0, &mut out), work.fill(1, &mut out)), (2, 1));
        assert_eq!(std::mem::take(&mut out), [0, 1, 2]);
        work.check(1, 0, &Frame::Bulk(b"x")).unwrap();
        work.check(0, 0, &Frame::Bulk(b"y")).unwrap();
        work.check(0, 1, &Frame::Bulk(b"z")).unwrap();
        assert_eq!((work.fill(0, &mut out), work.fill(1, &mut out)), (2, 1));
        assert_eq!(out, b"\x00y\x01z\x02x");
        assert!(work.check(0, 0, &Frame::Int(1)).is_ok());
        assert!(work.check(0, 1, &Frame::Int(0)).is_err());
        assert_eq!(work.fill(0, &mut out), 0);
    }
}
