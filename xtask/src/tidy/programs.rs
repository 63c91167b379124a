//! The rule of needs: a suite names the packages of the programs that its tests start.
//!
//! A program counts as started where a string of the test's sources begins with its name, or a
//! command of a script in one does. The sources are the modules that the test program, or the
//! suite's own checks, consist of.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Finding;
use super::source::Source;
use crate::test::needs::Need;
use crate::test::{LONG_SUITES, SUITES, Suite};

/// Programs that a plain Debian lacks, by the package that has them.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("attr", &["getfattr", "setfattr"]),
    ("bc", &["bc"]),
    ("bison", &["bison"]),
    ("busybox-static", &["busybox"]),
    ("ccache", &["ccache"]),
    ("clang", &["clang", "clang++"]),
    ("cmake", &["cmake"]),
    ("curl", &["curl"]),
    ("dpkg-dev", &["dpkg-source"]),
    ("e2fsprogs", &["chattr", "lsattr", "mke2fs", "mkfs.ext4"]),
    ("fio", &["fio"]),
    ("flex", &["flex"]),
    ("fuse3", &["fusermount3"]),
    ("g++", &["c++", "g++"]),
    ("gdb", &["gdb"]),
    ("git", &["git"]),
    ("ibverbs-utils", &["ibv_devices", "ibv_devinfo", "ibv_rc_pingpong"]),
    ("iproute2", &["ip", "ss", "tc"]),
    ("kmod", &["insmod", "lsmod", "modprobe"]),
    ("lld", &["ld.lld", "wasm-ld"]),
    ("make", &["make"]),
    ("man-db", &["man"]),
    ("munge", &["munged"]),
    ("ninja-build", &["ninja"]),
    ("libopenmpi-dev", &["mpicc"]),
    ("openssh-client", &["scp", "ssh", "ssh-keygen"]),
    ("openssh-server", &["/usr/sbin/sshd", "sshd"]),
    ("openssl", &["openssl"]),
    ("patch", &["patch"]),
    ("perftest", &["ib_read_bw", "ib_send_bw", "ib_send_lat", "ib_write_bw", "ib_write_lat"]),
    ("pkg-config", &["pkg-config"]),
    ("procps", &["pgrep", "pkill", "ps", "sysctl"]),
    ("python3", &["python3"]),
    ("qemu-system-x86", &["qemu-system-x86_64"]),
    ("rdmacm-utils", &["rping", "ucmatose", "udaddy"]),
    ("rsync", &["rsync"]),
    ("slurm-client", &["salloc", "sbatch", "scancel", "sinfo", "srun"]),
    ("slurmctld", &["slurmctld"]),
    ("slurmd", &["slurmd"]),
    ("sqlite3", &["sqlite3"]),
    ("strace", &["strace"]),
    ("stress-ng", &["stress-ng"]),
    ("tshark", &["tshark"]),
    ("xz-utils", &["xz"]),
];

/// Programs that are there: of Debian's essential packages, of Rust, and of the C compiler that
/// README asks for.
#[rustfmt::skip]
const PLAIN: &[&str] = &[
    "apt-cache", "apt-get", "ar", "bash", "cargo", "cat", "cc", "chown", "cmp", "cp", "df", "diff",
    "dpkg-deb", "dpkg-query", "env", "find", "gcc", "grep", "gunzip", "kill", "ld", "ldd", "ls",
    "mkfifo", "mknod", "mount", "mv", "nice", "nm", "nsenter", "objcopy", "objdump", "perl",
    "readelf", "renice", "rm", "rustc", "rustup", "setpriv", "sh", "sleep", "stat", "strip", "tar",
    "taskset", "timeout", "touch", "true", "umount", "unshare", "which",
];

/// What the checks of suites consist of that are no tests of cargo's.
const CHECKS: &[(&str, &str)] = &[
    ("cast", "xtask/src/cast/mod.rs"),
    ("cast-slurm", "xtask/src/cast/slurm/mod.rs"),
    ("compile", "xtask/src/compile/mod.rs"),
    ("ibverbs", "xtask/src/ibverbs/mod.rs"),
    ("modules", "xtask/src/modules/mod.rs"),
    ("siw", "xtask/src/siw/mod.rs"),
];

