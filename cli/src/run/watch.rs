//! While the command runs: signals and the terminal, the lease, and the command's end when the hold is lost.
//!
//! This looks at the lease several times a second, by a clock that runs through suspensions, and does nothing that
//! could wait. So a command whose hold is lost is dead before the lease is over, and one whose machine was suspended
//! past it is killed as soon as the machine goes on.

use std::time::Duration;

use dsync_client::Loss;
use nix::sys::signal::Signal;

use super::child::{Child, Ending};
use super::clock::Moment;
use super::descendants::Process;
use super::grant::Grant;
use super::job::{Event, Job};
use super::signals::is_passed_on;
use super::terminal::Terminal;
use crate::duration::short;
use crate::text::{counted, printable};

/// Between two looks at the lease at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Between the first two rounds of killing. Later pauses double.
const SHORTEST_PAUSE: Duration = Duration::from_millis(10);

/// What came of the command.
pub enum Watched {
    Ended {
        ending: Ending,
        /// Why the command was stopped.
        loss: Option<Lost>,
        lease_end: Moment,
    },
    /// It was to be stopped, and processes are left that may not be killed.
    Unstoppable {
        loss: Lost,
        /// Which ones, in words.
        refusal: String,
    },
}

/// What is lost, in words, and why.
#[derive(Clone)]
pub struct Lost {
    pub name: String,
    pub loss: Loss,
}

struct Watch<'a> {
    job: &'a Job,
    grant: &'a Grant,
    child: Child,
    lease_end: Moment,
    terminal: Option<Terminal>,
    /// When the server last answered a renewal, if it is late with the next, and the user was told.
    outage: Option<Moment>,
    stopping: Option<Stopping>,
}

/// How the command is ended whose hold is lost.
struct Stopping {
    lost: Lost,
    /// When to kill all descendants, also those that have begun since the last time.
    kill_at: Moment,
    pause: Duration,
    /// The processes that may not be signalled.
    refused: Vec<Process>,
    /// Whether nothing else was left at the last round of killing.
    only_refused: bool,
}

impl Job {
    /// Lets the command run. Returns how it ended, once nothing works on in its session; after a loss, once no
    /// descendant is left that may be killed.
    pub fn watch(&self, grant: &Grant, child: Child) -> Watched {
        let watch = Watch {
            job: self,
            grant,
            child,
            lease_end: grant.lease_end().1,
            terminal: Terminal::open(),
            outage: None,
            stopping: None,
        };
        watch.run()
    }

    /// Returns which of the holds is lost, or is as good as lost: its lease is over but for the margin.
    pub fn lost(&self, grant: &Grant) -> Option<Lost> {
        let (first, lease_end) = grant.lease_end();
        let is_over = lease_end.left() <= self.request.terms.schedule.margin();
        let unanswered = is_over.then_some((first, Loss::Unanswered));
        let (nth, loss) = grant.loss().or(unanswered)?;
        let name = self.request.keys[nth].name();
        Some(Lost { name, loss })
    }
}

