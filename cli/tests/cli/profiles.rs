//! Where the server is said to be: options, variables and the profiles of a file, and which of them wins.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use crate::support::{Folder, Server, Tool, ToolFor, dsync};

/// A folder with this `dsync.toml`, of this mode.
fn with_file(text: &str, mode: u32) -> Folder {
    let folder = Folder::new();
    fs::write(folder.path("dsync.toml"), text).unwrap();
    let file = folder.text("dsync.toml");
    fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
    folder
}

/// The tool, which finds nothing in the environment but this folder.
fn in_folder(folder: &Folder, arguments: &[&str]) -> Tool {
    let mut tool = dsync("", arguments).with("XDG_CONFIG_HOME", folder.text(""));
    tool.0.env_remove("REDIS_URL");
    tool
}

/// Runs the tool under a lock, which tells by its server's keys which server was asked.
fn lock(tool: Tool) {
    let (status, _, stderr) = tool.output();
    assert_eq!((status, stderr.as_str()), (0, ""));
}

fn grants(server: &Server) -> String {
    server.info("dsync", "dsync_lock_granted_at_once")
}

#[test]
fn mistake_beside_a_password_is_told_without_it() {
    for line in [
        "pass = s3cret7",
        "pass = 5377",
        "pass = 's3cret7\n",
        "pass = 's3cret7' 5377",
    ] {
        let text = format!("[profile.a]\nurl = 'redis://h'\n{line}\n");
        let folder = with_file(&text, 0o600);
        let (status, _, stderr) = in_folder(&folder, &["--profile", "a", "ls"]).output();
        assert_eq!(status, 64, "{stderr}");
        assert!(stderr.contains("line 3: "), "{stderr}");
        assert!(
            !stderr.contains("s3cret7") && !stderr.contains("5377"),
            "{stderr}"
        );
    }
}

#[test]
fn home_that_is_no_folder_has_no_profiles() {
    let mut tool = dsync("", &["ls", "--timeout", "100ms"]).with("HOME", "/dev/null");
    tool.0.env_remove("XDG_CONFIG_HOME");
    let (status, _, stderr) = tool.output();
    assert_ne!(status, 71, "{stderr}");
}

#[test]
fn variable_that_is_no_text_is_not_passed_over() {
    let server = Server::start();
    let url = OsStr::from_bytes(b"redis://:p\xe4ss@127.0.0.1:1");
    let tool = server.dsync(&["ls"]).with("DSYNC_URL", url);
    let (status, _, stderr) = tool.output();
    assert_eq!(status, 69, "{stderr}");
    assert!(stderr.contains("127.0.0.1:1: "), "{stderr}");
}

const RUN: [&str; 5] = ["run", "--lock", "k", "--", "true"];

#[test]
fn server_of_the_first_that_names_one_is_asked() {
    let servers = [(); 4].map(|()| Server::start());
    let [option, variable, named, default] = &servers;
    let text = format!(
        "default = 'usual'\n[profile.usual]\nurl = '{}'\n[profile.other]\nurl = '{}'\n",
        default.url(),
        named.url()
    );
    let folder = with_file(&text, 0o644);
    let asks = |server: &Server, tool: Tool| {
        let before = servers.iter().map(grants).collect::<Vec<_>>();
        lock(tool);
        for (other, before) in servers.iter().zip(before) {
            let is_it = other.port() == server.port();
            assert_eq!(grants(other) != before, is_it, "{}", other.port());
        }
    };
    let tool = |arguments: &[&str]| in_folder(&folder, &[&RUN[..1], arguments, &RUN[1..]].concat());
    asks(default, tool(&[]));
    asks(variable, tool(&[]).with("REDIS_URL", variable.url()));
    asks(
        named,
        tool(&[])
            .with("REDIS_URL", variable.url())
            .with("DSYNC_PROFILE", "other"),
    );
    let both = |tool: Tool| {
        tool.with("DSYNC_URL", variable.url())
            .with("DSYNC_PROFILE", "usual")
            .with("REDIS_URL", default.url())
    };
    asks(variable, both(tool(&[])));
    asks(named, both(tool(&["--profile", "other"])));
    asks(option, both(tool(&["--url", &option.url()])));
}

