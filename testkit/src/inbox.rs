//! What has arrived on a connection and is not taken yet. Grows only where one reply needs it.

use std::io::{self, Read};

pub struct Inbox {
    buffer: Vec<u8>,
    /// What has arrived: `buffer[start..end]`.
    start: usize,
    end: usize,
}

impl Inbox {
    /// Room for so many bytes, one at least.
    pub fn new(room: usize) -> Inbox {
        Inbox {
            buffer: vec![0; room],
            start: 0,
            end: 0,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Drops the first bytes.
    pub fn take(&mut self, count: usize) {
        self.start += count;
    }

    /// Reads once. Returns how many bytes came, 0 at the end of the connection.
    pub fn fill(&mut self, from: &mut impl Read) -> io::Result<usize> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() && self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.end == self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let count = from.read(&mut self.buffer[self.end..])?;
        self.end += count;
        Ok(count)
    }
}
