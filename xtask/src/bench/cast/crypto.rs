//! What hashing and encrypting cost here: BLAKE3 and AES-256-GCM, by the libraries that Outboard
//! uses, on one processor.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

/// How long each is measured.
const TIME: Duration = Duration::from_millis(300);
/// Bytes hashed at once: a chunk.
const CHUNK: usize = 1 << 20;
/// Bytes encrypted at once: a record of a session.
const RECORD: usize = 16 << 10;

/// Seconds for each byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct CryptoCosts {
    pub(super) hash_s: f64,
    pub(super) seal_s: f64,
    pub(super) open_s: f64,
}

/// Measures them.
pub(super) fn costs() -> Result<CryptoCosts> {
    let chunk = vec![7_u8; CHUNK];
    let hash_s = per_byte(CHUNK, || {
        black_box(blake3::hash(black_box(&chunk)));
        Ok(())
    })?;
    let key = UnboundKey::new(&AES_256_GCM, &[3; 32]).map_err(|_| anyhow!("no AES-GCM here"))?;
    let key = LessSafeKey::new(key);
    let refused = |_| anyhow!("AES-GCM refuses a record");
    let nonce = || Nonce::assume_unique_for_key([1; 12]);
    let mut record = vec![7_u8; RECORD];
    let seal_s = per_byte(RECORD, || {
        let tag = key.seal_in_place_separate_tag(nonce(), Aad::empty(), &mut record);
        black_box(tag).map(|_| ()).map_err(refused)
    })?;
    let mut sealed = vec![7_u8; RECORD];
    key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut sealed).map_err(refused)?;
    // Opening needs the sealed bytes again each time; the copy is taken off.
    let mut buffer = sealed.clone();
    let copy_s = per_byte(RECORD, || {
        black_box(&mut buffer).copy_from_slice(black_box(&sealed));
        Ok(())
    })?;
    let open_s = per_byte(RECORD, || {
        buffer.copy_from_slice(&sealed);
        let opened = key.open_in_place(nonce(), Aad::empty(), &mut buffer);
        black_box(opened).map(|_| ()).map_err(refused)
    })?;
    Ok(CryptoCosts { hash_s, seal_s, open_s: open_s - copy_s })
}

#[expect(clippy::cast_precision_loss, reason = "a mean")]
fn per_byte(bytes: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let (began, mut rounds) = (Instant::now(), 0_u64);
    while began.elapsed() < TIME {
        work()?;
        rounds += 1;
    }
    Ok(began.elapsed().as_secs_f64() / (rounds as f64 * bytes as f64))
}
