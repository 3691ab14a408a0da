//! `dsync run`: a command that runs while something is held.
//!
//! Everything that can happen is an event in one channel: a signal, the answer of the server, the loss of the hold. One
//! thread, the first, takes them in turn, so nothing races. The client library renews the lease in a thread of its own.

mod child;
mod notice;
mod request;
mod schedule;
mod signals;
mod terminal;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use dsync_client::{Cancel, Client, Error, Hold, Loss};
use nix::sys::signal::{Signal, raise};

use crate::args;
use crate::duration::short;
use crate::failure::{Failure, Result, Status};
use crate::servers::Servers;
use child::{Child, Ending, News};
use notice::{Level, Notice};
use request::{Grant, Key, Outcome, Request, Wait};
use schedule::Schedule;
use terminal::Terminal;

/// How long a request is repeated while the server cannot be reached: longer than a failover takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the end of a hold is repeated at most, so that a server that is gone does not keep the caller.
const LONGEST_SETTLEMENT: Duration = Duration::from_secs(30);

/// Between two attempts to reach the server before the first request.
const PAUSE: Duration = Duration::from_millis(500);

pub enum Event {
    Signal(Signal),
    /// The server has answered the request.
    Answered(std::result::Result<Outcome, Error>),
    Lost(Loss),
    /// The server has answered the end of the hold.
    Settled(std::result::Result<(), Error>),
}

struct Job<'a> {
    request: Request,
    servers: &'a Servers,
    notice: Arc<Notice>,
    busy_status: u8,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

/// Runs the command. Returns the exit status.
pub fn run(servers: &Servers, options: &args::Run) -> Result<u8> {
    let schedule = Schedule::of(options.lease, options.grace);
    let schedule = schedule.map_err(|message| Failure::new(Status::Usage, message))?;
    let level = match (options.quiet, options.verbose) {
        (true, _) => Level::Quiet,
        (_, true) => Level::Verbose,
        _ => Level::Normal,
    };
    let (sender, events) = channel();
    signals::handle(sender.clone())?;
    let job = Job {
        request: Request::of(options, schedule),
        servers,
        notice: Arc::new(Notice::new(level)),
        busy_status: options.conflict_exit_code,
        sender,
        events,
    };
    job.run(&options.command)
}

/// What came of a phase: its result, or the exit status because the job ends here.
enum Next<T> {
    GoOn(T),
    Exit(u8),
}

