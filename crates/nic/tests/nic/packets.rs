//! Packets that are put together here and tried on bodies, without any interface.

use outboard_nic::templates::{COUNT, FILTER, FilterConfig, FlowPrefix, FlowRule, FlowVerdict};
use outboard_nic::{AttachMode, LoadedBody, NicError, PacketRecord, PacketVerdict};

use super::lab::{Lab, compiled, loaded, records, send_counted};

/// An Ethernet header, with so many VLAN tags.
fn ethernet(kind: u16, tags: usize) -> Vec<u8> {
    let mut packet = vec![2; 12];
    for _ in 0..tags {
        packet.extend([0x81, 0, 0, 7]);
    }
    packet.extend(kind.to_be_bytes());
    packet
}

/// An IPv4 packet of UDP, with so many words of options and that fragment's offset.
fn ipv4(tags: usize, options: u8, fragment: u16, port: u16) -> Vec<u8> {
    let mut packet = ethernet(0x0800, tags);
    packet.extend([0x45 + options, 0, 0, 0, 0, 1]);
    packet.extend(fragment.to_be_bytes());
    packet.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend(vec![1; 4 * usize::from(options)]);
    packet.extend([1000_u16, port, 8, 0].iter().flat_map(|word| word.to_be_bytes()));
    packet
}

fn ipv6(protocol: u8, port: u16) -> Vec<u8> {
    let mut packet = ethernet(0x86dd, 0);
    packet.extend([0x60, 0, 0, 0, 0, 8, protocol, 64]);
    packet.extend([0xfd; 16]);
    packet.extend([0xfe; 16]);
    packet.extend([1000_u16, port, 8, 0].iter().flat_map(|word| word.to_be_bytes()));
    packet
}

fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        println!("skipped: programs in the kernel need root");
    }
    root
}

#[test]
fn headers_are_read_where_they_are() {
    if !is_root() {
        return;
    }
    let rule = FlowRule { destination_port: 53, verdict: FlowVerdict::Drop, ..FlowRule::default() };
    let config = FilterConfig { rules: vec![rule], ..FilterConfig::default() };
    let body = loaded(FILTER, &config.emit());
    let tried = |packet: Vec<u8>| body.try_packet(&packet).unwrap();
    for tags in 0..3 {
        assert_eq!(tried(ipv4(tags, 0, 0, 53)), PacketVerdict::Drop, "{tags} tags");
        assert_eq!(tried(ipv4(tags, 0, 0, 54)), PacketVerdict::Pass, "{tags} tags");
    }
    assert_eq!(tried(ipv4(3, 0, 0, 53)), PacketVerdict::Pass, "more tags than are read");
    assert_eq!(tried(ipv4(0, 10, 0, 53)), PacketVerdict::Drop, "options");
    assert_eq!(tried(ipv4(0, 0, 0x2000, 53)), PacketVerdict::Drop, "a first fragment has ports");
    assert_eq!(tried(ipv4(0, 0, 100, 53)), PacketVerdict::Pass, "a later one has none");
    assert_eq!(tried(ipv6(17, 53)), PacketVerdict::Drop);
    assert_eq!(tried(ipv6(44, 53)), PacketVerdict::Pass, "a header in between");
    let whole = ipv4(0, 0, 0, 53);
    for length in 14..whole.len() {
        let expected = if length < 38 { PacketVerdict::Pass } else { PacketVerdict::Drop };
        assert_eq!(tried(whole[..length].to_vec()), expected, "cut to {length} bytes");
    }
}

#[test]
fn addresses_match_by_prefix_and_the_rest_by_default() {
    if !is_root() {
        return;
    }
    let to = |text: &str, bits| FlowRule {
        destination: Some(FlowPrefix { address: text.parse().unwrap(), bits }),
        ..FlowRule::default()
    };
    let rules = vec![to("10.0.0.0", 30), to("fefe::", 15)];
    let config = FilterConfig { rules, otherwise: FlowVerdict::Drop };
    let body = loaded(FILTER, &config.emit());
    let tried = |packet: &[u8]| body.try_packet(packet).unwrap();
    assert_eq!(tried(&ipv4(0, 0, 0, 1)), PacketVerdict::Pass);
    assert_eq!(tried(&ipv6(6, 1)), PacketVerdict::Pass);
    let mut other = ipv4(0, 0, 0, 1);
    other[33] = 4;
    assert_eq!(tried(&other), PacketVerdict::Drop, "10.0.0.4 is not in 10.0.0.0/30");
    let mut other = ipv6(6, 1);
    other[14 + 24 + 1] ^= 2;
    assert_eq!(tried(&other), PacketVerdict::Drop);
    let arp = [ethernet(0x0806, 0), vec![0; 28]].concat();
    assert_eq!(tried(&arp), PacketVerdict::Pass, "what is no IP passes");
    assert_eq!(body.counter("matched").unwrap(), Some(2));
}

