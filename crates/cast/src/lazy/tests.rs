//! Views in mount namespaces of their own, of casts whose chunks are put in by hand.

mod shown;

use super::mount::mount_view;
use super::serve::ViewHandlers;
use super::server::LazyServer;
use super::{LazyView, remove_dead_views, remove_dead_views_of, view_prefix};
use crate::receive::tests::{Place, listing, names, options};
use crate::receive::{Destination, PublishMode};
use crate::relay::DemandFrom;
use outboard_testkit::eventually;
use outboard_verbs::SharedRegion;
use rustix::fs::{Mode, OFlags};
use shown::{ALONE, Shown, alone, bytes, no_view_is_left, run_alone, some_files};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

#[test]
fn names_and_attributes_are_there_before_any_content() {
    alone("names_and_attributes_are_there_before_any_content", || {
        let shown = Shown::new(some_files);
        assert!(fs::symlink_metadata(shown.at("")).is_ok());
        for path in ["", "a", "a/large", "b", "b/short", "b/up", "empty", "link", "z-last"] {
            let know = |top: PathBuf| {
                let found = fs::symlink_metadata(top.join(path).join("."))
                    .or_else(|_| fs::symlink_metadata(top.join(path)));
                let found = found.unwrap_or_else(|error| panic!("{path}: {error}"));
                let len = if found.is_dir() { 0 } else { found.len() };
                (found.mode(), len, found.mtime(), found.mtime_nsec(), found.uid())
            };
            assert_eq!(know(shown.at("")), know(shown.place.src()), "{path}");
        }
        assert_eq!(names(&shown.at("b")), ["short", "up"]);
        assert_eq!(fs::read(shown.at("empty")).expect("nothing to wait for"), b"");
        assert_eq!(fs::read(shown.at("b/up")).expect("a link"), b"");
        assert!(!shown.at("nothing").exists());
        fs::write(shown.at("empty"), b"more").expect_err("read-only");
        assert!(shown.demands.try_recv().is_err(), "nothing was demanded");
        shown.publish();
        shown.place.assert_published();
    });
}

#[test]
fn a_read_fetches_what_it_needs_and_nothing_else() {
    alone("a_read_fetches_what_it_needs_and_nothing_else", || {
        let shown = Shown::new(some_files);
        let path = shown.at("z-last");
        let reader = thread::spawn(move || fs::read(path).expect("read"));
        shown.serve_until(&reader);
        assert_eq!(reader.join().expect("no panic"), bytes(9000, 9));
        let held = shown.receiver.bitmap().held();
        assert!(held < 10, "{held} of {}", shown.cast.chunks.len());
        shown.publish();
        shown.place.assert_published();
    });
}

#[test]
fn many_readers_of_one_chunk_are_one_demand() {
    alone("many_readers_of_one_chunk_are_one_demand", || {
        let shown = Shown::new(some_files);
        let readers: Vec<_> = (0..8)
            .map(|_| {
                let path = shown.at("b/short");
                thread::spawn(move || fs::read(path).expect("read"))
            })
            .collect();
        let (chunks, from) = shown.demanded();
        assert_eq!((chunks.len(), from), (1, DemandFrom::Upstream));
        // It is not answered: the source is asked, each second again.
        for _ in 0..2 {
            assert_eq!(shown.demanded(), (chunks.clone(), DemandFrom::Source));
        }
        shown.put(chunks[0]);
        for reader in readers {
            assert_eq!(reader.join().expect("no panic"), b"short");
        }
        assert!(shown.demands.try_recv().is_err(), "nothing more was demanded");
    });
}

#[test]
fn a_program_runs_from_what_is_still_coming() {
    alone("a_program_runs_from_what_is_still_coming", || {
        let shown = Shown::new(|place| {
            some_files(place);
            fs::copy("/bin/sh", place.src().join("program")).expect("copied");
        });
        let path = shown.at("program");
        let program = thread::spawn(move || {
            let mut command = Command::new(path);
            command.args(["-c", "echo $((6 * 7))"]).output().expect("started")
        });
        shown.serve_until(&program);
        let output = program.join().expect("no panic");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n");
        assert!((shown.receiver.bitmap().held() as usize) < shown.cast.chunks.len());
        shown.publish();
        shown.place.assert_published();
    });
}

