//! Executions on both sides, from surroundings that are not a developer's. Those that need root's
//! rights to be made are for CI, and named where they are left out.

use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The name of a surrounding, and the shell's words that make it and go on as "$@" in it.
const FOR_EVERYBODY: [(&str, &str); 6] = [
    ("another clock, language and time zone", "TZ=:/no/such LC_ALL=tr_TR.UTF-8 exec \"$@\""),
    ("hardly any environment", "exec env -i HOME=\"$HOME\" OUTBOARD_KEY=\"$OUTBOARD_KEY\" \"$@\""),
    ("one processor", "exec taskset -c 0 \"$@\""),
    ("128 descriptors", "ulimit -n 128; exec \"$@\""),
    ("a strict umask", "umask 0777; exec \"$@\""),
    ("no standard streams", "exec \"$@\" <&- 2>&-"),
];
const FOR_ROOT: [(&str, &str); 3] = [
    ("another user", "exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\""),
    ("no /dev/shm", "exec unshare -m sh -c 'umount -l /dev/shm; exec \"$@\"' sh \"$@\""),
    (
        "nobody's capabilities",
        "exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs --reuid=65534 \
         --regid=65534 --clear-groups \"$@\"",
    ),
];

/// The place itself, its homes included, takes nothing. Clients must write whom they have met.
const READ_ONLY: &str = "exec unshare -m sh -c 'mount --bind /tmp /tmp; \
                         mount -o remount,bind,ro /tmp; exec \"$@\"' sh \"$@\"";

/// A place that every user reaches, with the program and a key that every user may read.
struct Place {
    open: PathBuf,
}

/// A node in a surrounding, which must end in order when it is dropped.
struct Surrounded(Child);

impl Place {
    fn new() -> Self {
        let open = Path::new("/tmp").join(format!("outboard-around-{}", std::process::id()));
        fs::create_dir_all(open.join("modules")).expect("a directory");
        fs::copy(env!("CARGO_BIN_EXE_outboard"), open.join("outboard")).expect("copied");
        let built = concat!(env!("CARGO_MANIFEST_DIR"), "/../../modules/built");
        for module in ["alloc.wasm", "table.wasm", "script.wasm"] {
            let to = open.join("modules").join(module);
            fs::copy(Path::new(built).join(module), to).expect("copied");
        }
        let place = Self { open };
        let mut key = place.command("exec \"$@\"", &["key", "new"]);
        let made = key.status().expect("a shell");
        assert!(made.success());
        for path in [&place.open, &place.open.join("modules")] {
            fs::set_permissions(path, Permissions::from_mode(0o755)).expect("set");
        }
        place
    }

    /// The program with words, in a surrounding, with a home of its user's.
    fn command(&self, shell: &str, words: &[&str]) -> Command {
        let owner = if shell.contains("65534") { 65534 } else { geteuid().as_raw() };
        let home = self.open.join(format!("home-{}-{owner}", words[0]));
        fs::create_dir_all(&home).expect("a directory");
        chown(&home, Some(owner), Some(owner)).expect("it has an owner");
        // None yet for the command that makes it.
        let _absent = chown(self.open.join("key"), Some(owner), Some(owner));
        let mut command = Command::new("sh");
        command.args(["-c", shell, "sh"]).arg(self.open.join("outboard")).args(words);
        command.env("HOME", home).env("OUTBOARD_KEY", self.open.join("key")).current_dir("/");
        for word in ["XDG_CACHE_HOME", "XDG_CONFIG_HOME", "OUTBOARD_HOSTS"] {
            command.env_remove(word);
        }
        command
    }

    fn node(&self, shell: &str) -> (Surrounded, String) {
        let modules = self.open.join("modules");
        let mut node = self.command(
            shell,
            &[
                "node",
                "--listen",
                "127.0.0.1:0",
                "--serve",
                "active",
                "--region",
                "kv=1MiB",
                "--modules",
                modules.to_str().expect("text"),
            ],
        );
        let mut child = node.stdout(Stdio::piped()).spawn().expect("a shell");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let address = line.split(' ').nth(4).unwrap_or_else(|| panic!("{shell}: {line}"));
        (Surrounded(child), address.to_owned())
    }

    fn exec(&self, shell: &str, address: &str, words: &[&str]) -> String {
        let words = [&["active", "exec", "script"], words, &["--region", "kv", "--node", address]];
        let output = self.command(shell, &words.concat()).output().expect("a shell");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{shell}, {words:?}: {said}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// The node in one surrounding, its client in another one.
    fn is_served_in(&self, node: &str, shell: &str) {
        let (_node, address) = self.node(node);
        self.exec(shell, &address, &["init", "u64:0", "u64:524288", "u64:4"]);
        self.exec(shell, &address, &["set", "u64:0", "u64:0", "u32:2", "u32:5", "text:hihello"]);
        let get = ["get", "u64:0", "text:hi"];
        let expected = self.exec(shell, &address, &get);
        assert!(expected.contains("68656c6c6f"), "hello: {expected}");
        for side in ["remote", "local", "auto"] {
            let got = self.exec(shell, &address, &[&get[..], &["--where", side]].concat());
            assert_eq!(got, expected, "{shell} {side}");
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.open);
    }
}

impl Drop for Surrounded {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.0);
        let _sent = kill_process(pid, Signal::TERM);
        assert!(self.0.wait().expect("it ends").success(), "it ends in order");
    }
}

fn may_unshare() -> bool {
    Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success())
}

#[test]
fn executions_come_to_the_same_whatever_is_around_them() {
    let place = Place::new();
    for (name, shell) in FOR_EVERYBODY {
        println!("{name}");
        place.is_served_in(shell, shell);
    }
    // Root in a container may have no right to make namespaces; in CI it has.
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    if !geteuid().is_root() || !(is_ci || may_unshare()) {
        println!(
            "not tested here: {:?} and places that take nothing",
            FOR_ROOT.map(|(name, _)| name)
        );
        return;
    }
    for (name, shell) in FOR_ROOT {
        println!("{name}");
        place.is_served_in(shell, shell);
    }
    place.is_served_in(READ_ONLY, FOR_EVERYBODY[0].1);
}
