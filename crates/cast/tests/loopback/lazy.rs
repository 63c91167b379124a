//! Casts with `--lazy` over slow connections: files are read and run before all is here.

use super::detour::{Towards, detour};
use super::sessions::{self, credentials};
use super::*;
use outboard_cast::ShowMode;
use outboard_cluster::hosts::Host;
use outboard_secure::ClusterKey;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

/// Set in a child's environment: it runs in a namespace of its own.
const ALONE: &str = "OUTBOARD_TEST_ALONE";
/// Bytes a second from the source to each node.
const RATE: usize = 4 << 20;
/// Bytes of the large file: they take some seconds.
const LARGE: usize = 32 << 20;

/// Runs a test of this module in a user and mount namespace of its own.
fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("lazy::{name}"), "--nocapture"]).env(ALONE, "1");
    let output = command.output().expect("util-linux's unshare");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    assert!(String::from_utf8_lossy(&said).contains("1 passed"), "it ran");
}

/// An address behind which another one answers slowly, until it is cut.
fn slow_way(to: SocketAddr, is_cut: &Arc<AtomicBool>) -> SocketAddr {
    let is_cut = Arc::clone(is_cut);
    detour(to, move |towards, count| {
        if towards == Towards::Node {
            thread::sleep(Duration::from_secs_f64(count as f64 / RATE as f64));
        }
        !is_cut.load(Ordering::SeqCst)
    })
}

/// The source's dialling, by slow ways.
fn slow_dial(key: &ClusterKey, is_cut: &Arc<AtomicBool>) -> DialNode {
    let (own, is_cut) = (credentials(key, "cast"), Arc::clone(is_cut));
    Arc::new(move |host: &Host, limit: Duration| {
        let address: SocketAddr = host.to_string().parse().map_err(|error| format!("{error}"))?;
        sessions::dial(&own, "cast", slow_way(address, &is_cut), limit)
    })
}

/// A lab whose tree ends with a program and a file of some chunks.
fn lab_with_last_files(nodes: usize) -> Lab {
    let lab = Lab::new(nodes);
    lab.fill(LARGE);
    let tree = lab.source.path().join("tree");
    fs::copy("/bin/sh", tree.join("y-program")).expect("copied");
    let last: Vec<u8> = (0..300_000_u32).map(|at| (at / 7).to_le_bytes()[0]).collect();
    fs::write(tree.join("z-last"), last).expect("written");
    symlink("/bin/true", tree.join("absolute")).expect("linked");
    lab
}

fn lazy_request(lab: &Lab, kind: ScheduleKind, is_cut: &Arc<AtomicBool>) -> CastRequest {
    let request = lab.request(kind, Path::new(ROOT));
    CastRequest { show: ShowMode::AtOnce, dial: slow_dial(&lab.key, is_cut), ..request }
}

fn appears(path: &Path) {
    eventually("the name appears", || path.is_symlink());
}

fn is_mounted() -> bool {
    fs::read_to_string("/proc/self/mountinfo").expect("mounts").contains("outboard-cast")
}

fn read_early_then_plain(kind: ScheduleKind) {
    let lab = lab_with_last_files(3);
    let is_cut = Arc::new(AtomicBool::new(false));
    let request = lazy_request(&lab, kind, &is_cut);
    let casting = thread::spawn(move || cast(request));
    thread::scope(|scope| {
        for node in &lab.nodes {
            scope.spawn(|| read_and_run(&node.root.path().join("tree"), &lab));
        }
    });
    let outcome = casting.join().expect("no panic").expect("a cast");
    assert!(outcome.nodes.iter().all(|node| node.result == Ok(1)), "{outcome:?}");
    (0..3).for_each(|node| lab.check(node));
    assert!(!is_mounted());
}

/// Uses the files at the tree's end before all of it is here.
fn read_and_run(tree: &Path, lab: &Lab) {
    appears(tree);
    let read = fs::read(tree.join("z-last")).expect("read");
    assert!(read == fs::read(lab.source.path().join("tree/z-last")).expect("read"));
    let mut program = Command::new(tree.join("y-program"));
    let output = program.args(["-c", "echo $((6 * 7))"]).output().expect("run");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "42\n");
    assert!(tree.is_symlink(), "not all of it was here");
}

#[test]
fn the_last_file_is_read_and_run_while_the_first_is_coming() {
    alone("the_last_file_is_read_and_run_while_the_first_is_coming", || {
        read_early_then_plain(ScheduleKind::BinomialPipeline);
        read_early_then_plain(ScheduleKind::Chain);
    });
}

#[test]
fn reads_fail_when_the_source_is_gone_and_nothing_stays() {
    alone("reads_fail_when_the_source_is_gone_and_nothing_stays", || {
        let lab = lab_with_last_files(1);
        let is_cut = Arc::new(AtomicBool::new(false));
        let request = lazy_request(&lab, ScheduleKind::Star, &is_cut);
        let casting = thread::spawn(move || cast(request));
        let root = lab.nodes[0].root.path().to_owned();
        appears(&root.join("tree"));
        let mut cat = Command::new("cat");
        cat.arg(root.join("tree/below/deep/large")).stdout(Stdio::null()).stderr(Stdio::piped());
        let cat = cat.spawn().expect("cat");
        thread::sleep(Duration::from_millis(300));
        is_cut.store(true, Ordering::SeqCst);
        let output = cat.wait_with_output().expect("ended");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains("Input/output error"), "{said}");
        let outcome = casting.join().expect("no panic").expect("a cast");
        assert!(outcome.nodes[0].result.is_err(), "{outcome:?}");
        eventually("name and mount go", || !root.join("tree").is_symlink() && !is_mounted());
    });
}

#[test]
fn a_merge_has_no_view() {
    let lab = Lab::new(1);
    lab.fill(10);
    let request = lab.request(ScheduleKind::Star, Path::new(ROOT));
    let outcome =
        cast(CastRequest { show: ShowMode::AtOnce, publish: PublishMode::Merge, ..request });
    let why = outcome.expect("a cast").nodes[0].result.clone().expect_err("refused");
    assert!(why.contains("--merge"), "{why}");
}
