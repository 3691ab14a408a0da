//! What COMMAND DOCS, COMMAND INFO and ACL rules know about a command.
//!
//! Set after the command was registered, once, while the module is loaded. ACL categories are an API of
//! 7.2, and new ones of 7.4 and Valkey 8: on 7.0 the commands belong to none, and rules name them.

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use redis_module::raw;

use super::api::{optional, required};
use super::context::Ctx;
use super::log::c_string;

pub(crate) struct Docs {
    pub(crate) name: String,
    pub(crate) summary: String,
    pub(crate) complexity: &'static str,
    pub(crate) key: KeyUse,
    /// What a client in front of several servers should know, in the server's words; or nothing.
    pub(crate) tips: &'static str,
    pub(crate) categories: Categories,
    pub(crate) args: &'static [Arg],
}

/// Names of ACL categories without `@`, separated by spaces.
#[derive(Clone, Copy)]
pub(crate) struct Categories {
    pub(crate) servers: &'static str,
    /// The module's own, see [`add_categories`].
    pub(crate) own: &'static str,
}

/// What the command does with argument 1: with the key, and with what is in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyUse {
    NoKey,
    /// Tells what is in it.
    Reads,
    /// Changes what is in it.
    Changes,
    /// Changes what is in it and tells.
    ReadsAndChanges,
    /// Takes something out of it.
    Removes,
}

#[derive(Clone, Copy)]
pub(crate) enum ArgKind {
    Key,
    Text,
    Integer,
    /// Only its token.
    Word,
    OneOf(&'static [Arg]),
}

#[derive(Clone, Copy)]
pub(crate) struct Arg {
    pub(crate) name: &'static CStr,
    pub(crate) kind: ArgKind,
    /// The word before the value, or instead of one.
    pub(crate) token: Option<&'static CStr>,
    pub(crate) optional: bool,
    pub(crate) multiple: bool,
}

impl Arg {
    pub(crate) const fn new(name: &'static CStr, kind: ArgKind) -> Self {
        Arg {
            name,
            kind,
            token: None,
            optional: false,
            multiple: false,
        }
    }

    pub(crate) const fn token(self, token: &'static CStr) -> Self {
        Arg {
            token: Some(token),
            ..self
        }
    }

    pub(crate) const fn optional(self) -> Self {
        Arg {
            optional: true,
            ..self
        }
    }

