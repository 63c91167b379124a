//! Offcodes that are moved between two devices at random: reliable channels lose, double and
//! reorder nothing; unreliable ones never block, and count what they drop.

use super::*;

/// Two devices, and the runtime's work between them: source, relay, sink.
struct World {
    devices: [Device; 2],
    at: [usize; 4],
    depths: [u32; 2],
    random: u64,
}

impl World {
    fn new(seed: u64, count: &str) -> Self {
        let random = 0x9e37_79b9_7f4a_7c15 ^ (seed << 17);
        let (devices, at) = ([device(), device()], [0; 4]);
        let mut world = Self { devices, at, depths: [1; 2], random };
        world.depths = [1 + world.below(5), 1 + world.below(3)];
        for (offcode, kind) in [(1, "source"), (2, "relay"), (3, "sink")] {
            begin(&mut world.devices[0], creation(offcode, kind, &[("count", count)]));
        }
        (1..=3).for_each(|offcode| world.connect(offcode));
        world
    }

    fn below(&mut self, limit: u32) -> u32 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        u32::try_from(self.random >> 32).unwrap_or(0) % limit
    }

    /// The ends of an offcode, and the other ends of its channels: channel 1 is 1:0 to 2:0, channel
    /// 2 is 2:1 to 3:0.
    fn ends(&self, offcode: u32) -> Vec<ConnectedEnd> {
        let channels = [(1, end(1, 0), end(2, 0)), (2, end(2, 1), end(3, 0))];
        let of = channels.into_iter().filter(|(_, from, to)| {
            from.offcode == OffcodeId(offcode) || to.offcode == OffcodeId(offcode)
        });
        let both = of.flat_map(|(number, from, to)| {
            let place = |end: EndId| self.at[end.offcode.0 as usize];
            let is_here = place(from) == place(to);
            let carrier = if is_here { CarrierKind::Inside } else { CarrierKind::Session };
            let depth = self.depths[number as usize - 1];
            [(from, to, Direction::Out), (to, from, Direction::In)].map(
                |(end, other, direction)| {
                    let own = channel(end, other, direction, depth);
                    ConnectedEnd { channel: ChannelId(number), carrier, ..own }
                },
            )
        });
        both.collect()
    }

    fn connect(&mut self, offcode: u32) {
        for end in self.ends(offcode) {
            let at = self.at[end.end.offcode.0 as usize];
            assert_eq!(
                ask(&mut self.devices[at], DeviceRequest::Connect(end)),
                Ok(DeviceReply::Done)
            );
        }
    }

    /// Passes on everything that is said; true if something was.
    fn pass(&mut self) -> bool {
        let mut any = false;
        for from in 0..2 {
            while let Some(event) = self.devices[from].poll_event() {
                any = true;
                forward(&mut self.devices[1 - from], event);
            }
        }
        any
    }

    fn turn(&mut self) {
        let at = self.below(2) as usize;
        self.devices[at].turn(Instant::now());
    }

    fn move_one(&mut self) {
        let offcode = 1 + self.below(3);
        let from = self.at[offcode as usize];
        for end in self.ends(offcode).into_iter().filter(|end| end.direction == Direction::Out) {
            let at = self.at[end.end.offcode.0 as usize];
            let park = DeviceRequest::Park(end.channel, end.end, end.other);
            assert_eq!(ask(&mut self.devices[at], park), Ok(DeviceReply::Done));
        }
        self.pass();
        let take = DeviceRequest::Take { offcode: OffcodeId(offcode), is_update: false };
        let Ok(DeviceReply::Taken(frozen)) = ask(&mut self.devices[from], take) else {
            panic!("taken")
        };
        self.pass();
        let count = [("count", "400")];
        let kind = ["", "source", "relay", "sink"][offcode as usize];
        let again = Creation { from: Some(*frozen), ..creation(offcode, kind, &count) };
        let to = self.below(2) as usize;
        assert_eq!(
            ask(&mut self.devices[to], DeviceRequest::Create(Box::new(again))),
            Ok(DeviceReply::Done)
        );
        self.at[offcode as usize] = to;
        self.connect(offcode);
        let resume = DeviceRequest::Resume(OffcodeId(offcode));
        assert_eq!(ask(&mut self.devices[to], resume), Ok(DeviceReply::Done));
    }

    /// Until nothing happens any more.
    fn settle(&mut self) {
        loop {
            let mut has_more = false;
            for device in &mut self.devices {
                has_more |= device.turn(Instant::now());
            }
            if !has_more && !self.pass() {
                return;
            }
        }
    }
}

