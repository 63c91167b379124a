//! Connections within one machine where the system refuses to set TCP's congestion control, as
//! seccomp filters of containers may.
//!
//! The only test of this program: its filter holds for the thread and all that it starts.

mod common;

use common::{at, bytes, pair, pattern};
use outboard_verbs::{Access, OwnedBuf, SendOp, SgList};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use std::net::{TcpListener, TcpStream};

/// Has the kernel answer this error to setsockopt(2) with `TCP_CONGESTION`.
fn refuse_congestion_control(errno: i32) {
    let is = |argument: u8, value: i32| {
        let value = u64::from(value.unsigned_abs());
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
            .expect("a condition")
    };
    let conditions = vec![is(1, libc::IPPROTO_TCP), is(2, libc::TCP_CONGESTION)];
    let rule = SeccompRule::new(conditions).expect("a rule");
    let rules = [(libc::SYS_setsockopt, vec![rule])].into_iter().collect();
    let refused = SeccompAction::Errno(errno.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().expect("an architecture with filters");
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).expect("a filter");
    let program: BpfProgram = filter.try_into().expect("a program");
    apply_filter(&program).expect("every process may refuse itself system calls");
}

#[test]
fn connections_work_where_congestion_control_is_refused() {
    refuse_congestion_control(libc::EPERM);
    let listener = TcpListener::bind(common::ANY).expect("a port");
    let socket = TcpStream::connect(listener.local_addr().expect("one")).expect("connected");
    let refused = socket2::SockRef::from(&socket).set_tcp_congestion(b"reno");
    assert_eq!(refused.expect_err("the filter").raw_os_error(), Some(libc::EPERM));
    let (a, b) = pair();
    let text = pattern(1, 100_000);
    b.receive(1, text.len());
    a.send(2, &text);
    assert_eq!(bytes(b.success()), text);
    assert_eq!(a.success().wr_id, 2);
    let mr = b.register(text.len(), Access::REMOTE_READ | Access::REMOTE_WRITE);
    a.carry_out(SendOp::Write { to: at(&mr, 0) }, SgList::copied(&text));
    let read = a.carry_out(SendOp::Read { from: at(&mr, 0) }, OwnedBuf::zeroed(text.len()));
    assert_eq!(bytes(read), text);
    a.receive(3, 8);
    b.send(4, b"back");
    assert_eq!(bytes(a.success()), b"back");
}
