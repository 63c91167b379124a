//! `outboard run`: the environment that the program gets, and the messages when it cannot be run.
//! The libraries here are empty files, because nothing loads them.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const OUTBOARD: &str = env!("CARGO_BIN_EXE_outboard");

/// A new directory of one test.
fn place(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&path));
    fs::create_dir_all(&path).unwrap();
    path
}

/// Makes `directory` look like one with the libraries.
fn libraries(directory: &Path) {
    fs::create_dir_all(directory).unwrap();
    for library in ["libibverbs.so.1", "librdmacm.so.1"] {
        fs::write(directory.join(library), "").unwrap();
    }
}

/// `outboard run` in an environment without Outboard's variables.
fn run(libraries: &Path) -> Command {
    let mut command = plain(Path::new(OUTBOARD));
    command.env("OUTBOARD_LIB_DIR", libraries).arg("run");
    command
}

/// A program without Outboard's variables, the suite's own among them, and the loader's.
fn plain(program: &Path) -> Command {
    let mut command = Command::new(program);
    let ours = env::vars_os().map(|(name, _)| name);
    for name in ours.filter(|name| name.as_encoded_bytes().starts_with(b"OUTBOARD_")) {
        command.env_remove(name);
    }
    command.env_remove("LD_LIBRARY_PATH");
    command
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line with which `command` fails.
fn complaint(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    text.strip_prefix("outboard: ").unwrap().trim_end().to_owned()
}

/// The variables that tell the loader and the libraries something, in order.
fn environment(command: &mut Command) -> Vec<String> {
    let output = command.args(["--", "env"]).output().unwrap();
    let all = text(&output);
    let ours = ["LD_LIBRARY_PATH=", "OUTBOARD_"];
    let mut lines: Vec<_> = all
        .lines()
        .filter(|line| ours.iter().any(|start| line.starts_with(start)))
        .filter(|line| !line.starts_with("OUTBOARD_LIB_DIR="))
        .map(str::to_owned)
        .collect();
    lines.sort();
    lines
}

#[test]
fn options_become_environment() {
    let dir = place("options").canonicalize().unwrap();
    libraries(&dir);
    let mut command = run(&dir);
    command.args(["--personality", "roce", "--devices", "lo,10.0.0.1", "--record", "a.pcap"]);
    command.args(["--crc", "off", "--stats"]).env("LD_LIBRARY_PATH", "/a:/b").current_dir(&dir);
    let dir = dir.display();
    assert_eq!(
        environment(&mut command),
        [
            format!("LD_LIBRARY_PATH={dir}:/a:/b"),
            "OUTBOARD_CRC=off".to_owned(),
            "OUTBOARD_DEVICES=lo,10.0.0.1".to_owned(),
            "OUTBOARD_PERSONALITY=roce".to_owned(),
            format!("OUTBOARD_RECORD={dir}/a.pcap"),
            "OUTBOARD_STATS=1".to_owned(),
        ]
    );
}

#[test]
fn two_dashes_before_the_program_are_a_matter_of_taste() {
    let dir = place("dashes").canonicalize().unwrap();
    libraries(&dir);
    for start in [&["--stats", "--", "echo"][..], &["--stats", "echo"]] {
        let output = run(&dir).args(start).args(["--stats", "--", "-n"]).output().unwrap();
        assert_eq!(text(&output), "--stats -- -n\n", "{start:?}");
    }
}

#[test]
fn what_is_not_said_stays_as_it_is() {
    let dir = place("unsaid").canonicalize().unwrap();
    libraries(&dir);
    let path = format!("LD_LIBRARY_PATH={}", dir.display());
    assert_eq!(environment(run(&dir).env("LD_LIBRARY_PATH", "")), [path.as_str()]);
    let mut command = run(&dir);
    command.env("OUTBOARD_PERSONALITY", "roce").env("OUTBOARD_STATS", "0");
    let expected = [path.as_str(), "OUTBOARD_PERSONALITY=roce", "OUTBOARD_STATS=0"];
    assert_eq!(environment(&mut command), expected);
}

#[test]
fn outboard_becomes_the_program() {
    let dir = place("becomes");
    libraries(&dir);
    let shell = |script: &str| {
        let mut command = run(&dir);
        command.args(["--", "sh", "-c", script]).stdout(Stdio::piped());
        command
    };
    assert_eq!(shell("exit 7").status().unwrap().code(), Some(7));
    assert_eq!(shell("kill -TERM $$").status().unwrap().signal(), Some(15));
    let child = shell("echo $$").spawn().unwrap();
    let id = child.id();
    assert_eq!(text(&child.wait_with_output().unwrap()), format!("{id}\n"));
    // Rust ignores SIGPIPE, which the program must not inherit: bit 13, counted from 1.
    let ignored = text(&shell("grep SigIgn /proc/self/status").output().unwrap());
    let ignored = u64::from_str_radix(ignored.split_whitespace().nth(1).unwrap(), 16).unwrap();
    assert_eq!(ignored & (1 << 12), 0);
}

#[test]
fn arguments_pass_as_they_are() {
    let dir = place("arguments");
    libraries(&dir);
    let odd = OsString::from_vec(vec![b'x', 0xff]);
    let words = ["--", "printf", "%s|", "--help", "--", "", "-a b"].map(OsStr::new);
    let output = run(&dir).args(words).arg(odd).output().unwrap();
    assert_eq!(output.stdout, b"--help|--||-a b|x\xff|");
    // Like a shell: the program sees the name it was called by.
    symlink("/bin/sh", dir.join("another")).unwrap();
    let words = ["--", "another", "-c", "echo $0"];
    let output = run(&dir).env("PATH", &dir).args(words).output().unwrap();
    assert_eq!(text(&output), "another\n");
}

#[test]
fn libraries_are_looked_for_beside_the_program() {
    let top = place("beside").canonicalize().unwrap();
    fs::create_dir(top.join("bin")).unwrap();
    let program = top.join("bin/outboard");
    fs::hard_link(OUTBOARD, &program).unwrap();
    let found = || {
        let mut command = plain(&program);
        command.arg("run");
        command
    };
    let text = complaint(found().args(["--", "true"]));
    let places = format!("{0}/bin/lib nor {0}/lib/outboard: ", top.display());
    assert!(text.contains(&places), "{text}");
    assert!(text.contains("`cargo xtask libs --release`"), "{text}");
    // As if it were not set.
    assert_eq!(complaint(found().env("OUTBOARD_LIB_DIR", "").args(["--", "true"])), text);
    for directory in ["lib/outboard", "bin/lib"] {
        libraries(&top.join(directory));
        let path = format!("LD_LIBRARY_PATH={}", top.join(directory).display());
        assert_eq!(environment(&mut found()), [path]);
    }
}

#[test]
fn a_library_directory_must_be_whole_and_nameable() {
    let dir = place("half");
    libraries(&dir);
    fs::remove_file(dir.join("librdmacm.so.1")).unwrap();
    let text = complaint(run(&dir).args(["--", "true"]));
    assert!(text.starts_with("OUTBOARD_LIB_DIR is "), "{text}");
    let dir = place("colon").join("a:b");
    libraries(&dir);
    let text = complaint(run(&dir).args(["--", "true"]));
    assert!(text.starts_with("the loader takes no directory with : or ;"), "{text}");
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let dir = place("absent");
    libraries(&dir);
    let complain = |program: &Path| complaint(run(&dir).arg("--").arg(program));
    assert!(complain("no-such-program".as_ref()).starts_with("no program no-such-program in PATH"));
    assert!(complain("/no/such".as_ref()).starts_with("cannot run /no/such: No such file"));
    assert_eq!(complain("/usr".as_ref()), "/usr is a directory");
    assert!(complain(&dir.join("librdmacm.so.1")).ends_with("librdmacm.so.1 is not executable"));
}

/// A copy of a small program, changed.
fn copy(dir: &Path, change: impl FnOnce(&mut Vec<u8>)) -> PathBuf {
    let mut bytes = fs::read("/bin/true").unwrap();
    change(&mut bytes);
    let (draft, path) = (dir.join("draft"), dir.join("program"));
    fs::write(&draft, bytes).unwrap();
    // Not written here: another test's child could hold it open for writing, and it would be busy.
    assert!(Command::new("cp").arg(&draft).arg(&path).status().unwrap().success());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[test]
fn a_program_for_which_the_loader_ignores_the_environment_is_refused() {
    let dir = place("refused");
    libraries(&dir);
    let complain = |program: &Path| complaint(run(&dir).arg("--").arg(program));
    // The first program headers are PT_PHDR and PT_INTERP.
    let program = copy(&dir, |bytes| {
        assert_eq!(bytes[64 + 56], 3);
        bytes[64 + 56] = 0;
    });
    assert!(complain(&program).contains(" is statically linked, "), "PT_INTERP is gone");
    let program = copy(&dir, |bytes| bytes[18] ^= 0xff);
    assert!(complain(&program).ends_with(" is built for another kind of processor than Outboard"));
    let program = copy(&dir, |_| {});
    assert!(run(&dir).arg("--").arg(&program).status().unwrap().success());
    // Only root can give a file away; other owners are tested beside the code.
    if chown(&program, Some(65534), None).is_ok() {
        fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(complain(&program).contains(" runs with rights of its own (setuid, "));
    }
}

/// What is said besides when a program runs that was linked with these options in `bin`.
fn said(libraries: &Path, top: &Path, options: &[&str]) -> String {
    let (source, program) = (top.join("program.c"), top.join("bin/program"));
    fs::create_dir_all(top.join("bin")).unwrap();
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut cc = Command::new("cc");
    cc.arg(&source).arg("-o").arg(&program).args(options);
    assert!(cc.status().unwrap().success());
    let output = run(libraries).arg("--").arg(&program).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn libraries_that_go_before_ours_are_named() {
    let top = place("rpath").canonicalize().unwrap();
    let (ours, theirs) = (top.join("ours"), top.join("bin/../theirs"));
    libraries(&ours);
    libraries(&top.join("theirs"));
    let warning = format!(
        "outboard: {} was linked with an RPATH, by which the loader takes {} before ",
        top.join("bin/program").display(),
        theirs.join("libibverbs.so.1").display()
    );
    let old = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/none:$ORIGIN/../theirs";
    let text = said(&ours, &top, &[old]);
    assert!(text.starts_with(&warning) && text.lines().count() == 1, "{text}");
    // A script is run by such a program.
    let script = top.join("script");
    fs::write(&script, format!("#!{} -x\n", top.join("bin/program").display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let output = run(&ours).arg("--").arg(&script).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("theirs/libibverbs.so.1"));
    // A RUNPATH goes behind, and an RPATH to ours or to nothing does no harm.
    for harmless in [
        "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../theirs",
        "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../ours",
        "-Wl,--disable-new-dtags,-rpath,/no/such:$ORIGIN",
    ] {
        assert_eq!(said(&ours, &top, &[harmless]), "", "{harmless}");
    }
    fs::remove_file(top.join("theirs/libibverbs.so.1")).unwrap();
    assert!(said(&ours, &top, &[old]).contains("theirs/librdmacm.so.1"));
}

#[test]
fn the_program_stands_behind_two_dashes() {
    let output = Command::new(OUTBOARD).arg("run").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let output = Command::new(OUTBOARD).args(["run", "--personality", "x", "--", "true"]).output();
    assert_eq!(output.unwrap().status.code(), Some(2));
}
