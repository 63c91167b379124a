//! The C code that the linking step generates: jumps from librdmacm into libibverbs, and
//! unsupported functions, which only report that. All but two instructions are portable C.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::Library;
use super::symbols::{Answer, Symbol, Unsupported};

/// The beginning of every file. A jump leaves arguments, stack and return address unchanged.
const HEAD: &str = r#"/* Written by `cargo xtask libs`. */
#include <errno.h>
#include <stddef.h>

#if defined(__x86_64__)
#define JUMP(to) "endbr64\n\tjmp " to "@PLT"
#elif defined(__aarch64__)
#define JUMP(to) "hint 34\n\tb " to
#else
#error "Outboard runs on x86-64 and aarch64"
#endif
#define TRAMPOLINE(name) \
    __asm__(".text\n\t.p2align 4\n\t.globl " #name "\n\t.type " #name ", %function\n" \
            #name ":\n\t" JUMP("outboard_" #name) "\n\t.size " #name ", . - " #name "\n")

"#;

/// The C code that a library needs beside the Rust code.
#[derive(Debug)]
pub(super) struct Glue<'a> {
    jumps: Vec<&'a Symbol>,
    stubs: Vec<(&'a Symbol, &'a Answer)>,
}

impl<'a> Glue<'a> {
    /// # Errors
    /// When a symbol is neither written in Rust nor listed as unsupported.
    pub(super) fn new(
        library: Library,
        symbols: &'a [Symbol],
        written: &BTreeSet<String>,
        unsupported: &'a Unsupported,
    ) -> Result<Self> {
        let mut glue = Self { jumps: Vec::new(), stubs: Vec::new() };
        let mut missing = Vec::new();
        for symbol in symbols {
            if symbol.current && written.contains(&library.rust_name(&symbol.name)) {
                glue.jumps.extend((library == Library::Rdmacm).then_some(symbol));
            } else if let Some(answer) = unsupported.answer(symbol) {
                glue.stubs.push((symbol, answer));
            } else {
                missing.push(library.rust_name(&symbol.key()));
            }
        }
        if !missing.is_empty() {
            bail!(
                "{} needs {}: write that in crates/ibverbs, or say in \
                 crates/ibverbs/symbols/unsupported how it fails",
                library.soname(),
                missing.join(", ")
            );
        }
        Ok(glue)
    }

    /// The C code.
    pub(super) fn text(&self) -> String {
        let jumps = self.jumps.iter().map(|symbol| format!("TRAMPOLINE({});\n", symbol.name));
        let stubs = self.stubs.iter().map(|(symbol, answer)| stub(symbol, answer));
        HEAD.chars().chain(jumps.chain(stubs).collect::<String>().chars()).collect()
    }
}

/// Results are as wide as a register: a caller that expects a narrower one uses the lower half.
fn stub(symbol: &Symbol, answer: &Answer) -> String {
    let Symbol { name, version, current } = symbol;
    let (name, alias) = if *current {
        (name.clone(), String::new())
    } else {
        // A version that is not the current one is attached to another name.
        let old = format!("old_{name}");
        let alias = format!("__asm__(\".symver {old}, {name}@{version}\");\n");
        (old, alias)
    };
    let used = "__attribute__((used))";
    let item = match answer {
        Answer::Null(errno) => {
            format!("{used} void *{name}(void) {{ errno = {errno}; return NULL; }}\n")
        }
        Answer::MinusOne(errno) => {
            format!("{used} long {name}(void) {{ errno = {errno}; return -1; }}\n")
        }
        Answer::Code(errno) => {
            format!("{used} long {name}(void) {{ errno = {errno}; return {errno}; }}\n")
        }
        Answer::Negative(errno) => {
            format!("{used} long {name}(void) {{ errno = {errno}; return -{errno}; }}\n")
        }
        Answer::Zero => format!("{used} long {name}(void) {{ return 0; }}\n"),
        Answer::Nothing => format!("{used} void {name}(void) {{ }}\n"),
        Answer::Byte => format!("{used} char {name};\n"),
    };
    item + &alias
}
