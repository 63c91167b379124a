//! Packets over a wire: filtered, counted, sampled, exactly.

use std::net::IpAddr;

use outboard_nic::templates::{
    COUNT, CountConfig, FILTER, FilterConfig, FlowRule, FlowVerdict, SAMPLE, SampleConfig,
};
use outboard_nic::{AttachMode, AttachState, BodyStart, BpfBody, LoadedBody, PacketRecord};
use rustix::event::{PollFd, PollFlags, poll};

use super::lab::{HERE, Lab, THERE, drain, loaded, records, send_counted, until};

/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

fn udp_to(port: u16) -> FlowRule {
    FlowRule { protocol: 17, destination_port: port, ..FlowRule::default() }
}

#[test]
fn a_filter_drops_passes_and_sends_what_matches() {
    let Some(lab) = Lab::new() else { return };
    let source = Some(IpAddr::from(THERE).into());
    let rules = vec![
        FlowRule { verdict: FlowVerdict::Drop, capture_bytes: 50, source, ..udp_to(7001) },
        FlowRule { capture_bytes: 2048, ..udp_to(7002) },
    ];
    let config = FilterConfig { rules, ..FilterConfig::default() };
    let body = loaded(FILTER, &config.emit());
    let mut attached = lab.here(|| body.attach(&lab.wire()).unwrap());
    assert_eq!(attached.mode(), AttachMode::Native, "veth has XDP in its driver");
    assert_eq!(attached.status().unwrap(), AttachState::Up);

    let receivers = [7001, 7002, 7003].map(|port| lab.receiver(port));
    let socket = lab.socket(7000);
    let payload = [0x5a; 100];
    for (port, packets) in [(7001, 120), (7002, 30), (7003, 50)] {
        send_counted(attached.body(), "packets", packets, || {
            assert_eq!(socket.send_to(&payload, (HERE, port)).unwrap(), 100);
        });
    }
    let counters = attached.body().counters().unwrap();
    let sums: Vec<(&str, u64)> = counters.iter().map(|c| (c.name.as_str(), c.sum)).collect();
    let bytes = 200 * (HEADERS as u64 + 100);
    let expected = [("lost", 0), ("packets", 200), ("bytes", bytes), ("matched", 150)];
    assert_eq!(sums[..4], expected);
    assert_eq!(sums[4..], [("dropped", 120), ("sent", 150)]);

    let mut got = [0; 3];
    until("what passes is received", || {
        got.iter_mut().zip(&receivers).for_each(|(got, socket)| *got += drain(socket));
        got[1..] == [30, 50]
    });
    assert_eq!(got[0], 0, "what is dropped does not arrive");

    let descriptor = attached.body().descriptor().unwrap();
    assert_eq!(poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], None).unwrap(), 1);
    let records = records(attached.body_mut());
    assert_eq!(records.len(), 150);
    for (number, record) in (0..).zip(&records) {
        let packet = PacketRecord::parse(record).unwrap();
        assert_eq!((packet.number, packet.length as usize), (number, HEADERS + 100));
        let whole = if number < 120 { 50 } else { HEADERS + 100 };
        assert_eq!(packet.bytes.len(), whole);
        assert_eq!(packet.bytes[HEADERS..], payload[..whole - HEADERS]);
    }
}

