//! Which rule of docs/acl.md a user lacks whom the server refuses a command.

/// Returns what the user may not do, and which rule would allow it.
pub fn denial(user: &str, detail: &str) -> (String, String) {
    let Some(command) = quoted_word(detail) else {
        let what = format!("the user '{user}' may not use this key or channel (NOPERM)");
        let advice = "Its ACL needs a pattern that fits, as ~jobs:* fits jobs:1: see docs/acl.md.";
        return (what, advice.into());
    };
    let command = command.to_lowercase();
    let what = format!(
        "the user '{user}' may not use {} (NOPERM)",
        command.to_uppercase().replace('|', " ")
    );
    let advice = format!(
        "Its ACL needs +{command}: see {} in docs/acl.md.",
        place_of(&command)
    );
    (what, advice)
}

/// Returns the first word in single quotes, or in backticks as old servers write.
pub fn quoted_word(text: &str) -> Option<&str> {
    let start = text.find(['\'', '`'])? + 1;
    let end = text[start..].find(['\'', '`'])? + start;
    Some(&text[start..end]).filter(|word| !word.contains(char::is_whitespace))
}

/// Returns where docs/acl.md gives a command.
fn place_of(command: &str) -> &'static str {
    const OBSERVER: &str = "the line of the user `observer`";
    const OPERATOR: &str = "the line of the user `operator`";
    const WORKER: &str = "the line of the user `worker`";
    match command.split_once('.') {
        Some((_, "revoke" | "pause" | "limit")) | Some(("dsync", "log")) => OPERATOR,
        Some(("dsync", _)) => OBSERVER,
        Some(("dlock" | "dsem" | "dwg" | "donce", _)) => WORKER,
        _ if command == "info" => OBSERVER,
        _ if command.starts_with("cluster|") => "what a cluster client needs",
        _ if command.contains("subscribe") => "what a listener needs",
        _ => "the rules",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_command_and_its_rule_are_named() {
        for detail in [
            "this user has no permissions to run the 'DSYNC.LOG' command",
            "User bob has no permissions to run the 'dsync.log' command",
        ] {
            let (what, advice) = denial("bob", detail);
            assert_eq!(what, "the user 'bob' may not use DSYNC.LOG (NOPERM)");
            assert!(advice.contains("+dsync.log") && advice.contains("`operator`"));
        }
        let (what, advice) = denial("bob", "No permissions to access a key");
        assert!(what.contains("key") && advice.contains('~'));
    }

    /// The page is the truth: what it gives a user by name is found at that user.
    #[test]
    fn commands_are_named_where_the_page_has_them() {
        let page = include_str!("../../docs/acl.md");
        let mut found = 0;
        for line in page.lines().filter(|line| line.contains(" +dlock.info ")) {
            let user = line.split(' ').nth(1).unwrap();
            for command in line.split(' ').filter_map(|word| word.strip_prefix('+')) {
                let of_user = place_of(command);
                let is_rule = command.contains('.') || command == "info";
                if is_rule && of_user.contains(&format!("`{user}`")) {
                    found += 1;
                } else if is_rule {
                    let other = of_user.split('`').nth(1).unwrap();
                    let start = format!("user {other} ");
                    let has = |line: &str| {
                        line.starts_with(&start) && line.contains(&format!("+{command} "))
                    };
                    assert!(
                        page.lines().any(|line| has(&format!("{line} "))),
                        "{command}: {of_user}"
                    );
                }
            }
        }
        assert!(found > 30, "{found}");
    }
}
