//! Until the hold is granted.
//!
//! A thread of its own asks, so that this one can leave in time whatever the server does: a try lasts two seconds at
//! most, and a wait two more than it may. What is given up is withdrawn first.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dsync_client::{Cancel, Client, Error};
use nix::sys::signal::{Signal, raise};

use super::busy;
use super::clock::Moment;
use super::grant::{Grant, Outcome};
use super::job::{Event, Job, TRY};
use super::key::Wait;
use super::notice::Notice;
use super::request::Request;
use super::signals::{ends_a_wait, status_of};
use crate::duration::short;
use crate::failure::{Failure, Result, Status};
use crate::servers::Servers;

/// How long a request is repeated while the server cannot be reached: longer than a failover takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the answer to a request may take, at most. If a frozen server were waited for longer, the request would come
/// too late to the one that took over: it keeps the place for five seconds.
const ANSWER: Duration = Duration::from_secs(2);

/// Between two attempts to reach the server before the first request.
const PAUSE: Duration = Duration::from_millis(500);

/// How long a withdrawal has to be sent before this process leaves.
const WITHDRAWAL: Duration = Duration::from_millis(500);

/// A waiting request hears from the server every two seconds. It has not heard for so long: that is said.
const SILENCE: Duration = Duration::from_secs(5);

/// What came of the wait: the grant, or the exit status because the job ends here.
pub enum Next {
    GoOn(Grant),
    Exit(u8),
}

/// What asks, in its thread.
struct Asker {
    servers: Arc<Servers>,
    request: Request,
    notice: Arc<Notice>,
    cancel: Cancel,
    patience: Duration,
}

/// When to give up, and why.
struct Limits {
    withdraw: Option<Moment>,
    leave: Option<Moment>,
    /// The signal that asked to give up.
    signal: Option<Signal>,
}

impl Job {
    /// Waits for the grant. A signal that ends programs withdraws the request. Others that follow change nothing:
    /// timeout(1) sends two.
    pub fn wait(&self) -> Result<Next> {
        let cancel = Cancel::new();
        self.start_asking(cancel.clone())?;
        let mut limits = Limits::of(self.request.wait);
        let mut silence = Silence::default();
        let answer = loop {
            let until = [limits.withdraw, limits.leave, silence.due()];
            let until = until.into_iter().flatten().min();
            let event = match until {
                Some(until) => self.next_event(until),
                None => self.events.recv().ok(),
            };
            match event {
                Some(Event::Signal(signal)) if ends_a_wait(signal) => {
                    limits.give_up(signal);
                    cancel.cancel();
                }
                Some(Event::Signal(Signal::SIGTSTP)) => {
                    self.notice.clear();
                    self.notice.flush();
                    let _ = raise(Signal::SIGSTOP);
                    limits.stay(TRY);
                }
                Some(Event::Heard) => silence.heard(self),
                Some(Event::Answered(answer)) => break answer,
                Some(_) => {}
                None if limits.withdraw.is_some_and(Moment::is_past) => {
                    limits.withdraw();
                    cancel.cancel();
                }
                None if limits.leave.is_some_and(Moment::is_past) => {
                    break Err(unanswered(&self.servers));
                }
                None => silence.look(self),
            }
        };
        self.notice.clear();
        match limits.signal {
            // Dropping a grant gives it back.
            Some(signal) => Ok(Next::Exit(status_of(signal))),
            None => self.answered(answer),
        }
    }

    fn start_asking(&self, cancel: Cancel) -> Result<()> {
        let patience = match self.request.wait {
            Wait::Not => Duration::ZERO,
            Wait::AtMost(time) => time.min(PATIENCE),
            Wait::Unlimited => PATIENCE,
        };
        let asker = Asker {
            servers: Arc::clone(&self.servers),
            request: self.request.clone(),
            notice: Arc::clone(&self.notice),
            cancel,
            patience,
        };
        let sender = self.sender.clone();
        let ask = move || {
            let heard = sender.clone();
            let answer = asker.ask(move || drop(heard.send(Event::Heard)));
            // The first thread has ended if nobody receives; then a grant is released here.
            let _ = sender.send(Event::Answered(answer));
        };
        thread::Builder::new().name("ask".into()).spawn(ask)?;
        Ok(())
    }

