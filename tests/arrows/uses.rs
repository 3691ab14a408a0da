//! The arrows: which file uses which, by the paths in its code and by the methods that it calls.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Block, Expr, FnArg, Item, Pat, Signature, Token};

use crate::names::{Name, Sources, attributes, is_for_tests, is_re_export, read_use};
use crate::scope::{Scope, words};
use crate::types::{Head, Type, Types};

/// Where a file uses another for the first time.
#[derive(Clone)]
pub(crate) struct Example {
    pub(crate) line: usize,
    /// `Engine`, or `Engine::serve` if it calls a method.
    pub(crate) name: String,
}

impl Example {
    pub(crate) fn describe(&self, from: &str, to: &str) -> String {
        format!("{from}:{} uses {} of {to}", self.line, self.name)
    }
}

/// From one file to another.
pub(crate) type Arrows = BTreeMap<(String, String), Example>;

pub(crate) fn arrows(sources: &Sources) -> Arrows {
    let types = Types::of(sources);
    let mut arrows = Arrows::new();
    for (module, source) in &sources.modules {
        let mut reader = Reader {
            file: &source.file,
            scope: Scope {
                types: &types,
                module,
                self_type: None,
                variables: BTreeMap::new(),
            },
            arrows: &mut arrows,
        };
        for item in &source.items {
            reader.visit_item(item);
        }
    }
    arrows
}

struct Reader<'a> {
    file: &'a str,
    scope: Scope<'a>,
    arrows: &'a mut Arrows,
}