/// Names of programs in strings of tests that start none.
const NOT_STARTED: &[(&str, &str)] = &[
    ("crates/cast/src/launch/address.rs", "srun"),
    ("crates/cast/src/launch/address.rs", "sshd"),
    ("crates/cast/src/launch/launched/tests.rs", "ssh"),
    ("crates/cast/src/lazy/tests.rs", "modprobe"),
    ("crates/cast/tests/loopback/main.rs", "make"),
    ("crates/compile/src/args/halves.rs", "clang"),
    ("crates/compile/src/args/tests.rs", "ccache"),
    ("crates/compile/src/sandbox/check.rs", "modprobe"),
    ("crates/compile/src/toolchain/tests.rs", "ccache"),
    ("crates/fs/tests/mount_meta.rs", "make"),
    ("crates/offload/src/describe/fault.rs", "bc"),
    ("crates/outboard-cc/src/real.rs", "ccache"),
    ("crates/outboard/tests/fs_judged.rs", "chattr"),
    ("crates/outboard/tests/help.rs", "man"),
    ("crates/sim/tests/captures.rs", "ib_read_bw"),
    ("crates/sim/tests/captures.rs", "ib_send_lat"),
    ("crates/sim/tests/captures.rs", "ib_write_bw"),
    ("crates/verbs/src/error.rs", "ip"),
    ("crates/verbs/tests/examples.rs", "rping"),
    ("xtask/src/cast/spellings.rs", "make"),
    ("xtask/src/test/tests.rs", "tshark"),
    ("xtask/src/tidy/programs.rs", "setfattr"),
];

/// Where a program is named.
type Place = (String, usize);

/// Compares all suites' needs with what they start. `metadata` is the output of `cargo metadata`.
pub(super) fn check(sources: &[Source], metadata: &Value) -> Vec<Finding> {
    let suites = || SUITES.iter().chain(LONG_SUITES);
    let named = Named::new(sources);
    let mut used = BTreeSet::new();
    let mut findings = Vec::new();
    for suite in suites() {
        let programs = named.by_program(&roots(suite, metadata), &mut used);
        findings.extend(lacking(suite.name, &packages(suite), &programs));
    }
    let stale = NOT_STARTED.iter().filter(|exception| !used.contains(*exception));
    findings.extend(stale.map(|(path, program)| {
        Finding::new(path, 0, format!("no test names {program} here: take the row out"))
    }));
    findings.extend(sources.iter().flat_map(unknown));
    findings
}

fn packages(suite: &Suite) -> BTreeSet<&'static str> {
    let all = suite.all_needs().filter_map(|need| match need {
        Need::Packages(packages) => Some(packages.iter().copied()),
        _ => None,
    });
    all.flatten().collect()
}

/// The first file of each of a suite's test programs, and of its own checks.
fn roots(suite: &Suite, metadata: &Value) -> Vec<String> {
    let own = CHECKS.iter().filter(|(name, _)| *name == suite.name);
    let mut roots: Vec<String> = own.map(|(_, root)| (*root).to_owned()).collect();
    let workspace = metadata["workspace_root"].as_str().unwrap_or_default();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        for target in package["targets"].as_array().into_iter().flatten() {
            let (kind, own) = (&target["kind"][0], target["name"].as_str().unwrap_or_default());
            let binary = match kind.as_str().unwrap_or_default() {
                "test" => format!("{name}::{own}"),
                "bin" => format!("{name}::bin/{own}"),
                "lib" | "cdylib" | "rlib" | "staticlib" => name.to_owned(),
                _ => continue,
            };
            let path = target["src_path"].as_str().and_then(|path| path.strip_prefix(workspace));
            roots.extend(path.filter(|_| suite.runs(&binary)).map(|path| path[1..].to_owned()));
        }
    }
    roots
}

fn lacking(
    suite: &str,
    packages: &BTreeSet<&str>,
    programs: &BTreeMap<&str, Place>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (package, _) in PROGRAMS.iter().filter(|(package, _)| !packages.contains(package)) {
        let started = programs.iter().find(|(program, _)| package_of(program) == Some(package));
        findings.extend(started.map(|(program, (path, line))| {
            let message = format!(
                "the tests of suite {suite} start {program}: name its package, {package}, among \
                 the suite's needs (xtask/src/test/suites.rs)"
            );
            Finding::new(path, *line, message)
        }));
    }
    findings
}

fn package_of(program: &str) -> Option<&'static str> {
    let row = PROGRAMS.iter().find(|(_, programs)| programs.contains(&program));
    row.map(|(package, _)| *package)
}

/// Programs that are started by a name of which no table has heard.
fn unknown(source: &Source) -> Vec<Finding> {
    let is_ours = source.path.starts_with("xtask/src/bench/") || source.rust.is_none();
    let in_tests = source.is_tests() || source.path.starts_with("xtask/");
    if is_ours || !in_tests {
        return Vec::new();
    }
    let names = source.lines().filter_map(|(line, text)| {
        let (_, rest) = text.split_once("Command::new(\"")?;
        Some((line, rest.split_once('"')?.0))
    });
    let strange = names.filter(|(_, name)| {
        !name.contains('/') && !PLAIN.contains(name) && package_of(name).is_none() && !built(name)
    });
    let message = |name| format!("{name} has no row in PROGRAMS: say which package has it");
    strange.map(|(line, name)| Finding::new(&source.path, line, message(name))).collect()
}

/// Whether a suite has cargo build this program.
fn built(name: &str) -> bool {
    let mut needs = SUITES.iter().chain(LONG_SUITES).flat_map(Suite::all_needs);
    needs.any(|need| matches!(need, Need::CargoProgram(built) if *built == name))
}

/// The sources by their paths.
struct Named<'a>(BTreeMap<&'a str, &'a Source>);

