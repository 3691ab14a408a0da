//! The descriptions, for COMMAND DOCS, of the internal commands, which clients cannot use. Their handlers are
//! registered elsewhere, beside the code that uses them.
//!
//! They are in no ACL category, so only `+@all` or the command's name permits a user to call one.

use crate::module::redis::context::Ctx;
use crate::module::redis::docs::{ArgDocs, ArgKind, Categories, Docs, KeyUse, describe};
use crate::module::redis::probe;

const SINCE: &str = "0.1.0";

pub(super) fn describe_all(ctx: Ctx<'_>) -> Result<(), String> {
    describe(ctx, &apply(), "0.2.0", false)?;
    describe(ctx, &apply_of_010(), SINCE, false)?;
    // The probe is a command only on servers that have no API for its question.
    if probe::is_a_command() {
        describe(ctx, &probe(), SINCE, false)?;
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
