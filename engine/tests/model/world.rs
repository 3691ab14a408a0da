//! A primary, its replica and the model: they take the same steps (`steps`), and are compared after each.
//!
//! After every step
//! - the reply and the wakes are those of the model (grants of one key in the same order, other answers in any order);
//! - every state is equal to the model's in every field, and INFO shows the model's holders and waiters;
//! - HOLDS shows the model's holds, and the ends that nobody asked for are noted;
//! - the replica, which got only the changes, would save exactly the same bytes as the primary;
//! - the laws hold, and so do the engine's own invariants.
//!
//! After a tick the next wake is no later than the next thing that the model will do without a request.

mod compare;
mod events;
mod operators;
mod requests;

use std::collections::BTreeMap;

use crate::laws::{Laws, OnRecord};
use crate::model::{Model, ModelSeat, Name};
use crate::server::{Done, Server, Stored, granted};
use dsync_engine::Settings;
use dsync_engine::answer::Answer;
use dsync_engine::change::Change;
use dsync_engine::effect::HandedOver;
use dsync_engine::types::{Fence, LeaseUs, MonoUs, Now, Token, WaiterId};
use dsync_engine::unasked::UnaskedEnd;

use operators::Walk;

/// The waiter of the model that stands for a waiter of the engine.
struct Ticket {
    ticket: u64,
    name: Name,
    client: u64,
}

pub struct World {
    pub primary: Server,
    pub replica: Server,
    pub model: Model,
    pub laws: Laws,
    pub now: Now,
    /// The fences that the data of the primary and of the replica were saved with, or the last beginning.
    on_record: OnRecord,
    replica_on_record: OnRecord,
    /// How far the replica's wall clock is ahead of the primary's.
    pub skew_ms: u64,
    /// The budget of background work after each step. Ticks do what is left.
    pub background: u32,
    tickets: BTreeMap<WaiterId, Ticket>,
    /// The engine's fence for each fence of the model.
    pub fences: BTreeMap<u64, Fence>,
    conns: Vec<u64>,
    last_client: u64,
    made_up_tokens: u64,
    pub may_grow: bool,
    /// The answers of the last step to waiting requests, by connection.
    pub told: Vec<(usize, Answer)>,
    granted: Vec<(Name, HandedOver, u64)>,
    /// The grants of the last step to kept places on which nobody waits: the name, the number and the fence.
    pub announced: Vec<(Name, Fence, Fence)>,
    /// The ends that the last step noted, once they were compared.
    pub ended: Vec<(Name, UnaskedEnd)>,
    /// The ends that this step has noted so far.
    noted: Vec<(Name, UnaskedEnd)>,
    walk: Walk,
}

pub const START_US: u64 = 1_700_000_000_000_000;

impl World {
    pub fn new(settings: Settings) -> World {
        let now = Now {
            lease: LeaseUs(0),
            mono: MonoUs(5_000_000),
            unix_us: START_US,
            may_write: true,
        };
        let mut primary = Server::new(settings);
        primary.engine.take_over(now);
        let roomy = settings.max_waiters_per_key >= 100 && settings.max_waiters >= 100;
        World {
            primary,
            replica: Server::new(settings),
            model: Model::new(settings),
            laws: Laws::new(settings, roomy),
            now,
            on_record: OnRecord::default(),
            replica_on_record: OnRecord::default(),
            skew_ms: 7,
            background: 0,
            tickets: BTreeMap::new(),
            fences: BTreeMap::new(),
            conns: Vec::new(),
            last_client: 0,
            made_up_tokens: 0,
            may_grow: true,
            told: Vec::new(),
            granted: Vec::new(),
            announced: Vec::new(),
            ended: Vec::new(),
            noted: Vec::new(),
            walk: Walk::default(),
        }
    }

    /// Returns the client that has this connection.
    pub fn client(&mut self, conn: usize) -> u64 {
        while self.conns.len() <= conn {
            self.last_client += 1;
            self.conns.push(self.last_client);
        }
        self.conns[conn]
    }

    /// Returns all that decides what becomes of a lock or a semaphore: the model's portrait of it, and the grants of the
    /// last step, which may yet turn out to be undelivered.
    pub fn portrait(&self, name: Name) -> String {
        let conn_of = |client| self.conn_of(client);
        let mut portrait = self.model.portrait(name, self.now, &conn_of);
        for (_, grant, client) in &self.granted {
            let holds = self
                .model
                .content(name)
                .map_or(&[][..], |content| &content.holds);
            let is_granted = |fence: &u64| self.fences.get(fence) == Some(&grant.fence);
            let nth = holds.iter().position(|hold| is_granted(&hold.fence));
            portrait.push_str(&format!("granted {nth:?} {}\n", conn_of(*client)));
        }
        portrait
    }

    fn reconnect(&mut self, conn: usize) {
        self.client(conn);
        self.last_client += 1;
        self.conns[conn] = self.last_client;
    }

