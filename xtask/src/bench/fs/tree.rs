//! The tree that everybody is given: 2,000 files of text in 40 directories, 30 MB, the same in each
//! run.

use std::fs;
use std::path::Path;

use anyhow::Result;

pub(super) const FILES: usize = 2000;
const DIRECTORIES: usize = 40;
/// The least and the most bytes of a file, about.
const SIZES: (u64, u64) = (1_000, 29_000);
/// What is looked for: once in so many words.
const RARE: u64 = 20_000;
pub(super) const EXPRESSION: &str = "[a-z]+_[0-9]{3}";
pub(super) const LITERAL: &str = "Leviathan";

/// Marsaglia's xorshift: the same numbers everywhere.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Makes it.
pub(super) fn make(at: &Path) -> Result<()> {
    let mut random = Seeded(0x9e37_79b9_7f4a_7c15);
    for directory in 0..DIRECTORIES {
        let directory = at.join(format!("part{directory:02}"));
        fs::create_dir_all(&directory)?;
        for file in 0..FILES / DIRECTORIES {
            fs::write(directory.join(format!("file{file:03}.txt")), text(&mut random))?;
        }
    }
    Ok(())
}

fn text(random: &mut Seeded) -> String {
    let len = SIZES.0 + random.below(SIZES.1 - SIZES.0);
    let mut text = String::new();
    while u64::try_from(text.len()).is_ok_and(|now| now < len) {
        match random.below(RARE) {
            0 => text.push_str("item_042"),
            1 => text.push_str(LITERAL),
            _ => (0..=random.below(9)).for_each(|_| text.push(letter(random))),
        }
        text.push(if random.below(10) == 0 { '\n' } else { ' ' });
    }
    text
}

fn letter(random: &mut Seeded) -> char {
    char::from(b"etaoinshrdlucmfwypvbgkqjxz"[usize::try_from(random.below(26)).unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_text() {
        let of = |seed| text(&mut Seeded(seed));
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
        let len = u64::try_from(of(7).len()).unwrap();
        assert!((SIZES.0..SIZES.1 + 20).contains(&len));
    }
}
