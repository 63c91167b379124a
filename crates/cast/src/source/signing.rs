//! A thread that reads the stream once, hashes it and signs the runs, while chunks are sent.

use crate::member::{WorkDone, WorkThreads};
use crate::sign::{CastHeader, CastKey, ChunkHash, RunSigner};
use crate::tree::SourceReader;
use std::sync::Arc;
use std::thread;

/// Starts to sign; [`WorkDone::Signed`] brings each run. The last is signed only when nothing has
/// changed since the scan.
pub(super) fn start(
    reader: Arc<SourceReader>,
    header: CastHeader,
    key: CastKey,
    threads: WorkThreads,
) -> std::io::Result<()> {
    let sign = move || {
        let signed = |run| threads.answer(header.cast, WorkDone::Signed(run));
        if let Err(why) = sign_all(&reader, &header, &key, |run| signed(Ok(run))) {
            signed(Err(why));
        }
    };
    thread::Builder::new().name("outboard-sign".into()).spawn(sign).map(drop)
}

fn sign_all(
    reader: &SourceReader,
    header: &CastHeader,
    key: &CastKey,
    mut signed: impl FnMut(Vec<u8>),
) -> Result<(), String> {
    let (mut signer, mut bytes) = (RunSigner::new(key, header), Vec::new());
    let chunks = header.shape.chunks();
    for chunk in 0..chunks {
        reader.read_chunk(chunk, &mut bytes).map_err(|error| error.to_string())?;
        if chunk + 1 == chunks {
            reader.check_unchanged().map_err(|error| error.to_string())?;
        }
        let run = signer.push(ChunkHash::of(&bytes)).map_err(|error| error.to_string())?;
        run.into_iter().for_each(&mut signed);
    }
    Ok(())
}
