//! `outboard fs cp` against GNU cp through a mount of the same files: the same trees, the same
//! words, the same exit status.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "home/served.rs"]
mod served;

use home::Home;
use served::{Mounted, Served};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

/// A tree with everything that is odd about files, and things that are in a copy's way.
const FILL: &str = "mkdir -p t/d/e t/empty t/many into/t/d; \
    echo a > t/d/a; printf '' > t/d/none; ln -s a t/d/l; ln -s nowhere t/d/dangling; \
    ln t/d/a t/d/e/second; ln t/d/l t/d/e/link; mkfifo t/d/fifo; mknod t/d/null c 1 3; \
    printf x > \"$(printf 't/odd\\377 \\nname')\"; seq 100000 > t/large; \
    for n in $(seq 12); do echo $n > t/many/$n; done; \
    truncate -s 8M t/sparse; printf z | dd of=t/sparse bs=1 seek=4000000 conv=notrunc 2>/dev/null; \
    truncate -s 5000 t/hole; seq 9000 | head -c 8192 > t/whole; \
    chmod 4751 t/d/a; chmod 640 t/large; chmod 400 t/whole; \
    chmod 1777 t/empty; chmod 2770 t/many; \
    chmod 500 t/d/e; chown 7:8 t/large t/many; chown 9 t/d/none; \
    touch -d '3 days ago' t/d t/large; \
    touch -hd 2001-02-03 t/d/l; setfattr -n user.color -v green t/large; \
    setfattr -n user.size -v big t/d; \
    echo a > f; echo other, longer > g; ln -s g gl; ln -s into il; ln -s gone lost; ln g h; \
    echo old > into/f; seq 5000 > into/t/large; mkdir into/t/hole into/dir; echo x > into/t/empty; \
    ln into/f into/f2; ln -s f into/lf; chmod 444 g; \
    echo kept > into/t/d/kept; ln -s x into/t/whole";

/// What is copied, each time of a tree of its own.
const COPIES: &[&str] = &[
    "-r t new",
    "-a t new",
    "-rp t new",
    "-r t/ new/",
    "-a t into",
    "-r t into",
    "-r t/. new",
    "-r t/. into",
    "-a t/d/.. new",
    "-rn t into",
    "-rf t into",
    "-r t f g into",
    "-a t/d t/many t/large into",
    "-a t/d/a t/d/e/second into",
    "-r t/d/a t/d/e/second into",
    "f new",
    "f g",
    "g f",
    "-p g f",
    "-a g h into",
    "t/large f",
    "f t/large",
    "t/hole f",
    "f t/hole",
    "t/d/none f",
    "t/sparse new",
    "t/sparse t/large",
    "t/large t/sparse",
    "-n f g",
    "f gl",
    "f lost",
    "-r gl new",
    "gl new",
    "-a gl into/lf",
    "-r gl f",
    "f into/lf",
    "f il",
    "-r il new",
    "t/d/l new",
    "-a t/d/l t/d/dangling t/d/fifo t/d/null into",
    "t new",
    "t f into",
    "-r t/d f",
    "-r t f",
    "f t/d/e/none/x",
    "f none/x",
    "-r t none/x",
    "f new/",
    "f g/",
    "f g none",
    "f g h",
    "none new",
    "none f into",
    "f f",
    "h g",
    "f into/dir",
    "t/hole into/t",
    "-r t t",
    "-r t t/d/e/new",
    "-r . into",
    "-r t/d/e/../.. into",
    "f/x new",
    "lost new",
    "-r lost new",
];

struct Compared<'a> {
    home: &'a Home,
    mounted: &'a Mounted,
}

/// What a command says, without its name.
fn said(output: &Output, name: &str) -> Vec<String> {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    let words = |line: &str| line.strip_prefix(name).unwrap_or(line).to_owned();
    // What is copied first is nobody's business.
    let mut lines: Vec<String> = error.lines().map(words).collect();
    lines.sort();
    lines
}

