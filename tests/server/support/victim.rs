//! A test process that a test kills, to show that something does not outlive it: this program, run again for one test
//! alone.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dsync_testkit::{Client, Folder, eventually};

/// The environment variable with the file to which the victim reports.
const REPORT: &str = "DSYNC_TEST_VICTIM_REPORT";

pub struct Victim {
    process: Child,
    report: String,
    /// The report is in it.
    _folder: Folder,
}

impl Victim {
    /// Runs the test of this name, see [`name_of_test`]. Returns when that process has reported.
    #[track_caller]
    pub fn run(test: &str) -> Victim {
        let folder = Folder::new();
        let path = folder.path("victim");
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
            _folder: folder,
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

/// The name by which the test runner knows `test` of the module `path`; give it `module_path!()`.
pub fn name_of_test(path: &str, test: &str) -> String {
    // The runner's names have no crate.
    let (_, folders) = path.split_once("::").expect("a module in a crate");
    format!("{folders}::{test}")
}

/// Called by the test that may be a victim. Returns the file to report to, or `None` in a normal run of all tests.
pub fn victims_report() -> Option<PathBuf> {
    std::env::var_os(REPORT).map(PathBuf::from)
}

/// Called by the victim: writes its report, keeps `connected` open and waits to be killed.
pub fn report_and_wait(path: PathBuf, words: &[String], mut connected: Client) {
    // Renamed into place, so that the other process never reads half a report.
    let draft = path.with_extension("draft");
    fs::write(&draft, words.join(" ")).expect("the draft is written");
    fs::rename(&draft, &path).expect("the draft is renamed");
    connected.expect_closed(Duration::from_secs(60));
}
