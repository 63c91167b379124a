//! Peers that may not use servers, and jobs that do more than compile: all of it fails, and an
//! honest client still gets its object.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Check;
use super::site::{SERVERS, Setup, Site};
use super::statistics::Statistics;
use crate::command;

const COMPILE_MAX: Duration = Duration::from_secs(120);
/// How long nodes may take to notice a revocation.
const NOTICE_MAX: Duration = Duration::from_secs(20);
/// Memory limit of a job, in MiB, where one tries to use all memory.
const MEMORY_MIB: u32 = 256;

pub(super) fn checks() -> Vec<Check> {
    vec![
        Check::new("stranger: without the key", without_the_key),
        Check::new("stranger: with a service's key", with_a_services_key),
        Check::new("stranger: revoked", revoked),
        Check::new("stranger: a server that the client revokes", revoked_server),
        Check::new("job: what is not shown is not read", unshown),
        Check::new("job: a compiler that does more", attacks),
    ]
}

/// Compiles a file in a directory of its own; returns where it was compiled.
fn compile(site: &Site, key: &Path) -> Result<Statistics> {
    let at = site.directory("stranger")?;
    fs::write(at.join("a.c"), "int a;\n")?;
    let _ = fs::remove_file(at.join("a.o"));
    let mut compile = site.here("outboard-cc");
    compile.args(["gcc", "-c", "a.c", "-o", "a.o"]).current_dir(&at).env("OUTBOARD_KEY", key);
    site.finish(&mut compile, COMPILE_MAX)?;
    if fs::metadata(at.join("a.o"))?.len() == 0 {
        bail!("the object is empty");
    }
    site.statistics()
}

fn expect_locally(statistics: &Statistics, jobs: u64) -> Result<()> {
    statistics.locally_only_for(&["found no server"])?;
    if (statistics.remote, statistics.local) != (0, jobs) {
        bail!("servers took jobs of an unauthorized client: {statistics:?}");
    }
    Ok(())
}

fn key(site: &Site, name: &str, words: &[&str]) -> Result<PathBuf> {
    let path = site.directory("keys")?.join(name);
    let _ = fs::remove_file(&path);
    let mut make = site.here("outboard");
    make.arg("key").args(words);
    match words {
        ["new"] => make.env("OUTBOARD_KEY", &path),
        _ => make.arg("--to").arg(&path),
    };
    site.finish(&mut make, COMPILE_MAX)?;
    Ok(path)
}

fn without_the_key(site: &mut Site) -> Result<()> {
    let stranger = key(site, "stranger", &["new"])?;
    expect_locally(&compile(site, &stranger)?, 1)?;
    restart_client(site)?;
    // With the right key it works.
    site.warm(SERVERS)
}

fn with_a_services_key(site: &mut Site) -> Result<()> {
    let other = key(site, "other", &["export", "status"])?;
    // There the manager does not even start: nothing is counted, and the object is made.
    let statistics = compile(site, &other)?;
    if statistics.remote != 0 {
        bail!("another service's key is accepted by compile: {statistics:?}");
    }
    restart_client(site)?;
    let own = key(site, "own", &["export", "compile"])?;
    let mut last = compile(site, &own)?;
    let deadline = Instant::now() + NOTICE_MAX;
    while last.remote == 0 && Instant::now() < deadline {
        last = compile(site, &own)?;
    }
    if last.remote == 0 {
        bail!("the service's own key is not accepted: {last:?}");
    }
    let mut status = site.here("outboard");
    status.arg("status").env("OUTBOARD_KEY", &own);
    match site.finish(&mut status, COMPILE_MAX) {
        Ok(said) => bail!("the key of compile is accepted by status: {said}"),
        Err(_) => Ok(()),
    }
}

/// Ends the client's manager: the next wrapper starts a new one.
fn restart_client(site: &Site) -> Result<()> {
    site.client().group.kill()
}

fn revoked(site: &mut Site) -> Result<()> {
    site.warm(SERVERS)?;
    let mut show = site.here("outboard");
    let said = site.finish(show.args(["key", "show", "--json"]), COMPILE_MAX)?;
    let value: serde_json::Value = serde_json::from_str(&said)?;
    let node = value["node"].as_str().unwrap_or_default().to_owned();
    for index in 0..SERVERS {
        let mut revoke = site.here("outboard");
        revoke.args(["key", "revoke", &node, "--list"]).arg(site.revoked(index));
        site.finish(&mut revoke, COMPILE_MAX)?;
    }
    let deadline = Instant::now() + NOTICE_MAX;
    loop {
        let statistics = compile(site, &site.key())?;
        if statistics.remote == 0 && statistics.causes.contains_key("found no server") {
            break;
        }
        if Instant::now() > deadline {
            bail!("servers still run jobs for a revoked client: {statistics:?}");
        }
        sleep(Duration::from_millis(200));
    }
    // A new manager is not admitted either.
    restart_client(site)?;
    expect_locally(&compile(site, &site.key())?, 1)
}

/// The manager keeps running, and sends that server no more jobs.
fn revoked_server(site: &mut Site) -> Result<()> {
    site.warm(SERVERS)?;
    let said = site.said(0);
    let node = said.split(' ').nth(1).context("a node that does not print its identity")?;
    let mut revoke = site.here("outboard");
    site.finish(revoke.args(["key", "revoke", node]), COMPILE_MAX)?;
    let deadline = Instant::now() + NOTICE_MAX;
    // When it dials the server again, it finds the revocation.
    while !site.manager_said()?.contains("is revoked") {
        if Instant::now() > deadline {
            bail!("the manager has not noticed: {}", site.manager_said()?);
        }
        sleep(Duration::from_millis(200));
    }
    site.warm(SERVERS - 1)
}