impl<'a> Named<'a> {
    fn new(sources: &'a [Source]) -> Self {
        Self(sources.iter().map(|source| (source.path.as_str(), source)).collect())
    }

    /// The programs that these test programs start. `used` gets the exceptions that were needed.
    fn by_program(
        &self,
        roots: &[String],
        used: &mut BTreeSet<(&'static str, &'static str)>,
    ) -> BTreeMap<&'a str, Place> {
        let mut programs = BTreeMap::new();
        for root in roots {
            let is_checks = CHECKS.iter().any(|(_, other)| other == root);
            for source in self.modules(root) {
                for (line, name) in started(source, is_checks) {
                    let row = NOT_STARTED.iter().find(|row| **row == (&*source.path, name));
                    if let Some(row) = row {
                        used.insert(*row);
                    } else if package_of(name).is_some() {
                        programs.entry(name).or_insert_with(|| (source.path.clone(), line));
                    }
                }
            }
        }
        programs
    }

    /// A crate's first file and all modules below it, but for those of other suites' checks.
    fn modules(&self, root: &str) -> Vec<&'a Source> {
        let (mut found, mut next) = (Vec::new(), vec![root.to_owned()]);
        let mut seen = BTreeSet::new();
        while let Some(path) = next.pop() {
            let is_others = path != root && CHECKS.iter().any(|(_, other)| *other == path);
            let Some(source) = self.0.get(path.as_str()) else { continue };
            if is_others || !seen.insert(path) {
                continue;
            }
            found.push(*source);
            next.extend(children(source));
        }
        found
    }
}

/// Where the modules that a file declares may be.
fn children(source: &Source) -> Vec<String> {
    let (directory, file) = source.path.rsplit_once('/').unwrap_or(("", &source.path));
    let is_first = ["mod.rs", "main.rs", "lib.rs"].contains(&file) || directory.ends_with("/tests");
    let below = match is_first {
        true => directory.to_owned(),
        false => format!("{directory}/{}", file.trim_end_matches(".rs")),
    };
    let modules = source.rust.iter().flat_map(|rust| &rust.modules);
    let places = modules.flat_map(|(name, path)| match path {
        Some(path) => vec![joined(directory, path)],
        None => vec![format!("{below}/{name}.rs"), format!("{below}/{name}/mod.rs")],
    });
    places.collect()
}

/// A relative path below a directory, without `..`.
fn joined(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The first word of each string in code of tests, and of each command in it.
fn started(source: &Source, is_checks: bool) -> impl Iterator<Item = (usize, &str)> {
    let whole = is_checks || source.is_tests();
    let rust = source.rust.iter();
    let literals = rust.flat_map(move |rust| {
        let own = rust.literals.iter();
        own.filter(move |(line, _)| whole || rust.in_tests[line - 1])
    });
    literals.flat_map(|(line, text)| {
        let commands = text.split([';', '&', '|', '\n', '`', '(', ')']);
        commands.filter_map(|command| Some((*line, command.split_whitespace().next()?)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source::new(path, text).expect("it parses")
    }

    #[test]
    fn a_program_in_a_module_of_a_test_is_found_and_its_package_asked_for() {
        let sources = [
            source("crates/a/tests/one.rs", "#[path = \"../tests/lib/help.rs\"]\nmod help;"),
            source("crates/a/tests/lib/help.rs", "mod deep;"),
            source("crates/a/tests/lib/help/deep.rs", "fn f() { g(\"cd x && setfattr -n y\"); }"),
            source(
                "crates/a/src/lib.rs",
                "fn f() { g(\"make\") }\n#[cfg(test)]\nmod t { const A: &str = \"tc\"; }",
            ),
        ];
        let named = Named::new(&sources);
        let mut used = BTreeSet::new();
        let roots = ["crates/a/tests/one.rs".to_owned(), "crates/a/src/lib.rs".to_owned()];
        let programs = named.by_program(&roots, &mut used);
        assert_eq!(
            programs.keys().copied().collect::<Vec<_>>(),
            ["setfattr", "tc"],
            "make is started by the product"
        );
        assert_eq!(lacking("s", &BTreeSet::from(["attr", "iproute2"]), &programs), []);
        let found = lacking("s", &BTreeSet::from(["iproute2"]), &programs);
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].path, found[0].line), ("crates/a/tests/lib/help/deep.rs", 1));
    }

    #[test]
    fn a_program_that_no_table_has_is_found() {
        let text = "fn f() { Command::new(\"frobnicate\"); Command::new(\"sh\"); }";
        assert_eq!(unknown(&source("crates/a/tests/b.rs", text)).len(), 1);
        assert_eq!(unknown(&source("crates/a/src/b.rs", text)).len(), 0, "the product's");
    }

    #[test]
    fn each_suite_with_checks_of_its_own_has_its_row() {
        for (name, _) in CHECKS {
            assert!(SUITES.iter().any(|suite| suite.name == *name), "{name}");
        }
    }
}