#[test]
fn plain_files_take_the_names_and_open_files_go_on() {
    alone("plain_files_take_the_names_and_open_files_go_on", || {
        let shown = Shown::new(some_files);
        let large = File::open(shown.at("a/large")).expect("open");
        std::env::set_current_dir(shown.at("b")).expect("entered");
        let name = shown.place.to().join("src");
        assert!(name.is_symlink());
        let is_watched = Arc::new(());
        let watched = Arc::downgrade(&is_watched);
        let watcher = thread::spawn(move || {
            while watched.strong_count() > 0 {
                assert!(name.join("b/short").exists(), "no moment is without it");
            }
        });
        shown.publish();
        drop(is_watched);
        watcher.join().expect("it was always there");
        shown.place.assert_published();
        no_view_is_left(&shown.place);
        // Whatever happens to the name.
        fs::remove_dir_all(shown.at("a")).expect("removed");
        let mut read = vec![0; 1 << 20];
        large.read_exact_at(&mut read, 0).expect("still there");
        assert_eq!(read, bytes(1 << 20, 5));
        assert_eq!(fs::read("short").expect("from the old directory"), b"short");
        std::env::set_current_dir("/").expect("left");
    });
}

#[test]
fn what_waits_fails_when_the_cast_is_given_up() {
    alone("what_waits_fails_when_the_cast_is_given_up", || {
        let mut shown = Shown::new(some_files);
        let (path, opened) = (shown.at("z-last"), File::open(shown.at("a/large")).expect("open"));
        let reader = thread::spawn(move || fs::read(path));
        shown.demanded();
        shown.view = None;
        let error = reader.join().expect("no panic").expect_err("it never comes");
        assert_eq!(error.raw_os_error(), Some(libc_eio()), "{error}");
        eventually("the name goes", || names(&shown.place.to()).len() == 1);
        no_view_is_left(&shown.place);
        (&opened).read_exact(&mut [0; 1]).expect_err("it never comes");
        // The next cast finds no lock, though the file is still open.
        let Shown { receiver, cast, place, .. } = shown;
        drop(receiver);
        cast.receive(&place.to(), options()).expect("received");
        place.assert_published();
    });
}

fn libc_eio() -> i32 {
    rustix::io::Errno::IO.raw_os_error()
}

#[test]
fn a_reader_that_is_killed_does_not_hang() {
    alone("a_reader_that_is_killed_does_not_hang", || {
        let shown = Shown::new(some_files);
        let mut cat = Command::new("cat");
        cat.arg(shown.at("z-last")).stdout(Stdio::null());
        let mut cat = cat.spawn().expect("cat");
        shown.demanded();
        cat.kill().expect("killed");
        // What it reads never comes.
        eventually("it ends", || cat.try_wait().expect("a child").is_some());
        shown.publish();
        shown.place.assert_published();
    });
}

#[test]
fn a_reader_that_reads_on_has_more_fetched_ahead() {
    alone("a_reader_that_reads_on_has_more_fetched_ahead", || {
        let shown = Shown::new(|place| place.write("large", &bytes(12 << 20, 5)));
        let path = shown.at("large");
        let reader = thread::spawn(move || fs::read(path).expect("read"));
        let (mut most, mut demands) = (0, 0);
        while !reader.is_finished() {
            let Ok((chunks, _)) = shown.demands.recv_timeout(Duration::from_millis(5)) else {
                continue;
            };
            (most, demands) = (most.max(chunks.len()), demands + 1);
            chunks.into_iter().for_each(|chunk| shown.put(chunk));
        }
        assert_eq!(reader.join().expect("no panic"), bytes(12 << 20, 5));
        assert!(most >= 256, "a megabyte at a time: {most} chunks of 4 KiB, {demands} demands");
    });
}

