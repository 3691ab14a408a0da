//! The settings: one table for CONFIG GET/SET/REWRITE, redis.conf, MODULE LOADEX and the arguments
//! of `loadmodule`.
//!
//! `loadmodule dsync.so max-waiters 500` changes the default; a directive `dsync.max-waiters 900`
//! in redis.conf or given to LOADEX is the value, and so wins. That way LoadConfigs sets each
//! setting once, in one order, and CONFIG REWRITE leaves out what the arguments it keeps on the
//! loadmodule line will say again. The server checks directives against the bounds, we check the
//! arguments. Values live above, behind two hooks; the server asks for them by the row's number.

use std::ffi::{CStr, c_char, c_void};
use std::sync::OnceLock;

use redis_module::raw;

use super::api::required;
use super::args::{Args, parse_i64};
use super::context::Ctx;
use super::guard::guard;

/// One row of the table; the bounds are allowed values.
pub(crate) struct Setting {
    /// Without the module's name.
    pub(crate) name: &'static CStr,
    pub(crate) default: i64,
    pub(crate) min: i64,
    pub(crate) max: i64,
}

/// Where the values are, by row. `set` is called once for each row while the module is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Hooks {
    pub(crate) get: fn(usize) -> i64,
    pub(crate) set: fn(usize, i64) -> Result<(), String>,
}

static HOOKS: OnceLock<Hooks> = OnceLock::new();

/// Registers the table and applies arguments and directives. Once, only while the module is loaded.
pub(crate) fn register(
    ctx: Ctx,
    settings: &'static [Setting],
    args: Args,
    hooks: Hooks,
) -> Result<(), String> {
    HOOKS
        .set(hooks)
        .map_err(|_| "the settings are registered already".to_owned())?;
    let given: Vec<&[u8]> = args.iter().collect();
    let defaults = defaults(settings, &given)?;
    for (row, (setting, default)) in settings.iter().zip(defaults).enumerate() {
        // SAFETY: a live context; the name is copied; the callbacks are functions of this library,
        // and the private data is a number nobody dereferences.
        let status = unsafe {
            required!(RedisModule_RegisterNumericConfig)(
                ctx.raw(),
                setting.name.as_ptr(),
                default,
                raw::REDISMODULE_CONFIG_DEFAULT,
                setting.min,
                setting.max,
                Some(get),
                Some(set),
                None,
                std::ptr::without_provenance_mut(row),
            )
        };
        if status != raw::REDISMODULE_OK as i32 {
            return Err(format!(
                "the server refused the setting {}",
                setting.name.to_string_lossy()
            ));
        }
    }
    // SAFETY: a live context, after the registrations. The server has logged the directive it
    // refuses.
    if unsafe { required!(RedisModule_LoadConfigs)(ctx.raw()) } != raw::REDISMODULE_OK as i32 {
        return Err("a dsync.* directive was refused".to_owned());
    }
    Ok(())
}

/// The defaults of all rows, as changed by the arguments: `name value` pairs, with or without
/// `dsync.` before the name.
fn defaults(settings: &[Setting], args: &[&[u8]]) -> Result<Vec<i64>, String> {
    let mut given: Vec<Option<i64>> = vec![None; settings.len()];
    let mut args = args.iter();
    while let Some(name) = args.next() {
        let shown = String::from_utf8_lossy(name);
        let plain = name.strip_prefix(b"dsync.").unwrap_or(name);
        let row = settings
            .iter()
            .position(|setting| setting.name.to_bytes().eq_ignore_ascii_case(plain))
            .ok_or_else(|| format!("there is no setting '{shown}'"))?;
        let text = args
            .next()
            .ok_or_else(|| format!("the setting '{shown}' has no value"))?;
        let Setting { min, max, .. } = settings[row];
        let value = parse_i64(text)
            .filter(|value| (min..=max).contains(value))
            .ok_or_else(|| {
                format!(
                    "'{shown} {}': not a number from {min} to {max}",
                    String::from_utf8_lossy(text)
                )
            })?;
        if given[row].replace(value).is_some() {
            return Err(format!("the setting '{shown}' is given twice"));
        }
    }
    Ok(settings
        .iter()
        .zip(given)
        .map(|(setting, given)| given.unwrap_or(setting.default))
        .collect())
}

unsafe extern "C" fn get(_: *const c_char, row: *mut c_void) -> i64 {
    guard(
        c"a setting's reader",
        || 0,
        || HOOKS.get().map_or(0, |hooks| (hooks.get)(row.addr())),
    )
}

unsafe extern "C" fn set(
    _: *const c_char,
    value: i64,
    row: *mut c_void,
    err: *mut *mut raw::RedisModuleString,
) -> i32 {
    let outcome = guard(
        c"a setting's writer",
        || Err("internal error, see the server's log".to_owned()),
        || {
            HOOKS
                .get()
                .map_or(Ok(()), |hooks| (hooks.set)(row.addr(), value))
        },
    );
    let Err(refusal) = outcome else {
        return raw::REDISMODULE_OK as i32;
    };
    // SAFETY: `err` is where the server takes a string from that it frees itself (module.c,
    // propagateErrorString).
    unsafe {
        let text = required!(RedisModule_CreateString)(
            std::ptr::null_mut(),
            refusal.as_ptr().cast(),
            refusal.len(),
        );
        err.write(text);
    }
    raw::REDISMODULE_ERR as i32
}

#[cfg(test)]
mod tests {
    use super::{Setting, defaults};

    const TABLE: &[Setting] = &[
        Setting {
            name: c"a",
            default: 1,
            min: 0,
            max: 9,
        },
        Setting {
            name: c"b",
            default: 2,
            min: -5,
            max: 5,
        },
    ];

    #[test]
    fn arguments_replace_defaults_within_their_bounds() {
        for (line, outcome) in [
            ("", Ok(vec![1, 2])),
            ("a 9", Ok(vec![9, 2])),
            ("dsync.b -5 A 0", Ok(vec![0, -5])),
            ("c 1", Err("there is no setting 'c'")),
            ("a", Err("the setting 'a' has no value")),
            ("a 10", Err("'a 10': not a number from 0 to 9")),
            ("b -6", Err("'b -6': not a number from -5 to 5")),
            ("a 1x", Err("'a 1x': not a number from 0 to 9")),
            ("a 1 a 2", Err("the setting 'a' is given twice")),
        ] {
            let args: Vec<&[u8]> = line.split_ascii_whitespace().map(str::as_bytes).collect();
            assert_eq!(
                defaults(TABLE, &args),
                outcome.map_err(str::to_owned),
                "{line}"
            );
        }
    }
}
