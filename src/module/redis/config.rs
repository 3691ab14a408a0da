//! Registers a table of settings for CONFIG GET/SET/REWRITE, redis.conf, MODULE LOADEX and the arguments of
//! `loadmodule`.
//!
//! An argument, as in `loadmodule dsync.so max-waiters 500`, changes the setting's default. A directive
//! `dsync.max-waiters 900` in redis.conf or given to LOADEX sets its value, and so takes precedence. In this way
//! RM_LoadConfigs sets each setting once, in one order, and CONFIG REWRITE omits settings that the arguments give
//! already, because it keeps those on the loadmodule line. The server checks directives against the bounds; this file
//! checks the arguments. The caller keeps the values, behind the trait [`Values`]; the server asks for them by the
//! number of the row.
//!
//! [`of_server`] reads a setting of the server's own.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use redis_module::raw;

use super::api::{self, required};
use super::args::{Args, parse_i64};
use super::call;
use super::context::Ctx;
use super::guard::guard;

/// One row of the table.
pub(crate) struct Setting {
    /// The name without `dsync.`.
    pub(crate) name: &'static CStr,
    kind: SettingKind,
}

enum SettingKind {
    /// The bounds are inclusive.
    Number {
        default: i64,
        min: i64,
        max: i64,
    },
    YesNo {
        default: bool,
    },
}

impl Setting {
    pub(crate) const fn number(name: &'static CStr, default: i64, min: i64, max: i64) -> Setting {
        let kind = SettingKind::Number { default, min, max };
        Setting { name, kind }
    }

    /// A setting that is `yes` or `no`. [`Values`] gets 1 or 0.
    pub(crate) const fn yes_no(name: &'static CStr, default: bool) -> Setting {
        let kind = SettingKind::YesNo { default };
        Setting { name, kind }
    }

    fn default(&self) -> i64 {
        match self.kind {
            SettingKind::Number { default, .. } => default,
            SettingKind::YesNo { default } => default.into(),
        }
    }

    /// Reads the value in an argument, or returns which values are allowed.
    fn parse(&self, text: &[u8]) -> Result<i64, String> {
        match self.kind {
            SettingKind::Number { min, max, .. } => parse_i64(text)
                .filter(|value| (min..=max).contains(value))
                .ok_or_else(|| format!("not a number from {min} to {max}")),
            // In capitals or not, as the server reads its own settings (util.c, yesnotoi).
            SettingKind::YesNo { .. } if text.eq_ignore_ascii_case(b"yes") => Ok(1),
            SettingKind::YesNo { .. } if text.eq_ignore_ascii_case(b"no") => Ok(0),
            SettingKind::YesNo { .. } => Err("neither yes nor no".to_owned()),
        }
    }
}

/// Gets and sets the values by the number of their row. While the module is loaded, `set` is called once for each row.
pub(crate) trait Values {
    fn get(row: usize) -> i64;
    fn set(row: usize, to: i64) -> Result<(), String>;
}

/// A table, with the defaults that the arguments of `loadmodule` ask for.
pub(crate) struct Checked {
    settings: &'static [Setting],
    defaults: Vec<i64>,
}

/// Checks the arguments of `loadmodule`. To be called before anything is registered, because a wrong one refuses the
/// module.
pub(crate) fn check(settings: &'static [Setting], args: Args) -> Result<Checked, String> {
    let given: Vec<&[u8]> = args.iter().collect();
    let defaults = defaults(settings, &given)?;
    Ok(Checked { settings, defaults })
}

/// Registers the table and applies the directives. Possible only during RedisModule_OnLoad.
pub(crate) fn register<V: Values>(ctx: Ctx, table: &Checked) -> Result<(), String> {
    for (row, (setting, default)) in table.settings.iter().zip(&table.defaults).enumerate() {
        if !register_one::<V>(ctx, setting, *default, row) {
            return Err(format!(
                "the server refused the setting {}",
                setting.name.to_string_lossy()
            ));
        }
    }
    // The server has logged the directive that it refused.
    if !load_directives(ctx) {
        return Err("a dsync.* directive was refused".to_owned());
    }
    if !survives_unknown_directives(ctx) {
        forget_unknown_directives(ctx);
    }
    Ok(())
}

/// Returns whether the server and the module accepted all directives.
fn load_directives(ctx: Ctx) -> bool {
    // SAFETY: the context is live; RM_LoadConfigs only calls the setters registered before.
    let status = unsafe { required!(RedisModule_LoadConfigs)(ctx.raw()) };
    status == raw::REDISMODULE_OK as i32
}

/// Returns whether the server handles directives that belong to no setting. When a server starts, which is when it has
/// no clients, they belong to other modules, or the server exits because of them. Redis 8 and later refuse a MODULE
/// LOADEX with such directives.
fn survives_unknown_directives(ctx: Ctx) -> bool {
    let is_start = || ctx.server_info_u64(c"clients", c"connected_clients") == Some(0);
    let is_redis_8 = !api::is_valkey() && !api::is_redis_before(0x0008_0000);
    is_redis_8 || is_start()
}

/// Makes the server forget the directives of MODULE LOADEX that belong to no setting. Otherwise Redis 7.2, 7.4 and
/// Valkey would dereference a null pointer, because they cannot unload a module that has data types; Redis 7.0 would
/// reply an error and keep the module (module.c, moduleLoad).
///
/// All of them drop the remaining directives when a setting refuses its value. So the directives are loaded a second
/// time, and the first setting refuses the value that it has already; no setting changes. This is done always, because
/// no server tells whether there is anything to drop.
fn forget_unknown_directives(ctx: Ctx) {
    REFUSES_ALL.store(true, Relaxed);
    load_directives(ctx);
    REFUSES_ALL.store(false, Relaxed);
}

