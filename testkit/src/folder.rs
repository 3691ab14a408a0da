//! A folder for the files of one server or one test.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A new folder that is removed when this is dropped, or one of the caller's that stays.
pub struct Folder {
    path: PathBuf,
    stays: bool,
}

impl Folder {
    #[track_caller]
    #[expect(clippy::new_without_default, reason = "it makes a folder on the disk")]
    pub fn new() -> Folder {
        static MADE: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let name = format!("dsync-test-{}-{number}", std::process::id());
            let path = std::env::temp_dir().join(name);
            match fs::create_dir(&path) {
                Ok(()) => return Folder { path, stays: false },
                // The folder of a killed run that had the same process id.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot make {}: {error}", path.display()),
            }
        }
    }

    /// A folder of the caller's.
    pub(crate) fn that_stays(path: PathBuf) -> Folder {
        Folder { path, stays: true }
    }

    pub fn dir(&self) -> &Path {
        &self.path
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns a path for a shell script.
    pub fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Returns what a file has, nothing if there is none.
    pub fn read(&self, name: &str) -> String {
        let bytes = fs::read(self.path(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    #[track_caller]
    pub fn touch(&self, name: &str) {
        fs::write(self.path(name), "").expect("an empty file is written");
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.stays {
            // Nothing here may panic: the test may be panicking already.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
