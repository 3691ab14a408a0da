//! What every line works with: the sizes of the run, how its servers are started, and how two are compared.
//!
//! Ours is a server with the module. Theirs is the same program without it, so that nothing of ours can weigh on it.
//! Each pair of figures comes from two servers that were started for it: where a process happens to lie in memory
//! makes several percent, and the median over pairs takes that out.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use crate::client::Client;
use crate::invalid::{Context, Result};
use crate::load::{LANES, Work, drive};
use crate::machine::Machine;
use crate::options::{Mode, Options};
use crate::row::Samples;
use crate::server::{ALL_SLOTS, Plan, Server, Setting, SlotRange};
use dsync_testkit::resp::Frame;

pub struct Bench {
    pub options: Options,
    pub machine: Machine,
    /// Where the servers' directories are.
    run: PathBuf,
    servers: Cell<usize>,
    notes: std::cell::RefCell<Vec<String>>,
}

/// A server, with the connections that a line works it with.
pub struct Side {
    pub server: Server,
    pub control: Client,
    pub lanes: Vec<Client>,
}

impl Bench {
    pub fn new(mut options: Options, machine: Machine) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let run = options.out.join(format!("run-{}", std::process::id()));
        // A server's working directory is another one than ours.
        let run = absolute(&run);
        options.module = absolute(&options.module);
        options.preload = options.preload.as_deref().map(absolute);
        options.old_module = options.old_module.as_deref().map(absolute);
        Self {
            options,
            machine,
            run,
            servers: Cell::new(0),
            notes: std::cell::RefCell::default(),
        }
    }

    pub fn is_quick(&self) -> bool {
        self.options.mode == Mode::Quick
    }

    /// A size of the full run, or the one of the quick run.
    pub fn size<T>(&self, full: T, quick: T) -> T {
        if self.is_quick() { quick } else { full }
    }

    pub fn pairs(&self) -> usize {
        self.options.pairs
    }

    /// As many clients as wanted, or as open files allow, which the report then says.
    pub fn clients(&self, line: &str, wanted: usize) -> usize {
        let count = self.machine.clients(wanted);
        if count < wanted {
            self.note(format!(
                "{line}: {count} clients instead of {wanted}, for a process may open {} files",
                self.machine.open_files
            ));
        }
        count
    }

    /// Something a reader of the table must know. Said twice, it is kept once.
    pub fn note(&self, note: String) {
        let mut notes = self.notes.borrow_mut();
        if !notes.contains(&note) {
            notes.push(note);
        }
    }

    pub fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    /// Removes the servers' logs: all went well.
    pub fn tidy(&self) {
        let _ = std::fs::remove_dir_all(&self.run);
    }

    pub fn logs(&self) -> &Path {
        &self.run
    }

    fn plan(&self, program: &Path, has_module: bool, setting: Setting) -> Plan {
        let number = self.servers.replace(self.servers.get() + 1);
        Plan {
            program: program.to_owned(),
            module: has_module.then(|| self.options.module.clone()),
            setting,
            slots: None,
            // The server needs some files besides.
            max_clients: self.machine.clients(30_000) + 100,
            counted_with: None,
            directory: self.run.join(number.to_string()),
        }
    }

    /// A server with the module.
    pub fn ours(&self, setting: Setting) -> Result<Side> {
        Side::ready(Server::start(self.plan(
            &self.options.server,
            true,
            setting,
        ))?)
    }

    /// A server without it.
    pub fn theirs(&self, setting: Setting) -> Result<Side> {
        Side::ready(Server::start(self.plan(
            &self.options.server,
            false,
            setting,
        ))?)
    }

    /// A server whose instructions are counted, with this module or without any.
    pub fn counted(&self, module: Option<&Path>, setting: Setting) -> Result<Side> {
        let library = self.options.preload.as_ref();
        let library = library.context("PRELOAD is not given, see scripts/bench-instructions.sh")?;
        Side::ready(Server::start(Plan {
            module: module.map(Path::to_owned),
            counted_with: Some(library.clone()),
            ..self.plan(&self.options.server, false, setting)
        })?)
    }

    /// A server without it that knows DELIFEQ, if one was named.
    pub fn native(&self) -> Result<Side> {
        Side::ready(Server::start(self.plan(
            &self.options.native_server,
            false,
            Setting::Plain,
        ))?)
    }

    /// Both, started at the same time.
    pub fn both(&self, setting: Setting) -> Result<(Side, Side)> {
        self.both_of(&self.options.server, setting, false)
    }

    /// Measures ours and theirs, each on a server that is started for it when the other has ended: both at once would
    /// compete for the cores, and need twice the open files.
    pub fn in_turn<T>(
        &self,
        pair: usize,
        setting: Setting,
        mut measure: impl FnMut(Side, bool) -> Result<T>,
    ) -> Result<(T, T)> {
        in_order(pair, 0, |is_ours| match is_ours {
            true => measure(self.ours(setting)?, true),
            false => measure(self.theirs(setting)?, false),
        })
    }

    /// Both, of some other program or as clusters of one node.
    pub fn both_of(
        &self,
        program: &Path,
        setting: Setting,
        is_cluster: bool,
    ) -> Result<(Side, Side)> {
        let slots = is_cluster.then_some(ALL_SLOTS);
        let start = |has_module| {
            let plan = self.plan(program, has_module, setting);
            Server::start(Plan { slots, ..plan })
        };
        let (ours, theirs) = (start(true)?, start(false)?);
        Ok((Side::ready(ours)?, Side::ready(theirs)?))
    }

    /// A cluster with a primary for each range of slots.
    pub fn cluster(&self, has_module: bool, ranges: &[SlotRange]) -> Result<Vec<Side>> {
        let start = |range: &SlotRange| {
            let plan = self.plan(&self.options.server, has_module, Setting::Plain);
            let slots = Some(*range);
            Side::ready(Server::start(Plan { slots, ..plan })?)
        };
        let mut nodes = ranges.iter().map(start).collect::<Result<Vec<_>>>()?;
        if let Some((first, others)) = nodes.split_first_mut() {
            for other in others {
                first.server.meet(&mut first.control, &other.server)?;
            }
        }
        for node in &mut nodes {
            node.server.await_cluster(&mut node.control)?;
        }
        Ok(nodes)
    }
}