impl Compared<'_> {
    /// What is in a directory: all attributes that count, and a hash of everything.
    fn seen(&self, directory: &str, has_times: bool) -> String {
        let times = if has_times { " %T@" } else { "" };
        let script = format!(
            "cd {directory}; find . -mindepth 1 ! -path ./into \
             -printf '%P %y %m %U %G %n %s %l{times}\\n' | sort; \
             find . -print0 | sort -z | xargs -0 getfattr -hd -m user. 2>/dev/null || true"
        );
        let hash = self.home.told(&["fs", "tree-hash", &format!("mnt/{directory}")]);
        self.mounted.run(&script) + hash.split(' ').next().expect("a hash")
    }

    /// How both differ.
    fn differing(&self, options: &str) -> Option<String> {
        let words: Vec<&str> = options.split(' ').collect();
        let mut all = Vec::new();
        for (directory, is_gnu) in [("gnu", true), ("ours", false)] {
            self.mounted.run(&format!("rm -rf {directory}; cp -a fill {directory}"));
            let mut command = match is_gnu {
                true => Command::new("cp"),
                false => self.home.command(&["fs", "cp"]),
            };
            let command = command.args(&words).env("LC_ALL", "C");
            all.push(command.current_dir(self.mounted.path(directory)).output().expect("it runs"));
        }
        let [gnu, ours] = [&all[0], &all[1]];
        let (told, expected) = (said(ours, "outboard: "), said(gnu, "cp: "));
        if told != expected || ours.status.code() != gnu.status.code() {
            let (code, theirs) = (ours.status.code(), gnu.status.code());
            return Some(format!("cp {options}: {told:?} {code:?}, GNU {expected:?} {theirs:?}"));
        }
        if expected.iter().any(|line| line.contains("into itself")) {
            // GNU cp has copied a part before it sees that.
            return None;
        }
        let has_times = words[0].starts_with("-a");
        let (ours, gnu) = (self.seen("ours", has_times), self.seen("gnu", has_times));
        let differs = ours.lines().zip(gnu.lines()).find(|(ours, gnu)| ours != gnu);
        (ours != gnu).then(|| format!("cp {options}: {differs:?}"))
    }
}

