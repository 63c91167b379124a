//! What a test is: its name, its parameters, and the bounds that both sides hold them to.

use crate::error::PerfError;
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display};

/// Bytes of one message at most: a server holds twice as much for each test.
pub const SIZE_MAX: usize = 64 << 20;
/// Queue pairs of one test at most.
pub const QPS_MAX: usize = 64;
/// Operations under way on one queue pair at most.
pub const DEPTH_MAX: usize = 4096;
/// Bytes of an atomic operation's operand (RFC 7306 §5).
pub const ATOMIC_SIZE: usize = 8;

/// The operation that a test repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOperation {
    /// RDMA Write.
    Write,
    /// RDMA Read.
    Read,
    /// Send into a posted receive.
    Send,
    /// RDMA Write that completes a receive of the peer's.
    WriteWithImm,
    /// FetchAdd.
    Atomic,
    /// Bytes over a plain TCP socket.
    Tcp,
    /// An RDMA connection with all its objects, made and ended.
    Connect,
    /// A TCP connection and one round trip on it.
    TcpConnect,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestKind {
    /// One operation at a time, each timed.
    Latency,
    /// Many large operations under way.
    Bandwidth,
    /// Many small operations under way, posted in batches.
    Rate,
}

/// A test by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // `TestOperation` and `TestKind` say it; the names are their products.
pub enum Test {
    WriteLat,
    WriteBw,
    WriteRate,
    ReadLat,
    ReadBw,
    ReadRate,
    SendLat,
    SendBw,
    SendRate,
    WriteImmLat,
    WriteImmBw,
    WriteImmRate,
    AtomicLat,
    TcpLat,
    TcpBw,
    ConnectLat,
    TcpConnectLat,
}

use TestKind as K;
use TestOperation as O;

/// Every test.
const TESTS: &[(Test, &str, TestOperation, TestKind)] = &[
    (Test::WriteLat, "write-lat", O::Write, K::Latency),
    (Test::WriteBw, "write-bw", O::Write, K::Bandwidth),
    (Test::WriteRate, "write-rate", O::Write, K::Rate),
    (Test::ReadLat, "read-lat", O::Read, K::Latency),
    (Test::ReadBw, "read-bw", O::Read, K::Bandwidth),
    (Test::ReadRate, "read-rate", O::Read, K::Rate),
    (Test::SendLat, "send-lat", O::Send, K::Latency),
    (Test::SendBw, "send-bw", O::Send, K::Bandwidth),
    (Test::SendRate, "send-rate", O::Send, K::Rate),
    (Test::WriteImmLat, "write-imm-lat", O::WriteWithImm, K::Latency),
    (Test::WriteImmBw, "write-imm-bw", O::WriteWithImm, K::Bandwidth),
    (Test::WriteImmRate, "write-imm-rate", O::WriteWithImm, K::Rate),
    (Test::AtomicLat, "atomic-lat", O::Atomic, K::Latency),
    (Test::TcpLat, "tcp-lat", O::Tcp, K::Latency),
    (Test::TcpBw, "tcp-bw", O::Tcp, K::Bandwidth),
    (Test::ConnectLat, "connect-lat", O::Connect, K::Latency),
    (Test::TcpConnectLat, "tcp-connect-lat", O::TcpConnect, K::Latency),
];

impl Test {
    /// All tests, in the order in which they are listed.
    pub fn all() -> impl Iterator<Item = Self> {
        TESTS.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (Self, &'static str, TestOperation, TestKind) {
        // Every test has its row; `tests::every_test_has_a_row` holds the table to that.
        TESTS.iter().find(|row| row.0 == self).unwrap_or(&TESTS[0])
    }

    /// As the command line and reports name it.
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The operation that it repeats.
    pub fn operation(self) -> TestOperation {
        self.row().2
    }

    /// What it measures.
    pub fn kind(self) -> TestKind {
        self.row().3
    }

    /// Bytes of a message unless told otherwise.
    pub fn default_size(self) -> usize {
        match self.kind() {
            // The length of the memory that is registered for a connection, or of the round trip on
            // it.
            _ if self.is_connect() => 1,
            TestKind::Latency => 8,
            TestKind::Bandwidth => 64 << 10,
            TestKind::Rate => 64,
        }
    }

    /// How both sides wait unless told otherwise.
    pub fn default_wait(self) -> Wait {
        if self.is_connect() { Wait::Block } else { Wait::Spin }
    }

    /// Operations under way on a queue pair unless told otherwise.
    pub fn default_depth(self) -> usize {
        match self.kind() {
            TestKind::Latency => 1,
            TestKind::Bandwidth => 32,
            TestKind::Rate => 256,
        }
    }

    /// Both sides take turns, so that a latency is half a round trip.
    pub fn is_ping_pong(self) -> bool {
        let one_sided = matches!(self.operation(), TestOperation::Read | TestOperation::Atomic);
        self.kind() == TestKind::Latency && !one_sided && !self.is_connect()
    }

    /// True for tests that make and end connections.
    pub fn is_connect(self) -> bool {
        matches!(self.operation(), TestOperation::Connect | TestOperation::TcpConnect)
    }

    /// Runs on a port that the server opens for it.
    pub(crate) fn has_port(self) -> bool {
        self.is_connect() || self.operation() == TestOperation::Tcp
    }

    /// The server's program takes no part: it only has memory.
    pub fn is_passive(self) -> bool {
        match self.operation() {
            TestOperation::Read | TestOperation::Atomic => true,
            TestOperation::Write => self.kind() != TestKind::Latency,
            TestOperation::Send | TestOperation::WriteWithImm | TestOperation::Tcp => false,
            TestOperation::Connect | TestOperation::TcpConnect => false,
        }
    }

    /// Messages consume receives that the server posts.
    pub fn needs_receives(self) -> bool {
        matches!(self.operation(), TestOperation::Send | TestOperation::WriteWithImm)
    }
}

impl Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How both sides wait for what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Wait {
    /// Poll without pause: least delay, one CPU each.
    Spin,
    /// Sleep until the kernel wakes the thread.
    Block,
}

impl Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Spin => "spin",
            Self::Block => "block",
        })
    }
}

