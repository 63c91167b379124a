//! `outboard fs` by the commands that users type: a file system that is served, mounted, used by
//! programs as they are, killed at every point, and found again.

mod home;
#[path = "home/served.rs"]
mod served;

use home::Home;
use outboard_testkit::PATIENCE;
use served::{Mounted, Over, Served, kill};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn programs_find_what_they_wrote() {
    let home = Home::new("fs-programs");
    let served = Served::start(&home, &["--size", "512MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    // As a tree that people have: many files, links, times, rights.
    mounted.run(&format!("cp -a {source} copy; diff -r {source} copy"));
    mounted.run("tar cf t.tar copy; mkdir back; tar xpf t.tar -C back; diff -r copy back/copy");
    mounted
        .run(&format!("rsync -a {source}/ sync/; rsync -aci {source}/ sync/ | wc -l | grep -qx 0"));
    mounted.run(
        "git init -q g; cd g; git config user.email a@b.c; git config user.name a; \
         cp -r ../copy .; git add -A; git commit -qm one; git fsck --strict; cd ..; \
         git clone -q g h; cd h; git fsck; git gc -q; git status --porcelain | wc -l | grep -qx 0",
    );
    let said = mounted.run(
        "sqlite3 d.db 'pragma journal_mode=delete; create table t(a); begin; \
         insert into t select value from generate_series(1,5000); commit; \
         pragma integrity_check; select count(*) from t'",
    );
    assert!(said.ends_with("ok\n5000\n"), "{said}");
    mounted.run("rm -rf copy back sync g h t.tar; ls | grep -qx d.db");
}

#[test]
fn bytes_are_where_they_were_put() {
    let home = Home::new("fs-bytes");
    let served = Served::start(&home, &["--size", "256MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let path = mounted.path("sparse");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = file.expect("made");
    let far = 5 << 30;
    file.write_all_at(b"far away", far).expect("written");
    file.write_all_at(b"near", 4090).expect("written");
    let mut found = [1; 16];
    file.read_exact_at(&mut found, 4086).expect("read");
    assert_eq!(&found, b"\0\0\0\0near\0\0\0\0\0\0\0\0");
    assert_eq!(file.metadata().expect("known").len(), far + 8);
    file.set_len(4092).expect("cut");
    file.set_len(8192).expect("grown");
    file.read_exact_at(&mut found, 4086).expect("read");
    assert_eq!(&found, b"\0\0\0\0ne\0\0\0\0\0\0\0\0\0\0", "what was cut off does not come back");
    mounted.run("fallocate -p -o 0 -l 4096 sparse; cmp -n 8192 sparse /dev/zero");
    drop(file);
    // Two appenders lose nothing of each other.
    mounted.run(
        "for n in 1 2; do (for i in $(seq 200); do echo $n-$i >> log; done) & done; wait; \
         sort -u log | wc -l | grep -qx 400",
    );
    mounted.run("echo kept > o; exec 3< o; rm o; cat <&3 | grep -qx kept; test ! -e o");
}

/// What the server finds and adds up is what GNU's programs find through the mount.
#[test]
fn tools_at_the_server_agree_with_gnu_s() {
    let home = Home::new("fs-tools");
    let served = Served::start(&home, &["--size", "256MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    mounted.run(&format!("cp -a {source} tree; ln -s tree/main.rs l; ln tree/main.rs tree/again"));
    mounted.run("mkdir -p tree/e/m/p; chmod 750 tree/e; touch -d '3 days ago' tree/main.rs");
    for expression in [
        "",
        "-name '*.rs' -size +8k",
        "-iname '[M-N]*' -o -type d -empty",
        "-type l -o -links +1",
        "-mindepth 2 -maxdepth 3 ! -name 'm*'",
        "-mtime +1 -print0",
        "( -perm 750 -o -newer tree/main.rs ) -type d",
        "-path '*/fs/*' -prune -o -type f -print",
    ] {
        let words: Vec<&str> = expression.split(' ').filter(|word| !word.is_empty()).collect();
        let plain: Vec<String> = words.iter().map(|word| word.replace('\'', "")).collect();
        let plain: Vec<&str> = plain.iter().map(String::as_str).collect();
        let ours = [&["fs", "find", "."], &plain[..]].concat();
        let ours = home.command(&ours).current_dir(&mounted.directory).output().expect("it runs");
        let mut gnu = Command::new("find");
        let gnu = gnu.arg(".").args(&plain).current_dir(&mounted.directory).output();
        let gnu = gnu.expect("GNU find");
        let (ours, gnu) = (String::from_utf8_lossy(&ours.stdout), &gnu.stdout);
        assert_eq!(ours, String::from_utf8_lossy(gnu), "find . {expression}");
    }
    let path = mounted.directory.to_str().expect("text");
    let ours = home.told(&["fs", "du", "-s", path]);
    assert_eq!(ours.split('\t').next(), mounted.run("du -s .").split('\t').next());
    let before = mounted.run("find . | wc -l");
    assert!(before.trim().parse::<u32>().expect("a number") > 50);
    home.told(&["fs", "rm", "-r", &format!("{path}/tree")]);
    assert_eq!(mounted.run("find . | sort"), ".\n./l\n");
    assert!(home.told(&["fs", "count", path]).starts_with("0 files, 1 directories, 1 symbolic"));
    let why = home.complaint(&["fs", "rm", &format!("{path}/nothing")]);
    assert!(why.contains("No such file"), "{why}");
}

/// What was synced is there whatever is killed; what was closed is there if the service is killed.
#[test]
fn kills_lose_nothing_that_was_promised() {
    let home = Home::new("fs-kills");
    let mut served = Served::start(&home, &["--size", "512MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let rounds = if std::env::var_os("OUTBOARD_FULL").is_some() { 40 } else { 6 };
    for round in 0..rounds {
        let (is_over, kept) = (AtomicBool::new(false), AtomicUsize::new(0));
        let directory = mounted.path(&format!("r{round}"));
        fs::create_dir(&directory).expect("made");
        File::open(&directory).and_then(|file| file.sync_all()).expect("synced");
        let kills_all = round % 2 == 1;
        let next =
            kills_all.then(|| (Served::ready(&home, &served.address, &[]), ReadyCheck::of(&home)));
        let (promised, next) = thread::scope(|scope| {
            let writer = scope.spawn(|| write_until(&directory, &is_over, &kept));
            let over = Over(&is_over);
            wait_for(&kept, 3);
            thread::sleep(Duration::from_millis(23 * round));
            let next = match next {
                Some((next, check)) => {
                    served.kill_all();
                    assert_eq!(check.ended(), (Some(0), String::new()), "round {round}");
                    next.start()
                }
                None => {
                    served.kill_service();
                    served
                }
            };
            // It goes on.
            wait_for(&kept, kept.load(Ordering::Relaxed) + 3);
            drop(over);
            (writer.join().expect("it ends"), next)
        });
        served = next;
        for (at, is_promised) in promised.into_iter().enumerate() {
            let path = directory.join(at.to_string());
            let found = fs::read_to_string(&path).unwrap_or_else(|why| format!("{why}"));
            if is_promised || !kills_all {
                assert_eq!(found, content(at), "round {round}, file {at}");
            }
        }
    }
    drop(mounted);
    let (address, before) = (served.address.clone(), "it ends in order");
    drop(served);
    let served = Served::at(&home, &address, &[]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    assert_eq!(mounted.run("ls -d r* | wc -l").trim(), rounds.to_string(), "{before}");
}

fn content(at: usize) -> String {
    format!("{at} ").repeat(at % 700 + 1)
}

/// Writes files, every third of them synced; which were synced without an error. Where the whole
/// server is killed, what is under way then may be an error.
fn write_until(directory: &Path, is_over: &AtomicBool, kept: &AtomicUsize) -> Vec<bool> {
    let mut promised = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let is_promised = write(directory, promised.len()).is_ok_and(|is_synced| is_synced);
        kept.fetch_add(is_promised.into(), Ordering::Relaxed);
        promised.push(is_promised);
    }
    promised
}

/// Waits until so many files were promised.
fn wait_for(kept: &AtomicUsize, count: usize) {
    let begun = Instant::now();
    while kept.load(Ordering::Relaxed) < count {
        assert!(begun.elapsed() < PATIENCE, "nothing more is promised");
        thread::sleep(Duration::from_millis(5));
    }
}

fn write(directory: &Path, at: usize) -> std::io::Result<bool> {
    let mut file = File::create(directory.join(at.to_string()))?;
    file.write_all(content(at).as_bytes())?;
    let is_synced = at.is_multiple_of(3);
    if is_synced {
        file.sync_all()?;
    }
    Ok(is_synced)
}

/// A check of the store that waits to begin: see [`Served::ready`].
struct ReadyCheck(Child);

/// Until the store's server is gone.
const CHECK: &str = "read go
    while \"$0\" fs check --store store > said 2> complained; code=$?; grep -q 'in use' complained
    do sleep 0.02; done
    cat said; cat complained >&2; exit $code";

impl ReadyCheck {
    fn of(home: &Home) -> Self {
        let outboard = home.command(&[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", CHECK]).arg(outboard.get_program()).current_dir(&home.0);
        shell.env("HOME", &home.0).env("XDG_CACHE_HOME", home.0.join("cache"));
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(shell.spawn().expect("a shell"))
    }

    /// What it comes to, and what it says to people.
    fn ended(mut self) -> (Option<i32>, String) {
        self.0.stdin.take().expect("piped").write_all(b"go\n").expect("told");
        let output = self.0.wait_with_output().expect("it ends");
        let error = String::from_utf8_lossy(&output.stderr);
        let said = String::from_utf8_lossy(&output.stdout);
        let is_usual = |line: &&str| *line != "no damage" && !line.starts_with("commit ");
        let said = said.lines().filter(is_usual).map(|line| format!("{line}\n"));
        // A checkpoint may have been under way.
        let said = said.filter(|line| !line.starts_with("a checkpoint is not whole"));
        (output.status.code(), said.collect::<String>() + &error)
    }
}

/// What a check of the store comes to, once its server is gone, and what it says to people.
fn checked(home: &Home) -> (Option<i32>, String) {
    ReadyCheck::of(home).ended()
}

fn shell(directory: &Path, script: &str) -> String {
    let output = Command::new("bash").args(["-ec", script]).current_dir(directory).output();
    let output = output.expect("a shell");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A tree with everything that a tree can have.
const TREE: &str = r#"
    mkdir -p src/a/b/c src/many src/empty src/shut src/open
    for n in $(seq 700); do echo $n > src/many/$n; done
    for n in 1 4095 4096 4097 32768 32769 200000 3000001; do
        head -c $n /dev/urandom > src/a/$n
        touch -d "1999-12-31 23:59:59.$n" src/a/$n
    done
    for n in $(seq 60); do head -c 50000 /dev/urandom > src/a/b/$n; done
    : > src/a/nothing
    ln -s nowhere src/a/dangling; ln -s ../.. src/a/b/up
    touch -hd '2001-02-03 04:05:06.7' src/a/b/up
    ln src/a/1 src/a/b/c/one; ln src/a/1 src/empty/../many/uno
    ln src/a/dangling src/a/b/too
    mkfifo -m 640 src/fifo
    if [ $(id -u) = 0 ]; then
        mknod src/null c 1 3; chown 12:34 src/a/4096; chown -h 5:6 src/a/b/up
        chmod 0 src/a/32768
    fi
    truncate -s 200M src/hole; printf end | dd of=src/gaps bs=1 seek=90000000 status=none
    printf middle | dd of=src/gaps bs=1 seek=5000000 conv=notrunc status=none
    truncate -s 120M src/gaps
    python3 - <<'END'
import os, socket
os.setxattr('src/a/4097', 'user.short', b'x')
os.setxattr('src/a/4097', 'user.with bytes', bytes(range(256)) * 10)
os.setxattr('src/empty', 'user.of a directory', b'')
for name in (b'\xff\xfe', b'new\nline', b'n' * 255, b' ', b'-rf', b"'\"\\"):
    os.mkdir(b'src/open/' + name)
    open(b'src/open/' + name + b'/' + name, 'wb').write(name)
os.utime('src/many/7', ns=(-5, -1234567890123456789))
END
    chmod 4755 src/a/4095; chmod 1777 src/open
    chmod 2750 src/a/b; chmod 555 src/shut
"#;

#[test]
fn trees_come_back_as_they_went() {
    let home = Home::new("fs-copy");
    let served = Served::start(&home, &["--size", "512MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    shell(&home.0, TREE);
    let differences = |back: &str| {
        let script = format!("rsync -aHAXn --delete --itemize-changes src/ {back}/");
        shell(&home.0, &script)
    };
    // Into the root, which is root's, as a new name, by a path in a mount, and the other way round.
    let (root, mnt) = match rustix::process::geteuid().is_root() {
        true => ("", "mnt"),
        false => ("/all", "mnt/all"),
    };
    let at = |path: &str| format!("{}:{root}{path}", served.address);
    let whole = if root.is_empty() { at("/") } else { at("") };
    let told = home.told(&["fs", "import", "src", &whole, "--json"]);
    let told: serde_json::Value = serde_json::from_str(&told).expect("JSON");
    assert_eq!(told["failures"], 0, "{told}");
    assert_eq!(differences(mnt), "");
    home.told(&["fs", "import", &format!("{mnt}/shut/../a"), &format!("{mnt}/open/a")]);
    home.told(&["fs", "export", &whole, "whole"]);
    home.told(&["fs", "rm", "-r", &at("/open/a")]);
    assert_eq!(shell(&home.0, "rsync -aHAXn --delete -i src/a/ whole/open/a/"), "");
    fs::create_dir(home.0.join("back")).expect("made");
    home.told(&["fs", "export", &format!("{mnt}/."), "back"]);
    shell(&home.0, &format!("touch -r src/open {mnt}/open back/open"));
    assert_eq!(differences("back"), "");
    let times = |tree: &str| {
        shell(&home.0.join(tree), "find . -type f -printf '%T@ %p %s %m %n %U\\n' | LC_ALL=C sort")
    };
    assert_eq!(times("src"), times("back"));
    shell(&home.0, "test $(du -sm back | cut -f1) -lt 40; cmp src/gaps back/gaps");
    home.told(&["fs", "import", "src/a/b/c", &at("/empty")]);
    let differs = shell(&home.0, &format!("rsync -aXn --delete -i src/a/b/c/ {mnt}/empty/"));
    assert_eq!(differs, "");
    shell(&home.0, "test -z \"$(find mnt . -name '.*port-*')\"");
    drop(mounted);
    drop(served);
    assert_eq!(checked(&home), (Some(0), String::new()));
}

#[test]
fn copies_that_cannot_be_whole_are_no_copies() {
    let home = Home::new("fs-copy-ends");
    let served = Served::start(&home, &["--size", "24MiB", "--metadata", "16MiB"]);
    let at = |path: &str| format!("{}:{path}", served.address);
    // The first start compiles the modules, for which a command does not wait so long.
    drop(Mounted::of(&home, &served, "mnt", ""));
    shell(&home.0, "mkdir -p src/d; for n in $(seq 40); do echo $n > src/d/$n; done; mkdir full");
    home.told(&["fs", "import", "src", &at("/there")]);
    for target in ["/there", "/there/d/1", "/nowhere/src", "/there/d/.."] {
        home.complaint(&["fs", "import", "src", &at(target)]);
    }
    let why = home.complaint(&["fs", "import", "src", &at("/there")]);
    assert!(why.contains("there is something already"), "{why}");
    let why = home.complaint(&["fs", "export", &at("/there"), "src"]);
    assert!(why.contains("there is something already"), "{why}");
    // What cannot be read is told, and the rest is copied.
    shell(&home.0, "mkdir -p src/proc; ln -s nothing src/z; mkfifo src/f");
    let mount = Mounted::of(&home, &served, "src/proc", "");
    let output = home.run(&["fs", "import", "src", &at("/some")]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("src/proc") && said.contains("another file system"), "{said}");
    drop(mount);
    let told = home.told(&["fs", "count", &at("/some")]);
    assert!(told.starts_with("40 files, 2 directories, 1 symbolic links, 1 others"), "{told}");
    // No space: nothing is there that looks whole.
    shell(&home.0, "for n in $(seq 40); do head -c 1M /dev/urandom > full/$n; done");
    let why = home.complaint(&["fs", "import", "full", &at("/full")]);
    assert!(why.contains("No space") && why.contains(".full.import-"), "{why}");
    let found = home.told(&["fs", "find", &at("/"), "-maxdepth", "1", "-name", "*full*"]);
    assert!(found.contains("/.full.import-") && !found.contains("/full"), "{found}");
    let left = found.trim().to_owned();
    home.told(&["fs", "rm", "-r", &left]);
    // One that is killed in its midst.
    shell(&home.0, "rm -r full; mkdir full; for n in $(seq 3000); do echo $n > full/$n; done");
    let mut import =
        home.command(&["fs", "import", "full", &at("/full")]).spawn().expect("started");
    loop {
        let found = home.told(&["fs", "count", &at("/")]);
        let files: u64 = found.split(' ').next().and_then(|word| word.parse().ok()).expect("files");
        if files > 100 || import.try_wait().expect("known").is_some() {
            break;
        }
    }
    kill(import.id());
    let killed = !import.wait().expect("it ends").success();
    let found = home.told(&["fs", "find", &at("/"), "-maxdepth", "1", "-name", "*full*"]);
    // It may have been killed when everything was in its place.
    let is_there = found.lines().any(|line| line.ends_with("/full"));
    assert!(killed || is_there, "{found}");
    if is_there {
        let told = home.told(&["fs", "count", &at("/full")]);
        assert!(told.starts_with("3000 files, 1 directories"), "{told}");
    }
    drop(served);
    assert_eq!(checked(&home), (Some(0), String::new()));
}

/// A process of another user, which may be in other groups than the server knows.
const ALICE: &str = "setpriv --reuid 4001 --regid 4001 --groups 4100";
const BOB: &str = "setpriv --reuid 4002 --regid 4002 --groups 4100";

/// Other users, mounts of theirs and what they see need root.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("skipped: it needs root");
    }
    is_root
}

#[test]
fn groups_are_those_of_the_server() {
    if !is_root() {
        return;
    }
    for (home, table, may) in [("fs-groups", "", true), ("fs-said", "groups = \"client\"\n", false)]
    {
        let home = Home::new(home);
        let served = Served::of_table(&home, table);
        let mounted = Mounted::of(&home, &served, "mnt", "allow_other");
        mounted.run("mkdir team; chgrp 4100 team; chmod 2770 team; echo secret > team/old");
        mounted.run("chmod 640 team/old");
        let alice = format!("{ALICE} sh -ec 'cat team/old; echo new > team/new; rm team/new'");
        let (home, script) = (&mounted.directory, format!("if {alice}; then echo may; fi 2>&1"));
        assert_eq!(shell(home, &script).ends_with("may\n"), may, "{table}");
        // What the client's kernel lets pass, the server does not.
        mounted.run(&format!("if {BOB} sh -c 'echo > team/no' 2>/dev/null; then exit 1; fi"));
        mounted.run(&format!("mkdir p; chmod 777 p; {BOB} sh -ec 'echo x > p/x; rm p/x'"));
    }
}

/// Another user with the same key, and that one's identity.
fn another(home: &Home, name: &str) -> (Home, String) {
    let (other, key) = (Home::new(name), ".config/outboard/key");
    home.told(&["key", "new"]);
    fs::create_dir_all(other.0.join(key).parent().expect("one")).expect("made");
    fs::copy(home.0.join(key), other.0.join(key)).expect("copied");
    let shown = other.told(&["key", "show", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    (other, shown["node"].as_str().expect("text").to_owned())
}

/// Bytes and inodes of an identity.
fn used_by(who: &Home, served: &Served) -> (u64, u64) {
    let stats = who.told(&["fs", "stats", &served.address, "--json"]);
    let stats: serde_json::Value = serde_json::from_str(&stats).expect("JSON");
    let number = |name: &str| stats["quota"][name].as_u64().expect("a number");
    (number("bytes_used"), number("inodes_used"))
}

#[test]
fn an_identity_has_what_it_may_and_pays_for_what_it_made() {
    if !is_root() {
        return;
    }
    let home = Home::new("fs-quota");
    let (other, identity) = another(&home, "fs-quota-other");
    let table = |inodes: u32| {
        format!("[fs.quota]\n{identity} = {{ bytes = \"4MiB\", inodes = {inodes} }}\n")
    };
    let served = Served::of_table(&home, &table(12));
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let theirs = Mounted::of(&other, &served, "mnt", "");
    let refused = |script: &str| {
        let script =
            format!("if {{ {script}; }} 2> $S; then exit 1; fi; grep -q 'quota exceeded' $S");
        theirs.run(&format!("S=$(mktemp); {script}; rm $S"));
    };
    theirs.run("mkdir d; head -c 3M /dev/zero > d/a; sync d/a");
    assert_eq!(used_by(&other, &served), (3 << 20, 2));
    refused("head -c 2M /dev/zero > d/a2 && sync d/a2");
    theirs.run("rm -f d/a2");
    // The one who made it pays, whatever becomes of it; what others make costs nothing.
    mounted.run("mv d/a d/b; chown 77 d/b; head -c 8M /dev/zero > own; cp own d/own; ln d/b l");
    assert_eq!(used_by(&other, &served), (3 << 20, 2));
    mounted.run("head -c 512k /dev/zero >> d/b; sync d/b");
    assert_eq!(used_by(&other, &served), (7 << 19, 2));
    theirs.run("truncate -s 1M l");
    assert_eq!(used_by(&other, &served), (1 << 20, 2));
    theirs.run("stat -f -c %b . | grep -qx 1024");
    theirs.run("for n in $(seq 9); do : > d/$n; done");
    refused("touch d/10 d/11 d/12");
    // Nothing of it is lost with the server.
    theirs.run("rm -f d/1? ; sync .");
    mounted.run("rm d/b; sync .");
    assert_eq!(used_by(&other, &served), (1 << 20, 11));
    drop((theirs, mounted));
    served.kill_all();
    assert_eq!(checked(&home), (Some(0), String::new()));
    let served = Served::of_table(&home, &table(5));
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let theirs = Mounted::of(&other, &served, "mnt", "");
    assert_eq!(used_by(&other, &served), (1 << 20, 11));
    theirs.run("if touch new; then exit 1; fi; rm d/[1-7] l; echo x > new; rm new");
    assert_eq!(used_by(&other, &served), (0, 3));
    let said = other.told(&["fs", "stats", &served.address]);
    assert!(said.contains("quota     3 of 5 inodes used by this identity"), "{said}");
    drop((theirs, mounted, served));
    assert_eq!(checked(&home), (Some(0), String::new()));
}

#[test]
fn an_identity_without_its_limit_is_counted_nevertheless() {
    if !is_root() {
        return;
    }
    let home = Home::new("fs-quota-gone");
    let (other, identity) = another(&home, "fs-quota-gone-other");
    let table = format!("[fs.quota]\n{identity} = {{ inodes = 2 }}\n");
    let served = Served::of_table(&home, &table);
    let theirs = Mounted::of(&other, &served, "mnt", "");
    theirs.run("mkdir d; : > d/1; if touch d/2; then exit 1; fi");
    drop((theirs, served));
    let served = Served::of_table(&home, "");
    let theirs = Mounted::of(&other, &served, "mnt", "");
    theirs.run("for n in $(seq 20); do : > d/n$n; done");
    assert_eq!(used_by(&other, &served), (0, 22));
    theirs.run("rm -r d");
    assert_eq!(used_by(&other, &served), (0, 0));
    drop((theirs, served));
    assert_eq!(checked(&home), (Some(0), String::new()));
}

#[test]
fn an_identity_is_the_user_that_the_server_says() {
    if !is_root() {
        return;
    }
    let home = Home::new("fs-bound");
    let (other, identity) = another(&home, "fs-bound-other");
    let table = format!("[fs.uid]\n{identity} = 4001\n");
    let served = Served::of_table(&home, &table);
    let mounted = Mounted::of(&home, &served, "mnt", "allow_other");
    mounted.run(
        "chmod 755 .; mkdir p; chmod 1777 p; echo mine > p/root; chmod 600 p/root; mkdir team",
    );
    mounted.run("chgrp 4100 team; chmod 770 team");
    let theirs = Mounted::of(&other, &served, "mnt", "");
    theirs.run("echo theirs > p/a; echo team > team/b; mv p/a p/c; mkdir p/d");
    for refused in
        ["cat p/root", "rm -f p/root", "mv p/root p/x", "chown 0 p/c", "touch new", "chmod 777 p"]
    {
        theirs.run(&format!("if {refused} 2> /dev/null; then exit 1; fi"));
    }
    // Many at once are no way around it.
    let at = |path: &str| format!("{}:{path}", served.address);
    shell(&other.0, "mkdir -p src/d; echo x > src/d/x; ln -s x src/d/l");
    other.told(&["fs", "import", "src", &at("/p/src")]);
    other.complaint(&["fs", "import", "src", &at("/src")]);
    other.complaint(&["fs", "rm", &at("/p/root")]);
    let owners = mounted.run("find p team -mindepth 1 -printf '%U:%G %p\\n' | sort");
    let expected = "0:0 p/root\n4001:4001 p/c\n4001:4001 p/d\n4001:4001 p/src\n\
        4001:4001 p/src/d\n4001:4001 p/src/d/l\n4001:4001 p/src/d/x\n4001:4001 team/b\n";
    assert_eq!(owners, expected);
}

#[test]
fn a_check_says_what_is_damaged() {
    let home = Home::new("fs-check");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    mounted.run("mkdir d; for n in $(seq 300); do echo $n > d/$n; sync d/$n; done");
    let output = home.run(&["fs", "check", "--store", "store"]);
    assert_eq!(output.status.code(), Some(2), "it is served");
    drop(mounted);
    served.kill_all();
    assert_eq!(checked(&home), (Some(0), String::new()));
    let found = home.told(&["fs", "check", "--store", "store", "--json"]);
    let found: serde_json::Value = serde_json::from_str(&found).expect("JSON");
    assert_eq!((&found["names"], &found["damage_count"]), (&301.into(), &0.into()));
    let store = home.0.join("store");
    let flip = |name: &str, part: usize| {
        let path = store.join(name);
        let mut bytes = fs::read(&path).expect("a file");
        let used = bytes.iter().rposition(|byte| *byte != 0).expect("something");
        bytes[used * part / 100] ^= 4;
        fs::write(&path, &bytes).expect("written");
        bytes[used * part / 100] ^= 4;
        bytes
    };
    let log = flip("log.00000001", 50);
    let (code, said) = checked(&home);
    assert!(code == Some(1) && said.contains("log.00000001 is damaged"), "{said}");
    fs::write(store.join("log.00000001"), log).expect("mended");
    flip("checkpoint.0", 30);
    let (code, said) = checked(&home);
    assert!(code == Some(1) && said.contains("neither of the two is whole"), "{said}");
    let output = home.run(&["fs", "check", "--store", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_full_store_says_so_and_loses_nothing() {
    let home = Home::new("fs-full");
    let served = Served::start(&home, &["--size", "24MiB", "--metadata", "16MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    mounted.run("head -c 4M /dev/urandom > kept; md5sum kept > sum; sync kept");
    mounted
        .run("if head -c 64M /dev/zero > large 2> said; then exit 1; fi; grep -q 'No space' said");
    mounted.run(
        "md5sum -c --quiet sum; rm large; head -c 8M /dev/urandom > again; md5sum -c --quiet sum",
    );
}

#[test]
fn what_cannot_be_served_or_mounted_is_said() {
    let home = Home::new("fs-refused");
    let why = home.complaint(&["fs", "serve", "--store", "s", "--size", "lots"]);
    assert!(why.contains("is no size"), "{why}");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let source = format!("{}:/", served.address);
    let why = home.complaint(&["fs", "mount", &source, "nowhere", "-f"]);
    assert!(why.contains("nowhere"), "{why}");
    let why = home.complaint(&["fs", "mount", &source, "mnt", "-o", "fast"]);
    assert!(why.contains("there is no such option"), "{why}");
    let why = home.complaint(&["fs", "serve", "--store", "store", "--listen", "127.0.0.1:0"]);
    assert!(why.contains("store"), "{why}");
    drop(mounted);
}

/// Users other than root and nobody do what they may where root is nobody.
#[test]
fn users_write_their_own_files_where_root_is_nobody() {
    if !is_root() {
        // There is no other user then.
        return;
    }
    let home = Home::new("fs-own");
    let store = home.0.join("store");
    let table = format!("serve = [\"fs\"]\n[fs]\nsize = \"64MiB\"\nstore = {store:?}\n");
    fs::write(home.0.join("node.toml"), table).expect("written");
    let (node, address) = home.node(&["--config", "node.toml"]);
    let mounted = Mounted::at(&home, &address, "mnt", "allow_other");
    mounted.run("mkdir d && chmod 1777 d");
    let script = "umask 77; cd d; printf abc > a; cp -p a b; cp -a b c; cmp a b; cmp b c; \
                  printf def >> c; chmod 200 c; printf ghi >> c; chmod 600 c; \
                  test $(cat c) = abcdefghi; stat -c '%a %u %s' a b c";
    let mut command = Command::new("setpriv");
    command.args(["--reuid=5", "--regid=60", "--clear-groups", "sh", "-ec", script]);
    let output = command.current_dir(&mounted.directory).output().expect("setpriv");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(told, "600 5 3\n600 5 3\n600 5 9\n");
    drop((mounted, node));
}

/// A user without rights mounts by fusermount3; neither set-user-id programs nor devices count.
#[test]
fn a_user_without_rights_mounts() {
    if !is_root() {
        // All tests of this file are without root's rights then.
        return;
    }
    let home = Home::new("fs-user");
    let served = Served::start(&home, &["--size", "64MiB"]);
    // It has compiled its modules then.
    drop(Mounted::of(&home, &served, "first", "rw"));
    // Where anybody can come, with a program and a key of the user's own.
    let place = tempfile::Builder::new().prefix("outboard-fs-").tempdir().expect("a directory");
    let (path, program) = (place.path(), place.path().join("outboard"));
    shell(&home.0, "test -e .config/outboard/key");
    fs::copy(env!("CARGO_BIN_EXE_outboard"), &program).expect("copied");
    // Without udev the device may be root's alone.
    let script = "mkdir mnt dev && cp -r \"$1\" .config && chmod 755 . && chown -R nobody . && \
                  if [ $(stat -c %a /dev/fuse) != 666 ]; then mount -t tmpfs -o dev none dev && \
                  mknod -m 666 dev/fuse c 10 229 && mount --bind dev/fuse /dev/fuse; fi && \
                  exec setpriv --reuid nobody --regid nogroup --clear-groups \
                  sh -ec \"$2\" sh \"$3\"";
    let as_nobody = "export HOME=$PWD XDG_CACHE_HOME=$PWD; ./outboard fs mount \"$1\" mnt\n\
        trap './outboard fs umount mnt' EXIT\n\
        grep \"$PWD/mnt fuse.outboard\" /proc/self/mounts\n\
        cp /bin/true mnt/suid; chmod u+s mnt/suid; stat -c '%A %U' mnt/suid; mnt/suid";
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-ec", script, "sh"]).arg(home.0.join(".config"));
    command.arg(as_nobody).arg(format!("{}:/", served.address)).current_dir(path);
    let output = command.output().expect("a shell");
    let (told, error) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{told}{error}");
    assert!(told.contains("nosuid,nodev"), "{told}");
    assert!(told.contains("-rwsr-xr-x nobody"), "{told}");
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    assert!(!mounts.contains(path.to_str().expect("text")), "it is unmounted");
}
