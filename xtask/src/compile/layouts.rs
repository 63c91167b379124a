//! Output directories and file names: hidden directories, as automake and libtool use them, and
//! names that shells and build files have trouble with.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use super::Check;
use super::site::{SERVERS, Site};
use super::tree::Tree;

const COMPILE_MAX: Duration = Duration::from_secs(60);

/// Parts of names: spaces, quotes, new lines, characters that a shell or make would expand, and
/// bytes that are not UTF-8.
const NAMES: &[&[u8]] = &[
    b"two words",
    b"it's \"quoted\"",
    b"new\nline",
    b"$(HOME) `date` #;&|*?%41\\t",
    b"\xff\xfe\x80",
    "Grüße".as_bytes(),
];

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::new("layout: automake's and libtool's hidden directories", hidden_outputs),
        Check::new("layout: names of all kinds", all_names),
    ]
}

/// A command line of a compiler.
type Words = Vec<OsString>;

fn words<const N: usize>(words: [&str; N]) -> Words {
    words.iter().map(OsString::from).collect()
}

/// Compiles locally and remotely; all files must be equal, and all jobs must have run remotely.
pub(super) fn both(site: &Site, at: &Path, compilations: &[Words]) -> Result<()> {
    let before = Tree::read(at)?;
    for words in compilations {
        let mut compile = site.here(&words[0]);
        site.finish(compile.args(&words[1..]).current_dir(at), COMPILE_MAX)?;
    }
    let home = Tree::read(at)?.since(&before);
    if home.count("") < compilations.len() {
        bail!("{} compilations made {} files locally", compilations.len(), home.count(""));
    }
    home.remove(at)?;
    site.warm(SERVERS)?;
    for words in compilations {
        let mut compile = site.here("outboard-cc");
        site.finish(compile.args(words).current_dir(at), COMPILE_MAX)?;
    }
    home.expect(&Tree::read(at)?.since(&before))?;
    let statistics = site.statistics()?;
    statistics.locally_only_for(&[])?;
    statistics.expect_remote(compilations.len())
}

fn hidden_outputs(site: &mut Site) -> Result<()> {
    let at = site.directory("hidden")?;
    for directory in ["src/.deps", "src/.libs", "lib/.libs/deep"] {
        fs::create_dir_all(at.join(directory))?;
    }
    fs::write(at.join("Makefile"), "")?;
    fs::write(at.join("config.h"), "#define HAVE_CONFIG 1\n")?;
    fs::write(
        at.join("src/x.c"),
        "#include <config.h>\n#include <stdio.h>\nint x = HAVE_CONFIG;\n",
    )?;
    let automake = words([
        "gcc",
        "-DHAVE_CONFIG_H",
        "-I.",
        "-g",
        "-O2",
        "-MT",
        "src/x.o",
        "-MD",
        "-MP",
        "-MF",
        "src/.deps/x.Tpo",
        "-c",
        "-o",
        "src/x.o",
        "src/x.c",
    ]);
    let libtool = words([
        "gcc",
        "-I.",
        "-g",
        "-MD",
        "-MP",
        "-MF",
        "src/.deps/x.Plo",
        "-c",
        "src/x.c",
        "-fPIC",
        "-DPIC",
        "-o",
        "src/.libs/x.o",
    ]);
    let deep = words([
        "gcc",
        "-I.",
        "-g",
        "-gsplit-dwarf",
        "-fstack-usage",
        "-c",
        "src/x.c",
        "-o",
        "lib/.libs/deep/.x.o",
    ]);
    both(site, &at, &[automake, libtool, deep])
}

fn all_names(site: &mut Site) -> Result<()> {
    let at = site.directory("names")?;
    let mut compilations = Vec::new();
    for name in NAMES {
        let directory = at.join(OsStr::from_bytes(name));
        fs::create_dir_all(&directory)?;
        let path = |front: &str, back: &str| {
            let path = [front.as_bytes(), name, back.as_bytes()].concat();
            directory.join(OsString::from_vec(path))
        };
        // The text between the quotes of an include is taken literally, but ends with the line.
        let header = name.iter().all(|byte| !b"\n\"".contains(byte)).then(|| path("h ", ".h"));
        let mut source = Vec::new();
        if let Some(header) = header {
            fs::write(&header, "static const char *file = __FILE__;\n")?;
            source.extend(
                [b"#include \"h ", *name, b".h\"\nconst char *get(void) { return file; }\n"]
                    .concat(),
            );
        }
        source.extend(b"const char *source = __FILE__;\n");
        fs::write(path("s ", ".c"), source)?;
        let mut words = words(["gcc", "-g", "-MD", "-fstack-usage", "-c"]);
        words.extend([path("s ", ".c").into(), "-o".into(), path("o ", ".o").into()]);
        compilations.push(words);
    }
    both(site, &at, &compilations)
}
