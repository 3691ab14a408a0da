//! A test process that is killed, for what must not outlive it: this program, run again for one test alone.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::client::Client;
use super::server::Server;
use super::waiting::eventually;

/// Where the victim reports to.
const REPORT: &str = "DSYNC_TEST_VICTIM_REPORT";

pub struct Victim {
    process: Child,
    report: String,
    /// Lends the report its directory.
    _plain: Server,
}

impl Victim {
    /// Runs the test of this name, until it has reported.
    #[track_caller]
    pub fn run(test: &str) -> Victim {
        let plain = Server::builder().without_module().start();
        let path = plain.dir().join("victim");
        let process = Command::new(std::env::current_exe().expect("this test has a file"))
            .args(["--exact", test, "--nocapture"])
            .env(REPORT, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("this test can be run again");
        eventually("the victim's report", Duration::from_secs(30), || {
            path.exists()
        });
        Victim {
            process,
            report: fs::read_to_string(&path).expect("the victim wrote"),
            _plain: plain,
        }
    }

    /// The words of its report.
    pub fn report(&self) -> Vec<String> {
        self.report.split(' ').map(str::to_owned).collect()
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("a child of ours may be killed");
        let ended = self.process.wait();
        ended.expect("a killed child can be waited for");
    }
}

/// In the test that is to be the victim: where to report to, or `None` where it is one test among all.
pub fn victims_report() -> Option<PathBuf> {
    std::env::var_os(REPORT).map(PathBuf::from)
}

/// In the victim: reports, and waits to be killed with what it has.
pub fn report_and_wait(path: PathBuf, words: &[String], mut connected: Client) {
    // Renamed into place, so that whoever reads it reads all of it.
    let draft = path.with_extension("draft");
    fs::write(&draft, words.join(" ")).expect("the draft is written");
    fs::rename(&draft, &path).expect("the draft is renamed");
    connected.expect_closed(Duration::from_secs(60));
}
