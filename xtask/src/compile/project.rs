//! Redis and ZeroMQ, built by their own build files, locally and remotely, at the same path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::site::{SERVERS, Site, remove, slots};
use super::tree::Tree;
use crate::command;
use crate::process::Process;
use crate::sources::{REDIS, ZEROMQ};

/// How long a build may take.
pub(super) const BUILD_MAX: Duration = Duration::from_secs(600);

/// Requests every side output from compilers. The seed replaces random numbers: names, and the
/// stamp of notes for coverage.
const EXTRAS: &str = "-MD -fstack-usage --coverage -frandom-seed=outboard";
/// Options that clang does not know.
const GCC_ONLY: &[&str] = &["-fno-var-tracking-assignments"];
/// A sample of Redis's objects.
const REDIS_SAMPLE: &[&str] = &[
    "adlist.o",
    "ae.o",
    "anet.o",
    "config.o",
    "dict.o",
    "listpack.o",
    "networking.o",
    "object.o",
    "quicklist.o",
    "rax.o",
    "sds.o",
    "server.o",
    "t_list.o",
    "t_string.o",
    "util.o",
    "zmalloc.o",
];
/// Of ZeroMQ's objects, one of this number is compared.
const ZEROMQ_SAMPLE: usize = 9;
/// Keeps CMake from looking for other libraries, and from making objects twice.
const ZEROMQ_OPTIONS: &[&str] = &[
    "-DBUILD_TESTS=OFF",
    "-DWITH_DOCS=OFF",
    "-DBUILD_SHARED=OFF",
    "-DWITH_PERF_TOOL=OFF",
    "-DENABLE_CURVE=OFF",
    "-DCMAKE_BUILD_TYPE=None",
];

/// A project with its build tool and compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Redis by make.
    Redis,
    /// ZeroMQ by CMake and ninja.
    ZeromqNinja,
    /// ZeroMQ by CMake and make.
    ZeromqMake,
    /// ZeroMQ by CMake, ninja and clang.
    ZeromqClang,
}

impl Kind {
    fn is_redis(self) -> bool {
        self == Self::Redis
    }

    fn generator(self) -> &'static str {
        if self == Self::ZeromqMake { "Unix Makefiles" } else { "Ninja" }
    }

    /// Compilers for C and C++, as build files name them.
    fn compilers(self) -> [&'static str; 2] {
        match self {
            Self::ZeromqClang => ["clang", "clang++"],
            _ => ["cc", "c++"],
        }
    }
}

/// How much of a project is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Amount {
    /// Some objects.
    Sample,
    /// Everything, linked.
    Whole,
}

/// Where compilers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Local,
    Elsewhere,
}

/// A project, ready to be built repeatedly.
#[derive(Debug)]
pub(super) struct Project {
    kind: Kind,
    amount: Amount,
    level: String,
    /// Where it is built.
    at: PathBuf,
    /// The files that exist before a build.
    before: Tree,
    kept: PathBuf,
}

impl Project {
    /// Fetches and configures it. `level` has the compilers' options for optimisation.
    pub(super) fn prepare(site: &Site, kind: Kind, amount: Amount, level: &str) -> Result<Self> {
        let name = format!("{kind:?}").to_lowercase();
        let (at, kept) =
            (site.directory("projects")?.join(&name), site.directory("kept")?.join(&name));
        let level = level.to_owned();
        let mut project = Self { kind, amount, level, at, before: Tree::default(), kept };
        if !project.kept.is_dir() {
            remove(&project.at)?;
            project.fetch(site)?;
            copy(&project.at, &project.kept)?;
        }
        project.renew(site)?;
        project.before = Tree::read(&project.at)?;
        Ok(project)
    }

    fn fetch(&self, site: &Site) -> Result<()> {
        if self.kind.is_redis() {
            return REDIS.copy_to(&self.at);
        }
        ZEROMQ.copy_to(&self.at)?;
        let mut configure = site.here("cmake");
        configure
            .args(["-G", self.kind.generator(), "-S"])
            .arg(&self.at)
            .arg("-B")
            .arg(self.build());
        let launcher = site.launcher();
        for (language, compiler) in ["C", "CXX"].into_iter().zip(self.kind.compilers()) {
            configure.arg(format!("-DCMAKE_{language}_COMPILER={compiler}"));
            configure.arg(format!("-DCMAKE_{language}_COMPILER_LAUNCHER={}", launcher.display()));
        }
        site.finish(configure.args(ZEROMQ_OPTIONS), BUILD_MAX).map(drop)
    }

    fn build(&self) -> PathBuf {
        self.at.join("build")
    }

