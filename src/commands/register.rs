//! Registers the commands of the table, and does for each request what all commands have in common: parsing,
//! hiding tokens from MONITOR and SLOWLOG, and replying errors.

use std::ffi::CStr;
use std::marker::PhantomData;

use super::grammar::BoundSetting;
use super::parse::{parse, possible_secrets, wrong_arity};
use super::row::{Call, CommandResult, Failure, Parsed, Row, Run};
use super::table::{ForEachRow, InTable, for_each_row};
use super::{apply, docs};
use crate::module::redis::args::Args;
use crate::module::redis::command::{self, Command};
use crate::module::redis::context::Ctx;
use crate::module::redis::docs::KeyUse;
use crate::module::settings;
use crate::module::waiters::release_after_reply;

/// Registers all commands and describes them to the server. The probe is registered elsewhere, before this call, and is
/// described here.
pub(crate) fn register_all(ctx: Ctx<'_>) -> Result<(), String> {
    apply::register_all(ctx)?;
    for_each_row(&Registering(ctx))?;
    docs::describe_all(ctx)
}

struct Registering<'a>(Ctx<'a>);

impl ForEachRow for Registering<'_> {
    fn row<R: InTable>(&self) -> Result<(), String> {
        command::register::<Handler<R>>(self.0)
    }
}

/// The handler of a row.
struct Handler<R>(PhantomData<R>);

impl<R: InTable> Command for Handler<R> {
    const NAME: &'static CStr = R::ROW.name.as_c_str();
    const FLAGS: &'static CStr = R::ROW.properties.flags;
    const HAS_KEY: bool = !matches!(R::ROW.properties.key, KeyUse::NoKey);

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        match handle(R::ROW, ctx, args) {
            Ok(()) => {}
            Err(Failure::WrongType) => ctx.error_wrong_type(),
            Err(Failure::Error(line)) => ctx.error(&line),
        }
        release_after_reply(ctx);
    }
}

// Inlined into the handler of each command, as `parse` is, so that the compiler knows the row: this takes 1 % less for each
// request, and 50 kB more.
#[inline(always)]
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
