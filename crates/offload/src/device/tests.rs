//! A device by its requests and events.

use super::*;
use crate::request::*;
use std::collections::BTreeMap;

mod bad_bodies;
mod moves;

const COUNTER: InterfaceId = [7; 16];

fn device() -> Device {
    Device::new(DeviceLimits::default(), WasmCodes::new(None).expect("an engine"))
}

impl Device {
    fn placed_for_test(&mut self, offcode: OffcodeId) -> &mut PlacedOffcode {
        self.offcodes.get_mut(&offcode).expect("it is there")
    }
}

fn creation(offcode: u32, kind: &str, attributes: &[(&str, &str)]) -> Creation {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Creation {
        offcode: OffcodeId(offcode),
        name: format!("{kind}-{offcode}"),
        code: BodyCode::Builtin(kind.to_owned()),
        needs: BodyNeeds { memory_bytes: 1 << 20, clock: false, timers: false, watchdog_ms: 0 },
        interfaces: vec![COUNTER],
        ports: 2,
        imports: Vec::new(),
        attributes: attributes.iter().map(own).collect::<BTreeMap<_, _>>(),
        from: None,
    }
}

fn ask(device: &mut Device, request: DeviceRequest) -> Result<DeviceReply, DeviceError> {
    device.handle(Numbered { number: 1, request }, Vec::new());
    let reply = device.events.iter().position(|event| matches!(event, DeviceEvent::Reply(..)));
    match device.events.remove(reply.expect("a reply")).expect("there") {
        DeviceEvent::Reply(_, result) => result,
        other => panic!("{other:?}"),
    }
}

fn run(device: &mut Device) -> Vec<DeviceEvent> {
    while device.turn(Instant::now()) {}
    std::iter::from_fn(|| device.poll_event()).collect()
}

fn begin(device: &mut Device, creation: Creation) {
    let offcode = creation.offcode;
    for request in [
        DeviceRequest::Create(Box::new(creation)),
        DeviceRequest::Initialize(offcode),
        DeviceRequest::Start(offcode),
    ] {
        assert_eq!(ask(device, request), Ok(DeviceReply::Done));
    }
}

fn end(offcode: u32, port: u16) -> EndId {
    EndId { offcode: OffcodeId(offcode), port }
}

fn channel(end: EndId, other: EndId, direction: Direction, depth: u32) -> ConnectedEnd {
    ConnectedEnd {
        channel: ChannelId(1),
        end,
        other,
        direction,
        carrier: CarrierKind::Inside,
        depth,
        message_max: 1024,
        is_reliable: true,
    }
}

fn connect(device: &mut Device, from: EndId, to: EndId, depth: u32) {
    for end in [channel(from, to, Direction::Out, depth), channel(to, from, Direction::In, depth)] {
        assert_eq!(ask(device, DeviceRequest::Connect(end)), Ok(DeviceReply::Done));
    }
}

fn call(target: u32, number: u64) -> DeviceRequest {
    DeviceRequest::Call(CallMessage {
        key: CallKey { caller: OffcodeId::APPLICATION, number },
        target: OffcodeId(target),
        interface: COUNTER,
        method: 0,
        params: Vec::new(),
        deadline_ms: 0,
    })
}

/// What a builtin's method 0 says.
fn numbers(device: &mut Device, target: u32) -> (u64, u64) {
    ask(device, call(target, 9)).expect("asked");
    let answer = run(device).into_iter().find_map(|event| match event {
        DeviceEvent::Answer(_, result) => Some(result.expect("an answer")),
        _ => None,
    });
    postcard::from_bytes(&answer.expect("an answer")).expect("two numbers")
}

#[test]
fn messages_come_in_order_through_a_queue_that_is_too_short() {
    let mut device = device();
    begin(&mut device, creation(2, "sink", &[]));
    begin(&mut device, creation(1, "source", &[("count", "1000")]));
    connect(&mut device, end(1, 0), end(2, 0), 4);
    run(&mut device);
    assert_eq!(numbers(&mut device, 2), (1000, 0));
}

#[test]
fn a_step_out_of_order_is_refused() {
    let mut device = device();
    ask(&mut device, DeviceRequest::Create(Box::new(creation(1, "sink", &[])))).expect("created");
    let found = ask(&mut device, DeviceRequest::Start(OffcodeId(1)));
    let (found_phase, expected) = (OffcodePhase::Created, OffcodePhase::Initialized);
    assert_eq!(found, Err(DeviceError::Phase { found: found_phase, expected }));
    let unknown = ask(&mut device, DeviceRequest::Start(OffcodeId(5)));
    assert_eq!(unknown, Err(DeviceError::NoOffcode(5)));
}

