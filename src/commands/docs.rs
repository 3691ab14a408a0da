//! What COMMAND DOCS and COMMAND INFO tell of every command, from its row of the table: redis-cli's hints and
//! HELP, the arity that the server enforces, the keys that cluster clients and ACL rules go by, and who may
//! call it.

use super::grammar::{Arg, Integer, Kind, Most, Text, Times};
use super::row::{Row, User, key_in_words};
use super::table::ROWS;
use crate::module::redis::context::{Ctx, Level};
use crate::module::redis::docs::{ArgDocs, ArgKind, Categories, Docs, add_categories, describe};

/// Describes the commands of the table, when they have been registered. One that is not fails the loading.
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
            "no ACL categories of dsync's own on this server",
        );
    }
    ROWS.iter()
        .try_for_each(|row| describe(ctx, &docs(row), row.terms.since, has_own))
}

fn docs(row: &Row) -> Docs {
    Docs {
        name: row.name.as_str().to_owned(),
        summary: row.summary(),
        complexity: row.terms.complexity,
        key: row.terms.key,
        tips: row.terms.tips,
        categories: categories(row),
        args: row.args.iter().map(described).collect(),
    }
}

impl Row {
    pub(super) fn summary(&self) -> String {
        let key = self.family().map_or("", key_in_words);
        self.summary.replace("{key}", key)
    }
}

/// Who may call a command. The server's categories follow from the flags, as they do for its own commands; what only
/// an operator does is an administrator's and dangerous in anybody else's hands. The module's own are for users that do
/// one job.
fn categories(row: &Row) -> Categories {
    let flags: Vec<_> = row
        .terms
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
    if row.terms.users == [User::Operator] {
        servers.extend(["admin", "dangerous"]);
    }
    let users = row.terms.users.iter().map(|user| match user {
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

fn described(arg: &Arg) -> ArgDocs {
    let kind = match arg.kind {
        Kind::Key => ArgKind::Key,
        Kind::Text(_) => ArgKind::Text,
        Kind::Integer(_) => ArgKind::Integer,
        Kind::Flag(_) => ArgKind::Word,
        Kind::OneOf(ways) => ArgKind::OneOf(ways.iter().map(described).collect()),
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
    /// What it means, with its unit and bounds.
    fn summary(&self) -> String {
        let Some(bounds) = self.bounds() else {
            return self.meaning.to_owned();
        };
        format!("{} ({bounds}).", self.meaning.trim_end_matches('.'))
    }

    fn bounds(&self) -> Option<String> {
        let (least, most, unit, factor) = match self.kind {
            Kind::Integer(Integer {
                unit,
                factor,
                least,
                most,
                ..
            }) => (least, most, unit, factor),
            Kind::Text(Text { least, most, .. }) => (least, most, "bytes", 1),
            Kind::Key | Kind::Flag(_) | Kind::OneOf(_) => return None,
        };
        let bounds = match most {
            Most::Is(most) => format!("{least} to {} {unit}", most / factor),
            Most::Setting(bound) => format!("{least} {unit} to {}", bound.setting()),
        };
        Some(bounds.trim_end().to_owned())
    }
}
