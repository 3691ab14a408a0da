//! The table of commands (`src/commands`) documents every form of reply and every error. `examples.txt` has requests for
//! each of them, and sessions; these tests send the requests and compare the replies with the documented forms, in
//! RESP2 and RESP3, and with the replies in `replies.txt`, which the pages in `docs/commands` show.
//!
//! A unit test of `src/commands` writes `examples.txt`. `DSYNC_WRITE_REPLIES=1` writes `replies.txt` again: every session in
//! it that is not what the server replies.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::commands::documented::INTERNAL;
use crate::commands::reply_forms::ReplyForm;
use crate::commands::transcripts::{Transcript, is_a_recording_of};
use crate::support::steps::*;
use crate::support::*;

/// Read when the tests run, so that an example can be changed without compiling them again.
const FILE: &str = "tests/server/commands/examples.txt";
const RECORDED: &str = "tests/server/commands/replies.txt";

const HEADER: &str = "\
# The replies of a server to the requests of examples.txt, as redis-cli shows them. The server tests write this file and
# compare it with the replies of every server. Below RESP3 is the last reply in that protocol, where it differs.
";

/// Requests, and the documented form of the last one's reply.
#[derive(Default)]
struct ReplyExample {
    title: &'static str,
    lines: Vec<&'static str>,
    /// In RESP2 and in RESP3; none for a session, in which every reply has some form of its command.
    forms: Vec<&'static str>,
}

impl ReplyExample {
    fn command(&self) -> &'static str {
        let (command, _) = self.title.split_once(": ").expect("a command");
        command
    }
}

fn examples() -> Vec<ReplyExample> {
    let read = |block: &'static str| {
        let mut example = ReplyExample::default();
        for line in block.lines() {
            if let Some(title) = line.strip_prefix("# ") {
                example.title = title;
            } else if let Some((_, form)) = line
                .split_once(' ')
                .filter(|(protocol, _)| ["RESP2", "RESP3"].contains(protocol))
            {
                example.forms.push(form);
            } else {
                example.lines.push(line);
            }
        }
        example
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let text: &'static str = fs::read_to_string(path).expect(FILE).leak();
    // The first block is the file's header.
    text.split("\n\n").skip(1).map(read).collect()
}

/// The documented forms of a protocol, by command.
fn forms(examples: &[ReplyExample], protocol: usize) -> BTreeMap<&'static str, Vec<ReplyForm>> {
    let mut forms: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for example in examples {
        let form = example.forms.get(protocol);
        let form = form.map(|form| ReplyForm::read(form));
        forms.entry(example.command()).or_default().extend(form);
    }
    // The one error of the module that comes to requests that wait, and so to no example of one request.
    let may_wait = |command: &&str| {
        ["ACQUIRE", "ADD", "BEGIN"]
            .iter()
            .any(|verb| command.ends_with(&format!(".{verb}")))
    };
    for (_, forms) in forms.iter_mut().filter(|(command, _)| may_wait(command)) {
        forms.push(ReplyForm::Error("UNBLOCKED"));
    }
    forms
}

/// Sends the requests of the example and returns what a user would see.
fn perform(
    server: &Server,
    client: &mut Client,
    connect: fn(&Server) -> Client,
    example: &ReplyExample,
    forms: &BTreeMap<&'static str, Vec<ReplyForm>>,
) -> (Transcript, Reply) {
    let mut transcript = Transcript::default();
    let mut waiting: Option<(Client, &str)> = None;
    let mut last = Reply::Nil;
    for line in &example.lines {
        let (answered, command) = if *line == "B" {
            let (waiter, command) = waiting.as_mut().expect("a request of B");
            (reply(waiter), *command)
        } else if let Some(request) = line.strip_prefix("B> ") {
            let mut waiter = connect(server);
            queue(server, &mut waiter, request);
            transcript.request(line, None);
            waiting = Some((waiter, command_of(request)));
            continue;
        } else {
            let request = line.strip_prefix("> ").expect("a request");
            let fence = request
                .contains("{fence}")
                .then(|| fence_in(&last).expect("a grant"));
            let whole = transcript.request(line, fence);
            let whole = whole.strip_prefix("> ").expect("a request");
            (ask(client, whole), command_of(request))
        };
        let documented = forms.get(command);
        let form = documented.map(|forms| {
            let form = forms.iter().find(|form| form.fits(&answered));
            form.unwrap_or_else(|| {
                panic!("{}: no form of {command} is {answered:?}", example.title)
            })
        });
        transcript.reply(&answered, form, *line == "B");
        last = answered;
    }
    drop(waiting);
    (transcript, last)
}

