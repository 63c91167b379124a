//! Every option that is known, how its argument is written, and what it means for a job.
//!
//! Whoever wants an option to run remotely adds a row. What is in no row, in no family and not in
//! `flags.txt` runs at home.

use super::{Cause, Role};
use std::collections::HashSet;
use std::sync::LazyLock;

/// How an option's argument is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `-c`: the whole word.
    Alone,
    /// `-std=c99`: the word goes on; `-O`: or ends.
    Joined,
    /// `-include FILE`: the next word.
    Next,
    /// `-IDIR` and `-I DIR`.
    Either,
}

/// What an option means for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Means {
    /// Code, warnings or texts; a compiler elsewhere does with it what this one would.
    Plain,
    /// `-c`.
    Compile,
    /// `-S`.
    Assemble,
    /// `-o`.
    Output,
    /// `-x`.
    Language,
    /// A directory.
    Directory(Role),
    /// A file that is read.
    File,
    /// `-MD`, `-MMD`.
    Dependencies,
    /// `-MF`.
    DependenciesTo,
    /// A `.dwo` beside the object.
    SplitDebug,
    /// A `.su` beside the object.
    StackUsage,
    /// A `.gcno` beside the object.
    CoverageNotes,
    /// It says whether diagnostics are in colour.
    Colour,
    /// The command line itself is written into the object.
    Recorded,
    /// `-m…=native` in the end keeps it at home.
    Tuning,
    /// `-Wp,…`: words for the preprocessor with commas between.
    ForPreprocessor,
    /// `-Wa,…`: words for the assembler with commas between.
    ForAssembler,
    /// It runs at home.
    Home(Cause),
}

/// One option.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opt {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) means: Means,
}

const fn row(name: &'static str, shape: Shape, means: Means) -> Opt {
    Opt { name, shape, means }
}

use Cause::{
    ForeignCode, Link, Modules, PrecompiledHeader, Preprocess, Profile, Query, SideOutput,
};
use Means::{Directory, Home, Plain};
use Shape::{Alone, Either, Joined, Next};

