//! README, the guides and the pages of the commands show sessions of `redis-cli`. Each gets the replies that it shows.
//!
//! A session is a block that begins with three backquotes and `redis-cli`, or `redis-cli -3` for RESP3. It is played on
//! a server of its own, without keys; in RESP3 too if it has no INFO, whose reply is all that differs. Its lines are
//!
//! - `> request`, or `A> request` where several clients take part;
//! - the reply below it, as `redis-cli` shows it; without one, the client waits from then on;
//! - `A: reply`: the reply to the request with which A waits;
//! - `...` for any number of lines of a reply;
//! - a comment behind `#` and two blanks at least.
//!
//! Numbers of 100 and more are times and ids, which differ from run to run, so they match each other. Fences and other
//! numbers of more than 12 digits match too, but equal ones must stay equal; in a request they stand for those that
//! the server gave.

use crate::support::steps::*;
use crate::support::*;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// What a client says and hears in a session.
#[derive(Debug, PartialEq)]
enum Line {
    Request {
        client: String,
        request: String,
        reply: Vec<String>,
    },
    /// What a client that waits is answered.
    Answer { client: String, reply: Vec<String> },
}

struct Session {
    place: String,
    resp3: bool,
    lines: Vec<Line>,
}

/// The client and the rest of a line such as `A> PING` or `> PING`, with this sign between them.
fn spoken(line: &str, sign: &str) -> Option<(String, String)> {
    let (client, rest) = line.split_once(sign)?;
    let is_client = client.len() <= 1 && client.bytes().all(|b| b.is_ascii_uppercase());
    is_client.then(|| (client.to_owned(), rest.trim().to_owned()))
}

fn without_comment(line: &str) -> &str {
    let comment = line.starts_with("# ").then_some(0);
    line[..comment.or(line.find("  # ")).unwrap_or(line.len())].trim_end()
}

fn parse(place: &str, text: &str) -> Vec<Line> {
    let mut lines = Vec::new();
    for line in text
        .lines()
        .map(without_comment)
        .filter(|line| !line.is_empty())
    {
        if let Some((client, request)) = spoken(line, "> ") {
            let reply = Vec::new();
            lines.push(Line::Request {
                client,
                request,
                reply,
            });
        } else if let Some((client, first)) =
            spoken(line, ": ").filter(|(client, _)| !client.is_empty())
        {
            let reply = vec![first];
            lines.push(Line::Answer { client, reply });
        } else {
            match lines.last_mut() {
                Some(Line::Request { reply, .. }) => reply.push(line.to_owned()),
                // Stands below the text that follows `A: `.
                Some(Line::Answer { reply, .. }) => {
                    reply.push(line.strip_prefix("   ").unwrap_or(line).to_owned());
                }
                None => panic!("{place}: a reply before any request: {line}"),
            }
        }
    }
    lines
}

/// All sessions of README and of the pages in docs/ and docs/commands/.
fn sessions() -> Vec<Session> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = |folder: &str| std::fs::read_dir(root.join(folder)).expect("a folder of pages");
    let mut pages: Vec<_> = ["docs", "docs/commands"]
        .into_iter()
        .flat_map(files)
        .map(|entry| entry.expect("an entry").path())
        .collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.push(root.join("README.md"));
    pages.sort();
    let mut sessions = Vec::new();
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        let name = page.strip_prefix(root).expect("below the root").display();
        let mut line = 1;
        for (n, block) in text.split("```").enumerate() {
            let (info, body) = block.split_once('\n').unwrap_or((block, ""));
            if n % 2 == 1 && info.starts_with("redis-cli") {
                let place = format!("{name}:{line}");
                let lines = parse(&place, body);
                let resp3 = info == "redis-cli -3";
                sessions.push(Session {
                    place,
                    resp3,
                    lines,
                });
            }
            line += block.matches('\n').count();
        }
    }
    sessions
}

/// The numbers that a server gave in place of those that the page shows.
#[derive(Default)]
struct Numbers(HashMap<String, String>);

const A_TIME: usize = 3;
const A_FENCE: usize = 13;

/// Splits a text where digits begin and end.
fn by_digits(text: &str) -> Vec<&str> {
    text.as_bytes()
        .chunk_by(|a, b| a.is_ascii_digit() == b.is_ascii_digit())
        .scan(0, |from, chunk| {
            let start = *from;
            *from += chunk.len();
            Some(&text[start..*from])
        })
        .collect()
}

impl Numbers {
    fn put_into(&self, request: &str) -> String {
        let given = |part: &str| self.0.get(part).map_or(part.to_owned(), Clone::clone);
        by_digits(request).into_iter().map(given).collect()
    }

