//! Passwords: from where they come, and who can see them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::support::{Folder, Server, ToolFor, dsync};

const WARNING: &str = "can see the password on the command line";

fn guarded() -> Server {
    let server = Server::start();
    server.ask("ACL SETUSER worker on >secret ~* +@all");
    server.ask("CONFIG SET requirepass other");
    server
}

#[test]
fn password_on_the_command_line_is_warned_of_once_and_not_shown() {
    let server = guarded();
    let url = format!("redis://worker:secret@127.0.0.1:{}", server.port());
    for arguments in [
        vec!["-u", url.as_str(), "ls"],
        vec!["ls", "--user", "worker", "--pass", "secret"],
        vec!["-u", url.as_str(), "run", "--lock", "k", "--", "true"],
    ] {
        let (status, _, stderr) = server.dsync(&arguments).output();
        assert_eq!(status, 0, "{stderr}");
        assert_eq!(
            stderr.matches(WARNING).count(),
            1,
            "{arguments:?}: {stderr}"
        );
        assert!(
            stderr.contains("--password-file") && !stderr.contains("secret"),
            "{stderr}"
        );
    }
    let quiet = ["-u", &url, "run", "-q", "--lock", "k", "--", "true"];
    assert_eq!(server.dsync(&quiet).output(), (0, "".into(), "".into()));
    // In the environment nobody else sees it.
    let (status, _, stderr) = dsync(&url, &["ls"]).output();
    assert_eq!((status, stderr.as_str()), (0, ""));
    let of_variable = server.dsync(&["ls"]).with("REDISCLI_AUTH", "other");
    assert_eq!(of_variable.output().2, "");
}

#[test]
fn password_file_is_read_if_only_the_owner_and_a_group_may_read_it() {
    let (server, folder) = (guarded(), Folder::new());
    fs::write(folder.path("password"), "secret\n").unwrap();
    let file = folder.text("password");
    let ls = || {
        let arguments = ["--user", "worker", "ls", "--password-file", &file];
        server.dsync(&arguments).output()
    };
    for mode in [0o600, 0o400, 0o640, 0o440] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let (status, _, stderr) = ls();
        assert_eq!((status, stderr.as_str()), (0, ""), "{mode:o}");
    }
    for mode in [0o644, 0o604, 0o660, 0o622] {
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        let (status, _, stderr) = ls();
        assert_eq!(status, 71, "{mode:o}");
        assert!(
            stderr.contains("password") && stderr.contains("chmod 600"),
            "{stderr}"
        );
    }
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    fs::write(&file, "\n").unwrap();
    assert_eq!(ls().0, 71, "an empty password is a mistake");
    let missing = ["ls", "--password-file", "/nonexistent"];
    assert_eq!(server.dsync(&missing).output().0, 71);
    let both = ["ls", "--password-file", &file, "--pass", "x"];
    assert_eq!(server.dsync(&both).output().0, 64);
}
