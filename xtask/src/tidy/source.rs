//! Reading the workspace's files.
//!
//! For Rust, a file is its text and its *code*: the same lines without comments and literals, so
//! that a rule about code is not set off by a sentence. Code of tests is marked by line.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Directories without files of the project.
const SKIPPED: &[&str] = &["target", ".git", "corpus", "artifacts", "coverage"];
/// Extensions of the text files that the rules apply to.
const ENDINGS: &[&str] = &[".rs", ".toml", ".md", ".ci/run"];

/// One file of the workspace.
pub(super) struct Source {
    /// Relative to the workspace's root, with `/`.
    pub(super) path: String,
    pub(super) text: String,
    /// Present for Rust.
    pub(super) rust: Option<Rust>,
}

/// The parts of a Rust file that the rules need.
#[derive(Default)]
pub(super) struct Rust {
    /// The lines of the file without comments and literals, spaces only between words.
    pub(super) code: Vec<String>,
    /// For each line, whether it belongs to tests.
    pub(super) in_tests: Vec<bool>,
    pub(super) functions: Vec<Function>,
    /// Strings, with the lines on which they begin.
    pub(super) literals: Vec<(usize, String)>,
    /// Modules in files of their own: name, and path where an attribute names it.
    pub(super) modules: Vec<(String, Option<String>)>,
    /// Lines with the word `unsafe`, once for each occurrence.
    pub(super) unsafe_lines: Vec<usize>,
}

/// A function with a body.
pub(super) struct Function {
    pub(super) name: String,
    /// Line of the signature, counted from 1.
    pub(super) line: usize,
    pub(super) lines: usize,
}

impl Source {
    /// # Errors
    /// When the file is Rust and does not parse.
    pub(super) fn new(path: &str, text: &str) -> Result<Self> {
        let rust = if path.ends_with(".rs") { Some(Rust::parse(path, text)?) } else { None };
        Ok(Self { path: path.to_owned(), text: text.to_owned(), rust })
    }

    /// The directory's name below `crates`, for files of crates.
    pub(super) fn crate_name(&self) -> Option<&str> {
        self.path.strip_prefix("crates/")?.split('/').next()
    }

    /// Whether the whole file is tests or a benchmark, which never ship.
    pub(super) fn is_tests(&self) -> bool {
        let never_ship = ["/tests.rs", "/tests/", "/benches/"];
        never_ship.iter().any(|part| self.path.contains(part))
    }

    /// The numbered lines of the file.
    pub(super) fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }
}

impl Rust {
    fn parse(path: &str, text: &str) -> Result<Self> {
        let file = syn::parse_file(text).with_context(|| format!("cannot parse {path}"))?;
        let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
        let count = text.lines().count();
        let mut rust = Self {
            code: vec![String::new(); count + 1],
            in_tests: vec![false; count + 1],
            ..Self::default()
        };
        rust.add_tokens(tokens);
        rust.visit_file(&file);
        Ok(rust)
    }

    /// The code of each line with its number, tests left out.
    pub(super) fn shipped(&self) -> impl Iterator<Item = (usize, &str)> {
        self.numbered().filter(|(line, _)| !self.in_tests[line - 1])
    }

