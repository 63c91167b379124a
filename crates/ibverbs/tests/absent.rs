//! A program that asks for an unsupported service also gets a printed message, once.

use outboard_ibverbs::abi::{RDMA_PS_IPOIB, RDMA_PS_UDP};
use outboard_ibverbs::absent::rsocket;
use outboard_ibverbs::cm::id::rdma_create_id;
use std::process::Command;
use std::ptr::null_mut;

const ROLE: &str = "OUTBOARD_TEST_ASKS";

fn ask() {
    for space in [RDMA_PS_UDP, RDMA_PS_IPOIB] {
        let mut id = null_mut();
        // SAFETY: room for a pointer.
        assert_eq!(unsafe { rdma_create_id(null_mut(), &raw mut id, null_mut(), space) }, -1);
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
    }
    assert_eq!(rsocket(0, 0, 0), -1);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
}

#[test]
fn missing_features_are_reported_once() {
    if std::env::var_os(ROLE).is_some() {
        return ask();
    }
    let mut again = Command::new(std::env::current_exe().expect("this program"));
    let output = again.arg("--nocapture").env(ROLE, "1").output().expect("a process");
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("outboard:")).collect();
    let line = |name| {
        format!(
            "outboard: the program asks for {name}; Outboard has reliable connections (RC) only"
        )
    };
    assert_eq!(lines, [line("datagrams (UD)"), line("rsockets")]);
}
