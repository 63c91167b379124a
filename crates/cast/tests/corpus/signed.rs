//! A receiver reads arbitrary bytes as the header and the runs of a cast: as anybody may send them,
//! and signed by a source that breaks the rules.
//!
//! The fuzz target `cast_signed` is made of this file, too.

use outboard_cast::sign::{
    CastHeader, CastKey, CastPublicKey, ChunkHash, ChunkHashes, ChunkLen, SignError,
};
use ring::signature::{Ed25519KeyPair, KeyPair};

/// Bytes in a signature.
const SIGNATURE_LEN: usize = 64;
/// Full chunks of the cast.
const CHUNKS: u64 = 2100;

/// The key of a source that signs whatever it is given.
fn key() -> (Ed25519KeyPair, CastPublicKey) {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("32 bytes");
    let public = pair.public_key().as_ref().try_into().expect("32 bytes");
    (pair, CastPublicKey::from_bytes(public))
}

fn signed(pair: &Ed25519KeyPair, context: &[u8], body: &[u8]) -> Vec<u8> {
    let signature = pair.sign(&[context, body].concat());
    [body, signature.as_ref()].concat()
}

/// The body of a header that is legal.
fn legal_header() -> Vec<u8> {
    let chunk_len = ChunkLen::new(4096).expect("legal");
    let header = CastHeader::new(b"manifest", CHUNKS * 4096 + 1, chunk_len).expect("legal");
    let mut bytes = header.sign(&CastKey::generate().expect("a key"));
    bytes.truncate(bytes.len() - SIGNATURE_LEN);
    bytes
}

pub(super) fn check(bytes: &[u8]) {
    let Some((how, bytes)) = bytes.split_first() else { return };
    let (pair, public) = key();
    match how % 4 {
        0 => assert!(CastHeader::verify(bytes, &public).is_err(), "it is not signed"),
        1 => {
            let bytes = signed(&pair, b"outboard cast header 1\0", bytes);
            if let Ok(hashes) = ChunkHashes::new(&bytes, public) {
                let shape = hashes.header().shape;
                let last = shape.chunks() - 1;
                assert_eq!(shape.range_of(last).end, shape.stream_len());
                assert_eq!(hashes.hash(last), None);
            }
        }
        how => add_run(how == 3, &pair, public, bytes),
    }
}

fn add_run(is_signed: bool, pair: &Ed25519KeyPair, public: CastPublicKey, body: &[u8]) {
    let header = legal_header();
    let id = blake3::hash(&header);
    let hashes = ChunkHashes::new(&signed(pair, b"outboard cast header 1\0", &header), public);
    let hashes = hashes.expect("legal and signed");
    let context = [b"outboard cast run 1\0", &id.as_bytes()[..]].concat();
    let bytes = if is_signed { signed(pair, &context, body) } else { body.to_vec() };
    let shape = hashes.header().shape;
    match hashes.add_run(&bytes) {
        Ok(run) => {
            assert!(is_signed, "it is not signed");
            let of_run = shape.chunks_of(run);
            for chunk in 0..shape.chunks() {
                assert_eq!(hashes.hash(chunk).is_some(), of_run.contains(&chunk), "{chunk}");
            }
            // The fuzzer sees what its bytes are compared with, and may sign just that.
            let zeros = vec![0; shape.len_of(of_run.start)];
            let is_its = hashes.hash(of_run.start) == Some(ChunkHash::of(&zeros));
            assert_eq!(hashes.verify(of_run.start, &zeros).is_ok(), is_its);
        }
        Err(error) => assert!(!matches!(error, SignError::TooManyChunks { .. })),
    }
}
