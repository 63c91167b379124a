//! Devices and offcodes that die.

use super::support::*;
use outboard_offload::device::PortSend;
use outboard_offload::devices::{DeviceLink, DeviceLost};
use outboard_offload::request::{CallFailure, DeviceEvent, Numbered};
use outboard_offload::runtime::{
    Runtime, RuntimeError, RuntimeEvent, RuntimeOptions, WhenDeviceLost,
};
use outboard_testkit::PATIENCE;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn is_lost(event: &RuntimeEvent, wanted: &str) -> bool {
    matches!(event, RuntimeEvent::DeviceLost { device, .. } if device == wanted)
}

#[test]
fn what_was_on_a_lost_device_is_gone_with_all_below() {
    let (first, second) = (TestDevice::start("d0"), TestDevice::start("d1"));
    let fuel = second.fuel();
    let mut child = offcode("child", "echo", 0);
    child.parent = Some("top".to_owned());
    let mut caller = offcode("caller", "caller", 0);
    caller.imports = vec![(FACE, Some("top".to_owned()))];
    let offcodes = vec![offcode("top", "probe", 1), child, caller];
    let channels =
        vec![channel(at("top", 1), own("end"), 4), channel(own("in"), at("caller", 0), 4)];
    let running = start(plan(offcodes, channels), vec![Box::new(first), Box::new(second)]);
    let (end, near) = (running.end("end").expect("new"), running.end("in").expect("new"));
    let top = running.offcode("top").expect("there");
    assert_eq!(near.send(b"call"), PortSend::Taken);
    let mut calls = running.begin_calls(&[top], FACE, 0, b"", None);
    fuel.store(0, Ordering::SeqCst);
    event(&running, |event| is_lost(event, "d1"));
    let (why, _) = ended(&running, "child");
    assert!(why.contains("`top` above it is gone: device `d1` is lost"), "{why}");
    let (why, with) = ended(&running, "top");
    assert!(why.contains("its fuel is used up"), "{why}");
    assert_eq!(with, ["child"]);
    let answer = calls.next().expect("every call is answered").1;
    assert!(matches!(answer, Err(CallFailure::Gone(_))), "{answer:?}");
    assert!(String::from_utf8(told(&running)).expect("words").contains("gone"));
    assert_eq!(end.receive_within(PATIENCE), None);
    assert!(!end.is_connected());
    let left = running.snapshot().expect("it runs").offcodes;
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn who_may_go_elsewhere_begins_anew_there() {
    let (first, second) = (TestDevice::start("d0"), TestDevice::start("d1"));
    let fuel = second.fuel();
    let mut count = offcode("count", "counter", 1);
    count.when_lost = WhenDeviceLost::Move(vec![1, 0]);
    let channels = vec![channel(own("in"), at("count", 0), 4)];
    let running = start(plan(vec![count], channels), vec![Box::new(first), Box::new(second)]);
    let end = running.end("in").expect("new");
    assert_eq!(end.send(b"abc"), PortSend::Taken);
    until(&running, "count", 1);
    fuel.store(0, Ordering::SeqCst);
    let moved = event(&running, |event| matches!(event, RuntimeEvent::Moved { .. }));
    assert_eq!(moved, RuntimeEvent::Moved { name: "count".into(), device: "d0".into() });
    for _ in 0..9 {
        assert_eq!(end.send_within(b"abcd", PATIENCE), PortSend::Taken);
    }
    assert_eq!(until(&running, "count", 9), (9, 36));
}

#[test]
fn a_device_may_die_at_any_step() {
    let mut started = 0;
    for fuel in (0..20).chain([i64::MAX]) {
        let (first, second) = (TestDevice::start("d0"), TestDevice::start("d1"));
        let offcodes = vec![
            offcode("source", "source", 0),
            offcode("relay", "relay", 1),
            offcode("sink", "sink", 0),
        ];
        let channels = vec![
            channel(at("source", 0), at("relay", 0), 2),
            channel(at("relay", 1), at("sink", 0), 2),
        ];
        let second = second.with_fuel(fuel);
        let fuel = second.fuel();
        let devices: Vec<Box<dyn DeviceLink>> = vec![Box::new(first), Box::new(second)];
        match try_start(plan(offcodes, channels), devices) {
            Ok(running) => {
                started += 1;
                for at in [0, 1, 0, 1] {
                    // It stays, moves, or is gone; nothing hangs.
                    let _whatever = running.move_offcode("relay", at);
                    let _whatever = running.move_offcode("sink", 1 - at);
                }
                fuel.store(0, Ordering::SeqCst);
                event(&running, |event| is_lost(event, "d1"));
                assert!(running.snapshot().is_ok());
            }
            // It had replied to all, and was lost before the others had.
            Err(RuntimeError::Gone { offcode, why }) => {
                assert_eq!(offcode, "relay");
                assert!(why.contains("device `d1` is lost"), "{why}");
            }
            Err(RuntimeError::Lost { offcode, device, .. }) => {
                assert_eq!((offcode.as_str(), device.as_str()), ("relay", "d1"));
            }
            Err(other) => panic!("{other}"),
        }
    }
    assert!(started > 0, "it starts with enough fuel");
}

#[test]
fn an_offcode_that_fails_is_said_to_be_gone() {
    let probe = with(offcode("probe", "probe", 0), &[("fails", "message")]);
    let channels = vec![channel(own("in"), at("probe", 0), 4)];
    let running = start(plan(vec![probe], channels), devices(1, true));
    let end = running.end("in").expect("new");
    assert_eq!(end.send(b"x"), PortSend::Taken);
    let (why, _) = ended(&running, "probe");
    assert!(why.contains("told to fail in message"), "{why}");
    assert!(!end.is_connected());
    assert_eq!(end.send(b"x"), PortSend::NotConnected);
}

/// A device that takes everything and says nothing.
#[derive(Debug)]
struct Silent {
    near: UnixStream,
    _far: UnixStream,
}

impl DeviceLink for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn send(&mut self, _: &Numbered, _: &[BorrowedFd<'_>]) -> Result<(), DeviceLost> {
        Ok(())
    }

    fn poll(&mut self) -> Result<Option<DeviceEvent>, DeviceLost> {
        Ok(None)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.near.as_fd()
    }

    fn wants_write(&self) -> bool {
        false
    }

    fn flush(&mut self) -> Result<(), DeviceLost> {
        Ok(())
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn a_device_that_says_nothing_is_lost() {
    let silent = || {
        let (near, far) = UnixStream::pair().expect("a socket");
        Box::new(Silent { near, _far: far })
    };
    let options = RuntimeOptions {
        heartbeat: Duration::from_millis(10),
        silence: Duration::from_millis(50),
        reply_limit: Duration::from_millis(100),
    };
    let running = Runtime::start(plan(vec![], vec![]), vec![silent()], options).expect("empty");
    event(&running, |event| is_lost(event, "silent"));
    // With work given to it, it has as long as a reply may take.
    let busy = plan(vec![offcode("a", "echo", 0)], vec![]);
    match Runtime::start(busy, vec![silent()], options) {
        Err(RuntimeError::Lost { device, why, .. }) => {
            assert_eq!(device, "silent");
            assert!(why.contains("did not reply within 100ms"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}