#[test]
fn reliable_channels_lose_nothing_whatever_is_moved() {
    for seed in 0..24 {
        let mut world = World::new(seed, "400");
        for _ in 0..60 {
            match world.below(4) {
                0 => world.move_one(),
                1 => {
                    world.pass();
                }
                _ => world.turn(),
            }
        }
        world.settle();
        let at = world.at[3];
        assert_eq!(numbers(&mut world.devices[at], 3), (400, 0), "seed {seed}");
    }
}

#[test]
fn unreliable_channels_drop_and_count() {
    let mut device = device();
    begin(&mut device, creation(2, "sink", &[]));
    let unreliable = |end: ConnectedEnd| ConnectedEnd { is_reliable: false, ..end };
    let ends = [
        channel(end(1, 0), end(2, 0), Direction::Out, 4),
        channel(end(2, 0), end(1, 0), Direction::In, 4),
    ];
    ask(&mut device, DeviceRequest::Create(Box::new(creation(1, "source", &[("count", "64")]))))
        .expect("created");
    for end in ends {
        assert_eq!(
            ask(&mut device, DeviceRequest::Connect(unreliable(end))),
            Ok(DeviceReply::Done)
        );
    }
    ask(&mut device, DeviceRequest::Initialize(OffcodeId(1))).expect("initialised");
    // All 64 leave in one entry, and the sink is not run meanwhile.
    ask(&mut device, DeviceRequest::Start(OffcodeId(1))).expect("started");
    run(&mut device);
    let counters = device.placed_for_test(OffcodeId(1)).context().counters;
    assert_eq!((counters.sent, counters.dropped), (64, 60));
    assert_eq!(numbers(&mut device, 2).0, 4);
}

#[test]
fn an_end_that_is_connected_twice_meets_the_other() {
    let mut device = device();
    begin(&mut device, creation(2, "sink", &[]));
    begin(&mut device, creation(1, "source", &[("count", "50")]));
    let out = channel(end(1, 0), end(2, 0), Direction::Out, 4);
    ask(&mut device, DeviceRequest::Connect(out)).expect("connected");
    connect(&mut device, end(1, 0), end(2, 0), 4);
    run(&mut device);
    assert_eq!(numbers(&mut device, 2), (50, 0));
    assert!(device.halves.is_empty());
}

#[test]
fn a_sender_goes_on_when_a_full_receiver_is_gone() {
    let mut device = device();
    begin(&mut device, creation(2, "sink", &[]));
    begin(&mut device, creation(1, "source", &[("count", "50")]));
    let mut far = channel(end(1, 0), end(3, 0), Direction::Out, 2);
    (far.channel, far.carrier) = (ChannelId(7), CarrierKind::Session);
    connect(&mut device, end(1, 0), end(2, 0), 64);
    ask(&mut device, DeviceRequest::Connect(far)).expect("connected");
    run(&mut device);
    let before = numbers(&mut device, 2).0;
    assert!(before < 50, "{before}");
    let gone = DeviceRequest::Disconnect(ChannelId(7), end(1, 0), end(3, 0));
    assert_eq!(ask(&mut device, gone), Ok(DeviceReply::Done));
    run(&mut device);
    assert_eq!(numbers(&mut device, 2), (50, 0));
}
