//! Programs of `modules/find/find.h`, made of tests and what they are joined by.

use crate::protocol::FIND_PROGRAM_MAX;

/// Kinds of inodes, a bit each.
pub(super) type KindBits = u16;

/// A number that an inode has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberField {
    Size,
    Links,
    Inode,
    User,
    Group,
}

/// A time that an inode has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimeField {
    Access,
    Bytes,
    Change,
    Birth,
}

/// How a number compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberComparison {
    Less,
    Equal,
    More,
}

/// How rights compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RightsComparison {
    Exactly,
    AllOf,
    AnyOf,
}

/// What a pattern is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternOf {
    Name,
    Path,
    Target,
}

/// A test, or something to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FindTest {
    Always(bool),
    Pattern {
        of: PatternOf,
        folds: bool,
        pattern: Vec<u8>,
    },
    Kind(KindBits),
    Number {
        field: NumberField,
        how: NumberComparison,
        unit: u64,
        number: u64,
    },
    /// Behind the first, not behind the second.
    Time {
        field: TimeField,
        from: i64,
        to: i64,
    },
    Rights {
        how: RightsComparison,
        bits: u32,
    },
    Empty,
    May(u32),
    Action(u8),
    Prune,
    Quit,
}

/// How tests are joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    One(FindTest),
    Not(Box<Self>),
    /// Those behind count only if all before say yes.
    All(Vec<Self>),
    /// ... if all before say no.
    Any(Vec<Self>),
    /// The last one counts.
    Each(Vec<Self>),
}

const END: u8 = 0;
const NOT: u8 = 3;
const JUMP_FALSE: u8 = 4;
const JUMP_TRUE: u8 = 5;
/// Flags of patterns.
const FOLD: u8 = 1;
const UTF8: u8 = 2;

/// The program of an expression; `None`: it is too long.
pub(super) fn program_of(joined: &Joined, characters: Characters) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    put(joined, characters, &mut out)?;
    out.push(END);
    (out.len() <= FIND_PROGRAM_MAX).then_some(out)
}

/// What characters of names are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Characters {
    Bytes,
    Utf8,
}

fn put(joined: &Joined, characters: Characters, out: &mut Vec<u8>) -> Option<()> {
    match joined {
        Joined::One(test) => put_test(test, characters, out)?,
        Joined::Not(inner) => {
            put(inner, characters, out)?;
            out.push(NOT);
        }
        Joined::Each(all) => all.iter().try_for_each(|one| put(one, characters, out))?,
        Joined::All(all) => put_chain(all, JUMP_FALSE, characters, out)?,
        Joined::Any(all) => put_chain(all, JUMP_TRUE, characters, out)?,
    }
    Some(())
}

/// Each but the first is jumped over, with all that follow, if the one before decides.
fn put_chain(all: &[Joined], jump: u8, characters: Characters, out: &mut Vec<u8>) -> Option<()> {
    let Some((last, before)) = all.split_last() else { return Some(()) };
    let mut jumps = Vec::new();
    for one in before {
        put(one, characters, out)?;
        out.extend([jump, 0, 0]);
        jumps.push(out.len());
    }
    put(last, characters, out)?;
    for at in jumps {
        let over = u16::try_from(out.len() - at).ok()?;
        out[at - 2..at].copy_from_slice(&over.to_le_bytes());
    }
    Some(())
}

fn put_test(test: &FindTest, characters: Characters, out: &mut Vec<u8>) -> Option<()> {
    match test {
        FindTest::Always(yes) => out.push(if *yes { 1 } else { 2 }),
        FindTest::Pattern { of, folds, pattern } => {
            let op = [6, 7, 8][*of as usize];
            let utf8 = if characters == Characters::Utf8 { UTF8 } else { 0 };
            let len = u16::try_from(pattern.len()).ok()?.to_le_bytes();
            out.extend([op, if *folds { FOLD } else { 0 } | utf8, len[0], len[1]]);
            out.extend_from_slice(pattern);
        }
        FindTest::Kind(bits) => {
            out.push(9);
            out.extend(bits.to_le_bytes());
        }
        FindTest::Number { field, how, unit, number } => {
            out.extend([10, *field as u8, *how as u8]);
            out.extend(unit.to_le_bytes());
            out.extend(number.to_le_bytes());
        }
        FindTest::Time { field, from, to } => {
            out.extend([11, *field as u8]);
            out.extend(from.to_le_bytes());
            out.extend(to.to_le_bytes());
        }
        FindTest::Rights { how, bits } => {
            out.extend([12, *how as u8]);
            out.extend(bits.to_le_bytes());
        }
        FindTest::Empty => out.push(13),
        FindTest::May(rights) => {
            out.push(14);
            out.extend(rights.to_le_bytes());
        }
        FindTest::Action(action) => out.extend([15, *action]),
        FindTest::Prune => out.push(16),
        FindTest::Quit => out.push(17),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_jump_to_their_ends() {
        let one = |yes| Joined::One(FindTest::Always(yes));
        let all = Joined::All(vec![one(true), one(false), Joined::One(FindTest::Action(0))]);
        let program = program_of(&all, Characters::Bytes).expect("short");
        assert_eq!(program, [1, 4, 6, 0, 2, 4, 2, 0, 15, 0, 0]);
        let any = Joined::Any(vec![one(true), Joined::Not(Box::new(one(true)))]);
        assert_eq!(program_of(&any, Characters::Utf8), Some(vec![1, 5, 2, 0, 1, 3, 0]));
        let long = Joined::One(FindTest::Pattern {
            of: PatternOf::Name,
            folds: false,
            pattern: vec![b'x'; FIND_PROGRAM_MAX],
        });
        assert_eq!(program_of(&long, Characters::Bytes), None);
    }
}
