//! File systems that appear, disappear and change below others: each test in a mount namespace of
//! its own.

use super::rig::{Rig, bytes, directory};
use crate::{Answer, LookUp};
use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEntry, Request, Session, SessionACL,
};
use rustix::fd::{AsRawFd, OwnedFd};
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Set in a child's environment: it runs in a namespace of its own.
const ALONE: &str = "OUTBOARD_TEST_ALONE";

/// Runs a test of this module in a user and mount namespace of its own.
fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("tests::mounts::{name}"), "--nocapture"]).env(ALONE, "1");
    let output = command.output().expect("util-linux's unshare");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    assert!(String::from_utf8_lossy(&said).contains("1 passed"), "it ran");
}

fn run(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output().expect(program);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a text")
}

#[test]
fn a_mount_over_a_directory_is_noticed() {
    alone("a_mount_over_a_directory_is_noticed", || {
        let mut rig = Rig::new();
        for (file, contents) in [("in/x.h", "below"), ("other/x.h", "above"), ("y.h", "file")] {
            fs::create_dir_all(rig.path(file).parent().unwrap()).unwrap();
            rig.write(file, contents);
        }
        let (below, above) = (rig.path("in"), rig.path("other"));
        assert_eq!(rig.read("in", "x.h"), b"below");
        assert_eq!(rig.read("", "y.h"), b"file");
        for _ in 0..2 {
            run("mount", &["--bind", text(&above), text(&below)]);
            rig.submit();
            assert_eq!(rig.read("in", "x.h"), b"above");
            run("umount", &[text(&below)]);
            rig.submit();
            assert_eq!(rig.read("in", "x.h"), b"below");
        }
        let (file, over) = (rig.path("y.h"), rig.path("other/x.h"));
        run("mount", &["--bind", text(&over), text(&file)]);
        rig.submit();
        assert_eq!(rig.read("", "y.h"), b"above");
    });
}

#[test]
fn a_mount_over_a_root_is_noticed() {
    alone("a_mount_over_a_root_is_noticed", || {
        let mut rig = Rig::new();
        rig.write("x.h", "below");
        assert_eq!(rig.read("", "x.h"), b"below");
        let root = rig.path("");
        run("mount", &["-t", "tmpfs", "-o", "mode=755", "none", text(&root)]);
        rig.write("x.h", "above");
        rig.submit();
        assert!(matches!(rig.look_up("", "x.h"), LookUp::Outside), "the root is another");
        rig.export.allow(&root).unwrap();
        assert_eq!(rig.read("", "x.h"), b"above");
    });
}

#[test]
fn what_is_shown_can_be_unmounted() {
    alone("what_is_shown_can_be_unmounted", || {
        let mut rig = Rig::new();
        let base = directory();
        let at = base.path().canonicalize().unwrap();
        run("mount", &["-t", "tmpfs", "-o", "mode=755", "none", text(&at)]);
        fs::create_dir(at.join("sub")).unwrap();
        fs::write(at.join("sub/x.h"), "x").unwrap();
        rig.export.allow(&at).unwrap();
        assert_eq!(rig.read_at(&at.join("sub/x.h")), b"x");
        run("umount", &[text(&at)]);
        rig.submit();
        assert!(matches!(rig.replica.look_up(bytes(&at), b"sub"), LookUp::Outside));
    });
}

#[test]
fn the_layers_of_an_overlay_may_change() {
    alone("the_layers_of_an_overlay_may_change", || {
        let mut rig = Rig::new();
        // An overlay's upper directories need a file system that supports its attributes.
        let base = directory();
        let at = base.path().canonicalize().unwrap();
        run("mount", &["-t", "tmpfs", "-o", "mode=755", "none", text(&at)]);
        for dir in ["lower", "upper", "work", "merged"] {
            fs::create_dir(at.join(dir)).unwrap();
        }
        fs::write(at.join("lower/x.h"), "1").unwrap();
        let merged = at.join("merged");
        let layers = ["lowerdir", "upperdir", "workdir"].iter().zip(["lower", "upper", "work"]);
        let options = layers.map(|(name, dir)| format!("{name}={}", text(&at.join(dir))));
        let options = options.collect::<Vec<_>>().join(",");
        run("mount", &["-t", "overlay", "-o", &options, "none", text(&merged)]);
        rig.export.allow(&merged).unwrap();
        assert_eq!(rig.read_at(&merged.join("x.h")), b"1");
        fs::write(at.join("lower/x.h"), "22").unwrap();
        rig.submit();
        assert_eq!(rig.read_at(&merged.join("x.h")), b"22");
    });
}

/// A directory with one file, whose contents change although the kernel was told to cache them for
/// a minute.
struct Changing(Arc<Mutex<Vec<u8>>>);

const KEPT: Duration = Duration::from_secs(60);
const FILE: INodeNo = INodeNo(2);

impl Changing {
    fn attr(&self, number: INodeNo) -> FileAttr {
        let len = self.0.lock().unwrap().len() as u64;
        let time = UNIX_EPOCH + Duration::from_secs(1_000_000 + len);
        let is_file = number == FILE;
        FileAttr {
            ino: number,
            size: if is_file { len } else { 0 },
            blocks: 1,
            atime: time,
            mtime: time,
            ctime: time,
            crtime: SystemTime::UNIX_EPOCH,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: 0o755,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }
}

impl Filesystem for Changing {
    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match name == "x.h" {
            true => reply.entry(&KEPT, &self.attr(FILE), Generation(0)),
            false => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&KEPT, &self.attr(number));
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let contents = self.0.lock().unwrap();
        let start = contents.len().min(usize::try_from(offset).unwrap());
        let end = contents.len().min(start + size as usize);
        reply.data(&contents[start..end]);
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if offset == 0 {
            let _is_full = reply.add(FILE, 1, FileType::RegularFile, "x.h");
        }
        reply.ok();
    }
}

fn device() -> OwnedFd {
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").unwrap();
    let device = OwnedFd::from(device);
    rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::empty()).unwrap();
    device
}

#[test]
fn what_changes_beneath_is_asked_for_anew() {
    alone("what_changes_beneath_is_asked_for_anew", || {
        let mut rig = Rig::new();
        let base = directory();
        let at = base.path().canonicalize().unwrap();
        let device = device();
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
        run("mount", &["-i", "-t", "fuse", "-o", &options, "none", text(&at)]);
        let contents = Arc::new(Mutex::new(b"1".to_vec()));
        let front = Changing(Arc::clone(&contents));
        let session = Session::from_fd(front, device, SessionACL::All, Config::default()).unwrap();
        let _session = session.spawn().unwrap();
        rig.export.allow(&at).unwrap();
        for round in 1..6 {
            let expected = vec![b'x'; round * 7];
            contents.lock().unwrap().clone_from(&expected);
            rig.submit();
            assert_eq!(rig.read_at(&at.join("x.h")), expected);
        }
        assert!(matches!(rig.export.list(bytes(&at)), Answer::Published(_)));
        run("umount", &["-l", text(&at)]);
    });
}