#[test]
fn what_a_full_ring_loses_is_counted() {
    if !is_root() {
        return;
    }
    let rules = vec![FlowRule { capture_bytes: 4000, ..FlowRule::default() }];
    let config = FilterConfig { rules, ..FilterConfig::default() };
    let mut body = loaded(FILTER, &config.emit());
    let mut packet = ipv4(0, 0, 0, 1);
    packet.resize(2500, 9);
    for _ in 0..1000 {
        assert_eq!(body.try_packet(&packet).unwrap(), PacketVerdict::Pass);
    }
    let sum = |body: &LoadedBody, name| body.counter(name).unwrap().unwrap();
    let received = records(&mut body);
    assert!(received.len() > 400, "a ring of 1 MiB holds more than {}", received.len());
    assert!(received.len() < 1000);
    assert_eq!(sum(&body, "sent"), received.len() as u64);
    assert_eq!(sum(&body, "lost") + sum(&body, "sent"), 1000);
    for (number, record) in (0..).zip(&received) {
        let record = PacketRecord::parse(record).unwrap();
        let expected = (number, 2500, 2048);
        assert_eq!((record.number, record.length, record.bytes.len()), expected);
    }
    // There is room again.
    body.try_packet(&packet).unwrap();
    assert_eq!(records(&mut body).len(), 1);
}

#[test]
fn a_record_that_is_too_long_is_left_out() {
    const SOURCE: &str = r#"
        #include "offcode_bpf.h"
        OC_LICENSE("GPL");
        OC_OUT(1 << 16);
        OC_COUNTERS(1, "lost");
        struct { __uint(type, OC_MAP_ARRAY); __uint(max_entries, 1); __type(key, __u32);
                 __type(value, __u8[8192]); } long_one SEC(".maps");
        OC_XDP int body(struct xdp_md *context) {
            __u32 zero = 0;
            __u8 *bytes = bpf_map_lookup_elem(&long_one, &zero);
            if (bytes) { oc_send(bytes, 4096); oc_send(bytes, 4097); oc_send(bytes, 0); }
            return XDP_TX;
        }"#;
    if !is_root() {
        return;
    }
    let mut body = loaded(&compiled(SOURCE), &[]);
    assert_eq!(body.try_packet(&[0; 64]).unwrap(), PacketVerdict::Transmit);
    let lengths: Vec<usize> = records(&mut body).iter().map(Vec::len).collect();
    assert_eq!((lengths, body.oversized()), (vec![4096, 0], 1));
}

#[test]
fn a_classifier_runs_in_traffic_control() {
    const SOURCE: &str = r#"
        #include "offcode_bpf.h"
        OC_LICENSE("GPL");
        OC_COUNTERS(2, "lost\0seen");
        OC_CLASSIFIER int body(void *context) { oc_count(1, 1); return -1; }"#;
    let Some(lab) = Lab::new() else { return };
    let body = loaded(&compiled(SOURCE), &[]);
    assert_eq!(body.try_packet(&[0; 64]).unwrap(), PacketVerdict::Pass);
    // It does not stand in the way of XDP, nor of another of its kind.
    let xdp = lab.here(|| loaded(COUNT, &[]).attach(&lab.wire()).unwrap());
    let another = loaded(&compiled(SOURCE), &[]);
    let another = match lab.here(|| another.attach(&lab.wire())) {
        Err(NicError::Unsupported { since, .. }) => {
            println!("skipped: traffic control holds programs by links since Linux {since}");
            return;
        }
        attached => attached.unwrap(),
    };
    let attached = lab.here(|| body.attach(&lab.wire()).unwrap());
    assert_eq!(attached.mode(), AttachMode::TrafficControl);
    let socket = lab.socket(7000);
    send_counted(attached.body(), "seen", 20, || {
        socket.send_to(&[1; 10], (super::lab::HERE, 7001)).unwrap();
    });
    assert_eq!(another.body().counter("seen").unwrap(), Some(20));
    assert_eq!(xdp.body().counter("udp.packets").unwrap(), Some(20));
    let body = attached.detach().unwrap();
    send_counted(another.body(), "seen", 5, || {
        socket.send_to(&[1; 10], (super::lab::HERE, 7001)).unwrap();
    });
    assert_eq!(body.counter("seen").unwrap(), Some(21), "it sees no more");
}
