//! Names and attributes through a mount, of a tree at a node that serves active code. Bytes of
//! files need the file system's own service.
//!
//! Needs FUSE; where there is none the tests say so and do nothing.

#[path = "../../active/tests/support/node.rs"]
#[expect(dead_code, reason = "another test uses the rest")]
mod node;
#[path = "support/tree.rs"]
mod tree;

use libtest_mimic::{Arguments, Trial};
use outboard_fs::client::{
    FsCaller, FsClient, FsClientOptions, FsPatience, NewInode, NewTime, NewTimes,
};
use outboard_fs::mount::{FsMount, FsMountOptions, unmount_at};
use outboard_fs::protocol::{EXCHANGE, FsWho};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, UNIX_EPOCH};
use tree::TreeNode;

fn main() -> ExitCode {
    if let Some(over) = node::started() {
        return over;
    }
    let trial = |name: &str, run: fn()| {
        let run = move || {
            run();
            Ok(())
        };
        Trial::test(name, run)
    };
    let mut trials = vec![
        trial("many_threads_share_a_client", many_threads_share_a_client),
        trial("soft_requests_fail_and_hard_ones_wait", soft_requests_fail_and_hard_ones_wait),
    ];
    if has_fuse() {
        trials.extend([
            trial("a_tree_is_made_and_changed", a_tree_is_made_and_changed),
            trial("names_are_any_bytes", names_are_any_bytes),
            trial("kinds_links_and_times_are_kept", kinds_links_and_times_are_kept),
            trial("listings_stay_whole_while_names_go", listings_stay_whole_while_names_go),
            trial("a_listing_says_nothing_old", a_listing_says_nothing_old),
            trial("two_mounts_see_each_other", two_mounts_see_each_other),
            trial("a_killed_process_waits_for_nobody", a_killed_process_waits_for_nobody),
            trial("options_count", options_count),
        ]);
    } else {
        eprintln!("/dev/fuse cannot be used here: nothing is mounted");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn has_fuse() -> bool {
    OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
}

/// A mount that is served by a thread, and unmounted when it is dropped.
struct Mounted {
    directory: PathBuf,
    served: Option<JoinHandle<()>>,
    client: Arc<FsClient>,
}

impl Mounted {
    fn of(node: &TreeNode, name: &str, options: &str) -> Self {
        let options = FsMountOptions::parse(options).expect("options");
        let patience = options.patience;
        let client = node.client(&FsClientOptions { patience, ..FsClientOptions::default() });
        let directory = node.directory().join(name);
        fs::create_dir(&directory).expect("a directory");
        let mount = FsMount::mount(Arc::clone(&client), &directory, "node:/", &options);
        let mount = mount.expect("mounted");
        let served = thread::spawn(move || mount.serve().expect("served"));
        Self { directory, served: Some(served), client }
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        unmount_at(&self.directory).expect("unmounted");
        self.served.take().expect("once").join().expect("it ends");
    }
}

/// The error of a request.
fn kind<T>(result: std::io::Result<T>) -> Option<i32> {
    result.err().and_then(|error| error.raw_os_error())
}

/// Runs a program to its end, without a complaint.
fn run(command: &str, directory: &Path) -> String {
    let output = Command::new("sh").arg("-ec").arg(command).current_dir(directory).output();
    let output = output.expect("it starts");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaint.is_empty(), "{command}: {complaint}");
    String::from_utf8(output.stdout).expect("text")
}

fn names(directory: &Path) -> BTreeSet<OsString> {
    fs::read_dir(directory)
        .expect("a directory")
        .map(|entry| entry.expect("one").file_name())
        .collect()
}

fn many_threads_share_a_client() {
    const THREADS: usize = 8;
    const EACH: usize = 100;
    let node = TreeNode::start();
    let client = node.client(&FsClientOptions::default());
    let caller = FsCaller::default();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let client = &client;
            scope.spawn(move || {
                let root = client.root();
                let new = NewInode { mode: libc::S_IFREG | 0o644, ..NewInode::default() };
                for at in 0..EACH {
                    let name = format!("{thread}-{at}");
                    let made = client.make(&caller, root, name.as_bytes(), &new).expect("made");
                    let found = client.find(&caller, root, name.as_bytes()).expect("found");
                    assert_eq!(found.inode, made.made.inode);
                    if at % 2 == 0 {
                        client.unlink(&caller, root, name.as_bytes()).expect("removed");
                    }
                }
            });
        }
    });
    let trips = client.round_trips();
    assert_eq!(trips.get("make"), Some(&((THREADS * EACH) as u64)));
    assert_eq!(client.connections(), 1);
    let (mut at, mut count) = (0, 0);
    loop {
        let names = client.list(&caller, client.root(), at).expect("listed");
        let Some(last) = names.last() else { break };
        (at, count) = (last.head.next, count + names.len());
    }
    assert_eq!(count, THREADS * EACH / 2);
    let path: Vec<&[u8]> = vec![b"0-1", b"below"];
    let (found, error) = client.walk(&caller, client.root(), &path).expect("walked");
    assert_eq!((found.len(), error), (1, libc::ENOTDIR as u32));
    let stranger = FsWho { uid: 4_000_000, gid: 4_000_000, ..FsWho::default() };
    let other = FsCaller { who: stranger, thread: 0 };
    let refused = client.unlink(&other, client.root(), b"0-1").map_err(|error| error.errno());
    assert_eq!(refused.map(drop), Err(libc::EACCES));
    let set = NewTimes { mtime: Some(NewTime::At(-5)), ..NewTimes::default() };
    let set = client.set(&caller, client.root(), &set).expect("set");
    assert_eq!(set.record.mtime_ns, -5);
}

