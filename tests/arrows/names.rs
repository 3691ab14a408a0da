//! The files of all crates, the names that they define, and the file that a path leads to.

use std::collections::BTreeMap;

use syn::visit::Visit;
use syn::{Attribute, Item, ItemUse, Meta, UseTree, Visibility};

/// The path of a module: `["dsync", "module", "run"]`.
pub(crate) type Module = Vec<String>;

/// A name and the module that defines it.
pub(crate) type Name = (Module, String);

/// One name that a `use` brings into a module.
pub(crate) struct Use {
    /// `*` for all names of a module.
    name: String,
    path: Vec<String>,
}

/// A module: a file, or a `mod` in braces inside of one.
pub(crate) struct Source {
    pub(crate) file: String,
    pub(crate) items: Vec<Item>,
    uses: Vec<Use>,
}

#[derive(Default)]
pub(crate) struct Sources {
    pub(crate) modules: BTreeMap<Module, Source>,
}

impl Sources {
    /// Adds a file and those that it declares. `read` returns the text of a file, `None` if there is none.
    pub(crate) fn add(
        &mut self,
        module: Module,
        file: &str,
        read: &impl Fn(&str) -> Option<String>,
    ) {
        let text = read(file).unwrap_or_else(|| panic!("{file} cannot be read"));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
        self.add_items(module, file, parsed.items, read);
    }

    fn add_items(
        &mut self,
        module: Module,
        file: &str,
        items: Vec<Item>,
        read: &impl Fn(&str) -> Option<String>,
    ) {
        let mut own = Vec::new();
        for item in items {
            match item {
                _ if is_for_tests(attributes(&item)) => {}
                Item::Mod(inner) => {
                    let name = inner.ident.to_string();
                    let path = [&module[..], std::slice::from_ref(&name)].concat();
                    match inner.content {
                        Some((_, items)) => self.add_items(path, file, items, read),
                        None => self.add(path, &file_of(file, &name, read), read),
                    }
                }
                _ => own.push(item),
            }
        }
        let mut uses = Uses(Vec::new());
        own.iter().for_each(|item| uses.visit_item(item));
        let source = Source {
            file: file.to_owned(),
            items: own,
            uses: uses.0,
        };
        self.modules.insert(module, source);
    }

    /// Returns the module that a path leads to, and the names that the path has in it: none if the module is meant
    /// itself. `None` if the path leads out of these crates, or to a local variable.
    pub(crate) fn resolve(&self, from: &Module, path: &[String]) -> Option<(Module, Vec<String>)> {
        self.resolve_deep(from, path, 0)
    }

    fn resolve_deep(
        &self,
        from: &Module,
        path: &[String],
        depth: usize,
    ) -> Option<(Module, Vec<String>)> {
        let first = path.first().filter(|_| depth < 8)?;
        match &first[..] {
            "crate" => self.walk(from[..1].to_vec(), &path[1..], depth),
            _ => self.walk(from.clone(), path, depth).or_else(|| {
                let root = vec![first.clone()];
                let is_crate = self.modules.contains_key(&root);
                is_crate.then(|| self.walk(root, &path[1..], depth))?
            }),
        }
    }

    fn walk(&self, mut at: Module, path: &[String], depth: usize) -> Option<(Module, Vec<String>)> {
        let mut rest = path;
        while let [first, more @ ..] = rest {
            let inner = [&at[..], std::slice::from_ref(first)].concat();
            match &first[..] {
                "self" => {}
                "super" => drop(at.pop()),
                _ if self.modules.contains_key(&inner) => at = inner,
                _ => return self.walk_names(at, rest, depth),
            }
            rest = more;
        }
        Some((at, Vec::new()))
    }

    /// Follows names that are no modules: the module defines the first, or a `use` in it brings it in.
    fn walk_names(
        &self,
        at: Module,
        names: &[String],
        depth: usize,
    ) -> Option<(Module, Vec<String>)> {
        let source = self.modules.get(&at)?;
        if source.items.iter().any(|item| defines(item, &names[0])) {
            return Some((at, names.to_vec()));
        }
        let named = source.uses.iter().find(|used| used.name == names[0]);
        if let Some(used) = named.filter(|used| used.path[..] != *names) {
            return self.resolve_deep(&at, &[&used.path[..], &names[1..]].concat(), depth + 1);
        }
        source
            .uses
            .iter()
            .filter(|u| u.name == "*")
            .find_map(|all| {
                let (of, rest) = self.resolve_deep(&at, &all.path, depth + 1)?;
                let is_other_module = rest.is_empty() && of != at;
                is_other_module.then(|| self.walk(of, names, depth + 1))?
            })
    }
}

/// Finds each `use`, also those in functions.
struct Uses(Vec<Use>);

impl Visit<'_> for Uses {
    fn visit_item_use(&mut self, item: &ItemUse) {
        read_use(&item.tree, &[], &mut |name, path| {
            self.0.push(Use { name, path });
        });
    }
}

fn file_of(parent: &str, name: &str, read: &impl Fn(&str) -> Option<String>) -> String {
    let (folder, stem) = parent.rsplit_once('/').expect("a file in a folder");
    let folder = match stem {
        "lib.rs" | "main.rs" | "mod.rs" => folder.to_owned(),
        _ => parent.trim_end_matches(".rs").to_owned(),
    };
    let file = format!("{folder}/{name}.rs");
    match read(&file) {
        Some(_) => file,
        None => format!("{folder}/{name}/mod.rs"),
    }
}

/// Whether `#[cfg(test)]` is among the attributes.
pub(crate) fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string() == "test",
        _ => false,
    })
}

pub(crate) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn defines(item: &Item, name: &str) -> bool {
    match item {
        Item::Const(item) => item.ident == name,
        Item::Enum(item) => item.ident == name,
        Item::Fn(item) => item.sig.ident == name,
        Item::Macro(item) => item.ident.as_ref().is_some_and(|ident| ident == name),
        Item::Static(item) => item.ident == name,
        Item::Struct(item) => item.ident == name,
        Item::Trait(item) => item.ident == name,
        Item::Type(item) => item.ident == name,
        Item::Union(item) => item.ident == name,
        _ => false,
    }
}

/// Whether a `use` is a re-export, which is no arrow: who uses the name has the arrow to the file that defines it.
pub(crate) fn is_re_export(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}

/// Calls `found` with each name that a `use` brings in, and its path.
pub(crate) fn read_use(
    tree: &UseTree,
    before: &[String],
    found: &mut impl FnMut(String, Vec<String>),
) {
    let with = |name: String| [before, &[name]].concat();
    match tree {
        UseTree::Path(path) => read_use(&path.tree, &with(path.ident.to_string()), found),
        UseTree::Name(name) if name.ident == "self" => {
            found(before.last().cloned().unwrap_or_default(), before.to_vec());
        }
        UseTree::Name(name) => found(name.ident.to_string(), with(name.ident.to_string())),
        UseTree::Rename(rename) if rename.ident == "self" => {
            found(rename.rename.to_string(), before.to_vec());
        }
        UseTree::Rename(rename) => {
            found(rename.rename.to_string(), with(rename.ident.to_string()));
        }
        UseTree::Glob(_) => found("*".to_owned(), before.to_vec()),
        UseTree::Group(group) => {
            for tree in &group.items {
                read_use(tree, before, found);
            }
        }
    }
}
