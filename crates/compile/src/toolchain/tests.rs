//! The compilers of this machine, identified.

use super::*;
use crate::args::{Classification, CompilerCall, Job, classify};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn scratch(name: &str) -> PathBuf {
    let dir =
        std::env::temp_dir().join(format!("outboard-toolchain-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    dir
}

fn identify(compiler: &str) -> Result<std::sync::Arc<Toolchain>, ToolchainError> {
    Toolchains::new(None).identify(Path::new(compiler), OsStr::new(PATH), Instant::now())
}

fn job(line: &str) -> Job {
    let argv = line.split(' ').map(Into::into).collect();
    let call = CompilerCall {
        compiler: "/usr/bin/gcc".into(),
        argv,
        cwd: "/".into(),
        ..CompilerCall::default()
    };
    let Classification::Remote(job) = classify(CompilerCall { path: PATH.into(), ..call }) else {
        panic!("{line}")
    };
    *job
}

#[test]
fn gccs_parts_are_all_that_it_runs_and_loads() {
    let toolchain = identify("/usr/bin/gcc").unwrap();
    assert_eq!(toolchain.kind, CompilerFamily::Gcc);
    let has = |role: PartRole, name: &str| {
        let named = |part: &Part| part.path.to_string_lossy().contains(name) && part.role == role;
        assert!(toolchain.parts.iter().any(named), "no {name} in {:#?}", toolchain.parts);
    };
    has(PartRole::Driver, "gcc");
    has(PartRole::Compiler, "/cc1");
    has(PartRole::Assembler, "as");
    has(PartRole::Objcopy, "objcopy");
    has(PartRole::Library, "libc.so");
    has(PartRole::Library, "libmpfr");
    has(PartRole::Loader, "ld-linux");
    assert!(toolchain.parts.iter().all(|part| fs::canonicalize(&part.path).unwrap() == part.path));
    assert!(toolchain.parts.is_sorted_by(|a, b| a.path < b.path));
    assert!(toolchain.links.iter().any(|link| link.path == Path::new("/usr/bin/gcc")));
    assert!(toolchain.install_dirs.iter().all(|dir| dir.is_dir()));
    assert!(toolchain.probes_absent.iter().all(|dir| !dir.exists()));
}

#[test]
fn a_hash_names_the_files_and_not_the_name() {
    let dir = scratch("names");
    symlink("/usr/bin/gcc", dir.join("cc")).unwrap();
    let one = identify("/usr/bin/gcc").unwrap();
    let other = identify(dir.join("cc").to_str().unwrap()).unwrap();
    assert_eq!(one.hash, other.hash);
    let mut parts = one.parts.clone();
    parts[0].hash.0[0] ^= 1;
    assert_ne!(part::hash_of(&parts), one.hash);
    parts = one.parts.clone();
    parts[0].mode ^= 0o100;
    assert_ne!(part::hash_of(&parts), one.hash);
    parts.pop();
    assert_ne!(part::hash_of(&parts), one.hash);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn scripts_and_stand_ins_are_refused() {
    let dir = scratch("refused");
    let script = dir.join("gcc");
    fs::write(&script, "#!/bin/sh\nexec /usr/bin/gcc \"$@\"\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = |path: &Path| {
        let error = identify(path.to_str().unwrap()).unwrap_err();
        assert!(matches!(error, ToolchainError::Indirect { .. }), "{error}");
    };
    refused(&script);
    fs::copy("/bin/true", dir.join("ccache")).unwrap();
    symlink("ccache", dir.join("g++")).unwrap();
    refused(&dir.join("g++"));
    assert!(matches!(identify("/absent/gcc"), Err(ToolchainError::System { .. })));
    assert!(matches!(identify("/bin/true"), Err(ToolchainError::Mute { .. })));
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_known_compiler_is_not_asked_again_until_it_changes() {
    let dir = scratch("known");
    let (link, now) = (dir.join("gcc"), Instant::now());
    symlink("/usr/bin/gcc", &link).unwrap();
    let mut toolchains = Toolchains::new(Some(&dir));
    let first = toolchains.identify(&link, OsStr::new(PATH), now).unwrap();
    for second in 0..10 {
        let at = now + Duration::from_secs(second);
        let again = toolchains.identify(&link, OsStr::new(PATH), at).unwrap();
        assert!(std::sync::Arc::ptr_eq(&first, &again), "it was asked again");
    }
    let mut next = Toolchains::new(Some(&dir));
    // This never asks a compiler.
    let known = next.recall(&link, OsStr::new(PATH), now).expect("the file has it");
    assert_eq!(known.unwrap(), first);
    fs::remove_file(&link).unwrap();
    symlink("/usr/bin/g++", &link).unwrap();
    let changed = next.identify(&link, OsStr::new(PATH), now).unwrap();
    assert_ne!(changed.driver, first.driver);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_part_that_appears_makes_another_compiler() {
    let (own, earlier) = (scratch("absent"), scratch("absent-earlier"));
    let path = format!("{}:{PATH}", earlier.display());
    let gcc = Path::new("/usr/bin/gcc");
    // Nothing is older than the job that asks, however soon it comes.
    let now = Instant::now();
    let identify =
        |toolchains: &mut Toolchains| toolchains.identify(gcc, OsStr::new(&path), now).unwrap();
    let mut toolchains = Toolchains::new(Some(&own));
    let mut last = identify(&mut toolchains);
    // An assembler that comes first in the search, and a front end that did not exist.
    for name in ["as", "cc1obj"] {
        fs::copy("/bin/true", earlier.join(name)).unwrap();
        let new = identify(&mut toolchains);
        assert_ne!(new.hash, last.hash, "{name}");
        let real = earlier.canonicalize().unwrap().join(name);
        assert!(new.parts.iter().any(|part| part.path == real), "{name}");
        last = new;
    }
    fs::remove_file(earlier.join("as")).unwrap();
    // Another process starts with the file only.
    let other = identify(&mut Toolchains::new(Some(&own)));
    assert_ne!(other.hash, last.hash);
    fs::remove_dir_all(own).unwrap();
    fs::remove_dir_all(earlier).unwrap();
}

#[test]
fn a_part_that_appears_while_the_compiler_is_asked_is_noticed() {
    let earlier = scratch("meanwhile");
    let path = format!("{}:{PATH}", earlier.display());
    let (gcc, now) = (Path::new("/usr/bin/gcc"), Instant::now());
    Toolchains::new(None).identify(gcc, OsStr::new(&path), now).unwrap();
    let whole = now.elapsed();
    let assembler = earlier.join("as");
    let real = earlier.canonicalize().unwrap().join("as");
    for part in 1..10 {
        let mut toolchains = Toolchains::new(None);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(whole * part / 10);
                fs::copy("/bin/true", &assembler).unwrap();
            });
            // The file may be half written when it is read.
            let _early = toolchains.identify(gcc, OsStr::new(&path), now);
        });
        let known = toolchains.identify(gcc, OsStr::new(&path), now).unwrap();
        assert!(known.parts.iter().any(|part| part.path == real), "after {part} tenths");
        fs::remove_file(&assembler).unwrap();
    }
    fs::remove_dir_all(earlier).unwrap();
}

#[test]
fn a_compiler_that_could_not_be_asked_is_asked_again() {
    let dir = scratch("mute");
    let compiler = dir.join("gcc");
    fs::copy("/bin/true", &compiler).unwrap();
    let (mut toolchains, now) = (Toolchains::new(None), Instant::now());
    let mut error = |after: u64| {
        let at = now + Duration::from_secs(after);
        toolchains.identify(&compiler, OsStr::new(PATH), at).unwrap_err()
    };
    assert!(matches!(error(0), ToolchainError::Mute { .. }));
    assert!(matches!(error(30), ToolchainError::Again { .. }));
    assert!(matches!(error(61), ToolchainError::Mute { .. }));
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn headers_are_searched_where_language_and_words_say() {
    let mut toolchains = Toolchains::new(None);
    let gcc = toolchains.identify("/usr/bin/gcc".as_ref(), PATH.as_ref(), Instant::now()).unwrap();
    let mut includes = |line: &str| toolchains.includes(&gcc, &job(line)).unwrap();
    let c = includes("gcc -c a.c");
    assert!(c.found.contains(&"/usr/include".into()));
    let cxx = includes("gcc -c a.cc");
    let names: BTreeSet<_> = cxx.found.iter().map(|dir| dir.to_string_lossy()).collect();
    assert!(names.iter().any(|dir| dir.contains("c++")), "{names:?}");
    assert!(!includes("gcc -nostdinc -c a.c").found.contains(&"/usr/include".into()));
    assert!(std::sync::Arc::ptr_eq(&c, &includes("gcc -O2 -c b.c")));
}

#[test]
fn links_are_followed_as_the_kernel_does() {
    let dir = fs::canonicalize(scratch("links")).unwrap();
    fs::create_dir_all(dir.join("real/deep")).unwrap();
    fs::write(dir.join("real/file"), "").unwrap();
    symlink("real", dir.join("way")).unwrap();
    symlink("../file", dir.join("real/deep/up")).unwrap();
    symlink(dir.join("way/deep/up"), dir.join("start")).unwrap();
    let mut links = Vec::new();
    assert_eq!(part::resolve(&dir.join("start"), &mut links).unwrap(), dir.join("real/file"));
    let paths: Vec<_> = links.iter().map(|link| link.path.strip_prefix(&dir).unwrap()).collect();
    assert_eq!(paths, [Path::new("start"), Path::new("way"), Path::new("real/deep/up")]);
    symlink("round", dir.join("round")).unwrap();
    assert!(part::resolve(&dir.join("round"), &mut links).is_err());
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_loop_that_learns_does_not_wait_for_the_file() {
    let dir = scratch("hanging");
    fs::create_dir_all(&dir).unwrap();
    let file = dir.join("toolchains.json");
    // Opening it waits for a reader.
    let pipe = file.with_extension(std::process::id().to_string());
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).unwrap();
    let mut toolchains = Toolchains::new(Some(&dir));
    let unknown = Unknown::Compiler { compiler: "/usr/bin/gcc".into(), path: PATH.into() };
    let (sender, learned) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let answer = unknown.ask();
        toolchains.learn(&unknown, answer, Instant::now()).unwrap();
        sender.send(()).unwrap();
    });
    learned.recv_timeout(Duration::from_secs(20)).expect("it waits for the disk");
    assert!(!file.exists());
    assert!(fs::read_to_string(&pipe).unwrap().contains("/usr/bin/gcc"));
    fs::remove_dir_all(dir).unwrap();
}
