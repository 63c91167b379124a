//! The programs that call the wrapper: distcc's ways of being called, ccache, and cargo's crate cc
//! in build scripts. Each must produce the same files, compiled by servers.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Check;
use super::site::{SERVERS, Site};
use super::tree::Tree;

const CALL_MAX: Duration = Duration::from_secs(60);
const CARGO_MAX: Duration = Duration::from_secs(600);

/// A way to compile `a.c`, as a shell command.
const WAYS: &[&str] = &[
    "outboard-cc gcc -g -MD -c a.c -o out/a.o",
    "outboard-cc -g -MD -c a.c -o out/a.o",
    "outboard-cc a.c -g -MD -c -o out/a.o",
    "outboard cc gcc -g -MD -c a.c -o out/a.o",
    "outboard cc -g -MD -c a.c -o out/a.o",
    "outboard-cc /usr/bin/gcc -g -MD -c a.c -o out/a.o",
    "PATH=$LINKS:$PATH gcc -g -MD -c a.c -o out/a.o",
    "PATH=$LINKS:$PATH cc -g -MD -c a.c -o out/a.o",
    "CCACHE_PREFIX=outboard-cc ccache gcc -g -MD -c a.c -o out/a.o",
    "PATH=/usr/lib/ccache:$PATH CCACHE_PREFIX=outboard-cc CCACHE_RECACHE=1 \
     gcc -g -MD -c a.c -o out/a.o",
    "PWD=/proc/self/cwd outboard-cc gcc -MD -c a.c -o out/a.o",
];

/// Commands whose source only this process can read: run locally, with the same object.
const AT_HOME: &[&str] = &[
    "outboard-cc gcc -x c -c /dev/stdin -o out/a.o < a.c",
    "outboard-cc gcc -x c -c /dev/fd/7 -o out/a.o 7< a.c",
    "outboard-cc gcc -include /proc/self/fd/8 -c b.c -o out/a.o 8< a.c",
    "ln -sf /dev/stdin link.c; outboard-cc gcc -c link.c -o out/a.o < a.c; rm link.c",
    "OUTBOARD_CC_MODE=preprocess outboard-cc gcc -x c -c /dev/stdin -o out/a.o < a.c",
];

/// Number of C files in the crate.
const SOURCES: usize = 6;
const BUILD_SCRIPT: &str = r#"
fn main() {
    let sources = (0..COUNT).map(|number| format!("c/{number}.c"));
    cc::Build::new().include("c").files(sources).compile("tiny");
}
"#;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::new("caller: as distcc, by ccache", ways),
        Check::new("caller: sources of this process alone", own_sources),
        Check::new("caller: cargo's crate cc", |site| crate_cc(site, "cc")),
        Check::new("caller: cargo's crate cc, by a wrapper", |site| {
            crate_cc(site, "outboard-cc cc")
        }),
    ]
}

fn project(site: &Site) -> Result<PathBuf> {
    let at = site.directory("callers")?;
    fs::create_dir_all(at.join("out"))?;
    fs::write(at.join("Makefile"), "")?;
    fs::write(at.join("a.c"), "#include <stddef.h>\nsize_t a(void) { return sizeof(long); }\n")?;
    fs::write(at.join("b.c"), "")?;
    Ok(at)
}

fn shell(site: &Site, at: &Path, line: &str) -> Result<()> {
    let mut shell = site.here("sh");
    shell.args(["-ec", line]).current_dir(at).env("LINKS", site.links());
    site.finish(&mut shell, CALL_MAX).map(drop).with_context(|| line.to_owned())
}

/// Compares the files that a command makes locally, with the compiler itself, and through the
/// wrapper.
fn compare(site: &Site, at: &Path, line: &str) -> Result<()> {
    let own = ["outboard-cc gcc ", "outboard-cc /usr/bin/gcc ", "outboard cc gcc "];
    let own = own.iter().fold(line.to_owned(), |line, call| line.replace(call, "gcc "));
    let own = own.replace("outboard-cc -", "cc -").replace("outboard-cc a.c", "cc a.c");
    let own = own.replace("outboard cc -", "cc -").replace("PATH=$LINKS:$PATH ", "");
    let before = Tree::read(at)?;
    let own = own.replace("CCACHE_PREFIX=outboard-cc ccache ", "");
    shell(site, at, &own.replace("CCACHE_PREFIX=outboard-cc ", ""))?;
    let home = Tree::read(at)?.since(&before);
    home.remove(at)?;
    shell(site, at, line)?;
    home.expect(&Tree::read(at)?.since(&before)).with_context(|| line.to_owned())?;
    home.remove(at)
}

fn ways(site: &mut Site) -> Result<()> {
    let at = project(site)?;
    site.warm(SERVERS)?;
    for line in WAYS {
        compare(site, &at, line)?;
        let statistics = site.statistics()?;
        // ccache preprocesses locally first.
        statistics.locally_only_for(&["preprocesses only"]).with_context(|| (*line).to_owned())?;
        statistics.expect_remote(1).with_context(|| (*line).to_owned())?;
    }
    Ok(())
}

