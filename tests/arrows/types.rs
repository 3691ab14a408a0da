//! The types of all crates, with their fields and methods: as much as it takes to see which file defines a called
//! method.

use std::collections::BTreeMap;

use syn::{
    FnArg, GenericArgument, ImplItem, Item, PathArguments, ReturnType, Signature, TraitItem,
    TypeParamBound,
};

use crate::names::{Module, Name, Sources, is_for_tests};

/// A type without its references.
#[derive(Clone)]
pub(crate) struct Type {
    pub(crate) head: Head,
    /// The generic arguments; of a closure, the types of its parameters.
    pub(crate) args: Vec<Type>,
}

#[derive(Clone)]
pub(crate) enum Head {
    Ours(Name),
    /// Of another crate, by its last name: `Option`.
    Foreign(String),
}

impl Type {
    pub(crate) fn ours(name: Name) -> Type {
        Type {
            head: Head::Ours(name),
            args: Vec::new(),
        }
    }

    pub(crate) fn foreign(name: &str, args: Vec<Type>) -> Type {
        Type {
            head: Head::Foreign(name.to_owned()),
            args,
        }
    }
}

/// The types of a function. `None` where a type is not seen, a generic parameter for example.
#[derive(Clone, Default)]
pub(crate) struct Function {
    /// Without `self`.
    pub(crate) inputs: Vec<Option<Type>>,
    pub(crate) output: Option<Type>,
}

/// What a type, or a trait, has.
#[derive(Default)]
pub(crate) struct Members {
    pub(crate) fields: BTreeMap<String, Type>,
    /// Also associated constants. By name: the file, and the types.
    pub(crate) methods: BTreeMap<String, Vec<(String, Function)>>,
}

/// Where a type is written.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) module: &'a Module,
    pub(crate) self_type: Option<&'a Name>,
}

pub(crate) struct Types<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) members: BTreeMap<Name, Members>,
    pub(crate) functions: BTreeMap<Name, Function>,
    /// The types of statics and constants.
    pub(crate) values: BTreeMap<Name, Type>,
    aliases: BTreeMap<Name, (&'a Module, &'a syn::Type)>,
}