/// What both sides have to know of a test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TestPlan {
    /// Which test.
    pub test: Test,
    /// Bytes of a message.
    pub size: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Operations under way on each queue pair.
    pub depth: usize,
    /// How both sides wait.
    pub wait: Wait,
    /// Whether FPDUs carry CRCs (RFC 5044 §4.4).
    pub crc: bool,
}

impl TestPlan {
    /// A test with its usual parameters.
    pub fn new(test: Test) -> Self {
        Self {
            test,
            size: test.default_size(),
            qps: 1,
            depth: test.default_depth(),
            wait: test.default_wait(),
            crc: true,
        }
    }

    /// Holds the parameters to what a test can be.
    ///
    /// # Errors
    /// [`PerfError::BadParameter`], the caller's fault.
    pub fn check(&self) -> Result<(), PerfError> {
        within("--size", self.size, SIZE_MAX)?;
        within("--qps", self.qps, QPS_MAX)?;
        within("--depth", self.depth, DEPTH_MAX)?;
        let latency = self.test.kind() == TestKind::Latency;
        let tcp = self.test.operation() == TestOperation::Tcp;
        if latency && self.depth > 1 {
            let needed = "1 in latency tests, which do one operation at a time";
            return Err(bad("--depth", self.depth, needed));
        }
        if (latency || tcp) && self.qps > 1 {
            let needed = "1 here: only bandwidth and rate of RDMA operations use more";
            return Err(bad("--qps", self.qps, needed));
        }
        if self.test.operation() == TestOperation::Atomic && self.size != ATOMIC_SIZE {
            return Err(bad("--size", self.size, "8, the size of an atomic's operand"));
        }
        self.check_connect()
    }

    /// Connections carry no messages, and both sides block.
    fn check_connect(&self) -> Result<(), PerfError> {
        let (size, wait) = (self.test.default_size(), self.test.default_wait());
        if self.test.is_connect() && self.size != size {
            let needed = format!("{size} here: no messages are sent on the connections");
            return Err(bad("--size", self.size, needed));
        }
        if self.test.is_connect() && self.wait != wait {
            let needed = format!("{wait} here: the kernel makes connections");
            return Err(bad("--wait", self.wait, needed));
        }
        Ok(())
    }

    /// Requests that are posted together; the last of them makes a completion.
    pub(crate) fn batch(&self) -> usize {
        match self.test.kind() {
            TestKind::Rate => (self.depth / 4).clamp(1, 64),
            TestKind::Latency | TestKind::Bandwidth => 1,
        }
    }
}

fn within(what: &'static str, found: usize, limit: usize) -> Result<(), PerfError> {
    if (1..=limit).contains(&found) {
        return Ok(());
    }
    Err(bad(what, found, format!("from 1 to {limit}")))
}

fn bad(what: &'static str, found: impl Display, needed: impl Into<String>) -> PerfError {
    let (found, needed) = (found.to_string(), needed.into());
    PerfError::BadParameter { what, found, needed }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_test_has_a_row() {
        for test in Test::all() {
            let name = serde_json::to_string(&test).unwrap();
            assert_eq!(name, format!("\"{}\"", test.name()));
        }
        assert_eq!(Test::TcpConnectLat.name(), "tcp-connect-lat");
        assert_eq!(Test::all().count(), Test::TcpConnectLat as usize + 1);
    }

    #[test]
    fn usual_parameters_are_possible() {
        for test in Test::all() {
            TestPlan::new(test).check().unwrap();
        }
    }

    #[test]
    fn impossible_parameters_are_refused() {
        let change = |test, change: fn(&mut TestPlan)| {
            let mut plan = TestPlan::new(test);
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        assert!(change(Test::WriteBw, |p| p.size = 0).contains("--size is 0"));
        assert!(change(Test::WriteBw, |p| p.size = SIZE_MAX + 1).contains("67108864"));
        assert!(change(Test::WriteBw, |p| p.qps = QPS_MAX + 1).contains("--qps"));
        assert!(change(Test::WriteBw, |p| p.depth = 0).contains("--depth"));
        assert!(change(Test::WriteLat, |p| p.depth = 2).contains("one operation at a time"));
        assert!(change(Test::TcpBw, |p| p.qps = 2).contains("--qps is 2"));
        assert!(change(Test::AtomicLat, |p| p.size = 16).contains("operand"));
        for test in [Test::ConnectLat, Test::TcpConnectLat] {
            assert!(change(test, |p| p.size = 8).contains("--size is 8; it must be 1 here"));
            assert!(change(test, |p| p.wait = Wait::Spin).contains("must be block here"));
        }
    }
}