    /// Restores the state before any build.
    fn renew(&self, site: &Site) -> Result<()> {
        remove(&self.at)?;
        copy(&self.kept, &self.at)?;
        if !self.kind.is_redis() {
            let mut configure = site.here("cmake");
            configure.arg(format!("-DCMAKE_C_FLAGS={}", self.flags()));
            configure.arg(format!("-DCMAKE_CXX_FLAGS={}", self.flags()));
            site.finish(configure.arg(self.build()), BUILD_MAX)?;
        }
        Ok(())
    }

    fn flags(&self) -> String {
        let mut words: Vec<&str> = self.level.split(' ').collect();
        if self.kind == Kind::ZeromqClang {
            words.retain(|word| !GCC_ONLY.contains(word));
        }
        format!("{} {EXTRAS}", words.join(" "))
    }

    /// Builds it; returns the files that were made.
    pub(super) fn make(&self, site: &Site, place: Place) -> Result<Tree> {
        self.start(site, place)?.finish(std::time::Instant::now() + BUILD_MAX)?;
        self.made()
    }

    /// Starts a build from the beginning.
    pub(super) fn start(&self, site: &Site, place: Place) -> Result<Process> {
        self.renew(site)?;
        let is_ninjas = !self.kind.is_redis() && self.kind.generator() == "Ninja";
        let program = if is_ninjas { "ninja" } else { "make" };
        let mut build = match place {
            Place::Local => site.here(program),
            Place::Elsewhere => site.away(program),
        };
        build.arg(format!("-j{}", SERVERS * slots() + 4));
        match self.kind {
            Kind::Redis => self.redis(&mut build),
            Kind::ZeromqNinja | Kind::ZeromqClang => {
                build.args(["-d", "keepdepfile", "-C"]).arg(self.build()).args(self.objects(site)?)
            }
            Kind::ZeromqMake => build.arg("-C").arg(self.build()).args(self.objects(site)?),
        };
        site.start(&mut build)
    }

    fn redis<'a>(&self, make: &'a mut Command) -> &'a mut Command {
        make.arg("-C").arg(self.at.join("src"));
        make.args(["V=1", "MALLOC=libc", "USE_SYSTEMD=no", "DEBUG=", "LDFLAGS=--coverage"]);
        make.arg(format!("OPTIMIZATION={}", self.level)).arg(format!("CFLAGS={}", self.flags()));
        if self.amount == Amount::Sample {
            make.arg("DEPENDENCY_TARGETS=hiredis").args(REDIS_SAMPLE);
        }
        make
    }

    /// The objects to request from the build tool; none means everything. CMake's own Makefile
    /// makes one target after the other, so a single target's objects are named then.
    fn objects(&self, site: &Site) -> Result<Vec<String>> {
        if self.amount == Amount::Whole {
            return Ok(Vec::new());
        }
        let mut words = Vec::new();
        let said = if self.kind == Kind::ZeromqMake {
            let (makefile, text) = self.makefile()?;
            words.extend(["-f".to_owned(), makefile]);
            text
        } else {
            let mut list = site.here("ninja");
            list.arg("-C").arg(self.build()).args(["-t", "targets", "all"]);
            site.finish(&mut list, BUILD_MAX)?
        };
        let objects = said.lines().filter_map(|line| line.split(':').next());
        let mut objects: Vec<_> = objects.filter(|word| word.ends_with(".o")).collect();
        objects.dedup();
        words.extend(objects.into_iter().step_by(ZEROMQ_SAMPLE).map(ToOwned::to_owned));
        if words.len() < 8 {
            bail!("ZeroMQ has no more objects than {words:?}:\n{said}");
        }
        Ok(words)
    }

    /// The largest of the makefiles that CMake made for its targets.
    fn makefile(&self) -> Result<(String, String)> {
        let mut found = Vec::new();
        for target in fs::read_dir(self.build().join("CMakeFiles"))? {
            let path = target?.path().join("build.make");
            if let Ok(text) = fs::read_to_string(&path) {
                let relative = path.strip_prefix(self.build())?;
                found.push((relative.to_string_lossy().into_owned(), text));
            }
        }
        let largest = found.into_iter().max_by_key(|(_, text)| text.len());
        largest.context("CMake made no makefiles")
    }

    /// The files that builds have made so far.
    pub(super) fn made(&self) -> Result<Tree> {
        Ok(Tree::read(&self.at)?.since(&self.before))
    }

    /// How many objects there are now.
    pub(super) fn progress(&self) -> usize {
        let mut find = Command::new("find");
        find.arg(&self.at).args(["-name", "*.o", "-size", "+0"]);
        find.output().map_or(0, |found| found.stdout.iter().filter(|byte| **byte == b'\n').count())
    }
}

/// Copies a directory, preserving times.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().context("it has a place")?)?;
    let mut copy = Command::new("cp");
    copy.args(["--archive", "--no-target-directory"]).arg(from).arg(to);
    command::run(&mut copy)
}
