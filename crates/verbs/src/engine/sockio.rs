//! System calls without a safe wrapper: the only unsafe code of this crate. Two take raw spans, and
//! this file keeps what pins their memory alive until the kernel is done with it; others ask the
//! scheduler for short turns and for what it has done, and leave signals to the program. It knows
//! no protocol.

use crate::engine::staging::{STAGING_LEN, Staging};
use outboard_iwarp::{Connection, Env, TransmitLimits};
use outboard_mem::Span;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant;

/// Pieces that one system call takes at most.
const SPANS_MAX: usize = 64;

/// The outcome of transmitting.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// Nothing is left to send.
    Everything,
    /// TCP took less than was there: this many bytes.
    Blocked(usize),
    /// One batch of this many bytes went out; there may be more.
    Some(usize),
}

/// Sends one batch of what the connection has.
pub(crate) fn transmit(
    fd: BorrowedFd<'_>,
    conn: &mut Connection,
    budget: usize,
    spans: &mut Vec<Span>,
    env: &mut Env<'_>,
) -> io::Result<Sent> {
    spans.clear();
    let mut pins = Vec::new();
    let limits = TransmitLimits { bytes: budget, spans: SPANS_MAX };
    let offered = conn.poll_transmit(Instant::now(), limits, env, spans, &mut pins);
    if offered == 0 {
        return Ok(Sent::Everything);
    }
    // SAFETY: the spans lie in the connection's own buffers and lists, which nothing touches
    // while `conn` is borrowed here, and in registered memory pinned by `pins`, which lives until
    // the end of this function. The kernel only reads them.
    let sent = unsafe { send_spans(fd, spans) };
    drop(pins);
    match sent {
        Ok(count) => {
            conn.handle_transmitted(count, env.completions);
            Ok(if count < offered { Sent::Blocked(count) } else { Sent::Some(count) })
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Sent::Blocked(0)),
        Err(error) => Err(error),
    }
}

/// The outcome of receiving.
#[derive(Debug)]
pub(crate) struct Received {
    /// Bytes, in place and staged together; 0 is the peer's FIN.
    pub(crate) total: usize,
    /// The kernel had no more at that moment.
    pub(crate) short: bool,
}

/// Receives once: payload straight to where it belongs when the connection says where, the rest
/// into staging: at most `want` bytes, or what there is room for if payload has no place that the
/// kernel may write to (memory with a gate, or that is gone). The connection is told of bytes
/// placed, not of those staged.
pub(crate) fn receive(
    fd: BorrowedFd<'_>,
    conn: &mut Connection,
    staging: &mut Staging,
    want: usize,
    spans: &mut Vec<Span>,
    env: &mut Env<'_>,
) -> io::Result<Received> {
    spans.clear();
    let direct = conn.direct(env.stags, spans);
    let want = if direct.is_some() { want } else { STAGING_LEN };
    // A list of very many pieces is filled a part at a time, and nothing may follow a part.
    let cut = spans.len() > SPANS_MAX;
    spans.truncate(SPANS_MAX);
    let mut placed_max: usize = spans.iter().map(|span| span.len).sum();
    let room = staging.room(if cut { 0 } else { want });
    let requested = placed_max + room.len();
    spans.push(Span { ptr: room.as_mut_ptr(), len: room.len() });
    let total = loop {
        // SAFETY: the spans lie in a list that the connection owns and nothing touches while `conn`
        // is borrowed, or in registered memory pinned by `direct` until after the call, or in the
        // staging buffer borrowed above. The kernel is the only writer besides our own racy copies,
        // which registered memory allows at any time.
        match unsafe { receive_spans(fd, spans) } {
            Err(error) if is_missing(&error) && placed_max > 0 && !cut => {
                // It is copied from staging instead; if that copy fails, the connection handles it.
                spans.drain(..spans.len() - 1);
                placed_max = 0;
            }
            received => break received?,
        }
    };
    drop(direct);
    let placed = total.min(placed_max);
    if placed > 0 {
        conn.handle_direct(placed, env);
    }
    staging.added(total - placed);
    Ok(Received { total, short: total < requested })
}

/// Bytes in TCP's hands, a FIN among them, that the peer's TCP has not acknowledged; 0 where the
/// kernel does not report it.
pub(crate) fn unacknowledged(fd: BorrowedFd<'_>) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: for a socket this is SIOCOUTQ (tcp(7)), which writes one integer.
    let told = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    usize::try_from(bytes).ok().filter(|_| told == 0).unwrap_or(0)
}

/// Whether the peer's TCP has yet to acknowledge segments. Bytes that wait here while none is in
/// flight wait because the peer has no room.
pub(crate) fn is_in_flight(fd: BorrowedFd<'_>) -> bool {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).unwrap_or(0);
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: the kernel writes at most `len` bytes of `info`, for which any bytes are valid.
    let info = unsafe {
        let told =
            libc::getsockopt(fd.as_raw_fd(), level, option, info.as_mut_ptr().cast(), &raw mut len);
        (told == 0).then(|| info.assume_init())
    };
    info.is_none_or(|info| info.tcpi_unacked > 0)
}