/// The rows. The longest name that fits a word wins.
pub(super) const OPTIONS: &[Opt] = &[
    // What is to be done.
    row("-c", Alone, Means::Compile),
    row("--compile", Alone, Means::Compile),
    row("-S", Alone, Means::Assemble),
    row("-E", Alone, Home(Preprocess)),
    row("-M", Alone, Home(Preprocess)),
    row("-MM", Alone, Home(Preprocess)),
    row("-MG", Alone, Home(Preprocess)),
    row("-MJ", Either, Home(SideOutput)),
    row("-fsyntax-only", Alone, Home(Preprocess)),
    row("-###", Alone, Home(Query)),
    row("-v", Alone, Home(Query)),
    row("--verbose", Alone, Home(Query)),
    row("--version", Alone, Home(Query)),
    row("--help", Joined, Home(Query)),
    row("--target-help", Alone, Home(Query)),
    row("-dumpversion", Alone, Home(Query)),
    row("-dumpfullversion", Alone, Home(Query)),
    row("-dumpmachine", Alone, Home(Query)),
    row("-dumpspecs", Alone, Home(Query)),
    row("-print-", Joined, Home(Query)),
    row("--print-", Joined, Home(Query)),
    row("-cc1", Joined, Home(ForeignCode)),
    // Names.
    row("-o", Either, Means::Output),
    row("-x", Either, Means::Language),
    row("-I", Either, Directory(Role::Include)),
    row("-iquote", Either, Directory(Role::Quote)),
    row("-isystem", Either, Directory(Role::System)),
    row("-cxx-isystem", Either, Directory(Role::System)),
    row("-idirafter", Either, Directory(Role::After)),
    row("-isysroot", Either, Directory(Role::Root)),
    row("--sysroot", Next, Directory(Role::Root)),
    row("--sysroot=", Joined, Directory(Role::Root)),
    row("-include", Either, Means::File),
    row("-imacros", Either, Means::File),
    row("-include-pch", Either, Home(PrecompiledHeader)),
    // Side outputs.
    row("-MD", Alone, Means::Dependencies),
    row("-MMD", Alone, Means::Dependencies),
    row("-MF", Either, Means::DependenciesTo),
    row("-MT", Either, Plain),
    row("-MQ", Either, Plain),
    row("-MP", Alone, Plain),
    row("-MV", Alone, Plain),
    row("-gsplit-dwarf", Alone, Means::SplitDebug),
    row("-gsplit-dwarf=split", Alone, Means::SplitDebug),
    row("-gsplit-dwarf=single", Alone, Plain),
    row("-gno-split-dwarf", Alone, Home(SideOutput)),
    row("-fstack-usage", Alone, Means::StackUsage),
    row("-ftest-coverage", Alone, Means::CoverageNotes),
    row("--coverage", Alone, Means::CoverageNotes),
    row("-coverage", Alone, Means::CoverageNotes),
    row("-fprofile-note=", Joined, Home(SideOutput)),
    row("-save-temps", Joined, Home(SideOutput)),
    row("--save-temps", Joined, Home(SideOutput)),
    row("-dump", Joined, Home(SideOutput)),
    row("-aux-info", Either, Home(SideOutput)),
    row("-fcallgraph-info", Joined, Home(SideOutput)),
    row("-fdump-", Joined, Home(SideOutput)),
    row("-ftime-trace", Joined, Home(SideOutput)),
    row("-fsave-optimization-record", Joined, Home(SideOutput)),
    row("-foptimization-record-", Joined, Home(SideOutput)),
    row("-fopt-info", Joined, Home(SideOutput)),
    row("-fdiagnostics-format=", Joined, Home(SideOutput)),
    row("-fdiagnostics-add-output=", Joined, Home(SideOutput)),
    row("-fdiagnostics-set-output=", Joined, Home(SideOutput)),
    row("--serialize-diagnostics", Next, Home(SideOutput)),
    row("-serialize-diagnostics", Next, Home(SideOutput)),
    row("-index-", Joined, Home(SideOutput)),
    row("-emit-", Joined, Home(SideOutput)),
    row("--analyze", Joined, Home(SideOutput)),
    row("-frepo", Alone, Home(SideOutput)),
    row("-fcompare-debug", Joined, Home(SideOutput)),
    row("-freport-bug", Alone, Home(SideOutput)),
    // Inputs and code that are not the project's.
    row("-fprofile-use", Joined, Home(Profile)),
    row("-fprofile-instr-use", Joined, Home(Profile)),
    row("-fprofile-sample-use", Joined, Home(Profile)),
    row("-fprofile-list=", Joined, Home(Profile)),
    row("-fprofile-remapping-file=", Joined, Home(Profile)),
    row("-fauto-profile", Joined, Home(Profile)),
    row("-fbranch-probabilities", Alone, Home(Profile)),
    row("-fmodule", Joined, Home(Modules)),
    row("-fcxx-modules", Alone, Home(Modules)),
    row("-fimplicit-module", Joined, Home(Modules)),
    row("-fbuiltin-module-map", Alone, Home(Modules)),
    row("-fprebuilt-", Joined, Home(Modules)),
    row("-module", Joined, Home(Modules)),
    row("-gmodules", Alone, Home(Modules)),
    row("-fpch-preprocess", Alone, Home(PrecompiledHeader)),
    row("-fplugin", Joined, Home(ForeignCode)),
    row("-fpass-plugin=", Joined, Home(ForeignCode)),
    row("-specs", Either, Home(ForeignCode)),
    row("--specs", Joined, Home(ForeignCode)),
    row("-B", Either, Home(ForeignCode)),
    row("-wrapper", Next, Home(ForeignCode)),
    row("-fuse-ld", Joined, Home(ForeignCode)),
    row("-no-canonical-prefixes", Alone, Home(ForeignCode)),
    row("-Xclang", Next, Home(ForeignCode)),
    row("-Xassembler", Next, Home(ForeignCode)),
    row("-Xpreprocessor", Next, Home(ForeignCode)),
    row("-mllvm", Either, Home(ForeignCode)),
    row("-Xarch_", Joined, Home(ForeignCode)),
    row("--gcc-toolchain", Joined, Home(ForeignCode)),
    row("--gcc-install-dir=", Joined, Home(ForeignCode)),
    row("-resource-dir", Either, Home(ForeignCode)),
    row("--config", Joined, Home(ForeignCode)),
    row("-iprefix", Either, Home(ForeignCode)),
    row("-iwithprefix", Either, Home(ForeignCode)),
    row("-iwithprefixbefore", Either, Home(ForeignCode)),
    // For the preprocessor and the assembler.
    row("-Wp,", Joined, Means::ForPreprocessor),
    row("-Wa,", Joined, Means::ForAssembler),
    row("-D", Either, Plain),
    row("-U", Either, Plain),
    row("-undef", Alone, Plain),
    row("-trigraphs", Alone, Plain),
    row("-remap", Alone, Plain),
    row("-nostdinc", Alone, Plain),
    row("-nostdinc++", Alone, Plain),
    row("-nostdlibinc", Alone, Plain),
    row("-nobuiltininc", Alone, Plain),
    row("-P", Alone, Plain),
    row("-C", Alone, Plain),
    row("-CC", Alone, Plain),
    row("-H", Alone, Plain),
    row("-I-", Alone, Home(Cause::UnknownOption)),
    // Language, warnings, code.
    row("-std=", Joined, Plain),
    row("--std=", Joined, Plain),
    row("-ansi", Alone, Plain),
    row("-stdlib=", Joined, Plain),
    row("-pedantic", Alone, Plain),
    row("-pedantic-errors", Alone, Plain),
    row("-w", Alone, Plain),
    row("-W", Joined, Plain),
    row("-Qunused-arguments", Alone, Plain),
    row("-Q", Alone, Home(Query)),
    row("-O", Joined, Plain),
    row("-ObjC", Joined, Home(Cause::UnknownLanguage)),
    row("-p", Alone, Plain),
    row("-pg", Alone, Plain),
    row("-pipe", Alone, Plain),
    row("-pthread", Alone, Plain),
    row("-pie", Alone, Plain),
    row("-no-pie", Alone, Plain),
    row("--param", Next, Plain),
    row("--param=", Joined, Plain),
    row("-target", Next, Plain),
    row("--target=", Joined, Plain),
    row("-mmacosx-version-min=", Joined, Plain),
    row("-m", Joined, Plain),
    row("-march=", Joined, Means::Tuning),
    row("-mtune=", Joined, Means::Tuning),
    row("-mcpu=", Joined, Means::Tuning),
    row("-no-integrated-as", Alone, Plain),
    row("-integrated-as", Alone, Plain),
    row("--rtlib=", Joined, Plain),
    row("--unwindlib=", Joined, Plain),
    row("--driver-mode=", Joined, Home(ForeignCode)),
    row("-fdiagnostics-color", Joined, Means::Colour),
    row("-fno-diagnostics-color", Alone, Means::Colour),
    row("-fcolor-diagnostics", Alone, Means::Colour),
    row("-fno-color-diagnostics", Alone, Means::Colour),
    row("-frecord-gcc-switches", Alone, Means::Recorded),
    row("-frecord-command-line", Alone, Means::Recorded),
    row("-grecord-command-line", Alone, Means::Recorded),
    // Debug information.
    row("-g", Alone, Plain),
    row("-g0", Alone, Plain),
    row("-g1", Alone, Plain),
    row("-g2", Alone, Plain),
    row("-g3", Alone, Plain),
    row("-ggdb", Joined, Plain),
    row("-gdwarf", Joined, Plain),
    row("-gno-", Joined, Plain),
    row("-gz", Joined, Plain),
    row("-gas-loc-support", Alone, Plain),
    row("-gas-locview-support", Alone, Plain),
    row("-gbtf", Alone, Plain),
    row("-gcodeview", Joined, Plain),
    row("-gcolumn-info", Alone, Plain),
    row("-gctf", Joined, Plain),
    row("-gdescribe-dies", Alone, Plain),
    row("-ggnu-pubnames", Alone, Plain),
    row("-ginline-", Joined, Plain),
    row("-ginternal-reset-location-views", Alone, Plain),
    row("-gkey-instructions", Alone, Plain),
    row("-gline-", Joined, Plain),
    row("-gpubnames", Alone, Plain),
    row("-grecord-gcc-switches", Alone, Plain),
    row("-gsimple-template-names", Joined, Plain),
    row("-gstabs", Joined, Plain),
    row("-gstatement-frontiers", Alone, Plain),
    row("-gstrict-dwarf", Alone, Plain),
    row("-gvariable-location-views", Joined, Plain),
    row("-gvms", Joined, Plain),
    // For the linker, which does not run: nothing is read or written because of them.
    row("-l", Either, Plain),
    row("-L", Either, Plain),
    row("-T", Next, Plain),
    row("-u", Next, Plain),
    row("-z", Next, Plain),
    row("-e", Next, Plain),
    row("-s", Alone, Plain),
    row("-r", Alone, Home(Link)),
    row("-Wl,", Joined, Plain),
    row("-Xlinker", Next, Plain),
    row("-rdynamic", Alone, Plain),
    row("-shared", Alone, Plain),
    row("-static", Alone, Plain),
    row("-static-libgcc", Alone, Plain),
    row("-static-libstdc++", Alone, Plain),
    row("-static-pie", Alone, Plain),
    row("-shared-libgcc", Alone, Plain),
    row("-nostdlib", Alone, Plain),
    row("-nostdlib++", Alone, Plain),
    row("-nodefaultlibs", Alone, Plain),
    row("-nostartfiles", Alone, Plain),
    row("-nolibc", Alone, Plain),
    row("-rpath", Next, Plain),
];

