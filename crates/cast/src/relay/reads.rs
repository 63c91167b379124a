//! Chunks that this node reads from others' memory by itself, because it came late: they are not
//! asked for meanwhile.

use super::Relay;

impl Relay {
    /// A chunk is read.
    pub fn reads(&mut self, chunk: u32) {
        self.reading.insert(chunk);
    }

    /// It was read, checked and written, or it was not.
    pub fn read_ended(&mut self, chunk: u32, is_here: bool) {
        self.reading.remove(&chunk);
        match is_here {
            true => self.checked(chunk, true),
            false => self.go_on(),
        }
    }

    /// Whether a chunk comes without being read, or may be here already.
    #[must_use]
    pub fn is_expected(&self, chunk: u32) -> bool {
        self.has_come(chunk) || self.asked.contains_key(&chunk) || self.is_claimed(chunk)
    }
}
