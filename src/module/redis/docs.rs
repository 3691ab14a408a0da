//! What COMMAND DOCS, COMMAND INFO and ACL rules know about a command.
//!
//! Set after the command was created, once. ACL categories are an API of 7.2: on 7.0 the commands
//! belong to none, and rules name them.

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use redis_module::raw;

use super::api::{optional, required};
use super::command::Command;
use super::context::Ctx;

pub(crate) struct Docs {
    pub(crate) summary: &'static CStr,
    pub(crate) complexity: &'static CStr,
    pub(crate) since: &'static CStr,
    /// The number of arguments with the name; negative: at least so many.
    pub(crate) arity: i32,
    pub(crate) key: KeyUse,
    /// ACL categories such as `write fast`, without `@`.
    pub(crate) categories: &'static CStr,
    pub(crate) args: &'static [Arg],
}

/// What the command does with argument 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyUse {
    NoKey,
    Reads,
    Changes,
}

#[derive(Clone, Copy)]
pub(crate) enum ArgKind {
    Key,
    Text,
    Integer,
    /// Only its token.
    Word,
    OneOf(&'static [Arg]),
    Block(&'static [Arg]),
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

/// Describes a command that was registered before. Only while the module is loaded.
pub(crate) fn describe<C: Command>(ctx: Ctx, docs: &Docs) -> Result<(), String> {
    let refused = |what: &str| {
        format!(
            "the server refused the {what} of {}",
            C::NAME.to_string_lossy()
        )
    };
    // SAFETY: a live context and a C string; NULL when there is no such command.
    let command = unsafe { required!(RedisModule_GetCommand)(ctx.raw(), C::NAME.as_ptr()) };
    if command.is_null() {
        return Err(refused("lookup"));
    }
    let mut held = Vec::new();
    let args = raw_args(docs.args, &mut held);
    let mut specs = [key_spec(docs.key), key_spec(KeyUse::NoKey)];
    let info = raw::RedisModuleCommandInfo {
        version: &raw const LAYOUT,
        summary: docs.summary.as_ptr(),
        complexity: docs.complexity.as_ptr(),
        since: docs.since.as_ptr(),
        history: null_mut(),
        tips: null(),
        arity: docs.arity,
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
    if let Some(set_categories) = optional!(RedisModule_SetCommandACLCategories) {
        // SAFETY: a command of ours, a C string, while the module is loaded.
        let status = unsafe { set_categories(command, docs.categories.as_ptr()) };
        if status != raw::REDISMODULE_OK as i32 {
            return Err(refused("ACL categories"));
        }
    }
    Ok(())
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
        ArgKind::Block(args) => (
            raw::RedisModuleCommandArgType_REDISMODULE_ARG_TYPE_BLOCK,
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
        KeyUse::Changes => {
            raw::REDISMODULE_CMD_KEY_RW
                | raw::REDISMODULE_CMD_KEY_ACCESS
                | raw::REDISMODULE_CMD_KEY_UPDATE
        }
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