impl Job<'_> {
    fn run(&self, command: &[std::ffi::OsString]) -> Result<u8> {
        let client = Client::new(self.servers.server()?)
            .with_response_timeout(self.servers.timeout)
            .with_patience(self.patience());
        if let Next::Exit(status) = self.reach(&client)? {
            return Ok(status);
        }
        let grant = match self.wait(&client)? {
            Next::Exit(status) => return Ok(status),
            Next::GoOn(Outcome::DoneAlready { attempt }) => {
                self.notice.remark(&format!(
                    "{} is done already, by attempt {attempt}",
                    self.request.name()
                ));
                return Ok(0);
            }
            Next::GoOn(Outcome::Granted(grant)) => grant,
        };
        self.notice.clear();
        self.notice.detail(&match grant.attempt() {
            Some(attempt) => format!(
                "{} is ours: attempt {attempt}, fence {}",
                self.request.name(),
                grant.fence()
            ),
            None => format!("{} is ours: fence {}", self.request.name(), grant.fence()),
        });
        let variables = [
            ("DSYNC_FENCE", Some(grant.fence().to_string())),
            // Of an outer `dsync run --once` the attempt would be misleading here.
            (
                "DSYNC_ATTEMPT",
                grant.attempt().map(|attempt| attempt.to_string()),
            ),
        ];
        let child = match Child::start(command, &variables) {
            Ok(child) => child,
            Err(failure) => {
                let _ = self.settle(grant, None);
                return Err(failure);
            }
        };
        let ending = self.watch(&grant, child)?;
        self.conclude(grant, ending)
    }

    fn patience(&self) -> Duration {
        match self.request.wait {
            Wait::Not => Duration::ZERO,
            Wait::AtMost(time) => time.min(PATIENCE),
            Wait::Unlimited => PATIENCE,
        }
    }

    /// Returns once the server answers, so that a wrong address or password is told before anything waits.
    fn reach(&self, client: &Client) -> Result<Next<()>> {
        let start = Instant::now();
        let mut told = false;
        loop {
            let error = match client.ping() {
                Ok(()) => return Ok(Next::GoOn(())),
                Err(error) => error,
            };
            let is_worth_a_wait =
                error.is_unreachable() && start.elapsed() + PAUSE < self.patience();
            if !is_worth_a_wait {
                return Err(self.failure(&error));
            }
            if !told {
                told = true;
                let failure = self.failure(&error);
                let first_line = failure
                    .message
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned();
                self.notice.say(&format!(
                    "{first_line}; trying for {}",
                    short(self.patience())
                ));
            }
            match self.events.recv_timeout(PAUSE) {
                Ok(Event::Signal(signal)) if signals::ends_a_wait(signal) => {
                    return Ok(Next::Exit(status_of(signal)));
                }
                Ok(Event::Signal(Signal::SIGTSTP)) => drop(raise(Signal::SIGSTOP)),
                _ => {}
            }
        }
    }

    /// Waits for the grant. A signal that ends programs withdraws the request; a second one does not wait for the server.
    fn wait(&self, client: &Client) -> Result<Next<Outcome>> {
        let cancel = Cancel::new();
        let (client, canceller, request) = (client.clone(), cancel.clone(), self.request.clone());
        let (notice, sender) = (Arc::clone(&self.notice), self.sender.clone());
        let name = self.request.name();
        thread::Builder::new().name("ask".into()).spawn(move || {
            let answer = request.ask(&client, &canceller, move |progress| {
                notice.waiting(&name, progress);
            });
            // The first thread has ended if nobody receives; then a grant is released here.
            let _ = sender.send(Event::Answered(answer));
        })?;
        let mut given_up = None;
        loop {
            match self.next_event(None) {
                Some(Event::Signal(signal)) if signals::ends_a_wait(signal) => {
                    if given_up.is_some() {
                        return Ok(Next::Exit(status_of(signal)));
                    }
                    given_up = Some(signal);
                    cancel.cancel();
                }
                Some(Event::Signal(Signal::SIGTSTP)) => {
                    self.notice.clear();
                    let _ = raise(Signal::SIGSTOP);
                }
                Some(Event::Answered(answer)) => {
                    self.notice.clear();
                    return match (answer, given_up) {
                        // Dropping a grant gives it back.
                        (_, Some(signal)) => Ok(Next::Exit(status_of(signal))),
                        (Ok(outcome), None) => Ok(Next::GoOn(outcome)),
                        (Err(Error::NotAcquired { holders, .. }), None) => {
                            let who = notice::holders(&holders, 0)
                                .unwrap_or_else(|| "others wait for it".into());
                            self.notice
                                .say(&format!("{} is busy: {who}", self.request.name()));
                            Ok(Next::Exit(self.busy_status))
                        }
                        (Err(error), None) => Err(self.failure(&error)),
                    };
                }
                _ => {}
            }
        }
    }

    /// Lets the command run. Returns how it ended, once all processes of its group have ended.
    fn watch(&self, hold: &Hold, mut child: Child) -> Result<Ending> {
        let sender = self.sender.clone();
        hold.on_lost(move |loss| drop(sender.send(Event::Lost(loss))))?;
        let mut terminal = Terminal::open();
        let mut kill_at: Option<Instant> = None;
        let mut stopping = None;
        // It may have ended before its SIGCHLD could be seen.
        let mut news = child.reap();
        loop {
            match news {
                News::Ended(ending) => {
                    if let Some(terminal) = &mut terminal {
                        terminal.take_back();
                    }
                    return Ok(ending);
                }
                News::Stopped(signal) => self.command_stopped(signal, &child, terminal.as_mut()),
                News::Nothing => {}
            }
            let event = self.next_event(kill_at);
            let loss = match event {
                Some(Event::Lost(loss)) => Some(loss),
                // This process may have slept through the lease. The command must not go on before it is told.
                Some(Event::Signal(Signal::SIGCONT)) => hold.loss(),
                _ => None,
            };
            if let (Some(loss), None) = (loss, stopping) {
                let end = self.stop(&child, loss, hold.lease_end());
                stopping = Some(loss);
                kill_at = Some(end);
            }
            news = match event {
                Some(Event::Signal(Signal::SIGCHLD)) => child.reap(),
                Some(Event::Signal(signal)) => {
                    if signals::is_passed_on(signal) {
                        child.signal(signal);
                    }
                    News::Nothing
                }
                Some(_) => News::Nothing,
                // The time is up.
                None => {
                    kill_at = None;
                    child.signal(Signal::SIGKILL);
                    child.reap()
                }
            };
        }
    }

    /// Asks the command to end because the hold is lost. Returns when to kill it.
    fn stop(&self, child: &Child, loss: Loss, lease_end: Instant) -> Instant {
        let now = Instant::now();
        let kill_at = self.request.schedule.kill_at(now, lease_end);
        child.signal(Signal::SIGTERM);
        // A process that is stopped gets SIGTERM when it goes on.
        child.signal(Signal::SIGCONT);
        self.notice.error(&format!(
            "{} is lost: {loss}; SIGTERM now, SIGKILL in {}",
            self.request.name(),
            short(kill_at.saturating_duration_since(now))
        ));
        kill_at
    }

    /// Takes the next event, or `None` when the time is up.
    fn next_event(&self, until: Option<Instant>) -> Option<Event> {
        // This job keeps a sender, so the channel never closes.
        match until {
            None => self.events.recv().ok(),
            Some(until) => {
                let left = until.saturating_duration_since(Instant::now());
                self.events.recv_timeout(left).ok()
            }
        }
    }

    /// The terminal has stopped the command: because it needs the terminal, or because the user pressed Ctrl-Z.
    fn command_stopped(&self, signal: Signal, child: &Child, terminal: Option<&mut Terminal>) {
        let Some(terminal) = terminal else {
            // No terminal, no shell that could continue this job: it stays stopped, held and renewed.
            return;
        };
        let needs_it = matches!(signal, Signal::SIGTTIN | Signal::SIGTTOU);
        if needs_it && terminal.give(child.group()) {
            child.signal(Signal::SIGCONT);
            return;
        }
        // Nothing is renewed while this process is stopped too. It continues the command itself, after the shell has
        // continued this process; by then the loss of the hold is an event, and SIGTERM is the first that the command sees.
        let had_it = terminal.suspend();
        if had_it {
            terminal.give(child.group());
        }
    }

    /// Ends the hold as the command's end demands. Returns the exit status.
    fn conclude(&self, grant: Grant, ending: Ending) -> Result<u8> {
        let name = self.request.name();
        let loss = grant.loss();
        let decides = grant.records_success() && ending.is_success();
        let lease_left = grant.lease_end().saturating_duration_since(Instant::now());
        let settled = self.settle(grant, Some(ending));
        match (loss, settled) {
            (None, Some(Ok(()))) => {
                self.notice.detail(&format!("{name} is released"));
                Ok(ending.status())
            }
            // The work was done before anybody else began it, so it counts although the lease had run out.
            (Some(_), Some(Ok(()))) if matches!(self.request.key, Key::Once { .. }) && decides => {
                Ok(ending.status())
            }
            (Some(loss), _) => Err(Failure::new(
                Status::Lost,
                format!("{name} was lost: {loss}"),
            )),
            (None, Some(Err(Error::HoldLost { loss, .. }))) => {
                let message = format!("{name} was lost before the command ended: {loss}");
                Err(Failure::new(Status::Lost, message))
            }
            (None, Some(Err(error))) if decides => {
                let failure = self.failure(&error);
                let message = format!(
                    "the command succeeded, but {name} could not be told: {}",
                    failure.message
                );
                Err(Failure::new(failure.status, message))
            }
            (None, None) if decides => {
                let message = format!(
                    "the command succeeded, but {name} could not be told: no answer in time"
                );
                Err(Failure::new(Status::Unreachable, message))
            }
            (None, unanswered) => {
                let why = match unanswered {
                    Some(Err(error)) => self.failure(&error).message,
                    _ => "no answer in time".into(),
                };
                let left = short(lease_left);
                self.notice.error(&format!(
                    "{name} could not be released; its lease ends it within {left}: {why}"
                ));
                Ok(ending.status())
            }
        }
    }

    /// Ends the hold; without an ending, the command was not started. Returns `None` when the server did not answer in time,
    /// or when a signal asked not to wait for it.
    fn settle(
        &self,
        grant: Grant,
        ending: Option<Ending>,
    ) -> Option<std::result::Result<(), Error>> {
        let longest = match grant.loss() {
            // The lease is about to be over: the server's answer changes little.
            Some(_) => self.servers.timeout,
            None => self.request.lease.min(LONGEST_SETTLEMENT),
        };
        let until = Instant::now() + longest;
        let sender = self.sender.clone();
        let settle = move || {
            let settled = match ending {
                Some(ending) => grant.settle(ending),
                None => grant.give_back(),
            };
            let _ = sender.send(Event::Settled(settled));
        };
        thread::Builder::new()
            .name("settle".into())
            .spawn(settle)
            .ok()?;
        loop {
            match self.next_event(Some(until))? {
                Event::Settled(settled) => return Some(settled),
                Event::Signal(signal) if signals::ends_a_wait(signal) => return None,
                _ => {}
            }
        }
    }

    fn failure(&self, error: &Error) -> Failure {
        let name = self.request.name();
        match error {
            Error::Redis(error) => Failure::of_server(&self.servers.name(), error),
            Error::WorkFailed {
                reason, attempts, ..
            } => {
                let message = format!(
                    "{name} is given up after {attempts} attempts; the last failed with: {reason}"
                );
                Failure::new(Status::GivenUp, message)
            }
            Error::HoldLost { loss, .. } => {
                Failure::new(Status::Lost, format!("{name} was lost: {loss}"))
            }
            other => Failure::new(Status::Busy, other.to_string()),
        }
    }
}

/// Returns the exit status by which shells tell that a signal ended a program.
fn status_of(signal: Signal) -> u8 {
    128 + signal as u8
}
