//! The connection that bad peers talk to, with one of everything under way.

use outboard_iwarp::Phase;
use outboard_iwarp::startup::Negotiated;
use outboard_iwarp::work::{Remote, SendOp};
use outboard_mem::{Access, SharedRegion};
use outboard_sim::lone::{Lone, agreed, write};
use outboard_sim::side::{OTHER_PD, PD};
use outboard_wire::ddp::{Header, Stag, Tagged, Untagged};

/// A connection, and canaries around all memory.
pub(crate) struct Victim {
    pub(crate) lone: Lone,
    region: SharedRegion,
    before: Vec<u8>,
    pub(crate) rw: Stag,
    pub(crate) read_only: Stag,
    pub(crate) write_only: Stag,
    pub(crate) local: Stag,
    pub(crate) stale: Stag,
    pub(crate) foreign: Stag,
    pub(crate) edge: Stag,
}

/// The STags' shares of the region are this long, with as much canary on either side.
const LEN: usize = 64;

impl Victim {
    pub(crate) fn new() -> Self {
        Self::with(agreed())
    }

    /// Work requests 1 (Read of 100), 2 (FetchAdd), 3 (Read of 50) are under way; receives 11 and
    /// 12 of 32 bytes are posted; the first FPDU has been exchanged.
    pub(crate) fn with(negotiated: Negotiated) -> Self {
        let mut lone = Lone::new(negotiated);
        let region = lone.side.region(LEN * 16);
        let everything = Access::REMOTE | Access::LOCAL_WRITE;
        let mut next = 0;
        let mut register = |name: &str, pd, base, access| {
            let share = region.slice((2 * next + 1) * LEN..(2 * next + 2) * LEN).expect("inside");
            next += 1;
            let stag = Stag(lone.side.stags.register(pd, share, base, access).expect("room"));
            lone.side.names.insert(stag, name.to_owned());
            stag
        };
        let rw = register("rw", PD, 0, everything);
        let read_only = register("read-only", PD, 0, Access::REMOTE_READ);
        let write_only = register("write-only", PD, 0, Access::REMOTE_WRITE);
        let local = register("local", PD, 0, Access::LOCAL_WRITE);
        let stale = register("stale", PD, 0, everything);
        let foreign = register("foreign", OTHER_PD, 0, everything);
        let edge = register("edge", PD, u64::MAX - 64, everything);
        lone.side.stags.deregister(stale.0).expect("registered");
        region.copy_in(0, &[0xa5; LEN * 16]).expect("inside");
        let before = region.snapshot(0..LEN * 16).expect("inside");
        lone.segment(Header::Tagged(write(Stag(1), 0)), &[]);
        let there = Remote { stag: Stag(0x7777_7000), offset: 0 };
        lone.side.send(1, SendOp::Read { from: there }, &[0; 100]);
        lone.side.send(2, SendOp::FetchAdd { at: there, add: 1, mask: 0 }, &[0; 8]);
        lone.side.send(3, SendOp::Read { from: there }, &[0; 50]);
        lone.side.receive(11, 32);
        lone.side.receive(12, 32);
        assert_eq!(lone.segments().len(), 3);
        Self { lone, region, before, rw, read_only, write_only, local, stale, foreign, edge }
    }

    /// Delivers a segment and expects the Terminate.
    #[track_caller]
    pub(crate) fn refuses(&mut self, header: impl Into<Head>, payload: &[u8], terminate: &str) {
        self.lone.segment(header.into().0, payload);
        self.ends_with(terminate);
    }

    /// The connection sent exactly this, reported it once to each side, and wrote nothing.
    #[track_caller]
    pub(crate) fn ends_with(&mut self, terminate: &str) {
        self.wrote_nothing();
        let expected = if terminate.is_empty() {
            vec![]
        } else {
            vec![format!("Terminate msn=1 {terminate}")]
        };
        assert_eq!(self.lone.lines(), expected);
        self.is_over(&["1 Read Flushed 0", "2 FetchAdd Flushed 0", "3 Read Flushed 0"]);
    }

    #[track_caller]
    pub(crate) fn wrote_nothing(&self) {
        let now = self.region.snapshot(0..LEN * 16).expect("inside");
        let at = now.iter().zip(&self.before).position(|(now, before)| now != before);
        assert_eq!(at, None, "byte written");
    }

    /// Every request came back once with its buffer, later bytes are dropped, FIN is due.
    #[track_caller]
    pub(crate) fn is_over(&mut self, expected: &[&str]) {
        let mut lines = self.lone.side.completion_lines();
        lines.retain(|line| !line.contains("Receive "));
        assert_eq!(lines, expected);
        self.lone.raw(&[0xff; 1000]);
        self.lone.segment(Header::Tagged(write(self.rw, 0)), b"too late");
        self.wrote_nothing();
        assert_eq!(self.lone.side.untaken(), 0, "bytes after the end were kept");
        assert_eq!(self.lone.lines(), Vec::<String>::new());
        assert_eq!(self.lone.side.completion_lines(), Vec::<String>::new());
        assert!(self.lone.side.connection.wants_fin());
        self.lone.eof();
        assert_eq!(self.lone.side.connection.phase(), Phase::Closed);
    }
}

pub(crate) struct Head(Header);

impl From<Untagged> for Head {
    fn from(header: Untagged) -> Self {
        Self(Header::Untagged(header))
    }
}

impl From<Tagged> for Head {
    fn from(header: Tagged) -> Self {
        Self(Header::Tagged(header))
    }
}