    pub(crate) const fn multiple(self) -> Self {
        Arg {
            multiple: true,
            ..self
        }
    }
}

/// The layout of the structures below, for servers whose own have grown.
static LAYOUT: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// Makes categories of the module's own; false where the server cannot, or has no room for them.
pub(crate) fn add_categories(ctx: Ctx, names: &[&CStr]) -> bool {
    let Some(add) = optional!(RedisModule_AddACLCategory) else {
        return false;
    };
    names.iter().all(|name| {
        // SAFETY: a live context, a C string, while the module is loaded.
        let status = unsafe { add(ctx.raw(), name.as_ptr()) };
        status == raw::REDISMODULE_OK as i32
    })
}

/// Describes a command that was registered before. `has_own` says whether the own categories exist.
pub(crate) fn describe(ctx: Ctx, docs: &Docs, since: &CStr, has_own: bool) -> Result<(), String> {
    let refused = |what: &str| format!("the server refused the {what} of {}", docs.name);
    let name = c_string(&docs.name);
    // SAFETY: a live context and a C string; NULL when there is no such command.
    let command = unsafe { required!(RedisModule_GetCommand)(ctx.raw(), name.as_ptr()) };
    if command.is_null() {
        return Err(refused("lookup"));
    }
    let [summary, complexity, tips] = [&docs.summary, docs.complexity, docs.tips].map(c_string);
    let mut held = Vec::new();
    let args = raw_args(docs.args, &mut held);
    let mut specs = [key_spec(docs.key), key_spec(KeyUse::NoKey)];
    let info = raw::RedisModuleCommandInfo {
        version: &raw const LAYOUT,
        summary: summary.as_ptr(),
        complexity: complexity.as_ptr(),
        since: since.as_ptr(),
        history: null_mut(),
        tips: if docs.tips.is_empty() {
            null()
        } else {
            tips.as_ptr()
        },
        arity: arity(docs.args),
        key_specs: if docs.key == KeyUse::NoKey {
            null_mut()
        } else {
            specs.as_mut_ptr()
        },
        args,
    };
    // SAFETY: a command of ours; all arrays end with an empty element, and everything is copied
    // before the call returns.
    let status = unsafe { required!(RedisModule_SetCommandInfo)(command, &raw const info) };
    if status != raw::REDISMODULE_OK as i32 {
        return Err(refused("description"));
    }
    let Some(set_categories) = optional!(RedisModule_SetCommandACLCategories) else {
        return Ok(());
    };
    let Categories { servers, own } = docs.categories;
    let own = if has_own { own } else { "" };
    let categories = c_string(format!("{servers} {own}").trim());
    // SAFETY: a command of ours, a C string, while the module is loaded.
    let status = unsafe { set_categories(command, categories.as_ptr()) };
    if status != raw::REDISMODULE_OK as i32 {
        return Err(refused("ACL categories"));
    }
    Ok(())
}

/// The number of arguments with the name; negative: at least so many. The server refuses any other.
fn arity(args: &[Arg]) -> i32 {
    let required = args.iter().filter(|arg| !arg.optional).count();
    let least = i32::try_from(1 + required).unwrap_or(i32::MAX);
    if args.iter().any(|arg| arg.optional || arg.multiple) {
        -least
    } else {
        least
    }
}

type RawArgs = Vec<raw::RedisModuleCommandArg>;

/// The arguments as C wants them: an array that ends with an empty element, kept alive by `held`.
fn raw_args(args: &[Arg], held: &mut Vec<RawArgs>) -> *mut raw::RedisModuleCommandArg {
    let mut list: RawArgs = args.iter().map(|arg| raw_arg(arg, held)).collect();
    list.push(raw::RedisModuleCommandArg {
        name: null(),
        type_: 0,
        key_spec_index: 0,
        token: null(),
        summary: null(),
        since: null(),
        flags: 0,
        deprecated_since: null(),
        subargs: null_mut(),
        display_text: null(),
    });
    let start = list.as_mut_ptr();
    held.push(list);
    start
}

fn raw_arg(arg: &Arg, held: &mut Vec<RawArgs>) -> raw::RedisModuleCommandArg {
    let (type_, subargs) = match arg.kind {
        ArgKind::Key => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_KEY,
            null_mut(),
        ),
        ArgKind::Text => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_STRING,
            null_mut(),
        ),
        ArgKind::Integer => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_INTEGER,
            null_mut(),
        ),
        ArgKind::Word => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_PURE_TOKEN,
            null_mut(),
        ),
        ArgKind::OneOf(args) => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_ONEOF,
            raw_args(args, held),
        ),
    };
    let mut flags = 0;
    if arg.optional {
        flags |= raw::REDISMODULE_CMD_ARG_OPTIONAL as i32;
    }
    if arg.multiple {
        flags |= raw::REDISMODULE_CMD_ARG_MULTIPLE as i32;
    }
    let text = |text: Option<&CStr>| text.map_or(null::<c_char>(), CStr::as_ptr);
    raw::RedisModuleCommandArg {
        name: arg.name.as_ptr(),
        type_,
        key_spec_index: 0,
        token: text(arg.token),
        summary: null(),
        since: null(),
        flags,
        deprecated_since: null(),
        subargs,
        display_text: null(),
    }
}

/// The spec of argument 1, or for `NoKey` the empty element that ends the list.
fn key_spec(key: KeyUse) -> raw::RedisModuleCommandKeySpec {
    let flags = match key {
        KeyUse::NoKey => 0,
        KeyUse::Reads => raw::REDISMODULE_CMD_KEY_RO | raw::REDISMODULE_CMD_KEY_ACCESS,
        KeyUse::Changes => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_UPDATE,
        KeyUse::ReadsAndChanges => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
        KeyUse::Removes => raw::REDISMODULE_CMD_KEY_RW | raw::REDISMODULE_CMD_KEY_DELETE,
    };
    raw::RedisModuleCommandKeySpec {
        notes: null(),
        flags: u64::from(flags),
        begin_search_type: match key {
            KeyUse::NoKey => raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INVALID,
            _ => raw::RedisModuleKeySpecBeginSearchType_REDISMODULE_KSPEC_BS_INDEX,
        },
        bs: raw::RedisModuleCommandKeySpec__bindgen_ty_1 {
            index: raw::RedisModuleCommandKeySpec__bindgen_ty_1__bindgen_ty_1 { pos: 1 },
        },
        find_keys_type: raw::RedisModuleKeySpecFindKeysType_REDISMODULE_KSPEC_FK_RANGE,
        fk: raw::RedisModuleCommandKeySpec__bindgen_ty_2 {
            range: raw::RedisModuleCommandKeySpec__bindgen_ty_2__bindgen_ty_1 {
                lastkey: 0,
                keystep: 1,
                limit: 0,
            },
        },
    }
}