fn command_of(request: &'static str) -> &'static str {
    request.split(' ').next().unwrap_or_default()
}

/// The recorded sessions by title.
fn recorded(text: &str) -> BTreeMap<&str, &str> {
    let blocks = text.trim_end().split("\n\n").skip(1);
    blocks
        .map(|block| block.split_once('\n').expect("a title and a session"))
        .map(|(title, session)| (title.trim_start_matches("# "), session))
        .collect()
}

#[test]
fn every_example_gets_the_documented_form_of_reply_and_the_recorded_reply() {
    let server = Server::start();
    let examples = examples();
    // Without this a waiter of one example would keep a vacant place in the next.
    let kept = ask(&mut server.connect(), "CONFIG SET dsync.rejoin-ms 0");
    assert_eq!(kept, "OK");
    let mut transcripts: Vec<Transcript> = Vec::new();
    for (protocol, connect) in [Server::connect, Server::connect_resp3]
        .into_iter()
        .enumerate()
    {
        let mut client = connect(&server);
        let forms = forms(&examples, protocol);
        for (nth, example) in examples.iter().enumerate() {
            assert_eq!(ask(&mut client, "DSYNC.LOG RESET"), "OK");
            let (transcript, last) = perform(&server, &mut client, connect, example, &forms);
            if let Some(form) = example.forms.get(protocol) {
                let (title, form) = (example.title, ReplyForm::read(form));
                assert!(form.fits(&last), "{title}: {last:?} is not {form:?}");
            }
            match protocol {
                0 => transcripts.push(transcript),
                _ => transcripts[nth].add_resp3(&transcript),
            }
            wait_for_blocked(&server, 0);
            assert_eq!(ask(&mut client, "FLUSHALL"), "OK");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(RECORDED);
    let file = fs::read_to_string(&path).unwrap_or_default();
    let recorded = recorded(&file);
    if std::env::var_os("DSYNC_WRITE_REPLIES").is_some() {
        let mut text = HEADER.to_owned();
        for (example, transcript) in examples.iter().zip(&transcripts) {
            let kept = recorded.get(example.title);
            let kept = kept.filter(|session| is_a_recording_of(session, &transcript.masked));
            let session = kept.copied().unwrap_or(&transcript.shown);
            text += &format!("\n# {}\n{}\n", example.title, session.trim_end());
        }
        fs::write(&path, text).expect(RECORDED);
        return;
    }
    for (example, transcript) in examples.iter().zip(&transcripts) {
        let (title, shown) = (example.title, &transcript.shown);
        let session = recorded.get(title).copied().unwrap_or_default();
        assert!(
            is_a_recording_of(session, &transcript.masked),
            "{RECORDED} is out of date: sh scripts/command-pages.sh\n{title}\n{session}\nbut the server:\n{shown}"
        );
    }
    assert_eq!(recorded.len(), examples.len(), "examples that are no more");
}

#[test]
fn every_command_has_an_example() {
    let server = Server::start();
    let mut client = server.connect();
    let listed = ask(&mut client, "COMMAND LIST FILTERBY MODULE dsync");
    let names = listed
        .as_array()
        .iter()
        .map(|name| name.as_str().to_uppercase());
    let examples = examples();
    let mut without: Vec<_> = names
        .filter(|name| {
            let title = format!("{name}: ");
            !examples
                .iter()
                .any(|example| example.title.starts_with(&title))
        })
        .collect();
    without.retain(|name| !INTERNAL.contains(&name.as_str()));
    assert!(without.is_empty(), "no example of {without:?}");
}