fn soft_requests_fail_and_hard_ones_wait() {
    let node = TreeNode::start();
    let limit = Duration::from_millis(500);
    let patience = FsPatience::Soft(limit);
    let soft = node.client(&FsClientOptions { patience, ..FsClientOptions::default() });
    let hard = node.client(&FsClientOptions::default());
    let caller = FsCaller::default();
    node.stop_service();
    let begun = Instant::now();
    let failed = soft.get(&caller, soft.root()).map_err(|error| error.errno());
    assert_eq!(failed.map(drop), Err(libc::ETIMEDOUT));
    assert!(begun.elapsed() >= limit, "{:?}", begun.elapsed());
    let waiting = thread::spawn({
        let hard = Arc::clone(&hard);
        move || hard.get(&caller, hard.root()).map(drop)
    });
    thread::sleep(4 * limit);
    assert!(!waiting.is_finished());
    node.go_on();
    waiting.join().expect("no panic").expect("answered");
    soft.get(&caller, soft.root()).expect("answered");
    node.stop_service();
    let waiting = thread::spawn({
        let hard = Arc::clone(&hard);
        move || hard.get(&caller, hard.root()).map_err(|error| error.errno()).map(drop)
    });
    thread::sleep(limit);
    hard.end();
    assert_eq!(waiting.join().expect("no panic"), Err(libc::EINTR));
    node.go_on();
}

fn a_tree_is_made_and_changed() {
    let node = TreeNode::start();
    let mounted = Mounted::of(&node, "mount", "");
    let at = |name: &str| mounted.path(name);
    run("mkdir -p a/b/c && touch a/b/f && ln a/b/f a/g && ln -s ../g a/b/s", &mounted.directory);
    let [one, other] = ["a/b/f", "a/g"].map(|name| fs::metadata(at(name)).expect("there"));
    assert_eq!((one.ino(), one.nlink(), other.ino()), (other.ino(), 2, one.ino()));
    assert_eq!(fs::read_link(at("a/b/s")).expect("a link"), Path::new("../g"));
    assert_eq!(fs::metadata(at("a/b/s")).expect("followed").ino(), one.ino());
    let found = run("find . | LC_ALL=C sort", &mounted.directory);
    assert_eq!(found, ".\n./a\n./a/b\n./a/b/c\n./a/b/f\n./a/b/s\n./a/g\n");
    // Only root gives files away.
    let (uid, gid) = match rustix::process::geteuid().is_root() {
        true => (7, 8),
        false => (one.uid(), one.gid()),
    };
    let given = format!("mv a/b/c d && rmdir d && chmod 640 a/g && chown {uid}:{gid} a/g");
    run(&given, &mounted.directory);
    let changed = fs::metadata(at("a/b/f")).expect("there");
    assert_eq!((changed.mode(), changed.uid(), changed.gid()), (0o100_640, uid, gid));
    assert_eq!(kind(fs::create_dir(at("a"))), Some(libc::EEXIST));
    assert_eq!(kind(fs::remove_dir(at("a"))), Some(libc::ENOTEMPTY));
    assert_eq!(kind(fs::remove_file(at("none"))), Some(libc::ENOENT));
    assert_eq!(kind(fs::remove_dir(at("a/g"))), Some(libc::ENOTDIR));
    assert_eq!(kind(fs::rename(at("a"), at("a/b/x"))), Some(libc::EINVAL));
    let exclusive = OpenOptions::new().write(true).create_new(true).open(at("a/g"));
    assert_eq!(kind(exclusive), Some(libc::EEXIST));
    fs::rename(at("a/g"), at("a/b/f")).expect("the same inode: nothing is done");
    fs::create_dir(at("e")).expect("made");
    let root = mounted.client.root();
    let (from, to) = ((root, &b"a"[..]), (root, &b"e"[..]));
    mounted.client.rename(&FsCaller::default(), from, to, EXCHANGE).expect("exchanged");
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(names(&at("a")), BTreeSet::new());
    run("rm -r a e && test -z \"$(ls -A)\"", &mounted.directory);
}

