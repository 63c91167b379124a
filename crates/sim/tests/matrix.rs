//! Every operation under every framing: CRCs, markers each way, ULPDU sizes, and TCP cutting its
//! stream anywhere. One combination in six, or all with `OUTBOARD_FULL` set.

use outboard_iwarp::work::{Remote, SendOp, SendRequest};
use outboard_mem::{Access, SgList};
use outboard_sim::{Chunks, End, Mr, Pair, Setup};

const CHUNKS: [Chunks; 7] = [
    Chunks::Every(1),
    Chunks::Every(3),
    Chunks::Every(19),
    Chunks::Every(512),
    Chunks::Every(1448),
    Chunks::Whole,
    Chunks::Random(4711),
];
const ULPDUS: [usize; 6] = [128, 129, 500, 1442, 8192, 64_768];
const LENGTHS: [usize; 8] = [0, 1, 7, 114, 115, 511, 2049, 7000];

#[test]
fn every_operation_under_every_framing() {
    let full = std::env::var_os("OUTBOARD_FULL").is_some();
    for flags in 0..8 {
        for (i, chunks) in CHUNKS.into_iter().enumerate() {
            for (j, max_ulpdu) in ULPDUS.into_iter().enumerate() {
                if !full && (flags + i + j) % 6 != 0 {
                    continue;
                }
                let mut setup = Setup { chunks, ..Setup::default() };
                setup.a.local.crc = flags & 1 != 0;
                setup.a.local.markers = flags & 2 != 0;
                setup.b.local.markers = flags & 4 != 0;
                setup.a.max_ulpdu = max_ulpdu;
                setup.b.max_ulpdu = ULPDUS[(i + j) % ULPDUS.len()];
                let mut pair = Pair::open(setup);
                exchange(&mut pair, End::A, End::B);
                exchange(&mut pair, End::B, End::A);
            }
        }
    }
}

fn bytes(len: usize, salt: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256 + salt).to_le_bytes()[0]).collect()
}

/// All that `from` can ask of `to`, in all lengths, at once.
fn exchange(pair: &mut Pair, from: End, to: End) {
    let source = pair.side(to).register("source", 8192, Access::REMOTE);
    let sink = pair.side(to).register("sink", 65_536, Access::REMOTE);
    source.region.copy_in(0, &bytes(8192, 3)).expect("inside");
    for (i, len) in LENGTHS.into_iter().enumerate() {
        ask(pair, (from, to), (i, len), (&source, &sink));
    }
    pair.drive();
    let sent = pair.side(from).received();
    assert_eq!(sent.len(), 7 * LENGTHS.len());
    let got = pair.side(to).received();
    assert_eq!(got.len(), 4 * LENGTHS.len());
    for (i, len) in LENGTHS.into_iter().enumerate() {
        assert!(sent[7 * i + 4] == bytes(8192, 3)[i..i + len], "a Read of {len}");
        assert!(got[4 * i] == bytes(len, i), "a Send of {len}");
        let at = i * 8192;
        let written = sink.region.snapshot(at..at + len).expect("inside");
        assert!(written == bytes(len, i + 1), "a Write of {len}");
        assert_eq!(sink.region.load_u64(at + 8000), Ok(5), "an atomic");
    }
}

fn ask(
    pair: &mut Pair,
    (from, to): (End, End),
    (i, len): (usize, usize),
    (source, sink): (&Mr, &Mr),
) {
    let wr_id = i as u64;
    let doomed = pair.side(to).register("doomed", 8, Access::REMOTE).stag;
    for _ in 0..4 {
        pair.side(to).receive(wr_id, len);
    }
    let at = Remote { stag: sink.stag, offset: wr_id * 8192 };
    let word = Remote { stag: sink.stag, offset: wr_id * 8192 + 8000 };
    let side = pair.side(from);
    let swap = SendOp::CompareSwap {
        at: word,
        swap: 5,
        swap_mask: u64::MAX,
        compare: 3,
        compare_mask: u64::MAX,
    };
    let halves = vec![
        outboard_mem::OwnedBuf::from(&bytes(len, i)[..len / 2]).into(),
        outboard_mem::OwnedBuf::from(&bytes(len, i)[len / 2..]).into(),
    ];
    let send = SendOp::Send { invalidate: None };
    side.post(SendRequest::new(wr_id, send, halves.into())).expect("posted");
    side.send(wr_id, SendOp::Write { to: at }, &bytes(len, i));
    side.send(wr_id, SendOp::WriteWithImm { to: at, immediate: 9 }, &bytes(len, i + 1));
    side.send(wr_id, SendOp::FetchAdd { at: word, add: 3, mask: 0 }, &[0; 8]);
    let from = Remote { stag: source.stag, offset: wr_id };
    side.send(wr_id, SendOp::Read { from }, &vec![0; len]);
    let mut all = SendRequest::new(
        wr_id,
        SendOp::Send { invalidate: Some(doomed) },
        SgList::copied(&bytes(len, i)),
    );
    all.solicited = true;
    all.signaled = false;
    side.post(all).expect("posted");
    side.send(wr_id, SendOp::Immediate { immediate: 8 }, &[]);
    side.send(wr_id, swap, &[0; 8]);
}
