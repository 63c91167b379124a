//! Arguments and results of executions, as people write and read them.
//!
//! An argument is a type and a value, `u64:5`; all are put one behind the other, little-endian,
//! without padding.

use data_encoding::HEXLOWER_PERMISSIVE;
use outboard_active::protocol::INLINE_MAX;
use outboard_offcode::executor::is_printable;
use outboard_unix::regular::read_regular;
use std::fmt::Write;
use std::path::Path;
use std::str::FromStr;

/// The types of numbers, with their bytes and whether they have a sign.
const NUMBERS: &[(&str, usize, bool)] = &[
    ("u8", 1, false),
    ("u16", 2, false),
    ("u32", 4, false),
    ("u64", 8, false),
    ("i8", 1, true),
    ("i16", 2, true),
    ("i32", 4, true),
    ("i64", 8, true),
];

/// The bytes of one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArgValue(pub(crate) Vec<u8>);

impl FromStr for ArgValue {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let explain = || {
            format!(
                "{word:?}: write TYPE:VALUE with a type of u8 to u64, i8 to i64, text, hex or \
                 file, as in u64:5, text:key, hex:00ff"
            )
        };
        let (kind, value) = word.split_once(':').ok_or_else(explain)?;
        let bytes = match kind {
            "text" => Some(value.as_bytes().to_vec()),
            "hex" => HEXLOWER_PERMISSIVE.decode(value.as_bytes()).ok(),
            "file" => {
                let read = read_regular(Path::new(value), INLINE_MAX);
                return read.map(Self).map_err(|error| format!("{value}: {error}"));
            }
            kind => NUMBERS.iter().find(|number| number.0 == kind).and_then(|number| {
                let (_, len, signed) = *number;
                number_bytes(value, len, signed)
            }),
        };
        bytes.map(Self).ok_or_else(explain)
    }
}

fn number_bytes(value: &str, len: usize, signed: bool) -> Option<Vec<u8>> {
    let (digits, radix) = match value.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    let number = i128::from_str_radix(digits, radix).ok()?;
    let bits = u32::try_from(len * 8).ok()?;
    let (least, most) = match signed {
        true => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
        false => (0, (1_i128 << bits) - 1),
    };
    (least..=most).contains(&number).then(|| number.to_le_bytes()[..len].to_vec())
}

/// All arguments, one behind the other.
pub(crate) fn joined(values: &[ArgValue]) -> Vec<u8> {
    values.iter().flat_map(|value| value.0.iter().copied()).collect()
}

/// How a result is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ShowAs {
    /// Text if it is printable, else numbers if its length fits, else hexadecimal digits.
    #[default]
    Auto,
    /// Hexadecimal digits.
    Hex,
    /// Text.
    Text,
    /// Numbers of eight bytes.
    U64,
    /// The bytes themselves.
    Raw,
}

/// A result for people; `Raw` is not shown but written.
pub(crate) fn shown(bytes: &[u8], show: ShowAs) -> String {
    match show {
        ShowAs::Hex | ShowAs::Raw => HEXLOWER_PERMISSIVE.encode(bytes),
        ShowAs::Text => String::from_utf8_lossy(bytes).escape_debug().collect(),
        ShowAs::U64 => words(bytes),
        ShowAs::Auto => match std::str::from_utf8(bytes) {
            Ok(text) if !text.is_empty() && text.chars().all(is_printable) => text.to_owned(),
            _ if bytes.len().is_multiple_of(8) && bytes.len() <= 64 => words(bytes),
            _ => HEXLOWER_PERMISSIVE.encode(bytes),
        },
    }
}

fn words(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        let gap = if text.is_empty() { "" } else { " " };
        // Writing to a text cannot fail.
        let _written = write!(text, "{gap}{}", u64::from_le_bytes(word));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_become_bytes() {
        let cases: [(&str, &[u8]); 9] = [
            ("u8:255", &[255]),
            ("i8:-128", &[128]),
            ("u16:0x1234", &[0x34, 0x12]),
            ("i32:-2", &[254, 255, 255, 255]),
            ("u64:1", &[1, 0, 0, 0, 0, 0, 0, 0]),
            ("u64:18446744073709551615", &[255; 8]),
            ("text:a:b", b"a:b"),
            ("text:", b""),
            ("hex:00fF", &[0, 255]),
        ];
        for (word, bytes) in cases {
            assert_eq!(word.parse(), Ok(ArgValue(bytes.to_vec())), "{word}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for word in ["5", "u8:256", "i8:128", "u64:-1", "u64:", "f32:1", "hex:0", "u128:1", ":"] {
            let error = word.parse::<ArgValue>().expect_err(word);
            assert!(error.contains("TYPE:VALUE"), "{error}");
        }
        "file:/nowhere/at/all".parse::<ArgValue>().expect_err("no file");
        "file:/dev/zero".parse::<ArgValue>().expect_err("no file");
    }

    #[test]
    fn results_are_readable() {
        assert_eq!(shown(b"hello", ShowAs::Auto), "hello");
        assert_eq!(shown(&[1, 0, 0, 0, 0, 0, 0, 0], ShowAs::Auto), "1");
        assert_eq!(shown(&[7, 0, 1], ShowAs::Auto), "070001");
        assert_eq!(shown(b"a\x1b[0m", ShowAs::Text), "a\\u{1b}[0m");
        assert_eq!(shown(b"", ShowAs::Auto), "");
        assert_eq!(shown("it's \"5 €\"".as_bytes(), ShowAs::Auto), "it's \"5 €\"");
        assert_eq!(shown("a\u{202e}b".as_bytes(), ShowAs::Auto), "61e280ae62");
        assert_eq!(shown(&[2, 0, 0, 0, 0, 0, 0, 0, 3], ShowAs::U64), "2 3");
    }
}
