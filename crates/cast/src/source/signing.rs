//! A thread that reads the stream once, hashes it and signs the runs, while chunks are sent.
//!
//! Nodes keep no chunk before its run is signed. So the thread counts what it does: that it goes on
//! excuses them, and a source whose files do not answer is not their fault.

use crate::member::{SessionId, WorkDone, WorkThreads};
use crate::pause::excuse;
use crate::sign::{CastHeader, CastKey, ChunkHash, RunSigner};
use crate::tree::SourceReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Reading a chunk, or looking at an entry, takes no longer, or the source's files do not answer.
const STEP_MAX: Duration = Duration::from_secs(120);

/// What a signing thread has done.
#[derive(Debug, Default)]
pub(super) struct SignSteps {
    hashed_chunks: AtomicU32,
    checked_entries: AtomicU32,
}

impl SignSteps {
    /// Entries that were looked at once more after the last chunk was read.
    pub(super) fn checked_entries(&self) -> u32 {
        self.checked_entries.load(Ordering::Relaxed)
    }

    fn all(&self) -> u64 {
        u64::from(self.hashed_chunks.load(Ordering::Relaxed)) + u64::from(self.checked_entries())
    }
}

/// What a source knows of its signing thread: a value that is given the time.
#[derive(Debug)]
pub(super) struct SignWatch {
    pub(super) steps: Arc<SignSteps>,
    /// Steps that were done at the last look, and when the latest of them was first seen.
    known: (u64, Instant),
}

impl SignWatch {
    pub(super) fn new(now: Instant) -> Self {
        Self { steps: Arc::default(), known: (0, now) }
    }

    /// The source itself was held up.
    pub(super) fn held_up(&mut self, now: Instant, late: Duration) {
        excuse(&mut self.known.1, now, late);
    }

    /// Whether it may still go on; to be asked while nodes wait for it.
    pub(super) fn is_going_on(&mut self, now: Instant) -> bool {
        let steps = self.steps.all();
        if steps != self.known.0 {
            self.known = (steps, now);
        }
        now.saturating_duration_since(self.known.1) < STEP_MAX
    }

    /// Why the cast ends when it does not.
    pub(super) fn complaint(&self) -> String {
        let (chunks, entries) =
            (self.steps.hashed_chunks.load(Ordering::Relaxed), self.steps.checked_entries());
        format!(
            "this machine's files do not answer: the source has waited {} s for one, after \
             {chunks} chunks were read and {entries} entries looked at once more: see to their \
             file system",
            STEP_MAX.as_secs()
        )
    }
}

/// Starts to sign; [`WorkDone::Signed`] brings each run. The last is signed only when nothing has
/// changed since the scan.
pub(super) fn start(
    reader: Arc<SourceReader>,
    (header, key): (CastHeader, CastKey),
    threads: WorkThreads,
    steps: Arc<SignSteps>,
) -> std::io::Result<()> {
    let sign = move || {
        let signed = |run| threads.answer(SessionId::default(), WorkDone::Signed(run));
        if let Err(why) = sign_all(&reader, (&header, &key), &steps, |run| signed(Ok(run))) {
            signed(Err(why));
        }
    };
    thread::Builder::new().name("outboard-sign".into()).spawn(sign).map(drop)
}

fn sign_all(
    reader: &SourceReader,
    (header, key): (&CastHeader, &CastKey),
    steps: &SignSteps,
    mut signed: impl FnMut(Vec<u8>),
) -> Result<(), String> {
    let (mut signer, mut bytes) = (RunSigner::new(key, header), Vec::new());
    let chunks = header.shape.chunks();
    let step = |counted: &AtomicU32| {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    for chunk in 0..chunks {
        reader.read_chunk(chunk, &mut bytes).map_err(|error| error.to_string())?;
        if chunk + 1 == chunks {
            let looked = || step(&steps.checked_entries);
            reader.check_each(looked).map_err(|error| error.to_string())?;
        }
        let run = signer.push(ChunkHash::of(&bytes)).map_err(|error| error.to_string())?;
        step(&steps.hashed_chunks);
        run.into_iter().for_each(&mut signed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sign::ChunkLen;
    use crate::tree::{CastSource, ScanOptions, scan};

    #[test]
    fn each_chunk_and_each_entry_of_the_last_look_is_a_step() {
        let directory = tempfile::tempdir().expect("a directory");
        let top = directory.path().join("top");
        std::fs::create_dir(&top).expect("made");
        (0..20)
            .for_each(|at| std::fs::write(top.join(at.to_string()), [7; 1_000]).expect("written"));
        let sources = vec![CastSource::new(&top).expect("a name")];
        let tree = scan(sources, &ScanOptions::default()).expect("a tree");
        let chunk_len = ChunkLen::new(4096).expect("legal");
        let manifest = tree.manifest();
        let header = CastHeader::new(manifest.bytes(), manifest.stream_len(), chunk_len);
        let header = header.expect("legal");
        let reader = SourceReader::new(tree, chunk_len, 4).expect("a reader");
        let key = CastKey::generate().expect("a key");
        let steps = SignSteps::default();
        sign_all(&reader, (&header, &key), &steps, |_| ()).expect("signed");
        assert_eq!(steps.checked_entries(), 21);
        assert_eq!(steps.all(), 21 + u64::from(header.shape.chunks()));
    }

    #[test]
    fn a_thread_that_does_a_step_in_a_hundred_seconds_goes_on_and_one_that_hangs_does_not() {
        let began = Instant::now();
        let mut watch = SignWatch::new(began);
        for seconds in 0..=600_u64 {
            if seconds % 100 == 0 && seconds <= 300 {
                watch.steps.checked_entries.fetch_add(1, Ordering::Relaxed);
            }
            let now = began + Duration::from_secs(seconds);
            assert_eq!(watch.is_going_on(now), seconds < 420, "after {seconds} s");
        }
    }
}