impl Reader<'_> {
    fn add(&mut self, to: &str, line: usize, name: String) {
        if to != self.file {
            let arrow = (self.file.to_owned(), to.to_owned());
            let example = Example { line, name };
            let first = self.arrows.entry(arrow).or_insert_with(|| example.clone());
            if example.line < first.line {
                *first = example;
            }
        }
    }

    fn add_path(&mut self, path: &[String], line: usize) {
        match path {
            [one] if one == "Self" || self.scope.variables.contains_key(one) => return,
            [first, member, ..] if first == "Self" => {
                if let Some(of) = self.scope.self_type.clone() {
                    self.add_member(&of, member, line);
                }
                return;
            }
            _ => {}
        }
        let sources = self.scope.types.sources;
        // A path to a module itself uses nothing in it.
        if let Some((module, rest)) = sources.resolve(self.scope.module, path)
            && let [name, more @ ..] = &rest[..]
        {
            self.add(&sources.modules[&module].file, line, rest.join("::"));
            if let Some(member) = more.first() {
                self.add_member(&(module, name.clone()), member, line);
            }
        }
    }

    /// Adds the arrow to the file that defines a member of a type. If several do, each is for another configuration.
    fn add_member(&mut self, of: &Name, member: &str, line: usize) {
        let members = self.scope.types.members.get(of);
        let Some(methods) = members.and_then(|members| members.methods.get(member)) else {
            return;
        };
        if methods.iter().all(|(file, _)| file != self.file) {
            for (file, _) in methods {
                self.add(file, line, format!("{}::{member}", of.1));
            }
        }
    }

    fn bind(&mut self, pat: &Pat, of: Option<Type>) {
        self.visit_pat(pat);
        self.scope.bind(pat, of);
    }

    fn read_function(&mut self, signature: &Signature, body: &Block) {
        let outer = std::mem::take(&mut self.scope.variables);
        visit::visit_signature(self, signature);
        let types = self.scope.types.function(signature, self.scope.place());
        let typed = signature.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(typed) => Some(typed),
            FnArg::Receiver(_) => None,
        });
        for (input, of) in typed.zip(types.inputs) {
            self.scope.bind(&input.pat, of);
        }
        visit::visit_block(self, body);
        self.scope.variables = outer;
    }

    /// Reads the arguments of a call. The parameters of a closure have the types that the function wants, or those
    /// inside of the receiver: `option.map(|inner| …)`.
    fn read_arguments<'e>(
        &mut self,
        args: impl Iterator<Item = &'e Expr>,
        wanted: &[Option<Type>],
        receiver: Option<&Type>,
    ) {
        for (at, arg) in args.enumerate() {
            let Expr::Closure(closure) = arg else {
                self.visit_expr(arg);
                continue;
            };
            let of = wanted.get(at).and_then(Option::as_ref).or(receiver);
            for (at, pat) in closure.inputs.iter().enumerate() {
                self.bind(pat, of.and_then(|of| of.args.get(at)).cloned());
            }
            self.visit_expr(&closure.body);
        }
    }

    /// Reads what a macro gets: as expressions or statements if it is that, otherwise the paths in it.
    fn read_tokens(&mut self, tokens: &TokenStream) {
        let list = Punctuated::<Expr, Token![,]>::parse_terminated;
        if let Ok(exprs) = list.parse2(tokens.clone()) {
            exprs.iter().for_each(|expr| self.visit_expr(expr));
        } else if let Ok(statements) = Block::parse_within.parse2(tokens.clone()) {
            statements.iter().for_each(|one| self.visit_stmt(one));
        } else {
            self.read_paths(tokens.clone());
        }
    }

    fn read_paths(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut line = 0;
        // The sign before, or `p` for `::`.
        let mut before = ' ';
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if before != 'p' {
                        self.add_path(&path, line);
                        path.clear();
                        line = ident.span().start().line;
                    }
                    // `.name` is a field or a method.
                    if before != '.' {
                        path.push(ident.to_string());
                    }
                    before = ' ';
                }
                TokenTree::Punct(sign) => {
                    let is_second = before == ':' && sign.as_char() == ':';
                    before = if is_second { 'p' } else { sign.as_char() };
                }
                TokenTree::Group(group) => {
                    before = ' ';
                    self.read_paths(group.stream());
                }
                TokenTree::Literal(_) => before = ' ',
            }
        }
        self.add_path(&path, line);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_re_export(&item.vis) {
            let line = item.use_token.span.start().line;
            read_use(&item.tree, &[], &mut |_, path| self.add_path(&path, line));
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.read_function(&item.sig, &item.block);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = self.scope.types.read(&item.self_ty, self.scope.place());
        self.scope.self_type = of.and_then(|of| match of.head {
            Head::Ours(name) => Some(name),
            Head::Foreign(_) => None,
        });
        visit::visit_item_impl(self, item);
        self.scope.self_type = None;
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.scope.self_type = Some((self.scope.module.clone(), item.ident.to_string()));
        visit::visit_item_trait(self, item);
        self.scope.self_type = None;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_for_tests(&item.attrs) {
            self.read_function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        match &item.default {
            Some(body) => self.read_function(&item.sig, body),
            None => visit::visit_signature(self, &item.sig),
        }
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_field_value(&mut self, field: &'ast syn::FieldValue) {
        if !is_for_tests(&field.attrs) {
            visit::visit_field_value(self, field);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let first = path.segments.first();
        let line = first.map_or(0, |first| first.ident.span().start().line);
        self.add_path(&words(path), line);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.visit_path(&mac.path);
        self.read_tokens(&mac.tokens);
    }

    fn visit_pat_ident(&mut self, pat: &'ast syn::PatIdent) {
        let name = pat.ident.to_string();
        // Otherwise it is a constant.
        if name.starts_with(|c: char| c.is_lowercase() || c == '_') {
            self.scope.variables.insert(name, None);
        }
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        closure.inputs.iter().for_each(|pat| self.bind(pat, None));
        self.visit_expr(&closure.body);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let init = local.init.as_ref();
        if let Some(init) = init {
            visit::visit_local_init(self, init);
        }
        let of = init.and_then(|init| self.scope.type_of(&init.expr));
        self.bind(&local.pat, of);
    }

    fn visit_expr_let(&mut self, expr: &'ast syn::ExprLet) {
        self.visit_expr(&expr.expr);
        self.bind(&expr.pat, self.scope.type_of(&expr.expr));
    }

    fn visit_expr_for_loop(&mut self, expr: &'ast syn::ExprForLoop) {
        self.visit_expr(&expr.expr);
        let list = self.scope.type_of(&expr.expr);
        self.bind(
            &expr.pat,
            list.and_then(|list| list.args.into_iter().next_back()),
        );
        self.visit_block(&expr.body);
    }

    fn visit_expr_match(&mut self, expr: &'ast syn::ExprMatch) {
        self.visit_expr(&expr.expr);
        let of = self.scope.type_of(&expr.expr);
        for arm in &expr.arms {
            self.bind(&arm.pat, of.clone());
            self.visit_expr(&arm.body);
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        self.visit_expr(&call.func);
        let function = match &*call.func {
            Expr::Path(path) => self.scope.function(&words(&path.path)),
            _ => None,
        };
        self.read_arguments(call.args.iter(), &function.unwrap_or_default().inputs, None);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.visit_expr(&call.receiver);
        if let Some(arguments) = &call.turbofish {
            self.visit_angle_bracketed_generic_arguments(arguments);
        }
        let name = call.method.to_string();
        let receiver = self.scope.type_of(&call.receiver);
        let method = receiver
            .as_ref()
            .and_then(|of| self.scope.types.method(of, &name));
        match method {
            Some((of, function)) => {
                self.add_member(&of, &name, call.method.span().start().line);
                self.read_arguments(call.args.iter(), &function.inputs, None);
            }
            None => self.read_arguments(call.args.iter(), &[], receiver.as_ref()),
        }
    }
}