/// Files that exist on both sides and must not be shown to jobs.
fn unshown(site: &mut Site) -> Result<()> {
    let at = site.directory("unshown")?;
    fs::create_dir_all(at.join(".ssh"))?;
    let home = site.directory("client/.ssh")?;
    for secret in [at.join(".ssh/id"), at.join(".secret.h"), home.join("id")] {
        fs::write(secret, "#define SECRET 1\n")?;
    }
    let near = [".ssh/id", ".secret.h", "./.ssh/../.secret.h", "../key"].map(PathBuf::from);
    let far = ["/etc/shadow", "/etc/passwd"].map(PathBuf::from);
    let all = near.into_iter().chain(far).chain([home.join("id"), site.key()]);
    fs::write(at.join("Makefile"), "")?;
    let mut compilations = Vec::new();
    for (number, secret) in all.enumerate() {
        let secret = secret.display();
        let incbin = format!("__asm__(\".section s\\n.incbin \\\"{secret}\\\"\\n.previous\");\n");
        let asks =
            format!("#if __has_include(\"{secret}\")\nint there;\n#else\nint gone;\n#endif\n");
        for (what, text) in [("incbin", incbin), ("asks", asks)] {
            let name = format!("{what}{number}");
            fs::write(at.join(format!("{name}.c")), text)?;
            compilations.push(name);
        }
    }
    site.warm(SERVERS)?;
    for name in &compilations {
        let words = ["gcc", "-c", &format!("{name}.c"), "-o", "x.o"];
        site.finish(site.here("gcc").args(&words[1..]).current_dir(&at), COMPILE_MAX)?;
        let home = fs::read(at.join("x.o"))?;
        fs::remove_file(at.join("x.o"))?;
        site.finish(site.here("outboard-cc").args(words).current_dir(&at), COMPILE_MAX)?;
        if fs::read(at.join("x.o"))? != home {
            bail!("{} is compiled differently", fs::read_to_string(at.join(format!("{name}.c")))?);
        }
    }
    let statistics = site.statistics()?;
    if statistics.remote != 0 {
        bail!("servers have read files that are not exported: {statistics:?}");
    }
    Ok(())
}

/// The attacks of the compiler's stand-in, each as `WHAT.c`.
const ATTACKS: &[&str] = &[
    "socket-inet",
    "socket-unix",
    "socketpair",
    "mount",
    "unshare-user",
    "ptrace-init",
    "bpf",
    "io-uring",
    "keyctl",
    "write-root",
    "write-usr",
    "chmod-toolchain",
    "secrets",
    "plant",
    "fork-bomb",
    "allocate",
];

fn attacks(site: &mut Site) -> Result<()> {
    let program = attacker(site)?;
    for index in 0..SERVERS {
        let arguments = vec!["--toolchain".to_owned(), format!("gcc={}", program.display())];
        let compile = format!("memory_mib = {MEMORY_MIB}\n");
        site.replace(index, &Setup { arguments, compile, ..Setup::default() })?;
    }
    site.warm(SERVERS)?;
    let at = site.directory("attacks")?;
    fs::write(at.join("Makefile"), "all:\n")?;
    fs::write(at.join(".secret"), "secret")?;
    let home = |name: &str| -> Result<Vec<u8>> {
        fs::write(at.join(format!("{name}.c")), "int attacked;\n")?;
        let mut compile = site.here("gcc");
        compile.args(["-c", &format!("{name}.c"), "-o", "home.o"]).current_dir(&at);
        site.finish(&mut compile, COMPILE_MAX)?;
        Ok(fs::read(at.join("home.o"))?)
    };
    let elsewhere = |name: &str| -> Result<Vec<u8>> {
        let (source, object) = (format!("{name}.c"), format!("{name}.o"));
        let mut compile = site.here("outboard-cc");
        compile.args(["gcc", "-c", &source, "-o", &object]).current_dir(&at);
        site.finish(&mut compile, COMPILE_MAX)?;
        Ok(fs::read(at.join(object))?)
    };
    let worked = ATTACKS.iter().filter_map(|name| {
        let both = home(name).and_then(|home| Ok(home == elsewhere(name)?));
        both.map(|same| (!same).then_some(*name)).transpose()
    });
    let worked = worked.collect::<Result<Vec<_>>>()?;
    if !worked.is_empty() {
        bail!("these worked: {worked:?}");
    }
    let planted = ["planted.h", "../planted", "/tmp/planted"];
    let planted: Vec<_> = planted.iter().filter(|path| at.join(path).exists()).collect();
    if !planted.is_empty() || fs::read_to_string(at.join("Makefile"))? != "all:\n" {
        bail!("a server wrote this on the client: {planted:?}, or the Makefile");
    }
    let statistics = site.statistics()?;
    if statistics.remote != 0 {
        bail!("some attacks produced an object: {statistics:?}");
    }
    // Without an attack the stand-in's object is accepted, so the checks above prove something.
    home("nothing")?;
    if elsewhere("nothing")? != b"worked\n" {
        bail!("the stand-in was not used: {:?}", site.statistics()?);
    }
    Ok(())
}

/// Compiles the stand-in, statically, so that no other file has to be shown with it.
fn attacker(site: &Site) -> Result<PathBuf> {
    let bin = site.directory("attacker/bin")?;
    let program = bin.join("gcc");
    let mut gcc = Command::new("gcc");
    gcc.args(["-static", "-O1", "-w", "-o"]).arg(&program);
    gcc.arg("-I").arg(command::root().join("crates/compile/tests/sandbox"));
    command::run(gcc.arg(command::root().join("xtask/src/compile/attacker.c")))?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}
