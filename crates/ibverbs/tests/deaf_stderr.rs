//! A stderr that cannot be written to must not disturb the program.

use outboard_ibverbs::device::{ibv_free_device_list, ibv_get_device_list};
use std::fs::File;
use std::process::{Command, Stdio};

const SAYS_NOTHING: &str = "OUTBOARD_TEST_DEAF";

/// The program: what it sets in the environment is worth several messages.
#[test]
fn program() {
    if std::env::var_os(SAYS_NOTHING).is_none() {
        return;
    }
    let mut count = 0;
    // SAFETY: the list is freed once.
    unsafe { ibv_free_device_list(ibv_get_device_list(&raw mut count)) };
    assert_eq!(count, 1);
}

#[test]
fn messages_that_cannot_be_printed_change_nothing() {
    let full = File::options().write(true).open("/dev/full").expect("every Linux has it");
    let mut program = Command::new(std::env::current_exe().expect("this one"));
    program.args(["--exact", "program", "--nocapture"]).stdout(Stdio::null()).stderr(full);
    program.env(SAYS_NOTHING, "1").env("OUTBOARD_CRC", "perhaps");
    program.env("OUTBOARD_DEVICES", "127.0.0.1,nowhere");
    let status = program.status().expect("it starts");
    assert!(status.success(), "{status}");
}
