//! Wireshark's dissectors read what we send: every message comes out with its opcode and in
//! order, nothing is malformed, and every CRC is right. Its version 4.0 does not know Immediate
//! Data (RFC 7306 opcodes 8 and 9): it shows the number and nothing else. Its reading of markers
//! has faults of its own; [`relay::one_way`] describes them and the workarounds.
//!
//! Modules: `relay` (records connections without privileges).

#[path = "../common/mod.rs"]
mod common;
mod relay;

use common::{Side, at, connected};
use outboard_testkit::PATIENCE;
use outboard_verbs::{
    Access, ConnectParams, FpduPolicy, OwnedBuf, Remote, SendOp, SendRequest, SgList, Stag, Status,
};
use relay::{CLIENT_PORT, Relay, Way, one_way, write_pcap};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

/// RDMAP opcodes.
const WRITE: u8 = 0;
const READ_REQUEST: u8 = 1;
const READ_RESPONSE: u8 = 2;
const SEND: u8 = 3;
const TERMINATE: u8 = 7;
const IMMEDIATE: u8 = 8;
const ATOMIC_REQUEST: u8 = 10;
const ATOMIC_RESPONSE: u8 = 11;

/// ULPDU length of a Write of nothing.
const EMPTY_WRITE: &str = "14";

/// How a connection is set up.
#[derive(Clone, Copy, Debug)]
struct Settings {
    crc: bool,
    /// Asked for by the client, by the server.
    markers: [bool; 2],
    fpdu: FpduPolicy,
}