#[test]
fn a_name_that_will_be_replaced_keeps_its_content_until_then() {
    alone("a_name_that_will_be_replaced_keeps_its_content_until_then", || {
        let fill = |place: &Place| {
            some_files(place);
            fs::create_dir(place.to().join("src")).expect("made");
            fs::write(place.to().join("src/old"), b"old").expect("written");
        };
        let shown = Shown::with_mode(fill, PublishMode::Replace);
        assert_eq!(names(&shown.at("")), ["old"]);
        shown.publish();
        shown.place.assert_published();
    });
}

#[test]
fn what_takes_the_links_place_is_not_replaced() {
    alone("what_takes_the_links_place_is_not_replaced", || {
        let shown = Shown::new(some_files);
        let name = shown.place.to().join("src");
        fs::remove_file(&name).expect("removed");
        fs::write(&name, b"another's").expect("written");
        (0..shown.cast.chunks.len()).for_each(|chunk| shown.put(u32::try_from(chunk).unwrap()));
        shown.receiver.publish().expect_err("it is there");
        assert_eq!(fs::read(&name).expect("kept"), b"another's");
    });
}

#[test]
fn a_user_may_unmount_it() {
    alone("a_user_may_unmount_it", || {
        let shown = Shown::new(some_files);
        let reader = {
            let path = shown.at("z-last");
            thread::spawn(move || fs::read(path))
        };
        let (chunks, _) = shown.demanded();
        let hidden = names(&shown.place.to());
        let view = hidden.iter().find(|name| name.contains("-view-")).expect("a view");
        let status = Command::new("umount").arg("-l").arg(shown.place.to().join(view)).status();
        assert!(status.expect("umount").success());
        shown.put(chunks[0]);
        let rest = 0..shown.cast.chunks.len();
        rest.for_each(|chunk| shown.put(u32::try_from(chunk).unwrap()));
        assert_eq!(reader.join().expect("no panic").expect("read"), bytes(9000, 9));
        eventually("the link goes", || names(&shown.place.to()).len() == 1);
        shown.publish();
        shown.place.assert_published();
    });
}

/// A destination at which a process was killed that had a view.
fn killed(to: &Path) -> Destination {
    let destination = Destination::open(to).expect("a directory");
    let name = [view_prefix(), b"0123456789abcdef-x".to_vec()].concat();
    let server = Arc::new(LazyServer::new(Arc::new(|_, _| {})));
    let mounted = mount_view(&destination, &name, || ViewHandlers(Arc::clone(&server)));
    drop(mounted.expect("mounted").session);
    let view = String::from_utf8(name).expect("text");
    symlink(format!("{view}/tree"), to.join("tree")).expect("linked");
    symlink("elsewhere/tree", to.join("another")).expect("linked");
    let dead = fs::metadata(to.join(view)).expect_err("the mount is dead");
    assert_eq!(dead.raw_os_error(), Some(rustix::io::Errno::NOTCONN.raw_os_error()), "{dead}");
    destination
}

#[test]
fn what_a_killed_process_leaves_is_removed() {
    alone("what_a_killed_process_leaves_is_removed", || {
        let place = Place::new();
        let destination = killed(&place.to());
        remove_dead_views(&destination);
        assert_eq!(names(&place.to()), ["another"]);
        fs::remove_file(place.to().join("another")).expect("removed");
        drop(killed(&place.to()));
        let roots = [PathBuf::from("/nowhere"), place.outer.path().to_owned()];
        remove_dead_views_of(roots[..1].iter().map(PathBuf::as_path));
        assert_eq!(names(&place.to()).len(), 3, "another root's");
        remove_dead_views_of(roots.iter().map(PathBuf::as_path));
        assert_eq!(names(&place.to()), ["another"]);
    });
}

#[test]
fn a_living_view_is_left_alone() {
    alone("a_living_view_is_left_alone", || {
        let shown = Shown::new(some_files);
        remove_dead_views(&Destination::open(&shown.place.to()).expect("a directory"));
        assert_eq!(fs::read(shown.at("empty")).expect("read"), b"");
        shown.publish();
        shown.place.assert_published();
    });
}

