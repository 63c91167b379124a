//! Devices behind sockets, in threads of their own: nothing is lost, nobody is waited for busily.

use super::*;
use crate::device::{DeviceLimits, WasmCodes, ring_spec};
use crate::devices::{DeviceLink, HostDevice};
use crate::request::*;
use outboard_mem::ring::RingSender;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

/// Longer than anything takes on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn codes() -> WasmCodes {
    WasmCodes::new(None).expect("an engine")
}

fn host(name: &str) -> HostDevice {
    HostDevice::start(name, DeviceLimits::default(), codes()).expect("a device")
}

fn send(link: &mut HostDevice, request: DeviceRequest, fds: &[BorrowedFd<'_>]) {
    link.send(&Numbered { number: 0, request }, fds).expect("sent");
}

/// The next event.
fn event(link: &mut HostDevice) -> DeviceEvent {
    let until = Instant::now() + SOON;
    loop {
        if let Some(event) = link.poll().expect("it lives") {
            return event;
        }
        assert!(Instant::now() < until, "nothing came");
        link.flush().expect("it lives");
        let mut fds = [PollFd::from_borrowed_fd(link.as_fd(), PollFlags::IN)];
        let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
        poll(&mut fds, Some(&limit)).expect("poll");
    }
}

fn begin(link: &mut HostDevice, offcode: u32, kind: &str, count: &str) {
    let id = OffcodeId(offcode);
    let creation = Creation {
        offcode: id,
        name: kind.to_owned(),
        code: BodyCode::Builtin(kind.to_owned()),
        needs: BodyNeeds { memory_bytes: 1 << 20, clock: false, timers: false, watchdog_ms: 0 },
        interfaces: vec![[7; 16]],
        ports: 2,
        imports: Vec::new(),
        attributes: BTreeMap::from([("count".to_owned(), count.to_owned())]),
        from: None,
    };
    for request in [
        DeviceRequest::Create(Box::new(creation)),
        DeviceRequest::Initialize(id),
        DeviceRequest::Start(id),
    ] {
        send(link, request, &[]);
    }
}

fn end(offcode: u32, port: u16) -> EndId {
    EndId { offcode: OffcodeId(offcode), port }
}

fn out(carrier: CarrierKind, depth: u32) -> ConnectedEnd {
    ConnectedEnd {
        channel: ChannelId(1),
        end: end(1, 0),
        other: end(2, 0),
        direction: Direction::Out,
        carrier,
        depth,
        message_max: 64,
        is_reliable: true,
    }
}

fn other_side(it: ConnectedEnd) -> ConnectedEnd {
    ConnectedEnd { end: it.other, other: it.end, direction: Direction::In, ..it }
}

fn numbers(link: &mut HostDevice, offcode: u32) -> (u64, u64) {
    let key = CallKey { caller: OffcodeId::APPLICATION, number: 5 };
    let (target, params) = (OffcodeId(offcode), Vec::new());
    let (interface, method, deadline_ms) = ([7; 16], 0, 0);
    let call = CallMessage { key, target, interface, method, params, deadline_ms };
    send(link, DeviceRequest::Call(call), &[]);
    loop {
        if let DeviceEvent::Answer(_, result) = event(link) {
            return postcard::from_bytes(&result.expect("answered")).expect("two numbers");
        }
    }
}

#[test]
fn more_events_than_a_turn_has_room_for_do_not_stop_a_device() {
    let mut link = host("events");
    begin(&mut link, 1, "source", "20000");
    send(&mut link, DeviceRequest::Connect(out(CarrierKind::Session, DEPTH_MAX)), &[]);
    for number in 0..20_000_u64 {
        match event(&mut link) {
            DeviceEvent::Data(_, _, bytes) => assert_eq!(bytes, number.to_le_bytes()),
            other => panic!("{other:?}"),
        }
    }
}

/// Connects a source on one device with a sink on the other by a ring, and gives its memory.
fn ring(from: &mut HostDevice, to: &mut HostDevice, depth: u32) -> OwnedFd {
    let connection = out(CarrierKind::Ring, depth);
    let spec = ring_spec(&connection).expect("measures");
    let (_, memfd) = RingSender::create(spec, None).expect("a ring");
    let bells = [from, to];
    let [from, to] = bells;
    let bell_of =
        |link: &HostDevice| link.bell().expect("a bell").try_clone_to_owned().expect("a copy");
    let (from_bell, to_bell) = (bell_of(from), bell_of(to));
    let receiving = DeviceRequest::Connect(other_side(connection));
    send(to, receiving, &[memfd.as_fd(), from_bell.as_fd()]);
    send(from, DeviceRequest::Connect(connection), &[memfd.as_fd(), to_bell.as_fd()]);
    memfd
}

#[test]
fn a_ring_loses_no_wake_up() {
    for depth in [1, 2, 16] {
        let (mut left, mut right) = (host("left"), host("right"));
        begin(&mut left, 1, "source", "1000");
        begin(&mut right, 2, "sink", "0");
        let _memory = ring(&mut left, &mut right, depth);
        let until = Instant::now() + SOON;
        loop {
            let (count, wrong) = numbers(&mut right, 2);
            assert_eq!(wrong, 0);
            if count == 1000 {
                break;
            }
            assert!(Instant::now() < until, "depth {depth}: {count}");
            std::thread::yield_now();
        }
    }
}

#[test]
fn whoever_scribbles_into_a_ring_ends_that_channel_only() {
    let (mut left, mut right) = (host("left"), host("right"));
    begin(&mut right, 2, "sink", "0");
    begin(&mut left, 1, "source", "10");
    let memory = std::fs::File::from(ring(&mut left, &mut right, 4));
    // Both are attached when they answer.
    numbers_of_source(&mut left);
    numbers(&mut right, 2);
    let len = memory.metadata().expect("its length").len();
    let garbage: Vec<u8> =
        (0..len).map(|at| u8::try_from(at % 251).expect("small") | 0x41).collect();
    memory.write_all_at(&garbage, 0).expect("written");
    let bell = right.bell().expect("a bell").try_clone_to_owned().expect("a copy");
    let mut rings = 0;
    while rings < 10_000
        && rustix::net::send(&bell, &[1; 64], rustix::net::SendFlags::DONTWAIT).is_ok()
    {
        rings += 1;
    }
    let told = loop {
        match event(&mut right) {
            DeviceEvent::Log(offcode, 1, text) => break (offcode, text),
            _ => continue,
        }
    };
    assert_eq!(told.0, OffcodeId(2));
    assert!(told.1.contains("broke the memory"), "{}", told.1);
    numbers(&mut right, 2);
}

#[test]
fn a_ring_without_its_descriptors_is_refused() {
    let mut link = host("alone");
    begin(&mut link, 1, "source", "10");
    let number = 9;
    let request = DeviceRequest::Connect(out(CarrierKind::Ring, 4));
    let (pipe, _) = std::io::pipe().expect("a pipe");
    let beside: [&[BorrowedFd<'_>]; 3] = [&[], &[pipe.as_fd()], &[pipe.as_fd(), pipe.as_fd()]];
    for fds in beside {
        link.send(&Numbered { number, request: request.clone() }, fds).expect("sent");
        let reply = event(&mut link);
        assert!(matches!(reply, DeviceEvent::Reply(9, Err(DeviceError::Carrier(_)))), "{reply:?}");
    }
}

#[test]
fn a_bell_that_nobody_can_ring_is_not_looked_at() {
    let (ring, bell) = UnixStream::pair().expect("sockets");
    let bell = OwnedFd::from(bell);
    let mut known = Bell(Some(&bell));
    known.quieten();
    assert!(known.0.is_some());
    drop(ring);
    known.quieten();
    assert!(known.0.is_none(), "it would be readable for ever");
}

#[test]
fn messages_for_one_that_does_not_work_yet_keep_a_device_from_nothing() {
    let (mut device, mut other) = (Device::new(DeviceLimits::default(), codes()), host("other"));
    let connection = out(CarrierKind::Ring, 4);
    let spec = ring_spec(&connection).expect("measures");
    let (_, memfd) = RingSender::create(spec, None).expect("a ring");
    let (bell, _kept) = UnixStream::pair().expect("sockets");
    begin(&mut other, 1, "source", "4");
    send(&mut other, DeviceRequest::Connect(connection), &[memfd.as_fd(), bell.as_fd()]);
    let creation = Creation {
        offcode: OffcodeId(2),
        name: "sink".into(),
        code: BodyCode::Builtin("sink".into()),
        needs: BodyNeeds { memory_bytes: 1, clock: false, timers: false, watchdog_ms: 0 },
        interfaces: vec![[7; 16]],
        ports: 1,
        imports: Vec::new(),
        attributes: BTreeMap::new(),
        from: None,
    };
    let ask = |device: &mut Device, request, fds| {
        device.handle(Numbered { number: 1, request }, fds);
        let reply = device.poll_event();
        assert!(matches!(reply, Some(DeviceEvent::Reply(_, Ok(_)))), "{reply:?}");
    };
    ask(&mut device, DeviceRequest::Create(Box::new(creation)), vec![]);
    let fds = vec![memfd, bell.into()];
    ask(&mut device, DeviceRequest::Connect(other_side(connection)), fds);
    // The source has sent when it answers.
    numbers_of_source(&mut other);
    assert!(!device.look_at_rings() && device.prepare_sleep(), "it sleeps");
    ask(&mut device, DeviceRequest::Initialize(OffcodeId(2)), vec![]);
    ask(&mut device, DeviceRequest::Start(OffcodeId(2)), vec![]);
    assert!(device.look_at_rings());
    while device.turn(Instant::now()) {}
    assert!(device.prepare_sleep());
}

fn numbers_of_source(link: &mut HostDevice) {
    let key = CallKey { caller: OffcodeId::APPLICATION, number: 5 };
    let (interface, target, params) = ([7; 16], OffcodeId(1), Vec::new());
    let call = CallMessage { key, target, interface, method: 0, params, deadline_ms: 0 };
    send(link, DeviceRequest::Call(call), &[]);
    assert!(matches!(event(link), DeviceEvent::Answer(_, Ok(_))));
}

#[test]
fn requests_are_not_read_while_nobody_takes_the_replies() {
    let (near, far) = UnixStream::pair().expect("sockets");
    let (_ring, bell) = UnixStream::pair().expect("sockets");
    let mut client = FrameStream::new(near).expect("frames");
    let mut frames = FrameStream::new(far).expect("frames");
    let mut device = Device::new(DeviceLimits::default(), codes());
    let bell = OwnedFd::from(bell);
    let thread =
        std::thread::spawn(move || serve(&mut device, &mut frames, &bell, DeviceWaits::Sleeps));
    let status = PROTOCOL.encode(&Numbered { number: 1, request: DeviceRequest::Status });
    let asked = 40_000_usize;
    for _ in 0..asked {
        client.send(&status, &[]).expect("sent");
    }
    assert!(client.queued() > 0 || asked < 8 * BACKLOG_MAX, "the device would keep all replies");
    let (mut found, until) = (0, Instant::now() + SOON);
    while found < asked {
        assert!(Instant::now() < until, "{found} replies");
        client.flush().expect("it lives");
        while client.receive().expect("it lives").is_some() {
            found += 1;
        }
        let soon = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        wait(&mut [PollFd::new(&client, wanted(&client))], Some(&soon)).expect("poll");
    }
    drop(client);
    assert!(thread.join().expect("no panic").is_ok());
}

#[test]
fn hostile_bytes_end_a_device_and_need_no_memory() {
    // A request of made-up lengths: each is longer than what follows.
    for bytes in [vec![0xff; 40], vec![1, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]] {
        assert!(PROTOCOL.decode::<Numbered>(&bytes).is_err());
        assert!(PROTOCOL.decode::<DeviceEvent>(&bytes).is_err());
        let (near, far) = UnixStream::pair().expect("sockets");
        let mut client = FrameStream::new(near).expect("frames");
        client.send(&bytes, &[]).expect("sent");
        let mut device = Device::new(DeviceLimits::default(), codes());
        let mut frames = FrameStream::new(far).expect("frames");
        assert!(matches!(turn(&mut device, &mut frames), Err(FrameFault::Socket(_))));
    }
}
