//! `outboard fs grep` against GNU grep through a mount of the same files: the same bytes on both
//! outputs, the same exit status.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "home/served.rs"]
mod served;

use home::Home;
use served::{Mounted, Served};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Files with everything that is odd about files.
fn fill(root: &Path) {
    let put = |name: &str, bytes: &[u8]| fs::write(root.join(name), bytes).expect("written");
    fs::create_dir_all(root.join("d/e")).expect("made");
    fs::create_dir(root.join("empty dir")).expect("made");
    put("plain.txt", b"alpha\nbeta needle\ngamma\nneedle needle\n");
    put("d/code.rs", b"fn needle() {}\n// Needle_2\nlet needle_3 = NEEDLE;\n");
    put("d/e/none.txt", b"nothing here\n");
    put("no end", b"first\nlast needle");
    put("empty", b"");
    put("one end", b"\n");
    put("crlf", b"needle\r\nother\r\nneedle $\r\n");
    put("nul", b"needle\0more\nno\nneedle\n");
    put("invalid", b"needle one\nx\xff needle\nlast needle\n");
    put("utf8", "Nädel needle\nÉcole\nécole needle\n".as_bytes());
    let name = std::ffi::OsStr::from_bytes(b"odd\xff \nname");
    fs::write(root.join(name), b"a needle\n").expect("written");
    let mut long = vec![b'x'; 700_000];
    long.extend_from_slice(b" needle\nshort needle\n");
    // Not among the others: GNU grep reads more at a time of all files behind such a line.
    put("../long", &long);
    let mut late = b"needle early\n".repeat(20_000);
    late.extend_from_slice(b"\0\nneedle late\n");
    put("late nul", &late);
    let many: Vec<String> =
        (0..60_000).map(|line| format!("line {line} with a needle\n")).collect();
    put("many", many.concat().as_bytes());
    let sparse = fs::File::create(root.join("sparse")).expect("made");
    sparse.write_all_at(b"needle\n", 1 << 20).expect("written");
    symlink("plain.txt", root.join("link")).expect("made");
    symlink("nowhere", root.join("dangling")).expect("made");
    symlink("d", root.join("dirlink")).expect("made");
}

struct Compared<'a> {
    home: &'a Home,
    directory: &'a Path,
}

impl Compared<'_> {
    /// What both say, and their exit status.
    fn both(&self, words: &[&str], locale: &str) -> [(Vec<u8>, String, Option<i32>); 2] {
        let mut gnu = Command::new("grep");
        gnu.args(words);
        let ours = self.home.command(&[&["fs", "grep"], words].concat());
        [gnu, ours].map(|mut command| {
            let output = command.env("LC_ALL", locale).current_dir(self.directory).output();
            let output = output.expect("it runs");
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.stdout, error, output.status.code())
        })
    }

    fn same(&self, words: &[&str]) {
        for locale in ["C", "C.UTF-8"] {
            let [gnu, ours] = self.both(words, locale);
            let about = format!("LC_ALL={locale} grep {words:?}");
            let (left, right) = (String::from_utf8_lossy(&gnu.0), String::from_utf8_lossy(&ours.0));
            let differs = left.lines().zip(right.lines()).find(|(gnu, ours)| gnu != ours);
            let same = gnu.0 == ours.0;
            assert!(same, "{about}: {differs:?}, {} and {} bytes", gnu.0.len(), ours.0.len());
            assert_eq!(gnu.2, ours.2, "{about}: {}", ours.1);
            // It warns of what programs may take in several ways.
            let lines = gnu.1.lines().filter(|line| !line.starts_with("grep: warning: ")).count();
            assert_eq!(lines, ours.1.lines().count(), "{about}: {}", ours.1);
            let messages = gnu.1.lines().filter(|line| line.ends_with("binary file matches"));
            let missing = messages.into_iter().find(|line| !ours.1.contains(*line));
            assert_eq!(missing, None, "{about}: {}", ours.1);
        }
    }
}