/// What passed, and the opcodes of the messages of each direction in order.
struct Conversation {
    record: Vec<(Way, Vec<u8>)>,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

/// Everything once from the client, some of it from the server, a Terminate at the end; before
/// it all `empty_writes` from either side.
fn converse(settings: Settings, empty_writes: usize) -> Conversation {
    let Settings { crc, markers, fpdu } = settings;
    let (client, server) = (Side::new(), Side::new());
    let listener = server.listen();
    let relay = Relay::before(listener.local_addr());
    let events = client.context.create_cm_channel().expect("a channel");
    let params = |markers| ConnectParams { crc, markers, fpdu, ..ConnectParams::default() };
    client.qp.start_connect(relay.address, &params(markers[0]), &events).expect("an attempt");
    let request = listener.next_request(Some(PATIENCE)).expect("a request");
    request.accept(&server.qp, &params(markers[1])).expect("accepted");
    connected(&events);

    for from in [&client, &server] {
        let to = Remote { stag: Stag(0), offset: 0 };
        (0..empty_writes).for_each(|_| drop(from.carry_out(SendOp::Write { to }, SgList::new())));
    }
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    to_server.extend(sends(&client, &server));
    to_server.extend(writes(&client, &server));
    let (asked, answered) = answered_operations(&client, &server);
    to_server.extend(asked);
    to_client.extend(answered);
    to_client.extend(sends(&server, &client));
    to_client.extend(writes(&server, &client));

    let unknown = client.register(8, Access::REMOTE_READ);
    client.post(1, SendOp::Read { from: at(&unknown, 0) }, OwnedBuf::zeroed(8));
    assert_eq!(client.take(1)[0].status, Status::RemoteAccess);
    to_server.push(READ_REQUEST);
    to_client.push(TERMINATE);
    drop((client, server));
    Conversation { record: relay.finish(), to_server, to_client }
}

fn sends(from: &Side, to: &Side) -> Vec<u8> {
    let mut opcodes = Vec::new();
    for (opcode, invalidate, solicited) in
        [(SEND, false, false), (4, true, false), (5, false, true), (6, true, true)]
    {
        for len in [0, 1, 700, 5000] {
            let victim = to.register(8, Access::REMOTE_INVALIDATE);
            to.receive(1, len);
            let op = SendOp::Send { invalidate: invalidate.then(|| victim.stag()) };
            let local = SgList::copied(&common::pattern(len, len));
            let request = SendRequest { solicited, ..SendRequest::new(1, op, local) };
            from.qp.post_send(request).expect("room");
            from.success();
            to.success();
            opcodes.push(opcode);
        }
    }
    opcodes
}

fn writes(from: &Side, to: &Side) -> Vec<u8> {
    let target = to.register(40_000, Access::REMOTE_WRITE);
    let data = || SgList::copied(&common::pattern(9, 33_333));
    from.carry_out(SendOp::Write { to: at(&target, 5) }, data());
    to.receive(1, 0);
    let op = SendOp::WriteWithImm { to: at(&target, 5), immediate: 7 };
    from.carry_out(op, data());
    to.success();
    for solicited in [false, true] {
        to.receive(1, 0);
        let op = SendOp::Immediate { immediate: 7 };
        let request = SendRequest { solicited, ..SendRequest::new(1, op, SgList::new()) };
        from.qp.post_send(request).expect("room");
        from.success();
        to.success();
    }
    vec![WRITE, WRITE, IMMEDIATE, IMMEDIATE, IMMEDIATE + 1]
}

fn answered_operations(from: &Side, to: &Side) -> (Vec<u8>, Vec<u8>) {
    let mr = to.register(40_000, Access::REMOTE);
    for len in [0, 1, 33_333] {
        from.carry_out(SendOp::Read { from: at(&mr, 3) }, OwnedBuf::zeroed(len));
    }
    let add = SendOp::FetchAdd { at: at(&mr, 8), add: 1, mask: 0 };
    let all = u64::MAX;
    let swap = SendOp::CompareSwap {
        at: at(&mr, 8),
        swap: 5,
        swap_mask: all,
        compare: 1,
        compare_mask: all,
    };
    from.carry_out(add, OwnedBuf::zeroed(8));
    from.carry_out(swap, OwnedBuf::zeroed(8));
    let (read, atomic) = ([READ_REQUEST; 3], [ATOMIC_REQUEST; 2]);
    let answers = ([READ_RESPONSE; 3], [ATOMIC_RESPONSE; 2]);
    ([&read[..], &atomic].concat(), [&answers.0[..], &answers.1].concat())
}

/// A capture file, removed with the test.
struct Capture(PathBuf);

impl Capture {
    fn new(record: &[(Way, Vec<u8>)]) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = directory.join(format!("{}-{number}.pcap", std::process::id()));
        write_pcap(&path, record);
        Self(path)
    }