/// Words that an assembler may be given with `-Wa,`; a `*` ends what only has to start so.
pub(super) const ASSEMBLER: &[&str] = &[
    "--32",
    "--64",
    "--x32",
    "--compress-debug-sections*",
    "--nocompress-debug-sections",
    "--divide",
    "--execstack",
    "--noexecstack",
    "--fatal-warnings",
    "--no-warn",
    "--warn",
    "--gdwarf-*",
    "--generate-missing-build-notes=*",
    "--gen-debug",
    "--strip-local-absolute",
    "-g",
    "-g0",
    "-g1",
    "-g2",
    "-g3",
    "-gdwarf*",
    "-m*",
    "-W",
    "-K",
    "-L",
    "--keep-locals",
    "--elf-stt-common=*",
    "--sectname-subst",
    "--size-check=*",
    "--no-pad-sections",
];

/// `-f` flags, without the `-f` or `-fno-`.
static FLAGS: LazyLock<HashSet<&'static str>> = LazyLock::new(|| {
    include_str!("flags.txt").lines().filter(|line| !line.starts_with('#')).collect()
});

/// Whether `word` is a known flag: `-fNAME`, `-fno-NAME`, `-fNAME=VALUE`.
pub(super) fn is_flag(word: &str) -> bool {
    let Some(name) = word.strip_prefix("-f") else { return false };
    let name = name.strip_prefix("no-").unwrap_or(name);
    let valued = name.find('=').map(|at| &name[..=at]);
    let numbered = || name.rfind('-').is_some_and(|at| FLAGS.contains(&name[..=at]));
    FLAGS.contains(valued.unwrap_or(name)) || numbered()
}

/// Rows by the name's second octet, the longest name first.
static INDEX: LazyLock<Vec<Vec<Opt>>> = LazyLock::new(|| {
    let mut index = vec![Vec::new(); 256];
    for opt in OPTIONS {
        index[usize::from(opt.name.as_bytes()[1])].push(*opt);
    }
    index.iter_mut().for_each(|rows| rows.sort_by_key(|opt| std::cmp::Reverse(opt.name.len())));
    index
});

/// The row for a word that starts with `-` and has more.
pub(super) fn find(word: &[u8]) -> Option<Opt> {
    let rows = INDEX.get(usize::from(*word.get(1)?))?;
    rows.iter().find(|opt| fits(opt, word)).copied()
}

fn fits(opt: &Opt, word: &[u8]) -> bool {
    match opt.shape {
        Shape::Alone | Shape::Next => word == opt.name.as_bytes(),
        Shape::Joined | Shape::Either => word.starts_with(opt.name.as_bytes()),
    }
}