impl Side {
    fn ready(mut server: Server) -> Result<Self> {
        server.await_ready()?;
        Ok(Self {
            control: server.client()?,
            lanes: server.clients(LANES)?,
            server,
        })
    }

    /// Connects again, once the server that was started again serves.
    pub fn reconnect(&mut self) -> Result<()> {
        self.server.await_ready()?;
        self.control = self.server.client()?;
        self.connect_lanes()
    }

    pub fn connect_lanes(&mut self) -> Result<()> {
        self.lanes = self.server.clients(LANES)?;
        Ok(())
    }

    /// Does the work, measuring nothing.
    pub fn load(&mut self, work: &mut impl Work) -> Result<()> {
        drive(&mut self.lanes, work)
    }

    /// Returns the nanoseconds of the server's CPU time that the work took. The replica has caught up before and
    /// after, so that each piece of work pays for its own.
    pub fn cpu_ns(&mut self, work: &mut impl Work) -> Result<f64> {
        self.control.barrier()?;
        let before = self.server.cpu_ns()?;
        drive(&mut self.lanes, work)?;
        let after = self.server.cpu_ns()?;
        self.server.settle_replica(&mut self.control)?;
        Ok((after - before) as f64)
    }

    /// Returns the milliseconds of the server's CPU time from a request to its reply.
    pub fn turn_cpu_ms(&mut self, request: impl FnOnce(&mut Client) -> Result<()>) -> Result<f64> {
        self.control.barrier()?;
        let before = self.server.cpu_ns()?;
        request(&mut self.control)?;
        // The kernel adds up a thread's time when it sleeps.
        self.control.barrier()?;
        Ok((self.server.cpu_ns()? - before) as f64 / 1e6)
    }

    /// Removes all data, here and on the replica.
    pub fn flush(&mut self) -> Result<()> {
        self.control.ok("FLUSHALL SYNC")?;
        self.server.settle_replica(&mut self.control)
    }

    pub fn knows_delifeq(&mut self) -> Result<bool> {
        self.control
            .call(&[b"COMMAND", b"INFO", b"DELIFEQ"], |reply| {
                Ok(matches!(reply.array(), Some([Frame::Array(_)])))
            })
    }

    pub fn keys(&mut self) -> Result<u64> {
        Ok(self.control.integer("DBSIZE")? as u64)
    }
}

/// Returns `measure(true)`, the figure of ours, and `measure(false)`, of theirs. Which side begins changes from slice
/// to slice and from pair to pair (A B B A, B A A B), so that neither gains by a machine that becomes slower or faster.
pub fn in_order<T>(
    pair: usize,
    slice: usize,
    mut measure: impl FnMut(bool) -> Result<T>,
) -> Result<(T, T)> {
    if (pair + slice).is_multiple_of(2) {
        return Ok((measure(true)?, measure(false)?));
    }
    let theirs = measure(false)?;
    Ok((measure(true)?, theirs))
}

/// Slices a side in each pair. Many short ones, because another process, or the host of a virtual machine, disturbs
/// some of them, and a median leaves those out.
pub const SLICES: usize = 15;

/// Calls `measure` for both sides, [`SLICES`] times each, and returns the figures.
pub fn alternate<S>(
    pair: usize,
    sides: (&mut S, &mut S),
    mut measure: impl FnMut(&mut S, bool) -> Result<f64>,
) -> Result<Samples> {
    let mut slices = Samples::default();
    for slice in 0..SLICES {
        let (ours, theirs) = in_order(pair, slice, |is_ours| match is_ours {
            true => measure(sides.0, true),
            false => measure(sides.1, false),
        })?;
        slices.push(ours, theirs);
    }
    Ok(slices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides_alternate_and_take_turns_to_begin() {
        let order = |pair| {
            let mut order = String::new();
            let measure = |_: &mut (), is_ours| {
                order.push(if is_ours { 'A' } else { 'B' });
                Ok(1.0)
            };
            let slices = alternate(pair, (&mut (), &mut ()), measure).unwrap();
            assert_eq!(slices.costs, [1.0; SLICES]);
            order
        };
        assert_eq!(order(0), "ABBAABBAABBAABBAABBAABBAABBAAB");
        assert_eq!(order(1), "BAABBAABBAABBAABBAABBAABBAABBA");
    }
}