#[test]
fn counters_tell_protocols_and_ports_apart() {
    let Some(lab) = Lab::new() else { return };
    let config = CountConfig { ports: vec![7001, 7002] };
    let body = loaded(COUNT, &config.emit());
    let attached = lab.here(|| body.attach(&lab.wire()).unwrap());
    let socket = lab.socket(7000);
    let body = attached.body();
    send_counted(body, "udp.packets", 40, || {
        socket.send_to(&[1; 10], (HERE, 7001)).unwrap();
    });
    send_counted(body, "udp.packets", 25, || {
        socket.send_to(&[1; 20], (HERE, 7002)).unwrap();
    });
    // A connection is refused: its SYN is a packet of TCP, twice on a machine that is very busy.
    let refused = lab.there(|| std::net::TcpStream::connect((HERE, 7002)));
    assert!(refused.is_err());
    let sum = |name: &str| body.counter(name).unwrap().unwrap();
    assert_eq!((sum("port_0.packets"), sum("port_0.bytes")), (40, 40 * (HEADERS as u64 + 10)));
    let tcp = sum("tcp.packets");
    assert!((1..5).contains(&tcp), "{tcp} packets of TCP");
    assert_eq!((sum("port_1.packets"), sum("udp.packets")), (25 + tcp, 65));
    assert_eq!((sum("ipv4.packets"), sum("arp.packets"), sum("ipv6.packets")), (65 + tcp, 0, 0));
    assert_eq!((sum("all.packets"), sum("lost")), (65 + tcp, 0));
    assert_eq!(sum("all.bytes"), sum("tcp.bytes") + sum("udp.bytes"));
}

#[test]
fn every_tenth_packet_is_sampled_on_however_many_processors() {
    let Some(lab) = Lab::new() else { return };
    let rule = FlowRule { capture_bytes: 64, ..udp_to(7001) };
    let config = SampleConfig { every: 10, rule }.emit();
    let body = loaded(SAMPLE, &config);
    let attached = lab.here(|| body.attach(&lab.wire()).unwrap());
    let sockets = [lab.socket(7100), lab.socket(7101)];
    let body = attached.body();
    std::thread::scope(|scope| {
        for socket in &sockets {
            scope.spawn(|| {
                for _ in 0..250 {
                    // Both wait for what either has sent: at most a few are under way.
                    let before = body.counter("matched").unwrap().unwrap();
                    socket.send_to(&[7; 30], (HERE, 7001)).unwrap();
                    until("packets arrive", || body.counter("matched").unwrap() > Some(before));
                }
            });
        }
    });
    until("all have arrived", || body.counter("matched").unwrap() == Some(500));
    assert_eq!(body.counter("sent").unwrap(), Some(50));
    let mut body = attached.detach().unwrap();
    let sampled = records(&mut body);
    let mut numbers: Vec<u64> =
        sampled.iter().map(|record| PacketRecord::parse(record).unwrap().number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..50).map(|tenth| 10 * tenth + 9).collect::<Vec<u64>>());

    // Other code goes on where this one was: the state says which packet is the tenth.
    let mut state = body.state().unwrap();
    assert_eq!(state, [500]);
    state[0] += 8;
    let start = BodyStart { configuration: &config, state: &state };
    let next = LoadedBody::load(&BpfBody::parse(SAMPLE).unwrap(), start).unwrap();
    let attached = lab.here(|| next.attach(&lab.wire()).unwrap());
    send_counted(attached.body(), "matched", 2, || {
        sockets[0].send_to(&[7; 30], (HERE, 7001)).unwrap();
    });
    let mut next = attached.detach().unwrap();
    let sampled = records(&mut next);
    assert_eq!(sampled.len(), 1);
    assert_eq!(PacketRecord::parse(&sampled[0]).unwrap().number, 509);
}

#[test]
fn an_interface_whose_driver_has_no_xdp_is_served_behind_it() {
    let Some(lab) = Lab::new() else { return };
    lab.ip_here(&["link", "add", "other0", "type", "bridge"]);
    let body = loaded(COUNT, &[]);
    let mut attached = lab.here(|| {
        let other = outboard_nic::NetInterface::named("other0").unwrap();
        assert_eq!((other.driver.as_str(), other.up), ("bridge", false));
        body.attach(&other).unwrap()
    });
    assert_eq!(attached.mode(), AttachMode::Generic);
    assert_eq!(attached.status().unwrap(), AttachState::Down);
    let body = attached.detach().unwrap();
    assert!(body.descriptor().is_none(), "count sends nothing");
    lab.here(|| {
        let other = outboard_nic::NetInterface::named("other0").unwrap();
        assert_eq!(other.xdp_program, None);
    });
}