    pub fn is_blocked(&mut self, conn: usize) -> bool {
        let client = self.client(conn);
        self.tickets.values().any(|ticket| ticket.client == client)
    }

    fn conn_of(&self, client: u64) -> usize {
        self.conns
            .iter()
            .position(|c| *c == client)
            .unwrap_or(usize::MAX)
    }

    pub fn is_foreign(&self, name: Name) -> bool {
        self.primary.keys.get(&name) == Some(&Stored::Foreign)
    }

    /// Whether some token waits for a key that it holds already, because the key was moved there.
    pub fn a_waiter_holds_already(&self) -> bool {
        self.where_a_waiter_holds().next().is_some()
    }

    /// Returns the names for which some token waits that holds their key already.
    fn where_a_waiter_holds(&self) -> impl Iterator<Item = Name> {
        let queues = self.model.queues.iter().filter(|queue| {
            let holds = self
                .model
                .content(queue.name)
                .map_or(&[][..], |content| &content.holds);
            let waits = |seat: &ModelSeat| {
                holds
                    .iter()
                    .any(|hold| seat.token.as_ref() == Some(&hold.token))
            };
            queue.seats.iter().any(waits)
        });
        queues.map(|queue| queue.name)
    }

    /// Whether some hold will end because its connection has closed.
    pub fn a_hold_is_ending(&self) -> bool {
        let contents = self
            .model
            .values
            .iter()
            .filter_map(|(name, _)| self.model.content(*name));
        contents
            .flat_map(|content| &content.holds)
            .any(|hold| hold.ending.is_some())
    }

    /// Forgets what the step before has told. `granted`: also its grants, of which a step may say that they were lost.
    pub fn begin_step(&mut self, granted: bool) {
        self.told.clear();
        self.announced.clear();
        if granted {
            self.granted.clear();
        }
    }

    /// Does background work on both servers, and compares everything.
    pub fn end_step(&mut self, ticked: bool) {
        for server in [&mut self.primary, &mut self.replica] {
            server.engine.background(&mut { self.background });
        }
        self.compare(ticked);
        self.compare_ends();
        self.compare_holds();
        self.continue_walk();
    }

    pub fn holds(&self, name: Name, token: &Token) -> bool {
        let state = self.primary.state(name);
        let mut changes = state.into_iter().flat_map(|state| state.body.as_changes());
        changes.any(|change| matches!(change, Change::Grant(grant) if grant.token == *token))
    }

    /// Gives the effects to the replica and the laws, and compares the answers to waiting requests with the model's.
    fn carry_out(&mut self, all: Vec<Done>) {
        let mut later = self.now;
        later.unix_us += self.skew_ms * 1_000;
        let mut ours: Vec<(Name, u64, Answer)> = Vec::new();
        self.same_announcements(&all);
        for done in &all {
            self.laws.tells(&done.wakes);
            self.laws.written(done.name, &done.changes, self.now);
            self.replica.follow(done, later);
            self.note_ends(done);
            for wake in &done.wakes {
                let (id, answer) = (wake.waiter, &wake.answer);
                self.laws.told(done.name, id, answer);
                let ticket = self.tickets.remove(&id);
                let ticket =
                    ticket.unwrap_or_else(|| panic!("{id:?} is told {answer:?} out of turn"));
                assert_eq!(ticket.name, done.name, "{id:?} is told of its own key");
                if let Some(grant) = wake.grant {
                    self.granted.push((done.name, grant, ticket.client));
                }
                self.told
                    .push((self.conn_of(ticket.client), answer.clone()));
                ours.push((done.name, ticket.ticket, answer.clone()));
            }
        }
        let mut theirs: Vec<(Name, u64, Answer)> = self
            .model
            .wakes
            .drain(..)
            .map(|wake| (wake.name, wake.ticket, wake.answer))
            .collect();
        // Grants of one key must come in the same order. Other answers may come in any order, also between grants.
        let is_grant = |wake: &(Name, u64, Answer)| granted(&wake.2).is_some();
        for wakes in [&mut ours, &mut theirs] {
            wakes.sort_by_key(|wake| {
                (
                    wake.0,
                    !is_grant(wake),
                    if is_grant(wake) { 0 } else { wake.1 },
                )
            });
        }
        let spoken = |wakes: &[(Name, u64, Answer)]| {
            wakes
                .iter()
                .map(|(name, ticket, answer)| format!("{name:?} #{ticket}: {answer:?}"))
                .collect()
        };
        let lists: [Vec<String>; 2] = [spoken(&ours), spoken(&theirs)];
        assert_eq!(
            ours.len(),
            theirs.len(),
            "answered: {:#?}, expected: {:#?}",
            lists[0],
            lists[1]
        );
        for ((name, ticket, answer), (their_name, their_ticket, theirs)) in ours.iter().zip(&theirs)
        {
            assert_eq!(
                (name, ticket),
                (their_name, their_ticket),
                "answered: {:#?}, expected: {:#?}",
                lists[0],
                lists[1]
            );
            self.same_answer(*name, answer, theirs);
        }
    }
}