    fn fits(&mut self, expected: &str, found: &str) -> bool {
        let (expected, found) = (by_digits(expected.trim_end()), by_digits(found.trim_end()));
        let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
        expected.len() == found.len()
            && expected.iter().zip(&found).all(|(expected, found)| {
                if !is_number(expected) || expected.len() < A_TIME {
                    expected == found
                } else if expected.len() < A_FENCE {
                    is_number(found)
                } else {
                    let given = self.0.entry((*expected).to_owned());
                    found.len() >= A_FENCE && given.or_insert((*found).to_owned()) == found
                }
            })
    }

    /// Whether these lines are what the page shows, where `...` stands for any lines.
    fn lines_fit(&mut self, expected: &[String], found: &[&str]) -> bool {
        match (expected.split_first(), found.split_first()) {
            (None, None) => true,
            (Some((first, rest)), _) if first.trim() == "..." => {
                self.lines_fit(rest, found)
                    || found
                        .split_first()
                        .is_some_and(|(_, found)| self.lines_fit(expected, found))
            }
            (Some((first, rest)), Some((line, found))) => {
                self.fits(first, line) && self.lines_fit(rest, found)
            }
            _ => false,
        }
    }
}

/// Sends a request. Returns when the server has blocked this client, which may have taken the place of another.
fn wait_with(server: &Server, client: &mut Client, request: &str) {
    let list = format!("CLIENT LIST ID {}", client.id());
    client.begin(request);
    let mut admin = server.connect();
    eventually(&format!("a client that waits with {request}"), SOON, || {
        admin.ask(&list).as_str().contains("flags=b")
    });
}

impl Session {
    fn asks_info(&self) -> bool {
        let is_info = |line: &Line| matches!(line, Line::Request { request, .. } if request.contains(".INFO "));
        self.lines.iter().any(is_info)
    }
}

fn play(session: &Session, resp3: bool) {
    let server = Server::start();
    let mut clients: BTreeMap<String, Client> = BTreeMap::new();
    let mut numbers = Numbers::default();
    let connect = || {
        if resp3 {
            server.connect_resp3()
        } else {
            server.connect()
        }
    };
    for line in &session.lines {
        let (reply, expected) = match line {
            Line::Request {
                client,
                request,
                reply,
            } => {
                let client = clients.entry(client.clone()).or_insert_with(connect);
                let request = numbers.put_into(request);
                if reply.is_empty() {
                    wait_with(&server, client, &request);
                    continue;
                }
                (client.ask(request), reply)
            }
            Line::Answer {
                client,
                reply: expected,
            } => {
                let client = clients.get_mut(client).expect("a client that waits");
                (client.reply(), expected)
            }
        };
        let text = shown(&reply, 0);
        let found: Vec<_> = text.lines().collect();
        assert!(
            numbers.lines_fit(expected, &found),
            "{}, RESP3 {resp3}: {line:#?} got\n{text}",
            session.place
        );
    }
}

#[test]
fn every_session_of_a_guide_gets_the_replies_that_it_shows() {
    let sessions = sessions();
    assert!(!sessions.is_empty(), "no page has a session");
    for session in &sessions {
        play(session, session.resp3);
        if !session.resp3 && !session.asks_info() {
            play(session, true);
        }
    }
}

#[test]
fn shown_numbers_stand_for_those_of_the_server() {
    let mut numbers = Numbers::default();
    assert!(numbers.fits(
        "2) (integer) 1795361039841625",
        "2) (integer) 1800000000000001"
    ));
    assert!(numbers.fits("fence 1795361039841625", "fence 1800000000000001"));
    assert!(!numbers.fits("fence 1795361039841625", "fence 1800000000000002"));
    assert!(!numbers.fits("fence 1795361039841629", "fence 7"));
    assert!(numbers.fits("age 250 of 2", "age 1 of 2") && !numbers.fits("2", "3"));
    assert_eq!(
        numbers.put_into("REVOKE k 1795361039841625"),
        "REVOKE k 1800000000000001"
    );
    let expected = ["a", "...", "d"].map(str::to_owned);
    assert!(numbers.lines_fit(&expected, &["a", "b", "c", "d"]));
    assert!(!numbers.lines_fit(&expected, &["a", "b", "c"]));
}

#[test]
fn sessions_are_read_line_by_line() {
    let text = "A> PING        # a comment\nPONG\nB> WAIT\n      # waits\nB: 1) x\n   2) y\n";
    let request = |client: &str, request: &str, reply: &[&str]| Line::Request {
        client: client.to_owned(),
        request: request.to_owned(),
        reply: reply.iter().map(|&line| line.to_owned()).collect(),
    };
    let answer = Line::Answer {
        client: "B".to_owned(),
        reply: vec!["1) x".to_owned(), "2) y".to_owned()],
    };
    let expected = [
        request("A", "PING", &["PONG"]),
        request("B", "WAIT", &[]),
        answer,
    ];
    assert_eq!(parse("here", text), expected);
}