/// Has the kernel call a socket readable from this many bytes on, and make room for as many as
/// its limits allow (tcp(7), SO_RCVLOWAT); the kernel reports in any case that the peer has closed.
pub(crate) fn set_receive_low_water(fd: BorrowedFd<'_>, bytes: usize) {
    const LEN: libc::socklen_t = 4;
    const _: () = assert!(size_of::<libc::c_int>() == LEN as usize);
    let bytes = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let (level, option) = (libc::SOL_SOCKET, libc::SO_RCVLOWAT);
    // SAFETY: the kernel reads one integer, which outlives the call. Without effect the peer's end
    // is seen later.
    unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const bytes).cast(), LEN);
    }
}

/// How often the scheduler has taken the processor from this thread; `None` where the kernel does
/// not count.
pub(crate) fn preemptions() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel writes one `rusage`, for which all bytes are valid.
    let usage = unsafe {
        let told = libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        (told == 0).then(|| usage.assume_init())
    };
    usage.and_then(|usage| u64::try_from(usage.ru_nivcsw).ok())
}

/// The program's memory is not mapped any more.
fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFAULT)
}

/// Does something, such as starting a thread, while this thread takes no signals meant for the
/// process; a thread that is started by it never takes any. The program's handlers may call verbs,
/// and programs that wait for a signal in one thread block it in theirs. Signals that a thread's
/// own instructions raise are still delivered: crash handlers and stack guards work.
pub(crate) fn without_signals<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: both sets are written before they are read, and outlive the calls, which change this
    // thread's mask only. They fail for a wrong first argument alone.
    let before = unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        for own in OWN_SIGNALS {
            libc::sigdelset(&raw mut all, own);
        }
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut before);
        before
    };
    let done = work();
    // SAFETY: as above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    done
}

/// Signals that a thread's own instructions raise.
const OWN_SIGNALS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGABRT];

/// Asks the scheduler to let this thread run soon after it wakes even while another thread
/// computes on the same CPU: by short slices (Linux 6.12 and later; without effect, and without
/// harm, before), and by a higher priority where the process may have one (root, CAP_SYS_NICE or
/// RLIMIT_NICE). Without the priority, some wake-ups wait for the next clock tick.
pub(crate) fn ask_for_prompt_turns() {
    let Ok(nice) = rustix::process::getpriority_process(None) else { return };
    let _refused = set_scheduling(nice - PRIORITY_STEP) || set_scheduling(nice);
}

/// True when the kernel grants it.
fn set_scheduling(nice: i32) -> bool {
    let attributes = SchedAttributes {
        size: SCHED_ATTRIBUTES_LEN,
        nice,
        runtime_ns: SLICE_NS,
        ..SchedAttributes::default()
    };
    // SAFETY: the structure is laid out as the system call wants it (sched_setattr(2)), says its
    // own size, and outlives the call, which only reads it.
    (unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) }) == 0
}

/// How much higher the engine's priority is than the program's: at 10 its weight is about nine
/// times the program's, and it sleeps as soon as there is nothing to serve.
const PRIORITY_STEP: i32 = 10;

/// Bytes of the structure's first version.
const SCHED_ATTRIBUTES_LEN: u32 = 48;
const _: () = assert!(size_of::<SchedAttributes>() == SCHED_ATTRIBUTES_LEN as usize);

/// Nanoseconds of a short slice: the kernel's minimum.
const SLICE_NS: u64 = 100_000;

/// `struct sched_attr`, first version; policy 0 is SCHED_OTHER.
#[repr(C)]
#[derive(Default)]
struct SchedAttributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

/// # Safety
/// Every span must be readable memory until the call returns.
unsafe fn send_spans(fd: BorrowedFd<'_>, spans: &[Span]) -> io::Result<usize> {
    const FLAGS: libc::c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    let sent = if let [one] = spans {
        // SAFETY: the caller vouches for the span.
        unsafe { libc::send(fd.as_raw_fd(), one.ptr.cast(), one.len, FLAGS) }
    } else {
        let mut pieces = [EMPTY; SPANS_MAX + 1];
        let header = message(spans, &mut pieces);
        // SAFETY: `header` points at `pieces`, whose spans the caller vouches for.
        unsafe { libc::sendmsg(fd.as_raw_fd(), &header, FLAGS) }
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// # Safety
/// Every span must be writable memory until the call returns.
unsafe fn receive_spans(fd: BorrowedFd<'_>, spans: &[Span]) -> io::Result<usize> {
    let got = if let [one] = spans {
        // SAFETY: the caller vouches for the span.
        unsafe { libc::recv(fd.as_raw_fd(), one.ptr.cast(), one.len, libc::MSG_DONTWAIT) }
    } else {
        let mut pieces = [EMPTY; SPANS_MAX + 1];
        let mut header = message(spans, &mut pieces);
        // SAFETY: `header` points at `pieces`, whose spans the caller vouches for.
        unsafe { libc::recvmsg(fd.as_raw_fd(), &mut header, libc::MSG_DONTWAIT) }
    };
    usize::try_from(got).map_err(|_| io::Error::last_os_error())
}

const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };

/// A message header over `pieces`, which must outlive it.
fn message(spans: &[Span], pieces: &mut [libc::iovec; SPANS_MAX + 1]) -> libc::msghdr {
    let count = spans.len().min(pieces.len());
    for (piece, span) in pieces.iter_mut().zip(spans) {
        *piece = libc::iovec { iov_base: span.ptr.cast(), iov_len: span.len };
    }
    // SAFETY: all zero bits are a valid message header: no name, no pieces, no control data.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = pieces.as_mut_ptr();
    header.msg_iovlen = count as _;
    header
}
