//! `dsync run` on a machine that is suspended. A library that is loaded before the C library imitates that.

use std::fs;

use crate::support::{Folder, Server, ToolFor, compile, lives, until};

#[test]
fn command_is_killed_when_the_machine_goes_on_after_its_lease() {
    let (server, folder) = (Server::start(), Folder::new());
    let library = folder.text("suspended.so");
    compile("suspended.c", &["-shared", "-fPIC"], library.as_ref());
    let script = format!(
        "unset LD_PRELOAD; trap '' TERM; echo $$ >'{}'; while :; do sleep 0.02; done",
        folder.text("pid")
    );
    // With a lease of two hours, only the suspension can be what ends it.
    let arguments = [
        "run", "--lock", "k", "--lease", "2h", "--", "sh", "-c", &script,
    ];
    let mut run = server
        .dsync(&arguments)
        .with("LD_PRELOAD", &library)
        .with("SUSPENDED", folder.text("milliseconds"))
        .start();
    until("the command runs", || lives(&folder.read("pid")));
    let suspend = |milliseconds: &str| {
        // In one step, so that the clock never goes back.
        fs::write(folder.path("new"), milliseconds).unwrap();
        fs::rename(folder.path("new"), folder.path("milliseconds")).unwrap();
    };
    // For an hour: the hold lasts.
    suspend("3600000");
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(!run.has_ended());
    // For nine hours more.
    suspend("36000000");
    let (status, stderr) = run.end();
    assert_eq!(status, 79, "{stderr}");
    assert!(!lives(&folder.read("pid")));
    assert!(
        stderr.contains("did not renew its lease in time; SIGTERM now, SIGKILL in 0ms"),
        "{stderr}"
    );
}