impl Watch<'_> {
    fn run(mut self) -> Watched {
        loop {
            if let Some(signal) = self.child.reap() {
                self.command_stopped(signal);
            }
            if let Some(watched) = self.over() {
                if let Some(terminal) = &mut self.terminal {
                    terminal.take_back();
                }
                return watched;
            }
            let event = self.job.next_event(self.next_look());
            // Before a signal is passed on: a command that was stopped past its lease must not go on before it is told.
            self.look();
            if let Some(Event::Signal(signal)) = event
                && is_passed_on(signal)
            {
                self.child.pass_on(signal);
            }
        }
    }

    fn next_look(&self) -> Moment {
        let reserve = self.job.request.terms.schedule.reserve;
        let next = Moment::now() + LONGEST_PAUSE.min(reserve);
        match &self.stopping {
            Some(stopping) => next.min(stopping.kill_at),
            None => next,
        }
    }

    /// Returns what came of the command, once nothing is left to wait for.
    fn over(&self) -> Option<Watched> {
        let ended = match &self.stopping {
            None => self.child.finished(),
            Some(_) => self.child.gone(),
        };
        if let Some(ending) = ended {
            return Some(Watched::Ended {
                ending,
                loss: self.stopping.as_ref().map(|stopping| stopping.lost.clone()),
                lease_end: self.lease_end,
            });
        }
        // What may not be killed has the rest of the lease to end by itself, as sudo does when its command is dead.
        let stopping = self.stopping.as_ref()?;
        let is_time_up = stopping.only_refused && self.lease_end.is_past();
        is_time_up.then(|| Watched::Unstoppable {
            loss: stopping.lost.clone(),
            refusal: refusal(&stopping.refused),
        })
    }

    /// Looks whether the hold is lost, and stops the command then; kills it when its grace is over.
    fn look(&mut self) {
        if let Some(stopping) = &mut self.stopping {
            if stopping.kill_at.is_past() {
                stopping.kill(&self.child);
            }
            return;
        }
        self.lease_end = self.grant.lease_end().1;
        match self.job.lost(self.grant) {
            Some(lost) => self.stop(lost),
            None => self.look_for_an_outage(),
        }
    }

    /// Asks all processes to end because the hold is lost.
    fn stop(&mut self, lost: Lost) {
        let job = self.job;
        let kill_at = job
            .request
            .terms
            .schedule
            .kill_at(Moment::now(), self.lease_end);
        // A process that is stopped gets SIGTERM when it goes on.
        let sent = self.child.signal_all(&[Signal::SIGTERM, Signal::SIGCONT]);
        let Lost { name, loss } = &lost;
        job.notice.error(&format!(
            "{name} is lost: {loss}; SIGTERM now, SIGKILL in {}",
            short(kill_at.left())
        ));
        if !sent.refused.is_empty() {
            let refusal = refusal(&sent.refused);
            job.notice.error(&format!("{refusal} without {name}"));
        }
        let mut stopping = Stopping {
            lost,
            kill_at,
            pause: SHORTEST_PAUSE,
            refused: sent.refused,
            only_refused: false,
        };
        if kill_at.is_past() {
            stopping.kill(&self.child);
        }
        self.stopping = Some(stopping);
    }

    /// Tells that the server is late with its answer to a renewal, and that it answers again.
    fn look_for_an_outage(&mut self) {
        const LATE: Duration = Duration::from_secs(1);
        let (job, schedule) = (self.job, self.job.request.terms.schedule);
        let (lease, left) = (job.request.terms.lease, self.lease_end.left());
        // A renewal is sent when a third of the lease is over.
        let is_late = left + schedule.reserve.max(LATE) < lease * 2 / 3;
        let (server, name) = (job.servers.name(), job.request.name());
        match self.outage {
            None if is_late => {
                self.outage = Some(self.lease_end.before(lease));
                job.notice.say(&format!(
                    "{server} does not answer; it renewed {name} {} ago, and without an answer the command is stopped in {}",
                    short(lease.saturating_sub(left)),
                    short(left.saturating_sub(schedule.margin()))
                ));
            }
            Some(before) if !is_late => {
                self.outage = None;
                job.notice.detail(&format!(
                    "{server} answers again: {name} is renewed, {} after the last time",
                    short(self.lease_end.before(lease).since(before))
                ));
            }
            _ => {}
        }
    }

    /// The terminal has stopped the command: because it needs the terminal, or because the user pressed Ctrl-Z.
    fn command_stopped(&mut self, signal: Signal) {
        let Some(terminal) = &mut self.terminal else {
            // No terminal, no shell that could continue this job: it stays stopped, held and renewed.
            return;
        };
        let needs_it = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if needs_it && terminal.give(self.child.group()) {
            self.child.pass_on(Signal::SIGCONT);
            return;
        }
        // Nothing is renewed while this process is stopped too. It continues the command itself, after the shell has
        // continued this process, and looks at the lease first: SIGTERM is then the first that the command sees.
        let had_it = terminal.suspend();
        if had_it {
            terminal.give(self.child.group());
        }
    }
}

impl Stopping {
    fn kill(&mut self, child: &Child) {
        let sent = child.kill_all();
        self.only_refused = !sent.is_received && !sent.refused.is_empty();
        self.refused = sent.refused;
        self.kill_at = Moment::now() + self.pause;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Says which processes go on although they should not.
fn refusal(refused: &[Process]) -> String {
    const MOST: usize = 5;
    let mut names: Vec<String> = refused
        .iter()
        .take(MOST)
        .map(|process| format!("{} ({})", process.pid, printable(process.name.as_bytes())))
        .collect();
    if refused.len() > MOST {
        names.push(counted((refused.len() - MOST) as u64, "other"));
    }
    let names = names.join(", ");
    match refused.len() {
        1 => format!("may not signal process {names}, permission denied: it works on"),
        _ => format!("may not signal processes {names}, permission denied: they work on"),
    }
}
