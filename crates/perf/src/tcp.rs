//! The same tests over a plain TCP socket, with the same clocks: what the kernel alone gives.
//!
//! The socket has Nagle's algorithm off. Spinning means non-blocking calls again and again;
//! blocking means that the kernel wakes the thread.

use crate::error::PerfError;
use crate::measure::{Goal, Progress, Timed, time_rounds, warm_up};
use crate::plan::{TestKind, TestPlan, Wait};
use crate::side::{NAP, Vigil};
use rustix::net::sockopt::set_tcp_congestion;
use std::convert::Infallible;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// A stream's receiver takes at least this much at a time, as programs that want speed do.
const READ_MIN: usize = 128 << 10;
/// How long a stream runs before the timed part.
const WARM_UP: Duration = Duration::from_millis(100);
/// First byte of a stream's last message, and the receiver's answer: it has everything.
const LAST: u8 = 1;

/// One side of a TCP test.
#[derive(Debug)]
pub(crate) struct Tcp {
    socket: TcpStream,
    plan: TestPlan,
    buffer: Vec<u8>,
    /// What ping-pongs receive into: RDMA tests have two buffers too, and one is faster.
    inbox: Vec<u8>,
    vigil: Vigil,
}

impl Tcp {
    /// The client's side.
    pub(crate) fn connect(peer: SocketAddr, plan: &TestPlan) -> Result<Self, PerfError> {
        let socket = TcpStream::connect_timeout(&peer, CONNECT_MAX)
            .map_err(PerfError::system("cannot connect to the server's TCP port"))?;
        Self::new(socket, plan, Arc::default())
    }

    pub(crate) fn new(
        socket: TcpStream,
        plan: &TestPlan,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, PerfError> {
        set_up(&socket, plan.wait).map_err(PerfError::system("cannot set up a TCP socket"))?;
        // Not zero: pages never written to are all the same page, and faster to send than data.
        let (buffer, inbox) = (vec![1; plan.size], vec![1; plan.size]);
        Ok(Self { socket, plan: plan.clone(), buffer, inbox, vigil: Vigil::new(stop) })
    }

    /// The client's untimed part.
    pub(crate) fn warm_up(&mut self) -> Result<(), PerfError> {
        match self.plan.test.kind() {
            TestKind::Latency => warm_up(|| self.round()),
            _ => self.stream(Goal::Time(WARM_UP), &Progress::default()).map(drop),
        }
    }

    /// The client's timed part.
    pub(crate) fn run(&mut self, goal: Goal, progress: &Progress) -> Result<Timed, PerfError> {
        match self.plan.test.kind() {
            TestKind::Latency => time_rounds(goal, progress, || self.round()),
            _ => self.stream(goal, progress),
        }
    }

    fn round(&mut self) -> Result<(), PerfError> {
        self.write_all()?;
        self.read_all()
    }

    /// Messages until the goal is reached, then until the server has them. The
    /// first byte of each says whether it is the last.
    fn stream(&mut self, goal: Goal, progress: &Progress) -> Result<Timed, PerfError> {
        let start = Instant::now();
        let mut messages = 0;
        self.buffer[0] = 0;
        while self.buffer[0] != LAST {
            messages += 1;
            if goal.reached(messages, start.elapsed()) || progress.is_interrupted() {
                self.buffer[0] = LAST;
            }
            self.write_all()?;
            progress.set(messages);
        }
        self.read(&mut [0])?;
        Ok(Timed { messages, elapsed: start.elapsed(), latencies: None })
    }

    /// The server's part, until the client leaves or falls silent.
    pub(crate) fn serve(&mut self) -> PerfError {
        let latency = self.plan.test.kind() == TestKind::Latency;
        let end = if latency { self.serve_rounds() } else { self.serve_streams() };
        // The client has left already, or is told so by this.
        let _left = self.socket.shutdown(Shutdown::Both);
        match end {
            Err(end) => end,
            Ok(never) => match never {},
        }
    }

    /// Sends every message back.
    fn serve_rounds(&mut self) -> Result<Infallible, PerfError> {
        loop {
            self.read_all()?;
            self.write_all()?;
        }
    }

    /// Takes messages in large reads, and answers the last of each stream.
    fn serve_streams(&mut self) -> Result<Infallible, PerfError> {
        let mut buffer = vec![0; self.plan.size.max(READ_MIN)];
        // Bytes from the buffer's start to the next message's first, and what the last one was.
        let (mut next, mut last) = (0, 0);
        loop {
            let count = self.read(&mut buffer)?;
            while next < count {
                last = buffer[next];
                next += self.plan.size;
            }
            next -= count;
            if next == 0 && last == LAST {
                self.write(&[LAST])?;
            }
        }
    }

    fn write_all(&mut self) -> Result<(), PerfError> {
        let mut done = 0;
        while done < self.plan.size {
            let count = self.socket.write(&self.buffer[done..]);
            done += self.settle(count)?;
        }
        Ok(())
    }

    fn read_all(&mut self) -> Result<(), PerfError> {
        let mut done = 0;
        while done < self.plan.size {
            let count = self.socket.read(&mut self.inbox[done..]);
            done += self.settle(count)?;
        }
        Ok(())
    }

    /// Reads at least one byte.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, PerfError> {
        loop {
            let count = self.socket.read(buffer);
            match self.settle(count)? {
                0 => {}
                count => return Ok(count),
            }
        }
    }

    /// Writes one byte or a few, which the socket always has room for soon.
    fn write(&mut self, bytes: &[u8]) -> Result<(), PerfError> {
        let mut done = 0;
        while done < bytes.len() {
            let count = self.socket.write(&bytes[done..]);
            done += self.settle(count)?;
        }
        Ok(())
    }

    /// What a call moved; an empty-handed one is counted.
    #[inline]
    fn settle(&mut self, outcome: io::Result<usize>) -> Result<usize, PerfError> {
        match outcome {
            Ok(0) => Err(PerfError::PeerLeft),
            Ok(count) => {
                self.vigil.stir()?;
                Ok(count)
            }
            Err(error) => self.judge(error).map(|()| 0),
        }
    }

    fn judge(&mut self, error: io::Error) -> Result<(), PerfError> {
        match error.kind() {
            // A blocking socket says WouldBlock when its time limit is over.
            ErrorKind::WouldBlock if self.vigil.is_due(self.plan.wait) => self.vigil.look(),
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Err(PerfError::PeerLeft),
            _ => Err(PerfError::system("the test's TCP connection failed")(error)),
        }
    }
}

/// Both ends have the same address, or the loopback's.
fn is_local(socket: &TcpStream) -> bool {
    match (socket.local_addr(), socket.peer_addr()) {
        (Ok(ours), Ok(theirs)) => ours.ip() == theirs.ip() || theirs.ip().is_loopback(),
        _ => false,
    }
}

fn set_up(socket: &TcpStream, wait: Wait) -> io::Result<()> {
    socket.set_nodelay(true)?;
    if is_local(socket) {
        // As Outboard does within one machine: no pacing. Where that is refused, the system's
        // choice remains, for Outboard too.
        let _set = set_tcp_congestion(socket, "reno");
    }
    socket.set_nonblocking(wait == Wait::Spin)?;
    socket.set_read_timeout(Some(NAP))?;
    socket.set_write_timeout(Some(NAP))
}
