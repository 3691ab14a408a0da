//! Describes every command to the server from its row of the table: the texts of COMMAND DOCS (which redis-cli shows
//! as hints and HELP), the arity that the server enforces, the position of the key, which cluster clients and ACL
//! rules need, and the ACL categories.

use super::grammar::{Arg, IntegerSpec, Kind, Max, TextSpec, Times};
use super::row::{Row, User, key_in_words};
use super::table::ROWS;
use crate::module::redis::context::{Ctx, Level};
use crate::module::redis::docs::{
    ArgDocs, ArgKind, Categories, Docs, KeyUse, add_categories, describe,
};
use crate::module::redis::probe;

/// Describes all commands. They must be registered before, or the loading of the module fails.
pub(super) fn describe_all(ctx: Ctx<'_>) -> Result<(), String> {
    let has_own = add_categories(
        ctx,
        &[
            c"dsync",
            c"dsync-worker",
            c"dsync-observer",
            c"dsync-operator",
        ],
    );
    if !has_own {
        ctx.log(
            Level::Debug,
            "this server has no ACL categories of dsync's own",
        );
    }
    ROWS.iter()
        .try_for_each(|row| describe(ctx, &docs(row), row.properties.since, has_own))?;
    describe_internal(ctx)
}

/// Describes the internal commands, which clients cannot use. Their handlers are registered beside the code that uses
/// them. They are in no ACL category, so only `+@all` or the command's name permits a user to call one.
fn describe_internal(ctx: Ctx<'_>) -> Result<(), String> {
    describe(ctx, &apply(), "0.2.0", false)?;
    describe(ctx, &apply_of_010(), "0.1.0", false)?;
    // The probe is a command only on servers that have no API for its question.
    if probe::is_a_command() {
        describe(ctx, &probe(), "0.1.0", false)?;
    }
    Ok(())
}

fn apply() -> Docs {
    Docs {
        name: "DSYN".to_owned(),
        summary: "Applies changes that another server decided; not for clients.".to_owned(),
        complexity: "O(M*log(N)) with M the number of changes and N the number of holds of the server",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        categories: Categories::default(),
        args: vec![key(), ArgDocs::new("packed", ArgKind::Text)],
    }
}

fn apply_of_010() -> Docs {
    Docs {
        name: "DSYNC.APPLY".to_owned(),
        summary: "Is always refused, because only dsync 0.1.0 wrote it; not for clients."
            .to_owned(),
        complexity: "O(1)",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        categories: Categories::default(),
        args: vec![key(), ArgDocs::new("change", ArgKind::Text).multiple()],
    }
}

fn probe() -> Docs {
    Docs {
        name: "DSYNC.PROBE".to_owned(),
        summary: "Asks the server whether it accepts writes, and does nothing; not for clients."
            .to_owned(),
        complexity: "O(1)",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        categories: Categories::default(),
        args: vec![key()],
    }
}

fn key() -> ArgDocs {
    ArgDocs::new("key", ArgKind::Key)
}

fn docs(row: &Row) -> Docs {
    Docs {
        name: row.name.as_str().to_owned(),
        summary: row.summary(),
        complexity: row.properties.complexity,
        key: row.properties.key,
        tips: row.properties.tips,
        categories: categories(row),
        args: row.args.iter().map(described).collect(),
    }
}

impl Row {
    /// The summary, with the family's word for its keys.
    pub(super) fn summary(&self) -> String {
        let key = self.family().map_or("", key_in_words);
        self.summary.replace("{key}", key)
    }
}

/// The ACL categories of a command. The server's categories follow from the flags, as they do for the server's own
/// commands. A command for operators only, or one that tells of all keys of the server whatever the user's key patterns
/// are, is also in `admin` and `dangerous`. The module's own categories are for the users that docs/acl.md describes.
pub(super) fn categories(row: &Row) -> Categories {
    let flags: Vec<_> = row
        .properties
        .flags
        .to_bytes()
        .split(|byte| *byte == b' ')
        .collect();
    let has = |flag: &str| flags.contains(&flag.as_bytes());
    let mut servers = Vec::new();
    for (flag, category) in [
        ("write", "write"),
        ("readonly", "read"),
        ("blocking", "blocking"),
    ] {
        if has(flag) {
            servers.push(category);
        }
    }
    servers.push(if has("fast") { "fast" } else { "slow" });
    if has("admin") || row.properties.users == [User::Operator] {
        servers.extend(["admin", "dangerous"]);
    }
    let users = row.properties.users.iter().map(|user| match user {
        User::Worker => "dsync-worker",
        User::Observer => "dsync-observer",
        User::Operator => "dsync-operator",
    });
    let own: Vec<_> = ["dsync"].into_iter().chain(users).collect();
    Categories {
        servers: servers.join(" "),
        own: own.join(" "),
    }
}

/// The argument as the server wants it described.
fn described(arg: &Arg) -> ArgDocs {
    let kind = match arg.kind {
        Kind::Key => ArgKind::Key,
        Kind::Text(_) => ArgKind::Text,
        Kind::Integer(_) => ArgKind::Integer,
        Kind::Flag(_) => ArgKind::Word,
        Kind::OneOf(alternatives) => ArgKind::OneOf(alternatives.iter().map(described).collect()),
    };
    ArgDocs {
        name: arg.name,
        kind,
        token: arg.word,
        summary: arg.summary(),
        optional: arg.times == Times::AtMostOnce,
        multiple: arg.times == Times::OnceOrMore,
    }
}

impl Arg {
    /// The argument's sentence, with the unit and the bounds in parentheses.
    fn summary(&self) -> String {
        let Some(bounds) = self.bounds() else {
            return self.meaning.to_owned();
        };
        format!("{} ({bounds}).", self.meaning.trim_end_matches('.'))
    }

    /// `1 to 128 bytes`; None for an argument without bounds.
    pub(super) fn bounds(&self) -> Option<String> {
        let (min, max, unit, factor) = match self.kind {
            Kind::Integer(IntegerSpec {
                unit,
                factor,
                min,
                max,
                ..
            }) => (min, max, unit, factor),
            Kind::Text(TextSpec { min, max, .. }) => (min, max, "bytes", 1),
            Kind::Key | Kind::Flag(_) | Kind::OneOf(_) => return None,
        };
        let bounds = match max {
            Max::Fixed(max) => format!("{min} to {} {unit}", max / factor),
            Max::Setting(bound) => {
                let unit = if min == 1 {
                    unit.trim_end_matches('s')
                } else {
                    unit
                };
                format!("{min} {unit} to {}", bound.setting())
            }
        };
        Some(bounds.trim_end().to_owned())
    }
}
