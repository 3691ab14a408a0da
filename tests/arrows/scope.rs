//! The types of the variables and expressions in one function, as far as they can be seen.

use std::collections::BTreeMap;

use syn::{Expr, Pat};

use crate::names::{Module, Name};
use crate::types::{Function, Place, Type, Types};

pub(crate) struct Scope<'a> {
    pub(crate) types: &'a Types<'a>,
    pub(crate) module: &'a Module,
    pub(crate) self_type: Option<Name>,
    /// The variables so far. A name that is used again in another block counts as the same.
    pub(crate) variables: BTreeMap<String, Option<Type>>,
}

impl Scope<'_> {
    pub(crate) fn place(&self) -> Place<'_> {
        Place {
            module: self.module,
            self_type: self.self_type.as_ref(),
        }
    }

    /// Notes the types of the variables in a pattern. `of` is that of the whole.
    pub(crate) fn bind(&mut self, pat: &Pat, of: Option<Type>) {
        match pat {
            Pat::Ident(ident) => {
                self.variables.insert(ident.ident.to_string(), of);
            }
            Pat::Type(typed) => {
                let of = self.types.read(&typed.ty, self.place());
                self.bind(&typed.pat, of);
            }
            Pat::Reference(inner) => self.bind(&inner.pat, of),
            Pat::Guard(inner) => self.bind(&inner.pat, of),
            Pat::TupleStruct(inner) if inner.elems.len() == 1 => {
                let last = inner.path.segments.last();
                if last.is_some_and(|last| last.ident == "Some" || last.ident == "Ok") {
                    self.bind(&inner.elems[0], of.and_then(inside));
                }
            }
            Pat::Tuple(inner) => {
                let args = of.map(|of| of.args).unwrap_or_default();
                if args.len() == inner.elems.len() {
                    for (pat, of) in inner.elems.iter().zip(args) {
                        self.bind(pat, Some(of));
                    }
                }
            }
            _ => {}
        }
    }

    pub(crate) fn type_of(&self, expr: &Expr) -> Option<Type> {
        match expr {
            Expr::Path(path) => self.type_of_path(&words(&path.path)),
            Expr::Field(field) => {
                let base = self.type_of(&field.base)?;
                let name = match &field.member {
                    syn::Member::Named(ident) => ident.to_string(),
                    syn::Member::Unnamed(index) => index.index.to_string(),
                };
                let (_, members) = self.types.owner(&base, |m| m.fields.contains_key(&name))?;
                members.fields.get(&name).cloned()
            }
            Expr::MethodCall(call) => {
                let receiver = self.type_of(&call.receiver)?;
                let method = call.method.to_string();
                match self.types.method(&receiver, &method) {
                    Some((_, function)) => function.output.clone(),
                    None => of_foreign(receiver, &method),
                }
            }
            Expr::Call(call) => {
                let Expr::Path(path) = &*call.func else {
                    return None;
                };
                let words = words(&path.path);
                match self.function(&words) {
                    Some(function) => function.output,
                    None => self.type_of_path(&words),
                }
            }
            Expr::Struct(of) => self.type_of_path(&words(&of.path)),
            Expr::Try(inner) => inside(self.type_of(&inner.expr)?),
            Expr::Await(inner) => self.type_of(&inner.base),
            Expr::Reference(inner) => self.type_of(&inner.expr),
            Expr::Paren(inner) => self.type_of(&inner.expr),
            Expr::Unary(inner) => self.type_of(&inner.expr),
            _ => None,
        }
    }

    /// The type of a variable, a static, or of the struct or enum that a path makes.
    fn type_of_path(&self, path: &[String]) -> Option<Type> {
        match path {
            [first, ..] if first == "Self" => return self.self_type.clone().map(Type::ours),
            [one] if one == "self" => return self.self_type.clone().map(Type::ours),
            [one] if self.variables.contains_key(one) => return self.variables[one].clone(),
            _ => {}
        }
        let (module, rest) = self.types.sources.resolve(self.module, path)?;
        let name = (module, rest.first()?.clone());
        let value = self.types.values.get(&name).cloned();
        let is_type = self.types.members.contains_key(&name);
        value.or_else(|| is_type.then(|| Type::ours(name)))
    }

    /// The types of the function that a path names: `f`, `Type::f`.
    pub(crate) fn function(&self, path: &[String]) -> Option<Function> {
        let (of, name) = match path {
            [first, name] if first == "Self" => (self.self_type.clone()?, name.clone()),
            _ => {
                let (module, rest) = self.types.sources.resolve(self.module, path)?;
                let mut rest = rest.into_iter();
                let of = (module, rest.next()?);
                match rest.next() {
                    None => return self.types.functions.get(&of).cloned(),
                    Some(name) => (of, name),
                }
            }
        };
        let (_, function) = self.types.method(&Type::ours(of), &name)?;
        Some(function.clone())
    }
}

pub(crate) fn words(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|s| s.ident.to_string()).collect()
}

/// The type inside of `Option<T>`, `Result<T, E>`.
fn inside(of: Type) -> Option<Type> {
    of.args.into_iter().next()
}

/// The type that a method of `Option` and the like returns.
fn of_foreign(of: Type, method: &str) -> Option<Type> {
    match method {
        "as_deref" | "as_deref_mut" | "as_mut" | "as_ref" | "clone" | "cloned" | "copied"
        | "filter" | "iter" | "iter_mut" | "map_err" | "ok" | "ok_or" | "or_else" | "take"
        | "values" | "values_mut" => Some(of),
        "expect" | "unwrap" | "unwrap_or_default" | "unwrap_or_else" => inside(of),
        "get" | "get_mut" => Some(Type::foreign(
            "Option",
            vec![of.args.into_iter().next_back()?],
        )),
        _ => None,
    }
}
