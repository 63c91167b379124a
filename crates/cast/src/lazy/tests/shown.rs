//! A cast that is shown before it is here, in a mount namespace of its own; its chunks are put in
//! by hand.

use crate::lazy::LazyView;
use crate::receive::tests::{Place, TestCast, options};
use crate::receive::{PublishMode, Receiver};
use crate::relay::DemandFrom;
use outboard_testkit::{PATIENCE, eventually};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// Set in a child's environment: it runs in a namespace of its own.
pub(super) const ALONE: &str = "OUTBOARD_TEST_ALONE";

/// Runs a test of this module in a user and mount namespace of its own.
pub(super) fn alone(name: &str, test: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some() {
        return test();
    }
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]);
    run_alone(command, name);
}

/// Runs a test of this module by a command that starts this program.
pub(super) fn run_alone(mut command: Command, name: &str) {
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("lazy::tests::{name}"), "--nocapture"]).env(ALONE, "1");
    let output = command.output().expect("util-linux's unshare");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    assert!(String::from_utf8_lossy(&said).contains("1 passed"), "it ran");
}

/// A cast of which the manifest has come.
pub(super) struct Shown {
    pub(super) view: Option<LazyView>,
    pub(super) receiver: Arc<Receiver>,
    pub(super) demands: mpsc::Receiver<(Vec<u32>, DemandFrom)>,
    pub(super) cast: TestCast,
    pub(super) place: Place,
}

impl Shown {
    pub(super) fn new(fill: impl FnOnce(&Place)) -> Self {
        Self::with_mode(fill, PublishMode::New)
    }

    pub(super) fn with_mode(fill: impl FnOnce(&Place), mode: PublishMode) -> Self {
        let place = Place::new();
        fill(&place);
        let cast = place.cast();
        let mut options = options();
        options.publish = mode;
        let receiver = Arc::new(cast.begin(&place.to(), options));
        let (sender, demands) = mpsc::channel();
        let demand = move |chunks, from| drop(sender.send((chunks, from)));
        let view = LazyView::mount(&receiver, Arc::new(demand)).expect("mounted");
        let shown = Self { view: Some(view), receiver, demands, cast, place };
        assert!(!shown.at("").exists() || mode == PublishMode::Replace);
        let manifest = shown.cast.hashes.header().shape.manifest_chunks();
        (0..manifest).for_each(|chunk| shown.put(chunk));
        shown
    }

    pub(super) fn view(&self) -> &LazyView {
        self.view.as_ref().expect("not given up")
    }

    /// A chunk comes.
    pub(super) fn put(&self, chunk: u32) {
        self.cast.put(&self.receiver, chunk as usize).expect("written");
        self.view().show(|| self.receiver.staged_view()).expect("shown");
        self.view().came(chunk);
    }

    /// A path below the name at the destination.
    pub(super) fn at(&self, path: &str) -> PathBuf {
        self.place.to().join("src").join(path)
    }

    pub(super) fn demanded(&self) -> (Vec<u32>, DemandFrom) {
        self.demands.recv_timeout(PATIENCE).expect("a demand")
    }

    /// Puts what is demanded, until something is done.
    pub(super) fn serve_until<T>(&self, done: &thread::JoinHandle<T>) {
        while !done.is_finished() {
            if let Ok((chunks, _)) = self.demands.recv_timeout(Duration::from_millis(5)) {
                chunks.into_iter().for_each(|chunk| self.put(chunk));
            }
        }
    }

    pub(super) fn publish(&self) {
        for chunk in 0..self.cast.chunks.len() {
            self.put(u32::try_from(chunk).expect("few"));
        }
        self.receiver.publish().expect("published");
        self.view().published();
    }
}

/// Bytes that differ from place to place.
pub(super) fn bytes(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

pub(super) fn some_files(place: &Place) {
    place.write("a/large", &bytes(1 << 20, 5));
    place.write("b/short", b"short");
    place.write("empty", b"");
    place.write("z-last", &bytes(9000, 9));
    symlink("b/short", place.src().join("link")).expect("linked");
    symlink("../../src/empty", place.src().join("b/up")).expect("linked");
    fs::set_permissions(place.src().join("b/short"), fs::Permissions::from_mode(0o640)).unwrap();
}

/// Whatever is mounted for others.
pub(super) fn no_view_is_left(place: &Place) {
    let own = place.to().to_string_lossy().into_owned();
    let mounts = || fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    eventually("nothing is mounted there", || !mounts().contains(&own));
}