const OPTIONS: &[&[&str]] = &[
    &["-r", "needle", "."],
    &["-rn", "needle", "."],
    &["-rni", "needle", "./"],
    &["-rnilc", "needle", "."],
    &["-rl", "needle", "d", "plain.txt"],
    &["-rL", "needle", "."],
    &["-rc", "needle", "."],
    &["-rvc", "needle", "."],
    &["-rv", "needle", "d", "nul", "crlf"],
    &["-rw", "needle", "."],
    &["-rx", "needle", "."],
    &["-rxF", "a needle", "."],
    &["-ro", "[Nn]eedle", "."],
    &["-rob", "ne*dle", "."],
    &["-rnow", "needle", "d"],
    &["-rE", "(alpha|gamma|needle_[0-9]+)", "."],
    &["-rE", "needle{1}", "plain.txt"],
    &["-r", "\\(needle\\) \\1", "."],
    &["-rG", "need\\+le", "d"],
    &["-re", "alpha", "-e", "gamma", "."],
    &["-rFf", "patterns", "."],
    &["-rq", "needle", "."],
    &["-q", "absent", "plain.txt"],
    &["-rh", "needle", "d"],
    &["-H", "needle", "plain.txt"],
    &["-rm", "1", "needle", "."],
    &["-rcm2", "needle", "."],
    &["-rnm3", "needle", "many", "late nul"],
    &["-rA1", "needle", "."],
    &["-rnB2", "gamma", "."],
    &["-rnbC1", "alpha", "."],
    &["-rC", "3", "line 59[0-9]*7 ", "many"],
    &["-rnA2", "-m2", "needle", "."],
    &["-rnA70000", "-m2", "line 9 ", "many"],
    &["-rB70000", "line 59999 ", "many"],
    &["-rvC1", "needle", "d", "nul", "crlf"],
    &["-roA1", "-B1", "alpha", "."],
    &["-rcA1", "needle", "."],
    &["-rlC2", "needle", "."],
    &["-rA0", "needle", "d", "crlf"],
    &["-raC1", "needle", "nul", "invalid", "late nul"],
    &["-rZHA1", "-C9", "-n", "alpha", "plain.txt"],
    &["-rC1", "\\(needle\\) \\1", "."],
    &["-C1", "needle", "invalid"],
    &["-B2", "last", "invalid"],
    &["-A99999999999999999999", "beta", "plain.txt"],
    &["-ra", "needle", "."],
    &["-rI", "needle", "."],
    &["-rIl", "needle", "."],
    &["-racv", "needle", "."],
    &["-r", "needle", ".", "--include=*.txt"],
    &["-r", "needle", ".", "--exclude=*.txt"],
    &["-r", "needle", ".", "--exclude-dir=e"],
    &["needle", "link", "plain.txt"],
    &["-r", "needle", "link", "dirlink"],
    &["needle", "d"],
    &["needle", "d", "plain.txt"],
    &["needle", "dangling", "absent", "plain.txt"],
    &["-s", "needle", "absent", "plain.txt"],
    &["-qs", "needle", "absent", "plain.txt"],
    &["", "empty", "one end", "no end"],
    &["-c", "", "empty", "one end", "no end"],
    &["-n", "^", "crlf"],
    &["-r", "$", "d"],
    &["-n", "\\w*é\\w*", "utf8"],
    &["-on", "[[:alpha:]]\\+", "utf8", "plain.txt"],
    &["-iw", "école", "utf8"],
    &["-c", "line 5.*needle$", "many"],
    &["-vn", "line", "many"],
    &["-n", "x needle", "../long"],
    &["-c", "needle", "../long"],
    &["-nv", "short", "../long"],
    &["-c", "needle", "sparse"],
    &["-l", "needle", "sparse", "late nul"],
    &["-E", "(", "plain.txt"],
    &["-r", "needle"],
    &["-rn", "needle", "--null", "d"],
];

/// A small generator of numbers, the same every time.
struct Seeded(u64);

impl Seeded {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).expect("small")
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.next(of.len())]
    }
}

const SWITCHES: &[&str] = &["-n", "-i", "-v", "-c", "-l", "-L", "-b", "-H", "-h", "-s", "-a", "-I"];
const CONTEXTS: &[&str] =
    &["-1", "-2n", "-n12", "-A1", "-B2", "-C1", "-1n2", "-1i", "-2C1", "-C1n"];
const COUNTS: &[&str] = &["-m0", "-m1", "-nm2", "-m-1"];
const NAMES: &[&str] = &[
    "--include=*.txt",
    "--exclude=*.rs",
    "--exclude=d/*",
    "--include=e/*",
    "--include=[!n]*",
    "--exclude=plain.txt",
    "--exclude-dir=e",
    "--exclude-dir=d/",
    "--include=code.rs",
];
const PATTERNS: &[&[&str]] = &[
    &["needle"],
    &["-e", ""],
    &["-e", "alpha", "-e", ""],
    &["-E", "(e)\\1|gamma"],
    &["-F", "needle"],
    &["\\bneedle"],
    &["x\\>"],
    &["\\{"],
    &["n\\(e\\)\\1\\{0,1\\}d"],
    &["-wE", "needle|alph"],
    &["-x", "needle"],
    &["-w", "-e", "NEEDLE", "-i"],
    &["-f", "patterns"],
    &["-f", "empty"],
    &["-xe", ""],
];
const PLACES: &[&str] = &[
    ".",
    "d",
    "plain.txt",
    "nul",
    "invalid",
    "utf8",
    "crlf",
    "empty",
    "one end",
    "no end",
    "absent",
    "link",
    "./d/e",
    "d/code.rs",
    "d/",
    "d/e/none.txt",
];