    fn answered(&self, answer: Result<Outcome>) -> Result<Next> {
        match answer {
            Ok(Outcome::Granted(grant)) => Ok(Next::GoOn(grant)),
            Ok(Outcome::DoneAlready { attempt }) => {
                let name = self.request.name();
                self.notice
                    .remark(&format!("{name} is done already, by attempt {attempt}"));
                Ok(Next::Exit(0))
            }
            Err(failure) if failure.status == Status::Busy => {
                self.notice.say(&failure.message);
                Ok(Next::Exit(self.busy_status))
            }
            Err(failure) => Err(failure),
        }
    }
}

fn unanswered(servers: &Servers) -> Failure {
    let message = format!("{}: no answer in time", servers.name());
    Failure::new(Status::Unreachable, message)
}

impl Asker {
    fn ask(&self, heard: impl Fn() + Send + Sync + 'static) -> Result<Outcome> {
        let client = Client::new(self.servers.server()?)
            .with_response_timeout(self.servers.timeout.min(ANSWER))
            .with_retry_for(self.patience);
        self.reach(&client)?;
        heard();
        let notice = Arc::clone(&self.notice);
        let answer = self
            .request
            .ask(&client, &self.cancel, move |key, progress| {
                heard();
                notice.waiting(&key.name(), progress);
            });
        answer.map_err(|(nth, error)| match error {
            Error::NotAcquired { holders, .. } => {
                let key = &self.request.keys[nth];
                let why = busy::reason(&self.servers, key, &holders);
                Failure::new(Status::Busy, format!("{} is busy: {why}", key.name()))
            }
            Error::Cancelled { .. } => unanswered(&self.servers),
            error => self.servers.failure(&self.request.keys[nth].name(), &error),
        })
    }

    /// Returns once the server answers, so that a wrong address or password is told before anything waits.
    fn reach(&self, client: &Client) -> Result<()> {
        let start = Instant::now();
        let mut told = false;
        loop {
            let error = match client.ping() {
                Ok(()) if told => {
                    self.notice.detail(&format!(
                        "{} answers, after {}",
                        self.servers.name(),
                        short(start.elapsed())
                    ));
                    return Ok(());
                }
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let failure = self.servers.failure(&self.request.name(), &error);
            if !error.is_unreachable() || start.elapsed() + PAUSE >= self.patience {
                return Err(failure);
            }
            if !told {
                told = true;
                let first_line = failure.message.lines().next().unwrap_or_default();
                self.notice.say(&format!(
                    "{first_line}; trying for {}",
                    short(self.patience)
                ));
            }
            thread::sleep(PAUSE);
        }
    }
}

impl Limits {
    fn of(wait: Wait) -> Limits {
        let leave = match wait {
            Wait::Not => Some(Moment::now() + TRY),
            Wait::AtMost(time) => Some(Moment::now() + time + TRY),
            Wait::Unlimited => None,
        };
        Limits {
            withdraw: leave.map(|leave| leave.before(WITHDRAWAL)),
            leave,
            signal: None,
        }
    }

    fn withdraw(&mut self) {
        self.withdraw = None;
        self.stay(WITHDRAWAL);
    }

    /// Puts off leaving: this process may just go on after it was stopped, with the server's answer unread.
    fn stay(&mut self, time: Duration) {
        let soonest = Moment::now() + time;
        self.leave = self.leave.map(|leave| leave.max(soonest));
    }

    fn give_up(&mut self, signal: Signal) {
        self.signal = Some(signal);
        self.withdraw = None;
        let latest = Moment::now() + TRY;
        self.leave = Some(self.leave.map_or(latest, |leave| leave.min(latest)));
    }
}

/// Whether the server answers a request that waits.
#[derive(Default)]
struct Silence {
    heard: Option<Moment>,
    is_told: bool,
}

impl Silence {
    /// Returns when to look again.
    fn due(&self) -> Option<Moment> {
        self.heard
            .filter(|_| !self.is_told)
            .map(|heard| heard + SILENCE)
    }

    fn look(&mut self, job: &Job) {
        if self.due().is_some_and(Moment::is_past) {
            self.is_told = true;
            job.notice.say(&format!(
                "{} has not answered for {}; still waiting for {}",
                job.servers.name(),
                short(SILENCE),
                job.request.name()
            ));
        }
    }

    fn heard(&mut self, job: &Job) {
        if let (true, Some(heard)) = (self.is_told, self.heard) {
            job.notice.detail(&format!(
                "{} answers again, after {}",
                job.servers.name(),
                short(heard.elapsed())
            ));
        }
        *self = Silence {
            heard: Some(Moment::now()),
            is_told: false,
        };
    }
}