#[test]
fn calls_of_an_offcode_that_is_removed_are_answered() {
    let mut device = device();
    ask(&mut device, DeviceRequest::Create(Box::new(creation(1, "sink", &[])))).expect("created");
    ask(&mut device, call(1, 3)).expect("queued");
    ask(&mut device, DeviceRequest::Remove(OffcodeId(1))).expect("removed");
    let events = run(&mut device);
    assert!(
        matches!(&events[..], [DeviceEvent::Answer(key, Err(CallFailure::Gone(_)))]
        if key.number == 3),
        "{events:?}"
    );
}

#[test]
fn an_offcode_that_is_taken_away_goes_on_elsewhere_without_loss() {
    let (mut here, mut there) = (device(), device());
    begin(&mut here, creation(1, "source", &[("count", "500")]));
    begin(&mut here, creation(2, "relay", &[]));
    begin(&mut here, creation(3, "sink", &[]));
    connect(&mut here, end(1, 0), end(2, 0), 8);
    let mut second = channel(end(2, 1), end(3, 0), Direction::Out, 2);
    second.channel = ChannelId(2);
    let mut third = channel(end(3, 0), end(2, 1), Direction::In, 2);
    third.channel = ChannelId(2);
    ask(&mut here, DeviceRequest::Connect(second)).expect("connected");
    ask(&mut here, DeviceRequest::Connect(third)).expect("connected");
    here.turn(Instant::now());
    ask(&mut here, DeviceRequest::Park(ChannelId(1), end(1, 0), end(2, 0))).expect("parked");
    let taken = ask(&mut here, DeviceRequest::Take { offcode: OffcodeId(2), is_update: false });
    let Ok(DeviceReply::Taken(frozen)) = taken else { panic!("{taken:?}") };
    let again = Creation { from: Some(*frozen), ..creation(2, "relay", &[]) };
    ask(&mut there, DeviceRequest::Create(Box::new(again))).expect("created");
    let session = |end: ConnectedEnd| ConnectedEnd { carrier: CarrierKind::Session, ..end };
    let first = channel(end(1, 0), end(2, 0), Direction::Out, 8);
    ask(&mut here, DeviceRequest::Connect(session(first))).expect("connected");
    let first = channel(end(2, 0), end(1, 0), Direction::In, 8);
    ask(&mut there, DeviceRequest::Connect(session(first))).expect("connected");
    ask(&mut there, DeviceRequest::Connect(session(second))).expect("connected");
    ask(&mut here, DeviceRequest::Connect(session(third))).expect("connected");
    ask(&mut there, DeviceRequest::Resume(OffcodeId(2))).expect("resumed");
    loop {
        let (out, back) = (run(&mut here), run(&mut there));
        if out.is_empty() && back.is_empty() {
            break;
        }
        out.into_iter().for_each(|event| forward(&mut there, event));
        back.into_iter().for_each(|event| forward(&mut here, event));
    }
    assert_eq!(numbers(&mut here, 3), (500, 0));
}

/// As the runtime does.
fn forward(to: &mut Device, event: DeviceEvent) {
    let request = match event {
        DeviceEvent::Data(channel, end, bytes) => DeviceRequest::Data(channel, end, bytes),
        DeviceEvent::Credit(channel, sender, receiver, count) => {
            DeviceRequest::Credit(channel, sender, receiver, count)
        }
        other => panic!("{other:?}"),
    };
    to.handle(Numbered { number: 0, request }, Vec::new());
}

#[test]
fn hostile_requests_change_nothing() {
    let mut device = device();
    begin(&mut device, creation(1, "sink", &[]));
    let data = DeviceRequest::Data(ChannelId(9), end(1, 0), vec![0; 8]);
    ask(&mut device, data).expect("ignored");
    let mut long = channel(end(1, 0), end(2, 0), Direction::In, 8);
    long.depth = DEPTH_MAX + 1;
    assert!(matches!(ask(&mut device, DeviceRequest::Connect(long)), Err(DeviceError::Carrier(_))));
    long.depth = 8;
    long.carrier = CarrierKind::Ring;
    assert!(matches!(ask(&mut device, DeviceRequest::Connect(long)), Err(DeviceError::Carrier(_))));
    let far = channel(end(1, 9), end(2, 0), Direction::In, 8);
    assert_eq!(ask(&mut device, DeviceRequest::Connect(far)), Err(DeviceError::NoPort(1, 9)));
    assert_eq!(numbers(&mut device, 1), (0, 0));
}
