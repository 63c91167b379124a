//! Rights in words, as chmod(1) and find's `-perm` take them.

use super::program::RightsComparison;

/// What `-perm` says: `u=rw,g+w`, `-022`, `/111`; `None`: no rights.
pub(super) fn parse_perm(word: &str) -> Option<(RightsComparison, u32)> {
    let (how, word) = match word.split_at_checked(1) {
        Some(("-", rest)) => (RightsComparison::AllOf, rest),
        Some(("/", rest)) => (RightsComparison::AnyOf, rest),
        _ => (RightsComparison::Exactly, word),
    };
    Some((how, parse_mode(word)?))
}

fn parse_mode(word: &str) -> Option<u32> {
    if word.starts_with(|c: char| c.is_ascii_digit()) {
        return u32::from_str_radix(word, 8).ok().filter(|mode| *mode <= 0o7777);
    }
    word.split(',').try_fold(0, clause)
}

/// A clause, `ug+rw`, applied to what is there.
fn clause(mode: u32, clause: &str) -> Option<u32> {
    let at = clause.find(['+', '-', '='])?;
    let whose = match &clause[..at] {
        "" => 0o7777,
        whose => whose.chars().try_fold(0, |all, c| Some(all | mask_of(c)?))?,
    };
    let (mut mode, mut rest) = (mode, &clause[at..]);
    while !rest.is_empty() {
        let (sign, behind) = rest.split_at(1);
        let end = behind.find(['+', '-', '=']).unwrap_or(behind.len());
        let bits = bits_of(&behind[..end], mode)? & whose;
        mode = match sign {
            "+" => mode | bits,
            "-" => mode & !bits,
            _ => (mode & !(whose & 0o777)) | bits,
        };
        rest = &behind[end..];
    }
    Some(mode)
}

fn mask_of(who: char) -> Option<u32> {
    Some(match who {
        'u' => 0o4700,
        'g' => 0o2070,
        'o' => 0o1007,
        'a' => 0o7777,
        _ => return None,
    })
}

fn bits_of(letters: &str, mode: u32) -> Option<u32> {
    let spread = |bits: u32| (bits & 7) * 0o111;
    letters.chars().try_fold(0, |all, c| {
        Some(
            all | match c {
                'r' => 0o444,
                'w' => 0o222,
                'x' => 0o111,
                'X' if mode & 0o111 != 0 => 0o111,
                'X' => 0,
                's' => 0o6000,
                't' => 0o1000,
                'u' => spread(mode >> 6),
                'g' => spread(mode >> 3),
                'o' => spread(mode),
                _ => return None,
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_numbers_or_letters() {
        for (word, mode) in [
            ("644", 0o644),
            ("u=rw,g=r,o=r", 0o644),
            ("u+w", 0o200),
            ("+x", 0o111),
            ("ug=rwx,g-w", 0o750),
            ("u+s,o+t", 0o5000),
            ("u=rw,g=u", 0o660),
            ("a=rX", 0o444),
        ] {
            assert_eq!(parse_mode(word), Some(mode), "{word}");
        }
        for wrong in ["", "8", "u", "x+r", "u+q", "77777"] {
            assert_eq!(parse_mode(wrong), None, "{wrong}");
        }
        assert_eq!(parse_perm("-022"), Some((RightsComparison::AllOf, 0o022)));
        assert_eq!(parse_perm("/u+w,g+w"), Some((RightsComparison::AnyOf, 0o220)));
    }
}
