//! Rules about the messages of the C libraries: they are printed inside other people's programs, so
//! each is explained on a page of its own.
//!
//! A message is what `eprintln!` and `say!` print, what the functions named `why_…` return, and any
//! text in `outboard run`. Its fixed parts, those between the values filled in, must stand on the
//! page in one line.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::Finding;
use super::source::Source;

/// The page that explains every message.
pub(super) const PAGE: &str = "docs/run-troubleshooting.md";
/// The files whose messages are checked, and those in which every text is a message because all of
/// them are errors.
const SPEAKERS: &[&str] = &["crates/ibverbs/src/", RUN];
const RUN: &str = "crates/outboard/src/run";
/// Fixed parts shorter than this identify no message.
const SHORT: usize = 8;

/// Messages that the page does not explain.
pub(super) fn check(sources: &[Source]) -> Vec<Finding> {
    let page = sources.iter().find(|source| source.path == PAGE);
    let page = page.map_or("", |source| &source.text);
    let speakers = sources.iter().filter(|source| {
        !source.is_tests() && SPEAKERS.iter().any(|place| source.path.starts_with(place))
    });
    speakers.flat_map(|source| unexplained(source, page)).collect()
}

fn unexplained(source: &Source, page: &str) -> Vec<Finding> {
    let missing = |(line, message): (usize, String)| {
        let known = page.lines().any(|text| says(text, &message));
        let what = format!("prints {message:?}, which {PAGE} does not explain");
        (!known).then(|| Finding::new(&source.path, line, what))
    };
    messages(&source.text, source.path.starts_with(RUN)).into_iter().filter_map(missing).collect()
}

/// Whether a line of the page has all fixed parts of a message in order.
fn says(line: &str, message: &str) -> bool {
    let mut rest = line;
    let mut parts = fixed_parts(message).into_iter();
    parts.all(|part| match rest.split_once(&part) {
        Some((_, after)) => {
            rest = after;
            true
        }
        None => false,
    })
}

fn fixed_parts(message: &str) -> Vec<String> {
    let parts = message.split('{').map(|part| part.split_once('}').map_or(part, |(_, text)| text));
    let parts: Vec<String> = parts.map(|part| part.trim().to_owned()).collect();
    let long: Vec<String> = parts.iter().filter(|part| part.len() >= SHORT).cloned().collect();
    if long.is_empty() { parts } else { long }
}

/// The texts that a file's code prints, with their lines.
fn messages(text: &str, all: bool) -> Vec<(usize, String)> {
    let mut finder = Finder { reasons: usize::from(all), ..Finder::default() };
    if let Ok(file) = syn::parse_file(text) {
        finder.visit_file(&file);
    }
    finder.found
}

#[derive(Default)]
struct Finder {
    found: Vec<(usize, String)>,
    /// The depth of nested functions named `why_…`.
    reasons: usize,
}

impl Finder {
    fn add(&mut self, literal: &syn::LitStr) {
        let message = literal.value();
        let message = message.trim_start_matches("outboard: ").trim();
        // A format without text of its own only passes another message on.
        let passed_on = message.starts_with('{') && message.ends_with('}');
        // A single word is a name, such as a path.
        if message.contains(' ') && !passed_on {
            self.found.push((literal.span().start().line, message.to_owned()));
        }
    }

    /// The format of a macro that prints: the first thing in its brackets.
    fn add_format(&mut self, tokens: TokenStream) {
        if let Some(TokenTree::Literal(literal)) = tokens.into_iter().next()
            && let Ok(literal) = syn::parse_str::<syn::LitStr>(&literal.to_string())
        {
            self.add(&literal);
        }
    }
}

impl<'a> Visit<'a> for Finder {
    fn visit_item_mod(&mut self, item: &'a syn::ItemMod) {
        if !item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg")) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        let reason = usize::from(item.sig.ident.to_string().starts_with("why_"));
        self.reasons += reason;
        visit::visit_item_fn(self, item);
        self.reasons -= reason;
    }

    fn visit_macro(&mut self, call: &'a syn::Macro) {
        let prints = call.path.is_ident("eprintln") || call.path.is_ident("say");
        if prints || self.reasons > 0 && call.path.is_ident("format") {
            let before = self.found.len();
            self.add_format(call.tokens.clone());
            let line = call.path.segments[0].ident.span().start().line;
            self.found[before..].iter_mut().for_each(|found| found.0 = line);
        }
    }

    /// Comments are attributes.
    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}

    fn visit_lit_str(&mut self, literal: &'a syn::LitStr) {
        if self.reasons > 0 {
            self.add(literal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = "fn f() {\n    eprintln!(\n        \"outboard: cannot open {path}: \
                        {error}; go\\\n         elsewhere\"\n    );\n}";

    fn findings(page: &str) -> Vec<Finding> {
        let code = Source::new("crates/ibverbs/src/f.rs", CODE).unwrap();
        check(&[code, Source::new(PAGE, page).unwrap()])
    }

    #[test]
    fn a_message_on_the_page_is_found_whatever_is_filled_in() {
        assert_eq!(findings("### `cannot open FILE: ERROR; goelsewhere`\n"), []);
    }

    #[test]
    fn a_message_that_the_page_lacks_is_a_finding_with_its_line() {
        let found = findings("### `cannot open FILE`\n");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert!(found[0].message.contains("cannot open {path}"), "{}", found[0].message);
    }

    #[test]
    fn reasons_are_messages_and_mere_wrapping_is_none() {
        let code = "fn why_not() -> String { format!(\"there is no {x} here\") }\n\
                    fn why() { say!(\"{}\", why_not()); }\n\
                    fn more() { say!(\"more of it\"); }";
        assert_eq!(
            messages(code, false),
            [(1, "there is no {x} here".to_owned()), (3, "more of it".to_owned()),]
        );
    }

    #[test]
    fn every_text_of_outboard_run_is_a_message_but_for_names_and_comments() {
        let code = "/// Not this one.\nfn f() { g(\"lib/outboard\", \"is a directory\") }";
        assert_eq!(messages(code, true), [(2, "is a directory".to_owned())]);
        assert_eq!(messages(code, false), []);
    }
}
