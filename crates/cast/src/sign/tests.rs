//! What is signed, and what is refused.

use super::*;

const CHUNK: u32 = ChunkLen::MIN;

struct Signed {
    key: CastKey,
    header: CastHeader,
    runs: Vec<Vec<u8>>,
}

fn content(chunk: u32) -> Vec<u8> {
    vec![chunk.to_le_bytes()[0]; CHUNK as usize]
}

/// A stream of full chunks, and one byte of another.
fn signed(full_chunks: u32) -> Signed {
    let len = u64::from(full_chunks) * u64::from(CHUNK) + 1;
    let chunk_len = ChunkLen::new(CHUNK).expect("a length");
    let header = CastHeader::new(b"manifest", len, chunk_len).expect("a header");
    let key = CastKey::generate().expect("a key");
    let mut signer = RunSigner::new(&key, &header);
    let hashes = (0..full_chunks).map(|chunk| ChunkHash::of(&content(chunk)));
    let all = hashes.chain([ChunkHash::of(b"x")]);
    let runs = all.filter_map(|hash| signer.push(hash).expect("a chunk")).collect();
    let beyond = signer.push(ChunkHash::of(b"beyond"));
    assert_eq!(beyond, Err(SignError::TooManyChunks { chunks: full_chunks + 1 }));
    Signed { key, header, runs }
}

fn receiver(signed: &Signed) -> ChunkHashes {
    let bytes = signed.header.sign(&signed.key);
    assert!(bytes.len() <= HEADER_BYTES_MAX);
    ChunkHashes::new(&bytes, signed.key.public()).expect("a header")
}

#[test]
fn genuine_chunks_are_taken_run_by_run_in_any_order() {
    let signed = signed(2 * RUN_CHUNKS + 5);
    assert_eq!(signed.runs.len(), 12);
    assert_eq!(signed.runs[0].len(), RUN_BYTES_MAX - 1023 * 32, "the first comes at once");
    assert_eq!(signed.runs[10].len(), RUN_BYTES_MAX);
    let hashes = receiver(&signed);
    assert_eq!(hashes.header(), &signed.header);
    let (last, mid) = (2 * RUN_CHUNKS + 5, RUN_CHUNKS + 7);
    for (chunk, run) in [(0, 0), (1, 1), (2, 1), (1022, 9), (1023, 10), (mid, 10), (last, 11)] {
        let bytes = vec![0; hashes.header().shape.len_of(chunk)];
        let early = hashes.verify(chunk, &bytes);
        assert_eq!(early.err(), Some(SignError::NoRunYet { chunk, run }));
    }
    for run in [11, 0, 10, 10] {
        assert_eq!(hashes.add_run(&signed.runs[run as usize]), Ok(run));
        assert_eq!(hashes.signed_run(run), Some(&*signed.runs[run as usize]));
    }
    assert_eq!(hashes.hash(1), None, "its run has not come");
    for chunk in [0, RUN_CHUNKS - 1, RUN_CHUNKS, mid] {
        assert!(hashes.verify(chunk, &content(chunk)).is_ok(), "{chunk}");
    }
    assert!(hashes.verify(last, b"x").is_ok());
}

#[test]
fn runs_grow_from_one_chunk_to_1024_and_cover_the_stream() {
    let chunk_len = ChunkLen::new(CHUNK).expect("a length");
    for chunks in [1, 2, 3, 1022, 1023, 1024, 2047, 2048, 100_000, CHUNKS_MAX] {
        let len = u64::from(chunks) * u64::from(CHUNK);
        let shape = StreamShape::new(chunk_len, 1, len).expect("a shape");
        let mut next = 0;
        for run in 0..shape.runs() {
            let of_run = shape.chunks_of(run);
            assert_eq!(of_run.start, next, "run {run} of {chunks} chunks");
            let full = (1 << run.min(10)).min(chunks - of_run.start);
            assert_eq!(of_run.len(), full as usize, "run {run} of {chunks} chunks");
            let ends = [of_run.start, of_run.end - 1];
            assert_eq!(ends.map(StreamShape::run_of), [run, run]);
            next = of_run.end;
        }
        assert_eq!(next, chunks);
        assert!(shape.chunks_of(shape.runs()).is_empty());
        assert!(shape.chunks_of(u32::MAX).is_empty());
    }
}