#[test]
fn without_the_device_the_reason_is_told() {
    alone("without_the_device_the_reason_is_told", || {
        let place = Place::new();
        some_files(&place);
        let receiver = place.cast().begin(&place.to(), options());
        let status = Command::new("mount").args(["-t", "tmpfs", "none", "/dev"]).status();
        assert!(status.expect("mount").success());
        let refused = LazyView::mount(&receiver, Arc::new(|_, _| {}));
        let why = refused.err().expect("no device").to_string();
        assert!(why.contains("modprobe fuse"), "{why}");
        assert_eq!(names(&place.to()).len(), 1, "only the staging directory");
    });
}

#[test]
fn without_privilege_and_helper_the_reason_is_told() {
    let name = "without_privilege_and_helper_the_reason_is_told";
    if std::env::var_os(ALONE).is_none() {
        // A namespace without a user 0, and a helper that is not installed.
        let mut command = Command::new("unshare");
        command.arg("--user").env("FUSERMOUNT_PATH", "/does/not/exist");
        return run_alone(command, name);
    }
    assert!(!rustix::process::geteuid().is_root());
    let place = Place::new();
    some_files(&place);
    let receiver = place.cast().begin(&place.to(), options());
    let refused = LazyView::mount(&receiver, Arc::new(|_, _| {}));
    let why = refused.err().expect("no helper").to_string();
    assert!(why.contains("there is no fusermount3") && why.contains("package fuse3"), "{why}");
    assert_eq!(names(&place.to()).len(), 1, "only the staging directory");
}

#[test]
fn mappings_and_direct_reads_go_on_with_the_same_bytes() {
    alone("mappings_and_direct_reads_go_on_with_the_same_bytes", || {
        let shown = Shown::new(some_files);
        let known = bytes(1 << 20, 5);
        let file = File::open(shown.at("a/large")).expect("open");
        let region = SharedRegion::view_file(&file, 0..1 << 20).expect("mapped");
        let direct = OFlags::RDONLY | OFlags::DIRECT;
        let direct = rustix::fs::open(shown.at("a/large"), direct, Mode::empty()).expect("open");
        let direct = File::from(direct);
        let (mapped, read) = (region.clone(), direct.try_clone().expect("a descriptor"));
        let reader = thread::spawn(move || {
            let mut bytes = vec![0; 4096];
            read.read_exact_at(&mut bytes, 512 << 10).expect("read");
            (mapped.snapshot(0..4096).expect("there"), bytes)
        });
        shown.serve_until(&reader);
        let (mapped, read) = reader.join().expect("no panic");
        assert!(mapped == known[..4096] && read == known[512 << 10..][..4096]);
        assert!((shown.receiver.bitmap().held() as usize) < shown.cast.chunks.len());
        // What was not read before, too, when plain files have taken the names.
        shown.publish();
        shown.place.assert_published();
        let mut rest = vec![0; 4096];
        direct.read_exact_at(&mut rest, (1 << 20) - 4096).expect("read");
        assert!(rest == known[(1 << 20) - 4096..]);
        assert!(region.snapshot(0..1 << 20).expect("there") == known);
    });
}

#[test]
fn two_trees_are_equal_before_and_after() {
    alone("two_trees_are_equal_before_and_after", || {
        let shown = Shown::new(|place| {
            some_files(place);
            (0..300).for_each(|n| place.write(&format!("many/{n:03}"), &bytes(n * 7, 3)));
            let sparse = File::create(place.src().join("sparse")).expect("made");
            sparse.set_len(1 << 30).expect("a hole");
            sparse.write_all_at(b"here", 500 << 20).expect("written");
        });
        let (top, known) = (shown.at("."), listing(&shown.place.src()));
        let reader = thread::spawn(move || listing(&top));
        shown.serve_until(&reader);
        let mut seen = reader.join().expect("no panic");
        // The top is reached through a link.
        assert_eq!(seen.keys().collect::<Vec<_>>(), known.keys().collect::<Vec<_>>());
        seen.retain(|path, now| known.get(path) != Some(now));
        assert!(seen.is_empty(), "{:?}", seen.keys());
        shown.publish();
        shown.place.assert_published();
    });
}
