//! A client of the shipped modules: calls whose outcome may be lost, and plain verbs.

use crate::node::{Node, SOON};
use outboard_active::{ActiveCall, ActiveClient, ActiveError, ModuleHash, Outcome, RemoteRegion};
use outboard_secure::Credentials;
use std::fs;
use std::path::Path;
use std::sync::Arc;

/// Why an operation has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It has not taken effect, and never will.
    NotDone,
    /// It may have, or may still.
    Unknown,
}

/// A module's failure that changes nothing: peers were faster.
const CHANGED: i32 = 38;

/// See this file's first lines.
pub(crate) struct ModuleClient {
    pub(crate) client: ActiveClient,
    pub(crate) region: RemoteRegion,
    module: ModuleHash,
    random: u64,
}

impl ModuleClient {
    /// Loads a shipped module, and what it imports.
    pub(crate) fn new(node: &Node, own: &Arc<Credentials>, name: &str, seed: u64) -> Self {
        let mut client = node.client(own);
        client.options_mut().limit = SOON;
        let region = client.attach("kv").expect("attached");
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../modules/built");
        let module = ["alloc", name].map(|name| {
            let bytes = fs::read(built.join(name).with_extension("wasm")).expect("a module");
            client.know(name, &bytes).expect("a module")
        })[1];
        client.load_known(module).expect("loaded");
        Self { client, region, module, random: seed | 1 }
    }

    /// A number below `bound`.
    pub(crate) fn random(&mut self, bound: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % bound
    }

    pub(crate) fn call(&mut self, entry: &str, args: &[u8]) -> Result<Vec<u8>, Missing> {
        let call = ActiveCall::new(&self.region, self.module, entry, args);
        match self.client.execute(&call) {
            Ok(Outcome::Done { result, .. }) => Ok(result),
            Ok(Outcome::Failed { code: CHANGED, .. } | Outcome::Conflict | Outcome::Busy(_)) => {
                Err(Missing::NotDone)
            }
            Ok(Outcome::Unknown) => Err(Missing::Unknown),
            Ok(other) => panic!("{entry}: {other:?}"),
            Err(error) => Err(lost(&error)),
        }
    }

    pub(crate) fn read(&mut self, at: u64, len: usize) -> Result<Vec<u8>, Missing> {
        // A Read changes nothing.
        let read = self.region.read(&mut self.client, at, len);
        read.map_err(|error| {
            lost(&error);
            Missing::NotDone
        })
    }

    /// As [`Self::swap`], behind a Write on the same connection.
    pub(crate) fn write_then_swap(
        &mut self,
        item: (u64, &[u8]),
        (at, compare, swap): (u64, u64, u64),
    ) -> Result<bool, Missing> {
        let old = self.region.write_then_swap(&mut self.client, item, (at, compare, swap));
        old.map(|old| old == compare).map_err(|error| lost(&error))
    }

    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Missing> {
        self.region.write(&mut self.client, at, bytes).map_err(|error| lost(&error))
    }

    /// Whether the word was the first, and is the second now.
    pub(crate) fn swap(&mut self, at: u64, compare: u64, swap: u64) -> Result<bool, Missing> {
        let old = self.region.compare_swap(&mut self.client, at, compare, swap);
        old.map(|old| old == compare).map_err(|error| lost(&error))
    }
}

/// Of a service that was killed; all else is a defect.
fn lost(error: &ActiveError) -> Missing {
    match error {
        ActiveError::Interrupted { .. } | ActiveError::TimedOut { .. } => Missing::Unknown,
        other => panic!("{other}"),
    }
}

pub(crate) fn words(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

pub(crate) fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("a word"))
}

/// As `ob_hash` in modules/include/outboard.h.
pub(crate) fn hash(seed: u64, bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash ^ (hash >> 32)
    };
    let mixed = bytes.chunks(8).fold(seed, |mixed, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(mixed, u64::from_le_bytes(word))
    });
    mix(mixed, bytes.len() as u64)
}