#[test]
fn options_replace_fields_and_no_password_goes_to_another_server() {
    let server = Server::start();
    server.ask("ACL SETUSER worker on >secret ~* +@all");
    server.ask("CONFIG SET requirepass other");
    let text = format!(
        "[profile.p]\nurl = '{}'\nuser = 'worker'\npass = 'secret'\n",
        server.url()
    );
    let folder = with_file(&text, 0o600);
    // A password in a file is seen by nobody else, so nothing warns of it.
    lock(in_folder(
        &folder,
        &["--profile", "p", "run", "--lock", "k", "true"],
    ));
    let (status, _, stderr) =
        in_folder(&folder, &["--profile", "p", "--user", "default", "ls"]).output();
    assert_eq!(status, 76, "the password is worker's: {stderr}");
    let (status, _, stderr) =
        in_folder(&folder, &["--profile", "p", "--url", &server.url(), "ls"]).output();
    assert_eq!(status, 64);
    assert!(
        stderr.contains("--profile names the server: leave out --url"),
        "{stderr}"
    );
}

#[test]
fn what_is_wrong_with_a_profile_is_said_with_its_file() {
    let refused = |text: &str, mode, arguments: &[&str], words: &[&str]| {
        let folder = with_file(text, mode);
        let (_, stdout, stderr) = in_folder(&folder, arguments).output();
        assert_eq!(stdout, "");
        for word in [&[folder.text("dsync.toml").as_str()], words].concat() {
            assert!(stderr.contains(word), "{word:?}: {stderr}");
        }
    };
    let two = "[profile.a]\nurl = 'redis://h'\n[profile.b]\nurl = 'redis://h'";
    let ls = ["--profile", "c", "ls"];
    refused(
        two,
        0o600,
        &ls,
        &["--profile names \"c\"", "only \"a\", \"b\""],
    );
    refused("[profile.c]\nurll = 'x'", 0o600, &ls, &["urll", "line 2"]);
    refused(
        "[profile.c]\nuser = 'x'",
        0o600,
        &ls,
        &["\"c\" needs either url or sentinel"],
    );
    let secret = "[profile.c]\nurl = 'redis://u:secret@h'";
    refused(secret, 0o644, &ls, &["others may use", "chmod 600"]);
    refused(
        "default = 'd'",
        0o600,
        &["ls"],
        &["default names \"d\"", "[profile.NAME]"],
    );
    let nowhere = Folder::new();
    let (status, _, stderr) = in_folder(&nowhere, &ls).output();
    assert_eq!(status, 64);
    assert!(stderr.contains("there is no file"), "{stderr}");
}

#[test]
fn password_file_and_certificates_stand_beside_the_profile() {
    let server = Server::start();
    server.ask("CONFIG SET requirepass secret");
    let text = format!(
        "default = 'p'\n[profile.p]\nurl = ['{}']\npassword-file = 'password'\ntimeout = '2s'\n",
        server.url()
    );
    let folder = with_file(&text, 0o644);
    fs::write(folder.path("password"), "secret\n").unwrap();
    fs::set_permissions(folder.path("password"), Permissions::from_mode(0o600)).unwrap();
    lock(in_folder(&folder, &RUN));
    // The command inherits the variables that name the server, unless it must not.
    let show = [
        "run",
        "--hide-server",
        "--profile",
        "p",
        "--lock",
        "k",
        "sh",
        "-c",
        "echo ${DSYNC_PROFILE-none}",
    ];
    let (_, stdout, _) = in_folder(&folder, &show)
        .with("DSYNC_PROFILE", "p")
        .output();
    assert_eq!(stdout, "none\n");
}