fn names_are_any_bytes() {
    let node = TreeNode::start();
    let mounted = Mounted::of(&node, "mount", "");
    let mut all = BTreeSet::new();
    for first in 1..=255_u8 {
        let mut name: Vec<u8> = (0..255).map(|at| first.wrapping_add(at)).collect();
        name.iter_mut().filter(|byte| matches!(byte, 0 | b'/')).for_each(|byte| *byte = b'_');
        let name = OsString::from_vec(name);
        File::create(mounted.path(&name)).expect("made");
        all.insert(name);
    }
    assert_eq!(names(&mounted.directory), all);
    let long = mounted.path(OsStr::from_bytes(&[b'a'; 256]));
    assert_eq!(kind(File::create(long)), Some(libc::ENAMETOOLONG));
    for name in &all {
        fs::remove_file(mounted.path(name)).expect("removed");
    }
    assert_eq!(names(&mounted.directory), BTreeSet::new());
}

fn kinds_links_and_times_are_kept() {
    let node = TreeNode::start();
    let mounted = Mounted::of(&node, "mount", "");
    let at = |name: &str| mounted.path(name);
    run("mkfifo fifo && touch -d @1000000000.123456789 file", &mounted.directory);
    assert!(fs::symlink_metadata(at("fifo")).expect("there").file_type().is_fifo());
    let file = fs::metadata(at("file")).expect("there");
    let modified = file.modified().expect("known").duration_since(UNIX_EPOCH).expect("later");
    assert_eq!(modified, Duration::new(1_000_000_000, 123_456_789));
    let long = "t".repeat(4095);
    symlink(&long, at("link")).expect("made");
    assert_eq!(fs::read_link(at("link")).expect("a link").as_os_str().len(), 4095);
    fs::set_permissions(at("file"), PermissionsExt::from_mode(0o4711)).expect("set");
    assert_eq!(fs::metadata(at("file")).expect("there").mode(), 0o104_711);
    let blocks = run("stat -f -c %b .", &mounted.directory);
    assert_eq!(blocks.trim(), (1 << 16).to_string());
    run(
        "setfattr -n user.colour -v red file && test \"$(getfattr --only-values -n user.colour \
         file)\" = red && setfattr -x user.colour file && test -z \"$(getfattr file)\"",
        &mounted.directory,
    );
    fs::hard_link(at("file"), at("again")).expect("linked");
    assert_eq!(fs::metadata(at("again")).expect("there").nlink(), 2);
    assert_eq!(kind(fs::read_link(at("file"))), Some(libc::EINVAL));
}

/// Names that stay are listed exactly once, while others come and go.
fn listings_stay_whole_while_names_go() {
    const NAMES: usize = 2_000;
    let node = TreeNode::start();
    let mounted = Mounted::of(&node, "mount", "");
    let [stays, goes] = ["stays", "goes"].map(|what| move |at: usize| format!("{what}-{at:05}"));
    for at in 0..NAMES / 2 {
        File::create(mounted.path(stays(at))).expect("made");
        File::create(mounted.path(goes(at))).expect("made");
    }
    let expected: BTreeSet<OsString> = (0..NAMES / 2).map(|at| stays(at).into()).collect();
    thread::scope(|scope| {
        let remover = scope.spawn(|| {
            for at in (0..NAMES / 2).rev() {
                fs::remove_file(mounted.path(goes(at))).expect("removed");
            }
        });
        let mut rounds = 0;
        while !remover.is_finished() || rounds < 2 {
            let listed = fs::read_dir(&mounted.directory).expect("a directory");
            let listed: Vec<OsString> = listed
                .map(|entry| entry.expect("one").file_name())
                .filter(|name| name.as_bytes().starts_with(b"stays"))
                .collect();
            assert_eq!(listed.len(), expected.len(), "none twice");
            assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), expected);
            rounds += 1;
        }
    });
    assert_eq!(names(&mounted.directory), expected);
    let lists = || mounted.client.round_trips().get("list").copied().unwrap_or_default();
    let before = lists();
    assert_eq!(names(&mounted.directory), expected);
    assert!(lists() - before <= NAMES as u64 / 2 / 50, "{}: names come in pages", lists() - before);
}

