//! The users of docs/acl.md, as the page says them.

use super::Server;

const PAGE: &str = include_str!("../../../../../docs/acl.md");

/// Makes the user `worker` with the page's line, and with what the page adds for these reasons.
pub fn make_worker(servers: &[Server], reasons: &[&str]) {
    let mut rules: Vec<String> = PAGE
        .lines()
        .find(|line| line.starts_with("user worker ") && line.contains("+dlock.acquire"))
        .expect("the worker's line, with commands by name")
        .split(' ')
        .skip(2)
        .map(str::to_owned)
        .collect();
    for reason in reasons {
        let row = PAGE
            .lines()
            .find(|line| line.contains(reason))
            .expect(reason);
        let added = row.split('`').rev().nth(1).expect("what to add");
        // In a row of a table, the page escapes the bar.
        rules.extend(added.split(' ').map(|rule| rule.replace("\\|", "|")));
    }
    for server in servers {
        server.ask(format!("ACL SETUSER worker {}", rules.join(" ")));
    }
}

/// The address of a server, for that user.
pub fn url_of_worker(server: &Server) -> String {
    format!("redis://worker:change-me@127.0.0.1:{}", server.port())
}