/// Whether every setting refuses every value now.
static REFUSES_ALL: AtomicBool = AtomicBool::new(false);

/// The server logs this as the reason why a setting's default is wrong.
const NOTHING_IS_WRONG: &str = "nothing is wrong with it. This is how dsync has the server forget directives of \
    MODULE LOADEX that dsync does not know, for this server cannot refuse them";

/// Returns whether the server accepted the setting.
fn register_one<V: Values>(ctx: Ctx, setting: &Setting, default: i64, row: usize) -> bool {
    let name = setting.name.as_ptr();
    let flags = raw::REDISMODULE_CONFIG_DEFAULT;
    let row = std::ptr::without_provenance_mut(row);
    // SAFETY: the context is live; the server copies the name, and forgets the callbacks before it unloads this
    // library. The private data is a number that nothing dereferences.
    let status = unsafe {
        match setting.kind {
            SettingKind::Number { min, max, .. } => required!(RedisModule_RegisterNumericConfig)(
                ctx.raw(),
                name,
                default,
                flags,
                min,
                max,
                Some(get::<V>),
                Some(set::<V>),
                None,
                row,
            ),
            SettingKind::YesNo { .. } => required!(RedisModule_RegisterBoolConfig)(
                ctx.raw(),
                name,
                (default != 0).into(),
                flags,
                Some(get_yes_no::<V>),
                Some(set_yes_no::<V>),
                None,
                row,
            ),
        }
    };
    status == raw::REDISMODULE_OK as i32
}

/// Returns the defaults of all rows, with the changes that the arguments ask for. Arguments are pairs of name and
/// value; the name may begin with `dsync.`.
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
        let value = settings[row]
            .parse(text)
            .map_err(|allowed| format!("'{shown} {}': {allowed}", String::from_utf8_lossy(text)))?;
        if given[row].replace(value).is_some() {
            return Err(format!("the setting '{shown}' is given twice"));
        }
    }
    Ok(settings
        .iter()
        .zip(given)
        .map(|(setting, given)| given.unwrap_or(setting.default()))
        .collect())
}

/// The value of the server's own setting with this name; `None` if there is no such setting. Too slow for every request.
///
/// # Panics
/// If a key is open, because other modules may filter the call and change the key.
pub(crate) fn of_server(ctx: Ctx<'_>, name: &str) -> Option<Vec<u8>> {
    call::ask(ctx, c"CONFIG", &[b"GET", name.as_bytes()])?.text_at(1)
}

unsafe extern "C" fn get<V: Values>(_: *const c_char, row: *mut c_void) -> i64 {
    read::<V>(row)
}

unsafe extern "C" fn get_yes_no<V: Values>(_: *const c_char, row: *mut c_void) -> i32 {
    i32::from(read::<V>(row) != 0)
}

fn read<V: Values>(row: *mut c_void) -> i64 {
    guard(c"a setting's reader", || 0, || V::get(row.addr()))
}

unsafe extern "C" fn set<V: Values>(
    _: *const c_char,
    value: i64,
    row: *mut c_void,
    err: *mut *mut raw::RedisModuleString,
) -> i32 {
    // SAFETY: `err` is the pointer that the server gives a setter for its error text.
    unsafe { write::<V>(row.addr(), value, err) }
}

unsafe extern "C" fn set_yes_no<V: Values>(
    _: *const c_char,
    value: i32,
    row: *mut c_void,
    err: *mut *mut raw::RedisModuleString,
) -> i32 {
    // SAFETY: `err` is the pointer that the server gives a setter for its error text.
    unsafe { write::<V>(row.addr(), (value != 0).into(), err) }
}

/// # Safety
/// `err` must be the pointer that the server gives a setter for its error text.
unsafe fn write<V: Values>(row: usize, value: i64, err: *mut *mut raw::RedisModuleString) -> i32 {
    let outcome = guard(
        c"a setting's writer",
        || Err("internal error, see the server's log".to_owned()),
        || {
            if REFUSES_ALL.load(Relaxed) {
                return Err(NOTHING_IS_WRONG.to_owned());
            }
            V::set(row, value)
        },
    );
    let Err(refusal) = outcome else {
        return raw::REDISMODULE_OK as i32;
    };
    // SAFETY: the caller guarantees that the server reads `err`. The server frees the string that it finds there
    // (module.c, propagateErrorString).
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
        Setting::number(c"a", 1, 0, 9),
        Setting::number(c"b", 2, -5, 5),
        Setting::yes_no(c"s", false),
    ];

    #[test]
    fn arguments_replace_defaults_within_their_bounds() {
        for (line, outcome) in [
            ("", Ok(vec![1, 2, 0])),
            ("a 9", Ok(vec![9, 2, 0])),
            ("dsync.b -5 A 0", Ok(vec![0, -5, 0])),
            ("s yes", Ok(vec![1, 2, 1])),
            ("dsync.S No", Ok(vec![1, 2, 0])),
            ("c 1", Err("there is no setting 'c'")),
            ("a", Err("the setting 'a' has no value")),
            ("a 10", Err("'a 10': not a number from 0 to 9")),
            ("b -6", Err("'b -6': not a number from -5 to 5")),
            ("s 1", Err("'s 1': neither yes nor no")),
            ("s yes s no", Err("the setting 's' is given twice")),
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