#[test]
fn a_flipped_bit_a_wrong_place_and_a_wrong_length_are_refused() {
    let signed = signed(4);
    let hashes = receiver(&signed);
    for run in &signed.runs {
        hashes.add_run(run).expect("a run");
    }
    let mut bytes = content(1);
    bytes[77] ^= 4;
    let found = hashes.verify(1, &bytes).err();
    assert_eq!(found, Some(SignError::WrongHash { chunk: 1 }));
    assert_eq!(hashes.verify(2, &content(1)).err(), Some(SignError::WrongHash { chunk: 2 }));
    let short = SignError::ChunkLength { chunk: 1, found: 9, expected: CHUNK as usize };
    assert_eq!(hashes.verify(1, &content(1)[..9]).err(), Some(short));
    let beyond = SignError::NoSuchChunk { chunk: 5, chunks: 5 };
    assert_eq!(hashes.verify(5, b"x").err(), Some(beyond));
    assert_eq!(hashes.hash(5), None);
}

#[test]
fn a_run_that_is_forged_moved_cut_or_of_another_cast_is_refused() {
    let (one, other) = (signed(4 * RUN_CHUNKS), signed(4 * RUN_CHUNKS));
    let hashes = receiver(&one);
    let forged = |run| Err(SignError::ForgedRun { run });
    for at in [4, 100, RUN_BYTES_MAX - 1] {
        let mut run = one.runs[10].clone();
        run[at] ^= 1;
        assert_eq!(hashes.add_run(&run), forged(10), "byte {at}");
    }
    let mut moved = one.runs[10].clone();
    moved[0] = 11;
    assert_eq!(hashes.add_run(&moved), forged(11));
    assert_eq!(hashes.add_run(&other.runs[11]), forged(11), "another cast's");
    let mut cut = one.runs[10].clone();
    cut.drain(4..4 + 32);
    let expected = SignError::RunLength { run: 10, found: 1023, expected: 1024 };
    assert_eq!(hashes.add_run(&cut), Err(expected));
    cut.drain(4..5);
    assert_eq!(hashes.add_run(&cut), Err(SignError::MalformedRun { len: cut.len() }));
    moved[0] = 99;
    assert_eq!(hashes.add_run(&moved), Err(SignError::NoSuchRun { run: 99, runs: 14 }));
    for len in [0, 4, 67] {
        assert_eq!(hashes.add_run(&one.runs[10][..len]), Err(SignError::MalformedRun { len }));
    }
    assert_eq!(hashes.hash(1023), None, "nothing of it was kept");
}

#[test]
fn the_same_key_signs_no_other_header_by_its_runs() {
    let one = signed(2);
    let longer = CastHeader { manifest_hash: [1; 32], ..one.header };
    let hashes = ChunkHashes::new(&longer.sign(&one.key), one.key.public()).expect("a header");
    assert_eq!(hashes.add_run(&one.runs[0]), Err(SignError::ForgedRun { run: 0 }));
}

#[test]
fn a_header_that_is_forged_or_impossible_is_refused() {
    let signed = signed(2);
    let public = signed.key.public();
    let bytes = signed.header.sign(&signed.key);
    for at in 0..bytes.len() {
        let mut forged = bytes.clone();
        forged[at] ^= 0x10;
        let found = CastHeader::verify(&forged, &public);
        assert_eq!(found, Err(SignError::ForgedHeader), "byte {at}");
    }
    let other = CastKey::generate().expect("a key").public();
    assert_eq!(CastHeader::verify(&bytes, &other), Err(SignError::ForgedHeader));
    for len in [0, 63, HEADER_BYTES_MAX + 1] {
        let found = CastHeader::verify(&vec![0; len], &public);
        assert_eq!(found, Err(SignError::MalformedHeader { len }));
    }
}

#[test]
fn lengths_must_fit_together() {
    let chunk_len = ChunkLen::new(CHUNK).expect("a length");
    let table = [(0, 5), (6, 5), (1, u64::MAX), (1, u64::from(CHUNKS_MAX) * 4096 + 1)];
    for (manifest_len, stream_len) in table {
        let shape = StreamShape::new(chunk_len, manifest_len, stream_len);
        let expected = SignError::Shape { stream_len, manifest_len, chunk_len: CHUNK };
        assert_eq!(shape, Err(expected));
    }
    for len in [0, 1, 4095, 5000, 128 << 20] {
        assert_eq!(ChunkLen::new(len), Err(SignError::ChunkLen { len: u64::from(len) }));
    }
    let shape = StreamShape::new(chunk_len, 5000, 3 * 4096).expect("a shape");
    assert_eq!((shape.chunks(), shape.manifest_chunks(), shape.runs()), (3, 2, 2));
    assert_eq!((shape.len_of(2), shape.len_of(3), shape.chunks_of(2)), (4096, 0, 3..3));
}