    /// The code of each line with its number.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code.iter().enumerate().map(|(index, code)| (index + 1, code.as_str()))
    }

    fn add_tokens(&mut self, tokens: TokenStream) {
        for token in tokens {
            let line = token.span().start().line;
            match token {
                TokenTree::Group(group) => {
                    let (open, close) = brackets(group.delimiter());
                    self.add(group.span_open().start().line, open);
                    self.add_tokens(group.stream());
                    self.add(group.span_close().start().line, close);
                }
                TokenTree::Ident(word) => self.add_word(line, &word.to_string()),
                TokenTree::Punct(mark) => self.add(line, &mark.to_string()),
                TokenTree::Literal(literal) => {
                    self.add(line, "\"\"");
                    if let syn::Lit::Str(text) = syn::Lit::new(literal) {
                        self.literals.push((line, text.value()));
                    }
                }
            }
        }
    }

    fn add_word(&mut self, line: usize, word: &str) {
        if word == "unsafe" {
            self.unsafe_lines.push(line);
        }
        self.add(line, word);
    }

    fn add(&mut self, line: usize, text: &str) {
        let Some(code) = line.checked_sub(1).and_then(|index| self.code.get_mut(index)) else {
            return;
        };
        let wordy = |c: char| c.is_alphanumeric() || c == '_';
        if code.ends_with(wordy) && text.starts_with(wordy) {
            code.push(' ');
        }
        code.push_str(text);
    }

    /// `use std::{net::TcpStream}` must not hide `std::net`: spells each import out on its line.
    fn add_imports(&mut self, line: usize, prefix: &str, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                self.add_imports(line, &format!("{prefix}{}::", path.ident), &path.tree);
            }
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|item| self.add_imports(line, prefix, item));
            }
            syn::UseTree::Name(name) => self.add(line, &format!(" {prefix}{}", name.ident)),
            syn::UseTree::Rename(name) => self.add(line, &format!(" {prefix}{}", name.ident)),
            syn::UseTree::Glob(_) => self.add(line, &format!(" {prefix}*")),
        }
    }

    fn mark_tests(&mut self, span: proc_macro2::Span) {
        let lines = span.start().line.saturating_sub(1)..span.end().line;
        if let Some(marks) = self.in_tests.get_mut(lines) {
            marks.fill(true);
        }
    }

    fn add_function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let line = signature.fn_token.span.start().line;
        let end = body.brace_token.span.close().end().line;
        self.functions.push(Function {
            name: signature.ident.to_string(),
            line,
            lines: end + 1 - line,
        });
    }
}

impl<'a> Visit<'a> for Rust {
    fn visit_item_use(&mut self, item: &'a syn::ItemUse) {
        self.add_imports(item.use_token.span.start().line, "", &item.tree);
    }

    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if item.content.is_none() {
            self.modules.push((item.ident.to_string(), path_of(&item.attrs)));
        }
        if for_tests(&item.attrs) {
            self.mark_tests(syn::spanned::Spanned::span(item));
        }
        visit::visit_item_mod(self, item);
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        if for_tests(&item.attrs) {
            self.mark_tests(syn::spanned::Spanned::span(item));
        }
        self.add_function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.add_function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.add_function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// The path of `#[path = "..."]`.
fn path_of(attributes: &[syn::Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let pair = attribute.meta.require_name_value().ok()?;
        match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. })
                if pair.path.is_ident("path") =>
            {
                Some(path.value())
            }
            _ => None,
        }
    })
}

/// Whether an item is compiled for tests only.
fn for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

fn brackets(delimiter: Delimiter) -> (&'static str, &'static str) {
    match delimiter {
        Delimiter::Parenthesis => ("(", ")"),
        Delimiter::Brace => ("{", "}"),
        Delimiter::Bracket => ("[", "]"),
        Delimiter::None => ("", ""),
    }
}

/// Every file of the project below `root`, relative to it, sorted.
///
/// # Errors
/// When a directory cannot be read.
pub(super) fn list(root: &Path) -> Result<Vec<String>> {
    let mut files = Vec::new();
    walk(root, "", &mut files)?;
    files.sort();
    Ok(files)
}

fn walk(directory: &Path, prefix: &str, files: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(directory);
    for entry in entries.with_context(|| format!("cannot read {}", directory.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type()?.is_dir() {
            files.push(format!("{prefix}{name}"));
        } else if !SKIPPED.contains(&name.as_str()) {
            walk(&entry.path(), &format!("{prefix}{name}/"), files)?;
        }
    }
    Ok(())
}

/// Reads and parses every file that the rules apply to.
///
/// # Errors
/// When a file cannot be read, or is Rust and does not parse.
pub(super) fn read_all(root: &Path) -> Result<Vec<Source>> {
    let files = list(root)?;
    let ours = files.iter().filter(|path| ENDINGS.iter().any(|ending| path.ends_with(ending)));
    ours.map(|path| {
        let text = fs::read_to_string(root.join(path));
        Source::new(path, &text.with_context(|| format!("cannot read {path}"))?)
    })
    .collect()
}
