//! Which rule of docs/acl.md a user lacks whom the server refuses a command.

const PAGE: &str = include_str!("../../docs/acl.md");

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

/// Returns where docs/acl.md gives a command: the first user whose line names it.
fn place_of(command: &str) -> String {
    if command.starts_with("cluster|") {
        return "what a cluster client needs".into();
    }
    let rule = format!("+{command}");
    let mut users = PAGE.lines().filter_map(|line| line.strip_prefix("user "));
    match users.find(|line| line.split(' ').any(|word| word == rule)) {
        Some(line) => {
            let user = line.split(' ').next().unwrap_or_default();
            format!("the line of the user `{user}`")
        }
        None if command.contains("subscribe") => "what a listener needs".into(),
        None => "the rules".into(),
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

    #[test]
    fn command_is_found_at_the_first_user_who_has_it() {
        for (command, place) in [
            ("dlock.info", "`worker`"),
            ("donce.get", "`worker`"),
            ("dsync.holds", "`observer`"),
            ("info", "`observer`"),
            ("dsem.limit", "`operator`"),
            ("dwg.pause", "`operator`"),
            ("cluster|info", "cluster client"),
            ("ssubscribe", "listener"),
            ("del", "the rules"),
        ] {
            assert!(
                place_of(command).contains(place),
                "{command}: {}",
                place_of(command)
            );
        }
    }
}
