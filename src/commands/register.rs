//! Registers the commands of the table, and does for each request what all commands have in common: parsing,
//! hiding tokens from MONITOR and SLOWLOG, and replying errors.
//!
//! The server calls a command's handler without telling which command it is. So each row of the table has a
//! handler of its own, whose type contains the number of the row.

use std::ffi::CStr;

use super::grammar::BoundSetting;
use super::parse::{parse, possible_secrets, wrong_arity};
use super::row::{Call, CommandResult, Failure, Parsed, Row, Run};
use super::table::ROWS;
use super::{apply, docs};
use crate::module::redis::args::Args;
use crate::module::redis::command::{self, Command};
use crate::module::redis::context::Ctx;
use crate::module::redis::docs::KeyUse;
use crate::module::settings;
use crate::module::waiters::release_after_reply;

type Register = fn(Ctx<'_>) -> Result<(), String>;

macro_rules! handlers {
    ($($number:literal)*) => {
        [$(|ctx: Ctx<'_>| command::register::<Handler<$number>>(ctx)),*]
    };
}

/// One number for each row of the table. The array's length makes the compiler check the count.
#[rustfmt::skip]
const REGISTER: [Register; ROWS.len()] = handlers!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37
);

/// Registers all commands and describes them to the server. The probe is registered elsewhere, before this call, and is
/// described here.
pub(crate) fn register_all(ctx: Ctx<'_>) -> Result<(), String> {
    apply::register_all(ctx)?;
    REGISTER.iter().try_for_each(|register| register(ctx))?;
    docs::describe_all(ctx)
}

/// The handler of the row with this number.
struct Handler<const AT: usize>;

impl<const AT: usize> Command for Handler<AT> {
    const NAME: &'static CStr = ROWS[AT].name.as_c_str();
    const FLAGS: &'static CStr = ROWS[AT].properties.flags;
    const HAS_KEY: bool = !matches!(ROWS[AT].properties.key, KeyUse::NoKey);

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        match handle(&ROWS[AT], ctx, args) {
            Ok(()) => {}
            Err(Failure::WrongType) => ctx.error_wrong_type(),
            Err(Failure::Error(line)) => ctx.error(&line),
        }
        release_after_reply(ctx);
    }
}

fn handle(row: &'static Row, ctx: Ctx<'_>, args: Args<'_>) -> CommandResult {
    let mut parsed = Parsed::default();
    if let Err(line) = parse(row, &args, bound, &mut parsed) {
        for at in possible_secrets(row, &args) {
            ctx.redact(at);
        }
        return Err(line.into());
    }
    for at in parsed.secrets() {
        ctx.redact(at);
    }
    match row.run {
        Run::OnServer(run) => run(ctx, &parsed),
        Run::OnKey(family, run) => {
            let Some(key) = args.name(1) else {
                return Err(wrong_arity(row).into());
            };
            run(&Call {
                ctx,
                args,
                key,
                family,
                parsed: &parsed,
            })
        }
    }
}

/// The present value of a setting that bounds arguments.
fn bound(bound: BoundSetting) -> u64 {
    match bound {
        BoundSetting::MaxLeaseMs => settings::max_lease_ms(),
        BoundSetting::MaxResultBytes => settings::max_result_bytes(),
    }
}