#[test]
fn what_is_copied_is_what_gnu_cp_copies_through_a_mount() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root makes devices, and gives files away");
        return;
    }
    let home = Home::new("fs-cp");
    let served = Served::start(&home, &["--size", "1GiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "dev,suid");
    mounted.run(&format!("mkdir fill; cd fill; {FILL}"));
    let compared = Compared { home: &home, mounted: &mounted };
    let differing: Vec<String> =
        COPIES.iter().filter_map(|options| compared.differing(options)).collect();
    assert_eq!(differing, [""; 0]);
    let there = format!("{}:/", served.address);
    home.told(&["fs", "cp", "-r", &format!("{there}fill/t/d"), &format!("{there}by-host")]);
    mounted.run("diff -r --no-dereference fill/t/many ours/t/many; test -p by-host/fifo");
    let why = home.complaint(&["fs", "cp", &format!("{there}fill/f"), "nowhere/x"]);
    assert!(why.contains("'nowhere/x': No such file or directory"), "{why}");
}

/// Blocks are shared; where they cannot be, or not at once, the bytes are the same.
#[test]
fn copies_take_no_room_and_stay_apart() {
    let home = Home::new("fs-cp-blocks");
    let served = Served::start(&home, &["--size", "256MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let used = || {
        let stats = home.told(&["fs", "stats", "--json", &served.address]);
        let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
        stats["bytes_used"].as_u64().expect("a number")
    };
    let pieces = fs::File::create(mounted.path("pieces")).expect("made");
    for at in 0..6000_u64 {
        pieces.write_all_at(&at.to_le_bytes(), at * 8192).expect("written");
    }
    drop(pieces);
    mounted.run("mkdir d; seq 12000000 > d/large; mv pieces d; sync -f d");
    let before = used();
    home.told(&["fs", "cp", "-r", "mnt/d", "mnt/e"]);
    let after = used();
    assert!(after - before < 1 << 20, "{before} and {after} bytes");
    mounted.run("cmp d/large e/large; cmp d/pieces e/pieces");
    mounted.run("du d e | cut -f 1 | uniq | wc -l | grep -qx 1");
    mounted.run("echo changed >> e/large; printf X | dd of=d/large bs=1 seek=70000 conv=notrunc");
    mounted.run("tail -n 1 d/large | grep -qx 12000000; tail -n 1 e/large | grep -qx changed");
    mounted
        .run("cmp -n 70000 d/large e/large; head -c 70001 e/large | tail -c 1 | grep -q '[0-9]'");
    // A block has 255 files at most.
    mounted.run("mkdir n; seq 3000 > n/0");
    for round in 0..9 {
        home.told(&["fs", "cp", "-r", "mnt/n", "mnt/m"]);
        mounted.run(&format!("for f in m/*; do mv $f n/{round}-${{f#m/}}; done; rmdir m"));
    }
    mounted.run(
        "ls n | wc -l | grep -qx 512; cksum < n/0 > sum; \
                 for f in n/*; do cksum < $f | cmp - sum; done",
    );
}

/// The server asks whether the user may read and write.
#[test]
fn nobody_copies_what_he_may_not_read() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root is somebody else");
        return;
    }
    let home = Home::new("fs-cp-rights");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "allow_other,suid");
    mounted.run(
        "mkdir -m 755 fill; cd fill; mkdir -p t/shut t/open into/t; echo a > t/open/a; \
         echo b > t/secret; echo c > t/shut/c; echo d > t/run; chown 3:4 t/run; chmod 6755 t/run; \
         chmod 600 t/secret; chmod 700 t/shut; echo old > into/closed; echo old > into/own; \
         chmod 644 into/closed; chown 65534:65534 into into/t into/own; chmod 400 into/own; \
         mkdir -m 755 root; chmod 755 t t/open; chmod 644 t/open/a",
    );
    let give =
        Command::new("chown").args(["-R", "65534:65534"]).arg(home.0.join(".config")).status();
    assert!(give.expect("chown").success());
    for options in [
        "-r t into",
        "-a t into",
        "-p t/run into",
        "t/secret into",
        "t/open/a into/closed",
        "-f t/open/a into/closed",
        "t/open/a into/own",
        "-f t/open/a into/own",
        "-a t/open/a into/own",
        "t/open/a root/x",
        "-r t root",
        "t/shut/c into",
        "t/open/a t/shut",
    ] {
        let seen = [("gnu", true), ("ours", false)].map(|(directory, is_gnu)| {
            mounted.run(&format!("rm -rf {directory}; cp -a fill {directory}"));
            let output = as_other(&home, &served, &mounted.path(directory), (options, is_gnu));
            let listed = mounted
                .run(&format!("cd {directory}; find . -printf '%P %y %m %U %G %n %s\\n' | sort"));
            let text = String::from_utf8_lossy(&output.stderr).replace("cp: ", "outboard: ");
            let text = text.replace(&format!("{}:/ours/", served.address), "");
            let mut said: Vec<String> = text.lines().map(str::to_owned).collect();
            said.sort();
            (said, output.status.code(), listed)
        });
        assert_eq!(seen[1], seen[0], "cp {options}");
    }
}

/// Copies as a user who is nobody in particular.
fn as_other(home: &Home, served: &Served, at: &Path, (options, is_gnu): (&str, bool)) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).env("LC_ALL", "C");
    let words = options.split(' ');
    if is_gnu {
        return command.arg("cp").args(words).current_dir(at).output().expect("setpriv");
    }
    let ours = home.command(&["fs", "cp"]);
    command.arg(ours.get_program()).args(ours.get_args());
    command.args(words.map(|word| match word.starts_with('-') {
        true => word.to_owned(),
        false => format!("{}:/ours/{word}", served.address),
    }));
    for (name, value) in ours.get_envs().filter(|(_, value)| value.is_some()) {
        command.env(name, value.unwrap_or_default());
    }
    command.output().expect("setpriv")
}