/// Words of a command line, of which some go together badly.
fn random_words(seed: &mut Seeded) -> Vec<&'static str> {
    let mut words = Vec::new();
    words.extend((seed.next(3) > 0).then_some("-r"));
    for _ in 0..seed.next(4) {
        words.push(seed.one(SWITCHES));
    }
    for (among, of) in [(CONTEXTS, 3), (COUNTS, 6), (NAMES, 3), (NAMES, 4)] {
        words.extend((seed.next(of) == 0).then(|| seed.one(among)));
    }
    words.extend(seed.one(PATTERNS));
    for _ in 0..1 + seed.next(3) {
        words.push(seed.one(PLACES));
    }
    words
}

#[test]
fn what_the_server_finds_gnu_grep_finds_through_a_mount() {
    let home = Home::new("fs-grep");
    let served = Served::start(&home, &["--size", "256MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let directory = mounted.path("t");
    fs::create_dir(&directory).expect("made");
    fill(&directory);
    fs::write(directory.join("patterns"), "alpha\nneedle_3\n").expect("written");
    let compared = Compared { home: &home, directory: &directory };
    for words in OPTIONS {
        compared.same(words);
    }
    let mut seed = Seeded(0x5851_f42d_4c95_7f2d);
    for _ in 0..if std::env::var_os("OUTBOARD_FULL").is_some() { 1500 } else { 20 } {
        compared.same(&random_words(&mut seed));
    }
    // It was the server who looked, but for what no automaton decides.
    let status = home.told(&["fs", "grep", "-c", "needle", &format!("{}:/t/many", served.address)]);
    assert_eq!(status, "60000\n");
    let whole = format!("{}:/t/d", served.address);
    let found = home.told(&["fs", "grep", "-rl", "needle_3", &whole]);
    assert_eq!(found, format!("{whole}/code.rs\n"), "as the path is written");
    let line = home.told(&[
        "fs",
        "grep",
        "--json",
        "-n",
        "gamma",
        &format!("{}:/t/plain.txt", served.address),
    ]);
    assert!(line.contains("\"line\":3") && line.contains("\"text\":\"gamma\""), "{line}");
    // A reader that goes away ends it.
    let mut piped = home.command(&["fs", "grep", "needle", "many"]);
    let piped = piped.current_dir(&directory).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "line 0 with a needle\n");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The server asks whether the user may read; the mount's kernel is not in between.
#[test]
fn nobody_finds_lines_that_he_may_not_read() {
    let home = Home::new("fs-grep-rights");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    fs::create_dir_all(mounted.path("open/closed")).expect("made");
    for name in ["open/a", "open/secret", "open/closed/b"] {
        fs::write(mounted.path(name), "needle\n").expect("written");
    }
    let close = |name: &str, mode| {
        fs::set_permissions(mounted.path(name), fs::Permissions::from_mode(mode)).expect("set");
    };
    close("open/secret", 0o600);
    close("open/closed", 0o700);
    let whole = format!("{}:/open", served.address);
    let mut as_other = Command::new("setpriv");
    let ours = home.command(&["fs", "grep", "-rh", "needle", &whole]);
    as_other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    as_other.arg(ours.get_program()).args(ours.get_args());
    for (name, value) in ours.get_envs() {
        as_other.env(name, value.unwrap_or_default());
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root is somebody else");
        return;
    }
    // A key is its owner's alone.
    let give =
        Command::new("chown").args(["-R", "65534:65534"]).arg(home.0.join(".config")).status();
    assert!(give.expect("chown").success());
    let output = as_other.output().expect("setpriv");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "needle\n", "{error}");
    assert_eq!(error.matches("Permission denied").count(), 2, "{error}");
    assert_eq!(output.status.code(), Some(2));
}

/// Many look for the same, and for others' patterns, with one key.
#[test]
fn who_looks_for_the_same_is_in_nobody_s_way() {
    let home = Home::new("fs-grep-many");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    fs::write(mounted.path("text"), b"a needle\nnothing\n").expect("written");
    std::thread::scope(|scope| {
        for who in 0..4 {
            let (home, mounted) = (&home, &mounted);
            scope.spawn(move || {
                for round in 0..12 {
                    // More patterns than an identity may have modules.
                    let own = format!("ne*dle|{who}-{round}");
                    for pattern in ["ne+dle", &own] {
                        let words = ["fs", "grep", "-rcE", pattern, "."];
                        let output = home.command(&words).current_dir(&mounted.directory).output();
                        let output = output.expect("it runs");
                        let error = String::from_utf8_lossy(&output.stderr);
                        assert_eq!(output.status.code(), Some(0), "{pattern}: {error}");
                        assert_eq!(output.stdout, b"./text:1\n", "{pattern}");
                    }
                }
            });
        }
    });
}
