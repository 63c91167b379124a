//! What the service needs of a store: bytes by blocks, and which commits are durable.

use std::io;

/// A store, as the service's loop and its threads use it.
pub trait FsStoreFace: Send + Sync {
    /// Reads whole blocks, or the beginning of the last one. Waits for the disk.
    ///
    /// # Errors
    /// This machine's.
    fn read(&self, block: u64, into: &mut [u8]) -> io::Result<()>;

    /// As [`Self::read`], if the bytes are in memory; false if they are not. Does not wait.
    fn read_now(&self, block: u64, into: &mut [u8]) -> bool;

    /// Writes whole blocks. Waits for the disk.
    ///
    /// # Errors
    /// This machine's.
    fn write(&self, block: u64, bytes: &[u8]) -> io::Result<()>;

    /// The last commit that is durable, by the region's numbers.
    fn durable(&self) -> u64;

    /// Has commits up to this one made durable soon.
    fn want(&self, seq: u64);

    /// Why nothing more becomes durable, if the store has failed.
    fn failure(&self) -> Option<String>;

    /// Whether requests that change something should wait: too much is not written yet.
    fn is_behind(&self) -> bool;

    /// The node ends: everything is made durable, and the next start finds it in order.
    ///
    /// # Errors
    /// Why not.
    fn close(&self) -> Result<(), String>;

    /// Whether every change is answered only when it is durable.
    fn is_always_synced(&self) -> bool;
}
