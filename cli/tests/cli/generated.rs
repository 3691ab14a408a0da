//! Man pages and completions.

use std::fs;
use std::process::Command;

use crate::support::{Folder, Tool, dsync};

fn tool(arguments: &[&str]) -> Tool {
    dsync("redis://127.0.0.1:1", arguments)
}

/// Returns what bash offers for the last of these words.
fn offered(script: &str, words: &[&str]) -> Vec<String> {
    let list = words.join(" ");
    let (last, before) = (words.len() - 1, words.len().saturating_sub(2));
    let script = format!(
        ". '{script}'; COMP_WORDS=({list}); [ ${{#COMP_WORDS[@]}} -gt {last} ] || COMP_WORDS+=(''); COMP_CWORD={last}; \
         _dsync_or_command dsync \"${{COMP_WORDS[{last}]}}\" \"${{COMP_WORDS[{before}]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let output = Command::new("bash").arg("-c").arg(script).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn man_pages_name_every_subcommand_and_their_sections_have_names() {
    let folder = Folder::new();
    tool(&["generate", &folder.text(".")]).stdout();
    let names = [
        "dsync",
        "dsync-run",
        "dsync-info",
        "dsync-ls",
        "dsync-pause",
        "dsync-resume",
        "dsync-once",
        "dsync-once-get",
        "dsync-once-done",
        "dsync-once-fail",
        "dsync-group",
        "dsync-group-expect",
        "dsync-group-info",
        "dsync-group-wait",
        "dsync-revoke",
        "dsync-log",
        "dsync-top",
        "dsync-completions",
    ];
    for name in names {
        let page = folder.read(&format!("man/{name}.1"));
        assert!(page.contains(".SH SYNOPSIS"), "{name}: {page}");
        assert!(!page.contains("EXTRA"), "{name}");
        assert!(!page.contains("generate"), "{name}");
        assert!(
            page.contains("password"),
            "{name}: the options of the server"
        );
    }
    let pages = fs::read_dir(folder.path("man")).unwrap().count();
    assert_eq!(pages, names.len(), "a hidden command has no page");
    let run = folder.read("man/dsync-run.1");
    assert!(run.contains(".SH EXAMPLES\n.nf\n  dsync run"), "{run}");
    assert!(
        run.contains(".SH \"SEE ALSO\"\ndsync(1), dsync\\-info(1)"),
        "{run}"
    );
    let get = folder.read("man/dsync-once-get.1");
    assert!(
        get.contains("dsync\\-once(1), dsync\\-once\\-done(1)"),
        "{get}"
    );
    let (_, status) = run.split_once(".SH \"EXIT STATUS\"\n.nf\n").unwrap();
    let (status, notes) = status.split_once(".SH NOTES").unwrap();
    assert!(status.contains("\n   75  busy"), "{status}");
    assert!(notes.contains("DSYNC_FENCE"), "{notes}");
    let main = folder.read("man/dsync.1");
    let (_, environment) = main.split_once(".SH ENVIRONMENT\n").unwrap();
    assert!(environment.contains("REDISCLI_AUTH"), "{main}");
}

#[test]
fn bash_completes_subcommands_and_options_on_both_sides() {
    let folder = Folder::new();
    tool(&["generate", &folder.text(".")]).stdout();
    let bash = folder.text("completions/dsync.bash");
    assert_eq!(offered(&bash, &["dsync", "re"]), ["revoke", "resume"]);
    let types = offered(&bash, &["dsync", "ls", "--type", "''"]);
    assert_eq!(types, ["lock", "semaphore", "group", "once"]);
    let all = offered(&bash, &["dsync", "''"]);
    for name in ["run", "ls", "revoke", "log", "top", "completions", "--url"] {
        assert!(all.iter().any(|word| word == name), "{name}: {all:?}");
    }
    assert!(!all.iter().any(|word| word == "generate"), "{all:?}");
    assert_eq!(
        offered(&bash, &["dsync", "ls", "--ow"]),
        ["--owner"],
        "an option of the subcommand"
    );
    assert_eq!(
        offered(&bash, &["dsync", "ls", "--cac"]),
        ["--cacert"],
        "an option of the server, behind the subcommand"
    );
    assert_eq!(offered(&bash, &["dsync", "help", "gen"]), [""]);
    let commands = offered(&bash, &["dsync", "run", "--lock", "k", "--", "mkfif"]);
    assert_eq!(commands, ["mkfifo"]);
    for script in ["dsync.bash", "_dsync", "dsync.fish"] {
        let text = folder.read(&format!("completions/{script}"));
        assert!(
            text.contains("revoke") && !text.contains("generate"),
            "{script}"
        );
    }
    assert_eq!(
        tool(&["completions", "bash"]).stdout(),
        folder.read("completions/dsync.bash")
    );
}
