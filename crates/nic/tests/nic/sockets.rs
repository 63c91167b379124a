//! Packets between a wire and a socket of AF_XDP.

use std::os::fd::AsFd;
use std::time::Duration;

use outboard_nic::{InterfaceEvent, InterfaceWatch, XdpSocket};
use rustix::event::{PollFd, PollFlags, poll};

use super::lab::{BATCH, HERE, Lab, compiled, drain, loaded, send_counted, until};

const REDIRECT: &str = r#"
#include "offcode_bpf.h"
OC_LICENSE("Dual MIT/GPL");
OC_XSKS(4);
OC_COUNTERS(2, "lost\0redirected");
OC_XDP int redirect(struct xdp_md *context) {
    struct oc_flow flow;
    oc_parse(context, &flow);
    if (flow.protocol != 17)
        return XDP_PASS;
    oc_count(1, 1);
    return bpf_redirect_map(&oc_xsks, context->rx_queue_index, XDP_PASS);
}"#;

/// The packet that goes back where one came from.
fn turned(packet: &[u8]) -> Vec<u8> {
    let mut back = packet.to_vec();
    for (to, from, length) in [(0, 6, 6), (6, 0, 6), (26, 30, 4), (30, 26, 4)] {
        back[to..to + length].copy_from_slice(&packet[from..from + length]);
    }
    back[34..36].copy_from_slice(&packet[36..38]);
    back[36..38].copy_from_slice(&packet[34..36]);
    // IPv4's header sums up to the same, and UDP may go without a sum.
    back[40..42].fill(0);
    back
}

#[test]
fn a_body_gives_packets_to_a_socket_which_sends_them_back() {
    let Some(lab) = Lab::new() else { return };
    let wire = lab.wire();
    let mut body = loaded(&compiled(REDIRECT), &[]);
    let mut socket = lab.here(|| XdpSocket::open(&wire, 0).unwrap());
    body.set_socket(0, socket.as_fd()).unwrap();
    let attached = lab.here(|| body.attach(&wire).unwrap());
    let receiver = lab.receiver(7001);
    let sender = lab.socket(7000);
    sender.set_read_timeout(Some(Duration::from_secs(30))).unwrap();

    // Many times as many packets as there are frames: each comes and goes once.
    for batch in 0..60_u64 {
        let numbers = batch * BATCH..(batch + 1) * BATCH;
        let mut next = numbers.clone();
        send_counted(attached.body(), "redirected", BATCH, || {
            sender.send_to(&next.next().unwrap().to_le_bytes(), (HERE, 7001)).unwrap();
        });
        let mut packets = Vec::new();
        while packets.len() < numbers.clone().count() {
            poll(&mut [PollFd::new(&socket, PollFlags::IN)], None).unwrap();
            socket.receive(7, |packet| packets.push(packet.to_vec()));
        }
        for (number, packet) in numbers.clone().zip(&packets) {
            assert_eq!(packet.len(), 14 + 20 + 8 + 8);
            assert_eq!(packet[42..], number.to_le_bytes());
            until("there is room to send", || socket.transmit(&turned(packet)).unwrap());
        }
        for number in numbers {
            let mut back = [0; 64];
            let (length, from) = sender.recv_from(&mut back).unwrap();
            assert_eq!((length, from), (8, (HERE, 7001).into()));
            assert_eq!(back[..8], number.to_le_bytes());
        }
    }
    until("all have gone", || socket.under_way() == 0);
    assert_eq!(drain(&receiver), 0, "nothing passes beside the socket");

    // Without a socket they pass.
    drop(socket);
    sender.send_to(b"passes", (HERE, 7001)).unwrap();
    until("a packet passes", || drain(&receiver) == 1);
}

#[test]
fn a_socket_of_a_removed_interface_says_so() {
    let Some(lab) = Lab::new() else { return };
    let wire = lab.wire();
    let mut socket = lab.here(|| XdpSocket::open(&wire, 0).unwrap());
    let second = lab.here(|| XdpSocket::open(&wire, 0)).err().unwrap();
    assert!(second.to_string().contains("binding a socket of AF_XDP"), "{second}");
    assert!(lab.here(|| XdpSocket::open(&wire, 99)).is_err(), "there is no such queue");
    assert!(socket.transmit(&vec![0; 5000]).is_err(), "too long");
    lab.ip_here(&["link", "del", "wire0"]);
    let mut watch = lab.here(|| InterfaceWatch::new(wire.index).unwrap());
    assert_eq!(watch.poll().unwrap(), Some(InterfaceEvent::Removed));
    until("the socket is dead", || socket.transmit(&[0; 64]).is_err());
    assert_eq!(socket.receive(10, |_| ()), 0);
}
