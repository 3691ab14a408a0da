//! The events that can happen in a world.

use super::{Event, Role, Setup, World};

impl World {
    /// Returns the events that can happen now.
    pub fn events(&self, setup: &Setup) -> Vec<Event> {
        let mut events = vec![Event::Pass];
        for (index, server) in self.servers.iter().enumerate() {
            match server.role {
                Role::Primary => {
                    events.extend([Event::Grant(index), Event::Crash(index)]);
                    if (self.servers.iter()).any(|other| other.is_replica_of(index)) {
                        events.push(Event::GrantAndReplicate(index));
                    }
                }
                Role::ReplicaOf(of) => self.events_of_replica(setup, index, of, &mut events),
                Role::Down => self.events_of_stopped(setup, index, &mut events),
            }
            if server.role != Role::Down && server.disk.differs(&self.file_of(setup, index)) {
                events.push(Event::Save(index));
            }
        }
        events
    }

    fn events_of_replica(&self, setup: &Setup, index: usize, of: usize, events: &mut Vec<Event>) {
        let is_up = self.servers[of].role == Role::Primary;
        if is_up || self.servers[of].role == Role::Down {
            events.push(Event::Promote(index));
        }
        if setup.may.change_roles {
            events.push(Event::Crash(index));
            if is_up {
                let (primary, replica) = (of, index);
                events.push(Event::Switch { primary, replica });
            }
        }
        self.syncs_of(setup, index, events);
    }

    fn events_of_stopped(&self, setup: &Setup, index: usize, events: &mut Vec<Event>) {
        for from in self.servers[index].disk.starts(setup.may) {
            events.push(Event::Start(index, from));
        }
        self.syncs_of(setup, index, events);
        let may_resume = setup.may.change_roles && !self.servers[index].disk.has_aof();
        for of in self.primaries().filter(|_| may_resume) {
            events.push(Event::Resume(index, of));
        }
    }

    fn primaries(&self) -> impl Iterator<Item = usize> {
        let of = |index: &usize| self.servers[*index].role == Role::Primary;
        (0..self.servers.len()).filter(of)
    }

    /// Returns whether another server was promoted in the place of this primary, and lives.
    fn is_cut_off(&self, primary: usize) -> bool {
        let is_replaced = |promoted: usize| self.servers[promoted].role == Role::Primary;
        (self.orders.iter()).any(|order| order.old == primary && is_replaced(order.promoted))
    }

    fn syncs_of(&self, setup: &Setup, replica: usize, events: &mut Vec<Event>) {
        let may = setup.may.follow_cut_off;
        for of in self.primaries().filter(|of| may || !self.is_cut_off(*of)) {
            for keeps_file in [false, true] {
                if setup.may.change_roles || !keeps_file {
                    events.push(Event::Sync {
                        replica,
                        of,
                        keeps_file,
                    });
                }
            }
        }
    }
}
