//! `outboard fs tree-hash`: a directory of this machine, its import and what a mount shows of it
//! have one hash, whatever differs has another, and nobody has one of what he may not read.

#[expect(dead_code, reason = "other tests use the rest")]
mod home;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "home/served.rs"]
mod served;

use home::Home;
use served::{Mounted, Served};
use std::fs;
use std::process::Command;

/// Files with everything that is odd about files: more than one request asks for, larger than one
/// piece, with holes in front and behind, names of any bytes.
const FILL: &str = "mkdir -p d/e empty many; echo a > d/a; printf '' > d/e/none; \
    ln -s a d/l; ln -s nowhere d/dangling; ln d/a d/e/second; mkfifo d/fifo; \
    printf x > \"$(printf 'odd\\377 \\nname')\"; echo b > d.txt; \
    for n in $(seq 700); do echo $n > many/$n; done; \
    seq 6000000 > large; truncate -s 16M whole; printf y >> whole; \
    truncate -s 70M sparse; printf z | dd of=sparse bs=1 seek=40000000 conv=notrunc status=none; \
    chmod 4751 d/a; chmod 1777 empty; chmod 750 d";

fn shell(directory: &std::path::Path, script: &str) {
    let status = Command::new("sh").args(["-ec", script]).current_dir(directory).status();
    assert!(status.expect("a shell").success(), "{script}");
}

fn hash(home: &Home, path: &str) -> String {
    let line = home.told(&["fs", "tree-hash", path]);
    let hash = line.strip_suffix(&format!("  {path}\n")).unwrap_or_else(|| panic!("{line}"));
    assert_eq!(hash.len(), 64, "{line}");
    hash.to_owned()
}

#[test]
fn a_tree_and_its_import_have_one_hash() {
    let home = Home::new("fs-tree-hash");
    let served = Served::start(&home, &["--size", "512MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    let local = home.0.join("tree");
    fs::create_dir(&local).expect("made");
    shell(&local, FILL);
    let there = format!("{}:/tree", served.address);
    home.told(&["fs", "import", "tree", &there]);
    let all = hash(&home, "tree");
    assert_eq!(hash(&home, &there), all);
    assert_eq!(hash(&home, "mnt/tree"), all);
    for part in ["d", "large", "sparse", "whole", "d/dangling", "d/fifo", "many", "empty", "d/a"] {
        let own = hash(&home, &format!("tree/{part}"));
        assert_eq!(hash(&home, &format!("{there}/{part}")), own, "{part}");
    }
    let json = home.told(&["fs", "tree-hash", "--json", &there, "tree"]);
    assert_eq!(json.matches(&format!("\"hash\":\"{all}\"")).count(), 2, "{json}");
    // Neither times nor owners nor links nor holes count.
    mounted.run(
        "touch -d yesterday tree tree/d/a; rm tree/d/e/second; cp -p tree/d/a tree/d/e/second; \
                 cp --sparse=never tree/sparse s; chmod 644 s; mv s tree/sparse",
    );
    assert_eq!(hash(&home, &there), all);
    let mut seen = vec![all];
    for change in [
        "printf X | dd of=tree/large bs=1 seek=39000000 conv=notrunc status=none",
        "mv tree/many/1 tree/many/one",
        "chmod 4750 tree/d/a",
        "ln -sfn b tree/d/l",
        "truncate -s +1 tree/sparse",
        "rmdir tree/empty",
        "chmod 700 tree",
    ] {
        mounted.run(change);
        let now = hash(&home, &there);
        assert!(!seen.contains(&now), "{change}");
        shell(&home.0, "rm -rf copy; cp -a mnt/tree copy");
        assert_eq!(hash(&home, "copy"), now, "{change}");
        seen.push(now);
    }
    let why = home.complaint(&["fs", "tree-hash", &format!("{there}/none")]);
    assert!(why.contains("No such file"), "{why}");
}

/// The server asks whether the user may read.
#[test]
fn nobody_has_a_hash_of_what_he_may_not_read() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root is somebody else");
        return;
    }
    let home = Home::new("fs-tree-hash-rights");
    let served = Served::start(&home, &["--size", "64MiB"]);
    let mounted = Mounted::of(&home, &served, "mnt", "");
    mounted.run(
        "mkdir -p t/shut u/open; echo a > t/a; echo b > t/b; echo c > u/open/c; \
                 chmod 600 t/b; chmod 700 t/shut",
    );
    let give =
        Command::new("chown").args(["-R", "65534:65534"]).arg(home.0.join(".config")).status();
    assert!(give.expect("chown").success());
    let [shut, open] = ["t", "u"].map(|name| format!("{}:/{name}", served.address));
    let mut as_other = Command::new("setpriv");
    let ours = home.command(&["fs", "tree-hash", &shut, &open]);
    as_other.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    as_other.arg(ours.get_program()).args(ours.get_args());
    for (name, value) in ours.get_envs() {
        as_other.env(name, value.unwrap_or_default());
    }
    let output = as_other.output().expect("setpriv");
    let error = String::from_utf8_lossy(&output.stderr);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.lines().count() == 1 && told.ends_with(&format!("  {open}\n")), "{told}{error}");
    assert_eq!(error.matches("Permission denied").count(), 2, "{error}");
    assert_eq!(output.status.code(), Some(1));
}
