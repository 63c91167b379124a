//! Open files: the rights of an opening hold for any user of it, and an open file outlives its
//! name, its mode, the connection and the server.
//!
//! Mounts need FUSE; where there is none, only clients are tested.

#[expect(dead_code, reason = "other tests use the rest")]
#[path = "support/served.rs"]
mod served;

use libtest_mimic::{Arguments, Trial};
use outboard_fs::client::{
    ChangeWhat, FsCaller, FsClient, FsClientOptions, FsError, NewInode, NewTimes, SyncWhen,
};
use outboard_fs::protocol::{EXCL, FsInode, FsWho, MAY_READ, MAY_WRITE, SEEK_DATA};
use served::{MountProcess, ServedNode, started};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// An ordinary user of this machine.
const USER: u32 = 1000;
/// Users that no database knows.
const OWNER: u32 = 40_007;
const OTHER: u32 = 40_008;

fn main() -> ExitCode {
    if let Some(over) = started() {
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
        trial("whoever_uses_an_opening_has_its_rights", whoever_uses_it_has_its_rights),
        trial("nothing_is_granted_of_what_is_not_there", nothing_is_granted_of_what_is_not_there),
        trial("what_may_not_be_written_is_not_opened", what_may_not_be_written_is_not_opened),
        trial("an_open_file_stays_without_a_name", an_open_file_stays_without_a_name),
        trial("groups_count_as_the_server_says", groups_count_as_the_server_says),
        trial("what_nobody_waits_for_holds_no_buffer", what_nobody_waits_for_holds_no_buffer),
    ];
    if OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok() {
        trials.extend([
            trial("mapped_bytes_of_any_user_are_kept", mapped_bytes_of_any_user_are_kept),
            trial("what_is_replaced_can_be_opened", what_is_replaced_can_be_opened),
            trial("two_mounts_remove_one_tree", two_mounts_remove_one_tree),
            trial("descriptors_outlive_modes", descriptors_outlive_modes),
            trial("one_mount_maps_a_file_at_a_time", one_mount_maps_a_file_at_a_time),
            trial("many_files_are_read_in_bounded_memory", many_files_are_read_in_bounded_memory),
        ]);
    } else {
        eprintln!("/dev/fuse cannot be used here: nothing is mounted");
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn user(uid: u32) -> FsCaller {
    FsCaller { who: FsWho { uid, gid: uid, ..FsWho::default() }, thread: 0 }
}

fn errno<T: std::fmt::Debug>(result: Result<T, FsError>) -> i32 {
    result.expect_err("refused").errno()
}

/// A file of a user's in the root directory.
fn make(client: &FsClient, uid: u32, name: &str, mode: u32) -> FsInode {
    let new = NewInode { mode: libc::S_IFREG | mode, ..NewInode::default() };
    let made = client.make(&user(uid), client.root(), name.as_bytes(), &new).expect("made");
    made.made.inode
}

/// Everything that is done with a descriptor.
fn use_all(client: &Arc<FsClient>, caller: &FsCaller, inode: FsInode) -> Result<(), FsError> {
    let change = |what| client.change(caller, inode, what, SyncWhen::Later).map(drop);
    change(ChangeWhat::Write(0, b"hello"))?;
    change(ChangeWhat::Append(b"!"))?;
    assert_eq!(client.read(caller, inode, 0, 9)?.bytes, b"hello!");
    assert_eq!(client.seek(caller, inode, 0, SEEK_DATA)?, 0);
    change(ChangeWhat::Punch { offset: 0, len: 1 })?;
    change(ChangeWhat::Resize(0))
}

fn whoever_uses_it_has_its_rights() {
    let mut node = ServedNode::start();
    let (client, other) = (node.client(), node.client());
    let inode = make(&client, OWNER, "file", 0o600);
    let opened =
        client.open(&user(OWNER), inode, MAY_READ | MAY_WRITE, 0).expect("its own").opening;
    assert_eq!(errno(client.open(&user(OTHER), inode, MAY_READ, 0)), libc::EACCES);
    assert_eq!(errno(use_all(&client, &user(OTHER), inode)), libc::EACCES, "it has not opened it");
    let shut = NewTimes { mode: Some(0), ..NewTimes::default() };
    client.set(&user(OWNER), inode, &shut).expect("its own");
    // User 0 is squashed.
    for uid in [OWNER, OTHER, 0] {
        use_all(&client, &opened.used_by(&user(uid)), inode).expect("opened before");
    }
    let lent = opened.used_by(&user(OTHER));
    assert_eq!(errno(use_all(&other, &lent, inode)), libc::EACCES, "another client's");
    let mut forged = lent;
    forged.who.grant.proof[1] ^= 1;
    assert_eq!(errno(use_all(&client, &forged, inode)), libc::EACCES);
    let reads = client.create(&user(OWNER), (client.root(), b"new"), 0o666, MAY_READ | EXCL);
    let (reads, made) = reads.expect("made");
    let mut more = reads.used_by(&user(OTHER));
    more.who.grant.rights |= MAY_WRITE;
    client.set(&user(OWNER), made.made.inode, &shut).expect("its own");
    assert_eq!(errno(use_all(&client, &more, made.made.inode)), libc::EACCES);
    let read = client.read(&reads.used_by(&user(OTHER)), made.made.inode, 0, 9).expect("granted");
    assert!(read.bytes.is_empty());
    client.sync(&user(OWNER), inode, &client.error_cursor(inode)).expect("synced");
    node.lose_memory();
    use_all(&client, &lent, inode).expect("opened before the server was restarted");
}

fn nothing_is_granted_of_what_is_not_there() {
    let node = ServedNode::start();
    let client = node.client();
    let listed = |inode, uid| client.list_to_go_on(&user(uid), inode, 0);
    let later = FsInode { number: 1 << 20, generation: 7 };
    let (names, caller) = listed(later, OTHER).expect("no names");
    assert_eq!((names.len(), caller.who.grant.rights), (0, 0));
    let new = NewInode { mode: libc::S_IFDIR | 0o700, ..NewInode::default() };
    let dir = client.make(&user(OWNER), client.root(), b"dir", &new).expect("made").made.inode;
    assert_eq!(errno(listed(dir, OTHER)), libc::EACCES);
    let made = client.create(&user(OWNER), (dir, b"file"), 0o600, MAY_READ).expect("made").1;
    assert_eq!(listed(dir, OWNER).expect("its own").1.who.grant.rights, MAY_READ);
    assert_eq!(errno(listed(made.made.inode, OWNER)), libc::ENOTDIR);
    client.unlink(&user(OWNER), dir, b"file").expect("removed");
    client.rmdir(&user(OWNER), client.root(), b"dir").expect("removed");
    let (_, caller) = listed(dir, OTHER).expect("no names");
    assert_eq!(caller.who.grant.rights, 0);
    assert_eq!(errno(client.open(&user(OTHER), later, MAY_READ, 0)), libc::ESTALE);
}

fn what_may_not_be_written_is_not_opened() {
    let node = ServedNode::start();
    let client = node.client();
    let inode = make(&client, OWNER, "file", 0o444);
    assert_eq!(errno(client.open(&user(OWNER), inode, MAY_WRITE, 0)), libc::EACCES);
    let create = |uid, want| {
        client.create(&user(uid), (client.root(), b"file"), 0o666, want).map(|(_, made)| made.made)
    };
    assert_eq!(create(OTHER, MAY_READ).expect("it may be read").inode, inode);
    assert_eq!(errno(create(OTHER, MAY_WRITE)), libc::EACCES);
    assert_eq!(errno(create(OWNER, MAY_READ | EXCL)), libc::EEXIST);
    // What is made is open for writing, whatever its mode.
    let want = MAY_READ | MAY_WRITE;
    let made = client.create(&user(OWNER), (client.root(), b"new"), 0o444, want);
    let (opening, made) = made.expect("made");
    use_all(&client, &opening.used_by(&user(OWNER)), made.made.inode).expect("open");
}

fn an_open_file_stays_without_a_name() {
    let mut node = ServedNode::start();
    let (client, other) = (node.client(), node.client());
    let (root, caller) = (client.root(), user(OWNER));
    let inode = make(&client, OWNER, "file", 0o600);
    let want = MAY_READ | MAY_WRITE;
    let first = client.open(&caller, inode, want, 0).expect("opened").opening;
    let again = client.create(&caller, (root, b"file"), 0o600, want).expect("it is there").0;
    other.unlink(&caller, root, b"file").expect("removed");
    client.close(&first);
    use_all(&client, &again.used_by(&caller), inode).expect("the second opening has it");
    client.sync(&caller, inode, &client.error_cursor(inode)).expect("synced");
    node.lose_memory();
    use_all(&client, &again.used_by(&caller), inode).expect("after a restart, too");
    client.close(&again);
    node.wait_for("/backend/open_inodes", 0);
    assert_eq!(errno(client.get(&caller, inode)), libc::ESTALE, "it is gone");
}

fn groups_count_as_the_server_says() {
    let node = ServedNode::start();
    let client = node.client();
    let inode = make(&client, OWNER, "file", 0o660);
    // What the client says of groups does not count.
    let mut member = user(OTHER);
    (member.who.groups_len, member.who.groups[0]) = (1, OWNER);
    assert_eq!(errno(client.open(&member, inode, MAY_WRITE, 0)), libc::EACCES);
    let given = NewTimes { mode: Some(0o2775), ..NewTimes::default() };
    let mut owner = user(OWNER);
    owner.who.gid = OTHER;
    assert_eq!(errno(client.set(&owner, inode, &given)), libc::EPERM, "not of its group");
    client.set(&user(OWNER), inode, &given).expect("of its group");
}

/// What is asked ahead, and written behind, leaves the buffers to those who wait.
fn what_nobody_waits_for_holds_no_buffer() {
    const LEN: usize = 1 << 20;
    let node = ServedNode::start();
    let client = node.client_with(FsClientOptions { buffers: 2, ..FsClientOptions::default() });
    let (client, caller) = (client.expect("connected"), user(OWNER));
    let inode = make(&client, OWNER, "file", 0o600);
    let piece = |number: usize| vec![u8::try_from(number).expect("small"); LEN];
    let write = |number: usize| {
        let what = ChangeWhat::Write((number * LEN) as u64, &piece(number));
        client.begin_change(&caller, inode, what, SyncWhen::Later).expect("begun")
    };
    let written: Vec<_> = (0..6).map(write).collect();
    for change in written {
        change.end(&caller).expect("written");
    }
    let read = |number: usize| {
        client.begin_read(&caller, inode, (number * LEN) as u64, LEN).expect("begun")
    };
    let ahead: Vec<_> = (0..6).map(read).collect();
    assert_eq!(client.read(&caller, inode, 0, LEN).expect("read").bytes, piece(0));
    for (number, read) in ahead.into_iter().enumerate() {
        assert!(read.end(&caller).expect("read").bytes == piece(number), "{number}");
    }
    // Those that are given up come back as well.
    for number in 0..6 {
        drop(read(number));
    }
    assert!(client.read(&caller, inode, LEN as u64, LEN).expect("read").bytes == piece(1));
}

/// A mount that ordinary users reach, also where root has made it.
fn open_mount(node: &ServedNode, name: &str) -> MountProcess {
    let is_root = rustix::process::geteuid().is_root();
    fs::set_permissions(node.directory(), Permissions::from_mode(0o711)).expect("set");
    MountProcess::of(node, name, if is_root { "rw,allow_other" } else { "rw" })
}

/// Python as an ordinary user, with a path.
fn python(program: &str, path: &Path) {
    let mut python = Command::new("python3");
    python.args(["-c", program]).arg(path);
    if rustix::process::geteuid().is_root() {
        python.uid(USER).gid(USER);
    }
    assert!(python.status().expect("python3 is started").success());
}

fn mapped_bytes_of_any_user_are_kept() {
    let node = ServedNode::start();
    let mount = open_mount(&node, "mnt");
    let program = "if True:
        import mmap, os, sys
        fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(fd, 4096)
        memory = mmap.mmap(fd, 4096)
        memory[:5] = b'hello'
        memory.flush()
        os.fchmod(fd, 0)
        memory[5:9] = b', Jo'
        os.close(fd)
        memory.close()
    ";
    python(program, &mount.path("file"));
    let client = node.client();
    let inode = client.find(&user(USER), client.root(), b"file").expect("made").inode;
    // The kernel has written it back by then.
    drop(mount);
    let caller = user(client.get(&user(0), inode).expect("there").record.uid);
    let read = client.read(&caller, inode, 0, 9).expect("its own");
    assert_eq!(read.bytes, b"hello, Jo");
}

fn what_is_replaced_can_be_opened() {
    let node = ServedNode::start();
    let (mount, other) = (MountProcess::of(&node, "mnt", "rw"), open_mount(&node, "other"));
    fs::write(mount.path("value"), "0").expect("written");
    let is_over = AtomicBool::new(false);
    let read = |path: &Path| {
        let (mut count, mut before) = (0, 0);
        while !is_over.load(Ordering::Relaxed) {
            let mut file = File::open(path).expect("a name that is always there");
            let mut text = String::new();
            file.read_to_string(&mut text).expect("what is open can be read");
            assert_eq!(file.metadata().expect("what is open is there").size(), text.len() as u64);
            let value: u64 = text.parse().expect("whole");
            assert!(value >= before, "{value} after {before}");
            (count, before) = (count + 1, value);
        }
        count
    };
    thread::scope(|scope| {
        let paths = [mount.path("value"), mount.path("value"), other.path("value")];
        let readers = paths.map(|path| scope.spawn(move || read(&path)));
        for value in 1..=400 {
            fs::write(mount.path("new"), value.to_string()).expect("written");
            fs::rename(mount.path("new"), mount.path("value")).expect("replaced");
        }
        is_over.store(true, Ordering::Relaxed);
        let counts = readers.map(|reader| reader.join().expect("no reader has failed"));
        assert!(counts.iter().all(|count: &u64| *count > 0), "{counts:?}");
    });
}

fn two_mounts_remove_one_tree() {
    let node = ServedNode::start();
    let mounts = ["one", "two"].map(|name| MountProcess::of(&node, name, "rw"));
    for _ in 0..5 {
        for dir in 0..20 {
            let path = mounts[0].path(format!("tree/{dir}/below"));
            fs::create_dir_all(&path).expect("made");
            (0..10).for_each(|file| fs::write(path.join(file.to_string()), "x").expect("made"));
        }
        let start = |mount: &MountProcess| {
            Command::new("rm").arg("-rf").arg(mount.path("tree")).spawn().expect("rm is started")
        };
        let removers = mounts.each_ref().map(start);
        for mut remover in removers {
            assert!(remover.wait().expect("it ends").success());
        }
        assert!(!mounts[1].path("tree").exists());
    }
}

fn descriptors_outlive_modes() {
    let node = ServedNode::start();
    let (mount, other) = (MountProcess::of(&node, "mnt", "rw"), MountProcess::of(&node, "o", "rw"));
    fs::create_dir(mount.path("dir")).expect("made");
    let path = mount.path("dir/file");
    let mut file = File::options().create_new(true).read(true).write(true).open(&path);
    let file = file.as_mut().expect("made");
    let mut names = fs::read_dir(mount.path("dir")).expect("opened");
    assert!(names.next().is_some());
    fs::set_permissions(other.path("dir/file"), Permissions::from_mode(0o0)).expect("set");
    fs::set_permissions(other.path("dir"), Permissions::from_mode(0o0)).expect("set");
    assert!(names.all(|name| name.is_ok()), "listed as it was opened");
    file.write_all(b"hello").expect("written");
    file.sync_all().expect("synced");
    file.set_len(3).expect("shortened");
    let mut bytes = [0; 3];
    file.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"hel");
    file.seek(SeekFrom::Start(0)).expect("any file");
    fs::set_permissions(other.path("dir"), Permissions::from_mode(0o700)).expect("set");
    fs::remove_file(other.path("dir/file")).expect("removed");
    file.write_all(b"more").expect("written without a name");
    file.set_len(2).expect("shortened without a name");
    assert_eq!(file.metadata().expect("there").size(), 2);
}

/// Two mounts' mappings of one file would not show each other's bytes: the second one is refused,
/// and so is what needs it, as SQLite's write-ahead log. Bytes are read and written by both.
fn one_mount_maps_a_file_at_a_time() {
    let node = ServedNode::start();
    let (one, two) = (open_mount(&node, "one"), open_mount(&node, "two"));
    let program = "if True:
        import errno, mmap, os, sqlite3, sys, time
        one = sys.argv[1].rstrip('/')
        two = os.path.dirname(one) + '/two'
        def opened(mount):
            fd = os.open(mount + '/file', os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(fd, 4096)
            return fd
        def may_map(fd):
            try: mmap.mmap(fd, 4096).close()
            except OSError as error:
                assert error.errno == errno.ENODEV, error
                return False
            return True
        first, second = opened(one), opened(two)
        assert may_map(first) and may_map(opened(one)) and not may_map(second)
        memory = mmap.mmap(first, 4096)
        memory[:5] = b'bytes'
        memory.flush()
        assert os.pread(second, 5, 0) == b'bytes'
        os.pwrite(second, b'BYTES', 0)
        memory.close()
        os.closerange(first, 1 << 10)
        # The kernel says that a file is closed when it has done so.
        until = time.monotonic() + 120
        while not may_map(opened(two)): assert time.monotonic() < until
        assert not may_map(opened(one))
        assert os.pread(opened(one), 5, 0) == b'BYTES'
        os.closerange(3, 1 << 10)

        def base(mount): return sqlite3.connect(mount + '/base', timeout=1, isolation_level=None)
        db = base(one)
        assert db.execute('PRAGMA journal_mode=WAL').fetchone() == ('wal',)
        db.execute('CREATE TABLE t(n)')
        other = base(two)
        try: other.execute('INSERT INTO t VALUES(2)')
        except sqlite3.OperationalError: pass
        else: assert False, 'a second mount has the log'
        other.close()
        db.execute('INSERT INTO t VALUES(1)')
        assert db.execute('SELECT n FROM t').fetchall() == [(1,)]
        db.execute('PRAGMA journal_mode=DELETE')
        base(two).execute('INSERT INTO t VALUES(2)')
        assert db.execute('SELECT n FROM t ORDER BY n').fetchall() == [(1,), (2,)]
        assert db.execute('PRAGMA integrity_check').fetchone() == ('ok',)
        ";
    python(program, &one.path(""));
    drop((one, two));
}

/// Files that were read a little, and are open still, take no memory without an end.
fn many_files_are_read_in_bounded_memory() {
    let node = ServedNode::start();
    let mount = open_mount(&node, "mnt");
    let program = "if True:
        import os, sys
        for number in range(256):
            fd = os.open(sys.argv[1] + '/%d' % number, os.O_RDWR | os.O_CREAT, 0o600)
            os.ftruncate(fd, 8 << 20)
            os.close(fd)
            fd = os.open(sys.argv[1] + '/%d' % number, os.O_RDONLY)
            for piece in range(8): assert os.read(fd, 128 << 10) == bytes(128 << 10)
        ";
    let before = mount.memory("VmRSS");
    python(program, &mount.path(""));
    let grown = mount.memory("VmHWM").saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes for 256 files");
    drop(mount);
}