/// What was removed, or changed, while it is listed is not shown as it was. Where another mount has
/// made the names, the kernel asks for their attributes with them.
fn a_listing_says_nothing_old() {
    // More than the kernel asks for at a time.
    const LISTED: usize = 600;
    // Few, so that what has been asked for is still good when they are listed.
    const CHANGED: Range<usize> = 150..450;
    let node = TreeNode::start();
    let [maker, mounted] = ["maker", "mount"].map(|name| Mounted::of(&node, name, ""));
    let name = |at: usize| format!("{at:0>200}");
    for at in 0..LISTED {
        File::create(maker.path(name(at))).expect("made");
    }
    let mut listed = fs::read_dir(&mounted.directory).expect("a directory");
    listed.next().expect("one").expect("a name");
    for at in CHANGED.step_by(20) {
        fs::remove_file(mounted.path(name(at))).expect("removed");
        let mode = PermissionsExt::from_mode(0o600);
        fs::set_permissions(mounted.path(name(at + 1)), mode).expect("set");
    }
    listed.for_each(|one| drop(one.expect("a name")));
    for at in CHANGED.step_by(20) {
        let gone = fs::symlink_metadata(mounted.path(name(at))).expect_err("removed");
        assert_eq!(gone.kind(), ErrorKind::NotFound);
        let changed = fs::symlink_metadata(mounted.path(name(at + 1))).expect("there");
        assert_eq!(changed.mode(), 0o100_600);
    }
}

fn two_mounts_see_each_other() {
    let node = TreeNode::start();
    let [one, other] = ["one", "other"].map(|name| Mounted::of(&node, name, ""));
    fs::create_dir(one.path("made")).expect("made");
    assert!(fs::metadata(other.path("made")).expect("seen").is_dir());
    File::create(other.path("made/file")).expect("made");
    assert_eq!(names(&one.path("made")), BTreeSet::from(["file".into()]));
    fs::remove_file(one.path("made/file")).expect("removed");
    thread::sleep(Duration::from_millis(1100));
    let gone = fs::metadata(other.path("made/file")).expect_err("gone");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    // Its number is used again: what is open under the former one is no other file.
    let held = File::create(one.path("held")).expect("made");
    fs::remove_file(other.path("held")).expect("removed");
    File::create(other.path("next")).expect("made");
    let stale = held.set_permissions(PermissionsExt::from_mode(0o600));
    assert_eq!(kind(stale), Some(libc::ESTALE));
}

/// A service that answers nothing holds nobody who is killed, and nobody unmounts in vain.
fn a_killed_process_waits_for_nobody() {
    let node = TreeNode::start();
    let mounted = Mounted::of(&node, "mount", "");
    node.stop_service();
    let mut child = Command::new("stat").arg(mounted.path("none")).spawn().expect("it starts");
    thread::sleep(Duration::from_millis(500));
    assert!(child.try_wait().expect("its state").is_none(), "it waits");
    child.kill().expect("killed");
    let begun = Instant::now();
    while child.try_wait().expect("its state").is_none() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it cannot be killed");
        thread::sleep(Duration::from_millis(20));
    }
    drop(mounted);
    node.go_on();
}

fn options_count() {
    let node = TreeNode::start();
    let mounted = Mounted::of(&node, "mount", "ro,noexec,cache=none");
    assert_eq!(kind(fs::create_dir(mounted.path("a"))), Some(libc::EROFS));
    let mounts = fs::read_to_string("/proc/self/mounts").expect("readable");
    let path = mounted.directory.canonicalize().expect("a path");
    let is_own = |line: &&str| line.split(' ').nth(1) == path.to_str();
    let own = mounts.lines().find(is_own).expect("it is there");
    for word in ["node:/", "fuse.outboard", "ro", "nosuid", "nodev", "noexec", "max_read=1048576"] {
        let mut words = own.split([' ', ',']);
        assert!(words.any(|found| found == word), "{word}: {own}");
    }
}