fn own_sources(site: &mut Site) -> Result<()> {
    let at = project(site)?;
    site.warm(SERVERS)?;
    for line in AT_HOME {
        compare(site, &at, line)?;
        let statistics = site.statistics()?;
        statistics.locally_only_for(&["reads standard input"])?;
        statistics.expect_remote(0).with_context(|| (*line).to_owned())?;
    }
    Ok(())
}

/// A crate as if fetched, below a hidden directory, whose library is written into another project's
/// directory.
fn crate_cc(site: &mut Site, compiler: &str) -> Result<()> {
    let registry = site.directory("client/.cargo/registry")?;
    let (tiny, user) = (registry.join("src/tiny"), site.directory("crate")?);
    write_crates(&tiny, &user)?;
    let build = |compiler: &str| -> Result<Tree> {
        let mut clean = cargo(site, &user)?;
        site.finish(clean.args(["clean", "--offline", "--package", "tiny"]), CARGO_MAX)?;
        let mut cargo = cargo(site, &user)?;
        cargo.args(["build", "--offline"]).env("CC", compiler);
        cargo.env("OUTBOARD_CC_SHOW", &registry);
        site.finish(&mut cargo, CARGO_MAX)?;
        libraries(&user.join("target/debug/build"))
    };
    let home = build("cc")?;
    if home.count(".o") < SOURCES || home.count("libtiny.a") != 1 {
        bail!("{} objects locally, {} libraries", home.count(".o"), home.count("libtiny.a"));
    }
    site.warm(SERVERS)?;
    let by = if compiler == "cc" {
        site.links().join("cc").display().to_string()
    } else {
        compiler.into()
    };
    home.expect(&build(&by)?)?;
    let statistics = site.statistics()?;
    println!("  {} on servers, {} locally", statistics.remote, statistics.local);
    if statistics.remote < SOURCES as u64 {
        bail!("{SOURCES} sources: {statistics:?}");
    }
    Ok(())
}

fn write_crates(tiny: &Path, user: &Path) -> Result<()> {
    fs::create_dir_all(tiny.join("c"))?;
    fs::create_dir_all(tiny.join("src"))?;
    fs::create_dir_all(user.join("src"))?;
    let head = "version = \"0.0.0\"\nedition = \"2021\"\n";
    let manifest = format!("[package]\nname = \"tiny\"\n{head}[build-dependencies]\ncc = \"1\"\n");
    fs::write(tiny.join("Cargo.toml"), manifest)?;
    fs::write(tiny.join("build.rs"), BUILD_SCRIPT.replace("COUNT", &SOURCES.to_string()))?;
    fs::write(tiny.join("src/lib.rs"), "")?;
    fs::write(tiny.join("c/tiny.h"), "#include <string.h>\n")?;
    for number in 0..SOURCES {
        let text = format!("#include <tiny.h>\nint tiny{number}(void) {{ return {number}; }}\n");
        fs::write(tiny.join(format!("c/{number}.c")), text)?;
    }
    let (at, manifest) =
        (tiny.display(), format!("[package]\nname = \"user\"\n{head}[workspace]\n"));
    let manifest = format!("{manifest}[dependencies]\ntiny = {{ path = {:?} }}\n", at.to_string());
    fs::write(user.join("Cargo.toml"), manifest)?;
    fs::write(user.join("src/lib.rs"), "")?;
    Ok(())
}

/// This machine's cargo with the crates that it has fetched, on the client.
fn cargo(site: &Site, at: &Path) -> Result<Command> {
    let home = PathBuf::from(env::var_os("HOME").context("HOME is not set")?);
    let of_user = |name: &str, directory: &str| {
        env::var_os(name).map_or_else(|| home.join(directory), PathBuf::from)
    };
    // The toolchain's own: another one, a distribution's say, may not read what this one fetched.
    let program = env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let mut cargo = site.here(&program);
    cargo.env("CARGO_HOME", of_user("CARGO_HOME", ".cargo"));
    cargo.env("RUSTUP_HOME", of_user("RUSTUP_HOME", ".rustup"));
    let toolchain = env::var_os("RUSTUP_TOOLCHAIN");
    cargo.envs(toolchain.map(|name| ("RUSTUP_TOOLCHAIN", name)));
    // The distribution's rustc, which comes before others in the site's path, is another release's.
    let own = env::var_os("CARGO").map(|cargo| PathBuf::from(cargo).with_file_name("rustc"));
    cargo.envs(own.filter(|rustc| rustc.is_file()).map(|rustc| ("RUSTC", rustc)));
    let path = [site.path(), env::var_os("PATH").context("PATH is not set")?];
    cargo.env("PATH", path.join(OsStr::new(":"))).current_dir(at);
    Ok(cargo)
}

/// Only the files made by the build script's compilers and archiver.
fn libraries(at: &Path) -> Result<Tree> {
    Ok(Tree::read(at)?.only(&[".o", ".a"]))
}
