//! The log of a run: every step in its order, one a line, with the pause before it.
//!
//! ```text
//! # what was tested, with which seed
//! 312 +150 c7 DLOCK.ACQUIRE a TOKEN t5
//! # 2041 ms: c7 to 312: ["t5", 1795268522514740]
//! ```
//!
//! The first number names the line, for steps that refer to it. The second is the number of microseconds between the
//! end of the step before and this step. Lines with `#` are remarks: replies and headings, which are skipped when the
//! log is sent again. The file stays when the run fails, and the failure says how to send the same steps again.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::step::Step;

/// How many of its last lines a failed run shows.
const SHOWN: usize = 50;

/// A line of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    pub number: u64,
    pub pause: Duration,
    pub step: Step,
}

impl LogLine {
    fn read(text: &str) -> Result<LogLine, String> {
        let mut words = text.splitn(3, ' ');
        let number = words.next().and_then(|n| n.parse().ok());
        let pause = words
            .next()
            .and_then(|us| us.strip_prefix('+')?.parse().ok());
        let (Some(number), Some(pause), Some(step)) = (number, pause, words.next()) else {
            return Err(format!("no line of a log: {text}"));
        };
        Ok(LogLine {
            number,
            pause: Duration::from_micros(pause),
            step: Step::read(step)?,
        })
    }
}

impl std::fmt::Display for LogLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} +{} {}",
            self.number,
            self.pause.as_micros(),
            self.step
        )
    }
}

/// Reads the steps of a log.
#[track_caller]
pub fn read(path: &Path) -> Vec<LogLine> {
    let text = fs::read_to_string(path);
    let text = text.unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let lines: Result<Vec<LogLine>, String> = lines.map(LogLine::read).collect();
    lines.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Writes steps as a log.
pub fn write(path: &Path, heading: &str, lines: &[LogLine]) -> std::io::Result<()> {
    let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(path, format!("# {heading}\n{lines}"))
}

/// The log of the run that is going on.
pub struct Log {
    path: PathBuf,
    heading: String,
    /// What sends the steps again, without `REPLAY=`.
    again: String,
    file: BufWriter<File>,
    last: std::collections::VecDeque<String>,
    lines: u64,
    /// Whether this run sends a log again.
    is_replay: bool,
}

impl Log {
    #[track_caller]
    pub fn create(path: PathBuf, heading: &str, again: &str, is_replay: bool) -> Log {
        let directory = path.parent().expect("a log is in a folder");
        let file = fs::create_dir_all(directory).and_then(|()| File::create(&path));
        let file = file.unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        let mut file = BufWriter::new(file);
        writeln!(file, "# {heading}").expect("the log is written");
        Log {
            path,
            heading: heading.to_owned(),
            again: again.to_owned(),
            file,
            last: std::collections::VecDeque::new(),
            lines: 0,
            is_replay,
        }
    }

    /// Writes a line before its step is carried out.
    pub fn note(&mut self, line: &LogLine) {
        let text = line.to_string();
        writeln!(self.file, "{text}").expect("the log is written");
        self.lines += 1;
        // So the log of a killed test process lacks at most 100 lines.
        if self.lines.is_multiple_of(100) {
            self.file.flush().expect("the log is written");
        }
        self.last.push_back(text);
        if self.last.len() > SHOWN {
            self.last.pop_front();
        }
    }

    /// Writes replies as remarks.
    pub fn remark(&mut self, heard: Vec<String>) {
        for line in heard {
            let text = format!("# {line}");
            writeln!(self.file, "{text}").expect("the log is written");
            self.last.push_back(text);
        }
        while self.last.len() > SHOWN {
            self.last.pop_front();
        }
    }

    /// Removes the log of a run that has gone well.
    pub fn discard(self) {
        // A log that stays does no harm.
        let _ = fs::remove_file(&self.path);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let _ = self.file.flush();
        eprintln!("--- {}: the last of {} steps ---", self.heading, self.lines);
        self.last.iter().for_each(|line| eprintln!("    {line}"));
        let path = self.path.display();
        eprintln!("--- the log of this run is {path}; to send the same again: ---");
        let server = std::env::var("DSYNC_TEST_SERVER").unwrap_or("redis-server".to_owned());
        let again = format!("{} SERVERS={server} REPLAY={path}", self.again);
        eprintln!("    {again}");
        if self.is_replay {
            eprintln!("    {again} REDUCE=yes      # and to leave out lines");
        }
    }
}
