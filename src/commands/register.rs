//! Registers the commands of the table, and carries out a request for one of them: arity, grammar, redaction and
//! errors are the same for all, and are seen to here.
//!
//! The server calls a command's handler without any data that would tell which command it is. So each row of the
//! table has a handler of its own, with the number of the row in its type.

use std::ffi::CStr;

use super::grammar::Bound;
use super::parse::{parse, possible_secrets, wrong_arity};
use super::parsed::Parsed;
use super::row::{Call, Row, Run};
use super::table::ROWS;
use super::{Failure, Outcome};
use crate::module::redis::args::Args;
use crate::module::redis::command::{self, Command};
use crate::module::redis::context::Ctx;
use crate::module::redis::docs::KeyUse;
use crate::module::settings;

type Register = fn(Ctx<'_>) -> Result<(), String>;

macro_rules! handlers {
    ($($number:literal)*) => {
        [$(|ctx: Ctx<'_>| command::register::<Handler<$number>>(ctx)),*]
    };
}

/// One number for each row of the table.
#[rustfmt::skip]
const REGISTER: [Register; ROWS.len()] = handlers!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30
);

pub(super) fn register_all(ctx: Ctx<'_>) -> Result<(), String> {
    REGISTER.iter().try_for_each(|register| register(ctx))
}

struct Handler<const AT: usize>;

impl<const AT: usize> Command for Handler<AT> {
    const NAME: &'static CStr = ROWS[AT].name.as_c_str();
    const FLAGS: &'static CStr = ROWS[AT].terms.flags;
    const HAS_KEY: bool = !matches!(ROWS[AT].terms.key, KeyUse::NoKey);

    fn run(ctx: Ctx<'_>, args: Args<'_>) {
        match carry_out(&ROWS[AT], ctx, args) {
            Ok(()) => {}
            Err(Failure::WrongType) => ctx.error_wrong_type(),
            Err(Failure::Error(line)) => ctx.error(&line),
        }
    }
}

fn carry_out(row: &'static Row, ctx: Ctx<'_>, args: Args<'_>) -> Outcome {
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

/// The value of a setting that bounds arguments.
fn bound(bound: Bound) -> u64 {
    match bound {
        Bound::MaxLeaseMs => settings::leases().max_ms,
        Bound::MaxResultBytes => settings::once().max_result_bytes,
    }
}