    fn tshark(&self, arguments: &[&str]) -> String {
        let mut tshark = Command::new("tshark");
        tshark.arg("-r").arg(&self.0);
        // Both guess at what Sends carry, and call it malformed when they guess wrong.
        for guess in ["rpcordma", "smb_direct"] {
            tshark.args(["--disable-protocol", guess]);
        }
        let output = tshark.args(arguments).output().expect("tshark is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Opcodes of the last segments, that is of the messages, of each direction. Writes of nothing
    /// are left out: they open connections and nudge slow peers, and come when they must.
    fn messages(&self) -> (Vec<u8>, Vec<u8>) {
        let fields =
            ["tcp.srcport", "iwarp_rdma.opcode", "iwarp_ddp.last_flag", "iwarp_mpa.ulpdulength"];
        let mut arguments = vec!["-T", "fields", "-Y", "iwarp_rdma"];
        fields.iter().for_each(|field| arguments.extend(["-e", field]));
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        for line in self.tshark(&arguments).lines() {
            let columns: Vec<Vec<&str>> =
                line.split('\t').map(|column| column.split(',').collect()).collect();
            let [port, opcodes, lasts, lengths] = &columns[..] else { panic!("{line}") };
            let client = port[0] == CLIENT_PORT.to_string();
            let messages = if client { &mut to_server } else { &mut to_client };
            for ((opcode, last), length) in opcodes.iter().zip(lasts).zip(lengths) {
                let opcode = opcode.trim_start_matches("0x");
                let opcode = u8::from_str_radix(opcode, 16).expect("an opcode");
                let nothing = opcode == WRITE && *length == EMPTY_WRITE;
                if matches!(*last, "1" | "True") && !nothing {
                    messages.push(opcode);
                }
            }
        }
        (to_server, to_client)
    }

    /// Lines of the full text that complain, as one text.
    fn complaints(&self) -> String {
        let text = self.tshark(&["-V"]);
        let bad = |line: &&str| {
            ["Malformed", "Bad CRC", "ncorrect"].iter().any(|word| line.contains(word))
        };
        text.lines().filter(bad).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // A file that is left behind does no harm.
        let _removed = std::fs::remove_file(&self.0);
    }
}

fn check(settings: Settings) {
    let conversation = converse(settings, 0);
    let capture = Capture::new(&conversation.record);
    assert_eq!(capture.complaints(), "", "{settings:?}");
    let (to_server, to_client) = capture.messages();
    assert_eq!(to_server, conversation.to_server, "{settings:?}, to the server");
    assert_eq!(to_client, conversation.to_client, "{settings:?}, to the client");
}

/// Markers go to the side that asked for them.
fn check_each_way(settings: Settings) {
    let [client_asks, server_asks] = settings.markers;
    for (way, markers) in [(Way::ToServer, server_asks), (Way::ToClient, client_asks)] {
        // Empty Writes in front move the markers about until Wireshark can read the stream.
        let readable = (0..100).find_map(|shift| {
            let conversation = converse(settings, shift);
            Some((one_way(&conversation.record, way, markers)?, conversation))
        });
        let (pieces, conversation) = readable.expect("a stream without such an FPDU");
        let capture = Capture::new(&pieces);
        assert_eq!(capture.complaints(), "", "{settings:?} {way:?}");
        let (to_server, to_client) = capture.messages();
        let expected = match way {
            Way::ToServer => conversation.to_server,
            Way::ToClient => conversation.to_client,
        };
        assert_eq!([to_server, to_client].concat(), expected, "{settings:?} {way:?}");
    }
}

#[test]
fn every_opcode_with_and_without_crcs_in_fpdus_of_several_sizes() {
    for fpdu in [FpduPolicy::Auto, FpduPolicy::Max(128), FpduPolicy::Max(1460)] {
        for crc in [true, false] {
            check(Settings { crc, markers: [false; 2], fpdu });
        }
    }
}

#[test]
fn every_opcode_with_markers_each_way() {
    for markers in [[true, false], [false, true], [true, true]] {
        for crc in [true, false] {
            for fpdu in [FpduPolicy::Auto, FpduPolicy::Max(1460)] {
                check_each_way(Settings { crc, markers, fpdu });
            }
        }
    }
}

#[test]
fn a_terminate_is_read_with_its_reason() {
    let settings = Settings { crc: true, markers: [false; 2], fpdu: FpduPolicy::Auto };
    let capture = Capture::new(&converse(settings, 0).record);
    let text = capture.tshark(&["-O", "iwarp_ddp_rdmap", "-Y", "iwarp_rdma.terminate"]);
    for words in ["Remote Protection Error", "Invalid STag", "Terminated RDMA Header"] {
        assert!(text.contains(words), "no \"{words}\" in:\n{text}");
    }
}

/// The other tests can fail: one byte that is not what we sent shows.
#[test]
fn a_changed_byte_would_be_seen() {
    let settings = Settings { crc: true, markers: [false; 2], fpdu: FpduPolicy::Auto };
    let mut record = converse(settings, 0).record;
    let long = record.iter_mut().find(|(_, bytes)| bytes.len() > 600).expect("a long segment");
    long.1[300] ^= 1;
    let complaints = Capture::new(&record).complaints();
    assert!(!complaints.is_empty(), "tshark did not see the changed byte");
}
