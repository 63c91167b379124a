//! All known options: how their arguments are written, and what they mean for a job.
//!
//! To let jobs with a further option run remotely, add a row. An option without a row that is not
//! in `flags.txt` either makes its job run locally.

use super::{Cause, DirectoryRole};
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
    /// About code, warnings or texts: it has the same effect remotely.
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
    Directory(DirectoryRole),
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
    /// The value `native` makes the job run locally.
    Tuning,
    /// `-Wp,…`: words for the preprocessor with commas between.
    ForPreprocessor,
    /// `-Wa,…`: words for the assembler with commas between.
    ForAssembler,
    /// The job runs locally.
    Local(Cause),
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
use Means::{Directory, Local, Plain};
use Shape::{Alone, Either, Joined, Next};

/// The rows. The longest name that fits a word wins.
pub(super) const OPTIONS: &[Opt] = &[
    // What is to be done.
    row("-c", Alone, Means::Compile),
    row("--compile", Alone, Means::Compile),
    row("-S", Alone, Means::Assemble),
    row("-E", Alone, Local(Preprocess)),
    row("-M", Alone, Local(Preprocess)),
    row("-MM", Alone, Local(Preprocess)),
    row("-MG", Alone, Local(Preprocess)),
    row("-MJ", Either, Local(SideOutput)),
    row("-fsyntax-only", Alone, Local(Preprocess)),
    row("-###", Alone, Local(Query)),
    row("-v", Alone, Local(Query)),
    row("--verbose", Alone, Local(Query)),
    row("--version", Alone, Local(Query)),
    row("--help", Joined, Local(Query)),
    row("--target-help", Alone, Local(Query)),
    row("-dumpversion", Alone, Local(Query)),
    row("-dumpfullversion", Alone, Local(Query)),
    row("-dumpmachine", Alone, Local(Query)),
    row("-dumpspecs", Alone, Local(Query)),
    row("-print-", Joined, Local(Query)),
    row("--print-", Joined, Local(Query)),
    row("-cc1", Joined, Local(ForeignCode)),
    // Names.
    row("-o", Either, Means::Output),
    row("-x", Either, Means::Language),
    row("-I", Either, Directory(DirectoryRole::Include)),
    row("-iquote", Either, Directory(DirectoryRole::Quote)),
    row("-isystem", Either, Directory(DirectoryRole::System)),
    row("-cxx-isystem", Either, Directory(DirectoryRole::System)),
    row("-idirafter", Either, Directory(DirectoryRole::After)),
    row("-isysroot", Either, Directory(DirectoryRole::Root)),
    row("--sysroot", Next, Directory(DirectoryRole::Root)),
    row("--sysroot=", Joined, Directory(DirectoryRole::Root)),
    row("-include", Either, Means::File),
    row("-imacros", Either, Means::File),
    row("-include-pch", Either, Local(PrecompiledHeader)),
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
    row("-gno-split-dwarf", Alone, Local(SideOutput)),
    row("-fstack-usage", Alone, Means::StackUsage),
    row("-ftest-coverage", Alone, Means::CoverageNotes),
    row("--coverage", Alone, Means::CoverageNotes),
    row("-coverage", Alone, Means::CoverageNotes),
    row("-fprofile-note=", Joined, Local(SideOutput)),
    row("-save-temps", Joined, Local(SideOutput)),
    row("--save-temps", Joined, Local(SideOutput)),
    row("-dump", Joined, Local(SideOutput)),
    row("-aux-info", Either, Local(SideOutput)),
    row("-fcallgraph-info", Joined, Local(SideOutput)),
    row("-fdump-", Joined, Local(SideOutput)),
    row("-ftime-trace", Joined, Local(SideOutput)),
    row("-fsave-optimization-record", Joined, Local(SideOutput)),
    row("-foptimization-record-", Joined, Local(SideOutput)),
    row("-fopt-info", Joined, Local(SideOutput)),
    row("-fdiagnostics-format=", Joined, Local(SideOutput)),
    row("-fdiagnostics-add-output=", Joined, Local(SideOutput)),
    row("-fdiagnostics-set-output=", Joined, Local(SideOutput)),
    row("--serialize-diagnostics", Next, Local(SideOutput)),
    row("-serialize-diagnostics", Next, Local(SideOutput)),
    row("-index-", Joined, Local(SideOutput)),
    row("-emit-", Joined, Local(SideOutput)),
    row("--analyze", Joined, Local(SideOutput)),
    row("-frepo", Alone, Local(SideOutput)),
    row("-fcompare-debug", Joined, Local(SideOutput)),
    row("-freport-bug", Alone, Local(SideOutput)),
    // Inputs and code that are not the project's.
    row("-fprofile-use", Joined, Local(Profile)),
    row("-fprofile-instr-use", Joined, Local(Profile)),
    row("-fprofile-sample-use", Joined, Local(Profile)),
    row("-fprofile-list=", Joined, Local(Profile)),
    row("-fprofile-remapping-file=", Joined, Local(Profile)),
    row("-fauto-profile", Joined, Local(Profile)),
    row("-fbranch-probabilities", Alone, Local(Profile)),
    row("-fmodule", Joined, Local(Modules)),
    row("-fcxx-modules", Alone, Local(Modules)),
    row("-fimplicit-module", Joined, Local(Modules)),
    row("-fbuiltin-module-map", Alone, Local(Modules)),
    row("-fprebuilt-", Joined, Local(Modules)),
    row("-module", Joined, Local(Modules)),
    row("-gmodules", Alone, Local(Modules)),
    row("-fpch-preprocess", Alone, Local(PrecompiledHeader)),
    row("-fplugin", Joined, Local(ForeignCode)),
    row("-fpass-plugin=", Joined, Local(ForeignCode)),
    row("-specs", Either, Local(ForeignCode)),
    row("--specs", Joined, Local(ForeignCode)),
    row("-B", Either, Local(ForeignCode)),
    row("-wrapper", Next, Local(ForeignCode)),
    row("-fuse-ld", Joined, Local(ForeignCode)),
    row("-no-canonical-prefixes", Alone, Local(ForeignCode)),
    row("-Xclang", Next, Local(ForeignCode)),
    row("-Xassembler", Next, Local(ForeignCode)),
    row("-Xpreprocessor", Next, Local(ForeignCode)),
    row("-mllvm", Either, Local(ForeignCode)),
    row("-Xarch_", Joined, Local(ForeignCode)),
    row("--gcc-toolchain", Joined, Local(ForeignCode)),
    row("--gcc-install-dir=", Joined, Local(ForeignCode)),
    row("-resource-dir", Either, Local(ForeignCode)),
    row("--config", Joined, Local(ForeignCode)),
    row("-iprefix", Either, Local(ForeignCode)),
    row("-iwithprefix", Either, Local(ForeignCode)),
    row("-iwithprefixbefore", Either, Local(ForeignCode)),
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
    row("-I-", Alone, Local(Cause::UnknownOption)),
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
    row("-Q", Alone, Local(Query)),
    row("-O", Joined, Plain),
    row("-ObjC", Joined, Local(Cause::UnknownLanguage)),
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
    row("--driver-mode=", Joined, Local(ForeignCode)),
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
    row("-r", Alone, Local(Link)),
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

/// Words that `-Wa,` may pass to a remote assembler; a `*` ends the beginning of a word.
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

/// Rows by the name's second byte, the longest name first.
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
