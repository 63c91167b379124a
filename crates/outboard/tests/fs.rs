//! `outboard fs` by the commands that users type: a file system that is served, mounted, used by
//! programs as they are, killed at every point, and found again.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[path = "home/served.rs"]
mod served;

use home::Home;
use served::{Mounted, SOON, Served, kill};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::mem::ManuallyDrop;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
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
        let next = kills_all.then(|| Served::ready(&home, &served.address, &[]));
        let (promised, next) = thread::scope(|scope| {
            let writer = scope.spawn(|| write_until(&directory, &is_over, &kept));
            let over = Over(&is_over);
            wait_for(&kept, 3);
            thread::sleep(Duration::from_millis(23 * round));
            let next = match next {
                Some(next) => {
                    served.kill_all();
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

/// Ends a writer, also where its test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
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
        assert!(begun.elapsed() < SOON, "nothing more is promised");
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
