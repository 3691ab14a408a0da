//! Tells the server what COMMAND DOCS, COMMAND INFO and ACL rules need to know about a command.
//!
//! That happens once for each command, after it was registered, while the module is loaded. The server has an API for
//! ACL categories since 7.2, and for new categories since Redis 7.4 and Valkey 8. On 7.0 the commands belong to no
//! category, and ACL rules must name them.

use std::ffi::{CStr, CString, c_char};
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
    /// Tips of COMMAND INFO for clients that use several servers, separated by spaces; empty if there are none.
    pub(crate) tips: &'static str,
    pub(crate) categories: Categories,
    pub(crate) args: Vec<ArgDocs>,
}

/// Names of ACL categories without `@`, separated by spaces.
#[derive(Default)]
pub(crate) struct Categories {
    pub(crate) servers: String,
    /// Categories of the module's own, see [`add_categories`].
    pub(crate) own: String,
}

/// How the command uses its key, argument 1, and the value in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum KeyUse {
    NoKey,
    /// Returns something of the value.
    Reads,
    /// Changes the value.
    Changes,
    /// Changes the value and returns something of it.
    ReadsAndChanges,
    /// Removes something from the value.
    Removes,
}

pub(crate) enum ArgKind {
    Key,
    Text,
    Integer,
    /// A word without a value.
    Word,
    OneOf(Vec<ArgDocs>),
}

pub(crate) struct ArgDocs {
    pub(crate) name: &'static str,
    pub(crate) kind: ArgKind,
    /// The word before the value, or the word alone.
    pub(crate) token: Option<&'static str>,
    /// Empty if there is none.
    pub(crate) summary: String,
    pub(crate) optional: bool,
    pub(crate) multiple: bool,
}

impl ArgDocs {
    pub(crate) fn new(name: &'static str, kind: ArgKind) -> Self {
        ArgDocs {
            name,
            kind,
            token: None,
            summary: String::new(),
            optional: false,
            multiple: false,
        }
    }

    pub(crate) fn multiple(self) -> Self {
        ArgDocs {
            multiple: true,
            ..self
        }
    }
}

/// The sizes of the structures that are passed to the server, because those of later servers may be larger.
static LAYOUT: raw::RedisModuleCommandInfoVersion = raw::RedisModuleCommandInfoVersion {
    version: 1,
    sizeof_historyentry: size_of::<raw::RedisModuleCommandHistoryEntry>(),
    sizeof_keyspec: size_of::<raw::RedisModuleCommandKeySpec>(),
    sizeof_arg: size_of::<raw::RedisModuleCommandArg>(),
};

/// Makes ACL categories of the module's own. Returns false if the server cannot, or has no room for them.
pub(crate) fn add_categories(ctx: Ctx, names: &[&CStr]) -> bool {
    let Some(add) = optional!(RedisModule_AddACLCategory) else {
        return false;
    };
    names.iter().all(|name| {
        // SAFETY: the context is live, the name is a C string, and the module is being loaded, as RM_AddACLCategory
        // needs.
        let status = unsafe { add(ctx.raw(), name.as_ptr()) };
        status == raw::REDISMODULE_OK as i32
    })
}

/// Describes a command that was registered before. `has_own` tells whether the module's own categories exist.
pub(crate) fn describe(ctx: Ctx, docs: &Docs, since: &str, has_own: bool) -> Result<(), String> {
    let refused = |what: &str| format!("the server refused the {what} of {}", docs.name);
    let name = c_string(&docs.name);
    // SAFETY: the context is live and the name is a C string; RM_GetCommand returns NULL if there is no such command.
    let command = unsafe { required!(RedisModule_GetCommand)(ctx.raw(), name.as_ptr()) };
    if command.is_null() {
        return Err(refused("lookup"));
    }
    let [summary, complexity, tips, since] =
        [&docs.summary, docs.complexity, docs.tips, since].map(c_string);
    let mut held = Held::default();
    let args = raw_args(&docs.args, &mut held);
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
        arity: arity(&docs.args),
        key_specs: if docs.key == KeyUse::NoKey {
            null_mut()
        } else {
            specs.as_mut_ptr()
        },
        args,
    };
    // SAFETY: the command is ours; RM_SetCommandInfo copies everything before it returns, and all arrays end with an
    // empty element.
    let status = unsafe { required!(RedisModule_SetCommandInfo)(command, &raw const info) };
    if status != raw::REDISMODULE_OK as i32 {
        return Err(refused("description"));
    }
    let Some(set_categories) = optional!(RedisModule_SetCommandACLCategories) else {
        return Ok(());
    };
    let Categories { servers, own } = &docs.categories;
    let own = if has_own { own } else { "" };
    let categories = c_string(format!("{servers} {own}").trim());
    // SAFETY: the command is ours, the categories are a C string, and the module is being loaded, as
    // RM_SetCommandACLCategories needs.
    let status = unsafe { set_categories(command, categories.as_ptr()) };
    if status != raw::REDISMODULE_OK as i32 {
        return Err(refused("ACL categories"));
    }
    Ok(())
}

/// The number of arguments, with the command's name. A negative number means at least so many. The server refuses
/// requests with any other number.
fn arity(args: &[ArgDocs]) -> i32 {
    let required = args.iter().filter(|arg| !arg.optional).count();
    let required = i32::try_from(1 + required).unwrap_or(i32::MAX);
    if args.iter().any(|arg| arg.optional || arg.multiple) {
        -required
    } else {
        required
    }
}

/// The texts and lists that raw arguments point to.
#[derive(Default)]
struct Held {
    lists: Vec<Vec<raw::RedisModuleCommandArg>>,
    texts: Vec<CString>,
}

impl Held {
    /// The text as a C string that lives as long as `self`; NULL if it is empty.
    fn text(&mut self, text: &str) -> *const c_char {
        if text.is_empty() {
            return null();
        }
        let text = c_string(text);
        // The pointer stays valid when the list grows, because the bytes are on the heap.
        let start = text.as_ptr();
        self.texts.push(text);
        start
    }
}

/// The arguments for C: an array that ends with an empty element. `held` keeps it alive.
fn raw_args(args: &[ArgDocs], held: &mut Held) -> *mut raw::RedisModuleCommandArg {
    let mut list: Vec<_> = args.iter().map(|arg| raw_arg(arg, held)).collect();
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
    held.lists.push(list);
    start
}

fn raw_arg(arg: &ArgDocs, held: &mut Held) -> raw::RedisModuleCommandArg {
    let (type_, subargs) = match &arg.kind {
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
    raw::RedisModuleCommandArg {
        name: held.text(arg.name),
        type_,
        key_spec_index: 0,
        token: held.text(arg.token.unwrap_or_default()),
        summary: held.text(&arg.summary),
        since: null(),
        flags,
        deprecated_since: null(),
        subargs,
        display_text: null(),
    }
}

/// The key spec of argument 1; for `NoKey` the empty element that ends a list of specs.
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
