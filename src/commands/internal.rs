//! The commands that clients do not call. Their handlers register themselves, beside what they are for; only what
//! COMMAND DOCS tells of them is here.
//!
//! No ACL rule but `+@all`, or the name, lets anybody call one.

use crate::module::redis::context::Ctx;
use crate::module::redis::docs::{ArgDocs, ArgKind, Categories, Docs, KeyUse, describe};
use crate::module::redis::probe;

const SINCE: &str = "0.1.0";

pub(super) fn describe_all(ctx: Ctx<'_>) -> Result<(), String> {
    describe(ctx, &apply(), "0.2.0", false)?;
    describe(ctx, &apply_of_the_first(), SINCE, false)?;
    // There is this one only where the server must be asked by a command.
    if probe::is_a_command() {
        describe(ctx, &probe(), SINCE, false)?;
    }
    Ok(())
}

fn apply() -> Docs {
    Docs {
        name: "DSYN".to_owned(),
        summary: "Carries out what another server decided; not for clients.".to_owned(),
        complexity: "O(M*log(N)) with M the number of changes and N the number of holds of the server",
        key: KeyUse::ReadsAndChanges,
        tips: "",
        categories: Categories::default(),
        args: vec![key(), ArgDocs::new("packed", ArgKind::Text)],
    }
}

fn apply_of_the_first() -> Docs {
    Docs {
        name: "DSYNC.APPLY".to_owned(),
        summary: "Is refused: only dsync 0.1.0 wrote it; not for clients.".to_owned(),
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
