//! Applications that begin and end again and again leave nothing: no descriptors, no threads.
//!
//! A process of its own, so that no other test's descriptors are counted.

use outboard_offload::device::{DeviceLimits, WasmCodes};
use outboard_offload::devices::{DeviceLink, HostDevice};
use outboard_offload::runtime::{
    PlannedChannel, PlannedEnd, PlannedOffcode, Runtime, RuntimeOptions, RuntimePlan,
};
use std::time::{Duration, Instant};

fn entries(directory: &str) -> usize {
    std::fs::read_dir(directory).expect("this process").count()
}

fn device(name: &str) -> Box<dyn DeviceLink> {
    let codes = WasmCodes::new(None).expect("an engine");
    Box::new(HostDevice::start(name, DeviceLimits::default(), codes).expect("a thread"))
}

fn application() -> RuntimePlan {
    let offcode = |name: &str, body: &str, device| PlannedOffcode {
        ports: 2,
        ..PlannedOffcode::builtin(name, body, device)
    };
    let channel = PlannedChannel {
        from: PlannedEnd::Offcode("source".to_owned(), 0),
        to: vec![PlannedEnd::Offcode("relay".to_owned(), 0)],
        is_reliable: true,
        depth: 4,
        message_max: 64,
    };
    RuntimePlan {
        name: "cycles".to_owned(),
        offcodes: vec![offcode("source", "source", 0), offcode("relay", "relay", 1)],
        channels: vec![channel],
    }
}

/// Waits until no more are there than that: devices' threads end by themselves.
fn settles(directory: &str, limit: usize) {
    let until = Instant::now() + Duration::from_secs(60);
    while entries(directory) > limit {
        assert!(Instant::now() < until, "{} in {directory}, not {limit}", entries(directory));
        std::thread::yield_now();
    }
}

#[test]
fn a_hundred_beginnings_leave_nothing() {
    let minute = Duration::from_secs(60);
    let options =
        RuntimeOptions { silence: minute, reply_limit: minute, ..RuntimeOptions::default() };
    let cycle = || {
        let devices = vec![device("a"), device("b")];
        drop(Runtime::start(application(), devices, options).expect("it starts"));
    };
    cycle();
    let (fds, threads) = ("/proc/self/fd", "/proc/self/task");
    settles(threads, 2);
    let (open, running) = (entries(fds), entries(threads));
    (0..20).for_each(|_| cycle());
    settles(threads, running);
    settles(fds, open);
    let none = RuntimePlan::default();
    let kept = Runtime::start(none, vec![device("a"), device("b")], options).expect("it starts");
    let cycle = || {
        kept.create(application()).expect("it starts");
        kept.remove("source").expect("it is there");
        kept.remove("relay").expect("it is there");
    };
    cycle();
    let open = entries(fds);
    (0..200).for_each(|_| cycle());
    settles(fds, open);
    assert!(kept.snapshot().expect("it runs").channels.is_empty());
}