impl<'a> Types<'a> {
    pub(crate) fn of(sources: &'a Sources) -> Types<'a> {
        let mut types = Types {
            sources,
            members: BTreeMap::new(),
            functions: BTreeMap::new(),
            values: BTreeMap::new(),
            aliases: BTreeMap::new(),
        };
        let items = || {
            let modules = sources.modules.iter();
            modules.flat_map(|(module, source)| source.items.iter().map(move |i| (module, i)))
        };
        for (module, item) in items() {
            if let Item::Type(item) = item {
                let name = (module.clone(), item.ident.to_string());
                types.aliases.insert(name, (module, &item.ty));
            }
        }
        for (module, item) in items() {
            types.note(module, item);
        }
        types
    }

    fn note(&mut self, module: &Module, item: &Item) {
        let name = |ident: &syn::Ident| (module.clone(), ident.to_string());
        let outside = Place {
            module,
            self_type: None,
        };
        match item {
            Item::Struct(item) => {
                let of = name(&item.ident);
                let place = Place {
                    module,
                    self_type: Some(&of),
                };
                let fields = item.fields.iter().enumerate().filter_map(|(at, field)| {
                    let name = field
                        .ident
                        .as_ref()
                        .map_or(at.to_string(), ToString::to_string);
                    Some((name, self.read(&field.ty, place)?))
                });
                let fields = fields.collect();
                self.members.entry(of).or_default().fields = fields;
            }
            Item::Enum(item) => {
                self.members.entry(name(&item.ident)).or_default();
            }
            Item::Fn(item) => {
                let function = self.function(&item.sig, outside);
                self.functions.insert(name(&item.sig.ident), function);
            }
            Item::Static(item) => {
                let of = self.read(&item.ty, outside);
                self.values.extend(of.map(|of| (name(&item.ident), of)));
            }
            Item::Const(item) => {
                let of = self.read(&item.ty, outside);
                self.values.extend(of.map(|of| (name(&item.ident), of)));
            }
            Item::Trait(item) => {
                for inner in &item.items {
                    if let TraitItem::Fn(method) = inner {
                        self.note_method(&name(&item.ident), module, &method.sig);
                    }
                }
            }
            Item::Impl(item) => self.note_impl(module, item),
            _ => {}
        }
    }

    fn note_impl(&mut self, module: &Module, item: &syn::ItemImpl) {
        let outside = Place {
            module,
            self_type: None,
        };
        let Some(Head::Ours(of)) = self.read(&item.self_ty, outside).map(|of| of.head) else {
            return;
        };
        for inner in &item.items {
            match inner {
                ImplItem::Fn(method) if !is_for_tests(&method.attrs) => {
                    self.note_method(&of, module, &method.sig);
                }
                ImplItem::Const(constant) => {
                    let name = constant.ident.to_string();
                    self.note_member(&of, name, module, Function::default());
                }
                _ => {}
            }
        }
    }

    fn note_method(&mut self, of: &Name, module: &Module, signature: &Signature) {
        let place = Place {
            module,
            self_type: Some(of),
        };
        let function = self.function(signature, place);
        self.note_member(of, signature.ident.to_string(), module, function);
    }

    fn note_member(&mut self, of: &Name, name: String, module: &Module, function: Function) {
        let file = self.sources.modules[module].file.clone();
        let members = self.members.entry(of.clone()).or_default();
        members
            .methods
            .entry(name)
            .or_default()
            .push((file, function));
    }

    pub(crate) fn function(&self, signature: &Signature, place: Place<'_>) -> Function {
        let inputs = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(self.read(&typed.ty, place)),
            FnArg::Receiver(_) => None,
        });
        Function {
            inputs: inputs.collect(),
            output: match &signature.output {
                ReturnType::Type(_, ty) => self.read(ty, place),
                ReturnType::Default => None,
            },
        }
    }

    pub(crate) fn read(&self, ty: &syn::Type, place: Place<'_>) -> Option<Type> {
        match ty {
            syn::Type::Reference(inner) => self.read(&inner.elem, place),
            syn::Type::Slice(inner) => {
                let inner = self.read(&inner.elem, place)?;
                Some(Type::foreign("slice", vec![inner]))
            }
            syn::Type::Tuple(tuple) => {
                let args = tuple.elems.iter().map(|ty| self.read_argument(ty, place));
                Some(Type::foreign("tuple", args.collect()))
            }
            syn::Type::ImplTrait(inner) => self.read_bounds(&inner.bounds, place),
            syn::Type::TraitObject(inner) => self.read_bounds(&inner.bounds, place),
            syn::Type::Path(path) if path.qself.is_none() => self.read_path(&path.path, place),
            _ => None,
        }
    }

    /// Keeps the place of a type that is not seen among others.
    fn read_argument(&self, ty: &syn::Type, place: Place<'_>) -> Type {
        self.read(ty, place)
            .unwrap_or_else(|| Type::foreign("?", Vec::new()))
    }

    fn read_bounds<'b>(
        &self,
        bounds: impl IntoIterator<Item = &'b TypeParamBound>,
        place: Place<'_>,
    ) -> Option<Type> {
        bounds.into_iter().find_map(|bound| match bound {
            TypeParamBound::Trait(bound) => self.read_path(&bound.path, place),
            _ => None,
        })
    }

    fn read_path(&self, path: &syn::Path, place: Place<'_>) -> Option<Type> {
        if path.is_ident("Self") {
            return place.self_type.cloned().map(Type::ours);
        }
        let last = path.segments.last()?;
        let args = match &last.arguments {
            PathArguments::AngleBracketed(args) => (args.args.iter())
                .filter_map(|arg| match arg {
                    GenericArgument::Type(ty) => Some(self.read_argument(ty, place)),
                    GenericArgument::AssocType(of) => Some(self.read_argument(&of.ty, place)),
                    _ => None,
                })
                .collect(),
            PathArguments::Parenthesized(args) => (args.inputs.iter())
                .map(|arg| self.read_argument(&arg.ty, place))
                .collect(),
            PathArguments::None => Vec::new(),
        };
        let words: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        // Aliases of `Result` have the type of the value first, as it has.
        if last.ident == "Result" {
            return Some(Type::foreign("Result", args));
        }
        match self.sources.resolve(place.module, &words) {
            Some((module, rest)) if rest.len() == 1 => {
                let name = (module, rest[0].clone());
                if let Some((module, ty)) = self.aliases.get(&name) {
                    let self_type = None;
                    return self.read(ty, Place { module, self_type });
                }
                let head = Head::Ours(name);
                Some(Type { head, args })
            }
            _ => Some(Type::foreign(&last.ident.to_string(), args)),
        }
    }

    /// Returns the type that has such a member, and its members, looking through pointers like `Arc`.
    pub(crate) fn owner(
        &self,
        of: &Type,
        has: impl Fn(&Members) -> bool,
    ) -> Option<(Name, &Members)> {
        const POINTERS: [&str; 6] = ["Arc", "Box", "MutexGuard", "Rc", "Ref", "RefMut"];
        match &of.head {
            Head::Ours(name) => {
                let members = self.members.get(name).filter(|members| has(members))?;
                Some((name.clone(), members))
            }
            Head::Foreign(name) if POINTERS.contains(&&name[..]) => {
                self.owner(of.args.first()?, has)
            }
            Head::Foreign(_) => None,
        }
    }

    pub(crate) fn method(&self, of: &Type, name: &str) -> Option<(Name, &Function)> {
        let (of, members) = self.owner(of, |members| members.methods.contains_key(name))?;
        Some((of, &members.methods.get(name)?.first()?.1))
    }
}
