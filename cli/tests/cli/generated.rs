//! Man pages and completions.

use std::fs;
use std::process::Command;

use crate::support::{Folder, Server, Tool, ToolFor, dsync};

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

/// Returns what bash offers at the end of a line, for the piece of its last word that readline replaces.
fn offered_live(script: &str, line: &str, piece: &str) -> Vec<String> {
    let tool = env!("CARGO_BIN_EXE_dsync");
    let script = format!(
        ". '{script}'; _dsync() {{ COMPREPLY=(static); }}; COMP_LINE=$1; COMP_POINT=${{#1}}; \
         _dsync_or_command '{tool}' \"$2\" x; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let mut bash = Command::new("bash");
    let bash = bash.args(["-c", &script, "bash", line, piece]);
    let output = bash.env_remove("DSYNC_URL").output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_keys_fences_and_owners_that_live() {
    let (server, folder) = (Server::start(), Folder::new());
    tool(&["generate", &folder.text(".")]).stdout();
    let bash = folder.text("completions/dsync.bash");
    for (command, key, owner) in [
        ("DLOCK.ACQUIRE", "job:1", "web-1"),
        ("DLOCK.ACQUIRE", "job:2", "web-2"),
        ("DONCE.BEGIN", "it's $(x)", "w*"),
        ("DLOCK.ACQUIRE", "\\x1b[2J", "\\x1b"),
    ] {
        server.ask(format!(
            "{command} \"{key}\" PX 60000 TOKEN t OWNER \"{owner}\""
        ));
    }
    let mut client = server.connect();
    client.ask("SELECT 1");
    client.ask("DLOCK.ACQUIRE other PX 60000 TOKEN t");
    let port = server.port();
    let offers = |line: &str, piece: &str, expected: &[&str]| {
        let line = format!("dsync -p {port} {line}");
        assert_eq!(offered_live(&bash, &line, piece), expected, "{line}");
    };
    let work = "it\\'s\\ \\$\\(x\\)";
    offers("info ", "", &[work, "job:1", "job:2"]);
    offers("info job:", "", &["1", "2"]);
    offers("-n 1 info ", "", &["other"]);
    offers("run --lock ", "", &["job:1", "job:2"]);
    offers("run --lock=job:1", "1", &["1"]);
    offers("once get ", "", &[work]);
    offers("once get \"it", "it", &["static"]);
    offers("revoke --owner ", "", &["web-1", "web-2"]);
    let fence = server.dsync(&["ls", "job:2", "--json"]).stdout();
    let fence: serde_json::Value = serde_json::from_str(&fence).unwrap();
    offers("revoke job:2 ", "", &[&fence[0]["fence"].to_string()]);
    offers("status \"job:", "job:", &["job:1", "job:2"]);
    offers("holds 'it", "it", &["static"]);
    for line in [
        "info nothing",
        "info job:1 ",
        "group info ",
        "pause job:1 ",
        "run --lock job:1 ",
        "run --lock a -- x --lock ",
        "run --owner ",
        "-a x",
        "-q info ",
    ] {
        offers(line, "", &["static"]);
    }
    server.ask("CONFIG SET requirepass secret");
    offers("info ", "", &["static"]);
    offers("-a secret info job", "job", &["job:1", "job:2"]);
}

#[test]
fn completion_without_a_server_is_silent() {
    let folder = Folder::new();
    tool(&["generate", &folder.text(".")]).stdout();
    let bash = folder.text("completions/dsync.bash");
    for options in [
        "-p 1",
        "-p x",
        "-u http://h",
        "--profile none",
        "-u $(echo x)",
    ] {
        let line = format!("dsync {options} info ");
        assert_eq!(offered_live(&bash, &line, ""), ["static"], "{line}");
    }
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
