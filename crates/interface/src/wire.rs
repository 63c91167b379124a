//! Values of Rust types as bytes, in postcard's format: the part that generated files contain too.
//!
//! Integers above 8 bits are varints (zigzag if signed), floats 4 or 8 bytes little-endian, a
//! `char` is a string, a string or list its length and contents, an option 0 or 1, a result, enum
//! or variant its case's number, flags a varint of bits; records and tuples are their fields in
//! order.
//!
//! Never panics on hostile bytes and never allocates more than they justify. It is also compiled
//! in guests, by compilers as old as Rust 1.63: only `core` and `alloc`, and nothing newer.

extern crate alloc;

pub use alloc::string::String;
pub use alloc::vec::Vec;

/// Why bytes are not a value of the type that was expected: whoever wrote them is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// They end before the value does.
    Short,
    /// A number does not fit its type, or a list is longer than the bytes can hold.
    TooLarge,
    /// No case has this number, or a boolean or option is neither 0 nor 1.
    Tag,
    /// A string is not UTF-8, or a character not one.
    Text,
    /// Bytes are left behind the value.
    Trailing,
}

impl WireError {
    /// What is wrong, as a sentence.
    pub fn text(self) -> &'static str {
        match self {
            Self::Short => "the bytes end before the value",
            Self::TooLarge => "a number or length is larger than its type or the bytes allow",
            Self::Tag => "no case, boolean or option has this number",
            Self::Text => "a string is not UTF-8 or a character is none",
            Self::Trailing => "bytes are left behind the value",
        }
    }
}

impl core::fmt::Display for WireError {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str(self.text())
    }
}

/// Bytes that are read from the front.
#[derive(Debug)]
pub struct WireReader<'a> {
    rest: &'a [u8],
}

impl<'a> WireReader<'a> {
    /// Reads all of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// How many bytes are not read yet.
    pub fn left(&self) -> usize {
        self.rest.len()
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    ///
    /// [`WireError::Short`] if there are fewer.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], WireError> {
        if len > self.rest.len() {
            return Err(WireError::Short);
        }
        let (head, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(head)
    }

    fn byte(&mut self) -> Result<u8, WireError> {
        self.bytes(1).map(|bytes| bytes[0])
    }

    /// A varint of at most `bits` bits.
    ///
    /// # Errors
    ///
    /// [`WireError::Short`], or [`WireError::TooLarge`] if it has more bits or bytes.
    pub fn varint(&mut self, bits: u32) -> Result<u64, WireError> {
        let mut value = 0;
        let mut shift = 0;
        while shift < bits {
            let byte = self.byte()?;
            let low = u64::from(byte & 0x7f);
            if bits - shift < 7 && low >> (bits - shift) != 0 {
                return Err(WireError::TooLarge);
            }
            value |= low << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
        }
        Err(WireError::TooLarge)
    }

    /// The length of a list whose items take at least `item_len_min` bytes each.
    ///
    /// # Errors
    ///
    /// [`WireError::TooLarge`] if so many cannot stand in the rest.
    pub fn len(&mut self, item_len_min: usize) -> Result<usize, WireError> {
        let len = usize::try_from(self.varint(32)?).map_err(|_| WireError::TooLarge)?;
        let bytes = len.checked_mul(item_len_min.max(1)).ok_or(WireError::TooLarge)?;
        if bytes > self.rest.len() {
            return Err(WireError::TooLarge);
        }
        Ok(len)
    }

    /// A boolean, or whether an option is there.
    ///
    /// # Errors
    ///
    /// [`WireError::Tag`] if it is neither 0 nor 1.
    pub fn flag(&mut self) -> Result<bool, WireError> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(WireError::Tag),
        }
    }

    /// A string.
    ///
    /// # Errors
    ///
    /// [`WireError::Text`] if it is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, WireError> {
        let len = self.len(1)?;
        core::str::from_utf8(self.bytes(len)?).map_err(|_| WireError::Text)
    }

    /// Ends the reading.
    ///
    /// # Errors
    ///
    /// [`WireError::Trailing`] if bytes are left.
    pub fn finish(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing) }
    }
}

/// Appends a varint.
pub fn emit_varint(mut value: u64, out: &mut Vec<u8>) {
    while value > 0x7f {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Reads a value that is all of `bytes`.
///
/// # Errors
///
/// [`WireError`] if it is not.
pub fn parse_all<T: Parse>(bytes: &[u8]) -> Result<T, WireError> {
    let mut input = WireReader::new(bytes);
    let value = T::parse(&mut input)?;
    input.finish()?;
    Ok(value)
}

/// What can be written.
pub trait Emit {
    /// Appends the value's bytes.
    fn emit(&self, out: &mut Vec<u8>);

    /// Appends the bytes of several values.
    fn emit_all(items: &[Self], out: &mut Vec<u8>)
    where
        Self: Sized,
    {
        for item in items {
            item.emit(out);
        }
    }
}

/// What can be read.
pub trait Parse: Sized {
    /// No value takes fewer bytes.
    const LEN_MIN: usize;

    /// Reads one value.
    ///
    /// # Errors
    ///
    /// [`WireError`] if none stands there.
    fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError>;

    /// Reads `len` values, of which [`WireReader::len`] knows that they may be there.
    ///
    /// # Errors
    ///
    /// [`WireError`] if they are not.
    fn parse_all(len: usize, input: &mut WireReader<'_>) -> Result<Vec<Self>, WireError> {
        // A value may be larger than its bytes: what is set aside grows as they are read.
        let mut items = Vec::with_capacity(len.min(1024));
        for _ in 0..len {
            items.push(Self::parse(input)?);
        }
        Ok(items)
    }
}

impl Emit for u8 {
    fn emit(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn emit_all(items: &[Self], out: &mut Vec<u8>) {
        out.extend_from_slice(items);
    }
}

impl Parse for u8 {
    const LEN_MIN: usize = 1;

    fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {
        input.byte()
    }

    fn parse_all(len: usize, input: &mut WireReader<'_>) -> Result<Vec<Self>, WireError> {
        input.bytes(len).map(Vec::from)
    }
}

/// Types that are made of fixed bytes, or of a varint.
macro_rules! numbers {
    (fixed: $($fixed:ty),+; unsigned: $($unsigned:ty),+; signed: $($signed:ty),+;) => {
        $(impl Emit for $fixed {
            fn emit(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }

        impl Parse for $fixed {
            const LEN_MIN: usize = core::mem::size_of::<$fixed>();

            fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {
                let mut bytes = [0; core::mem::size_of::<$fixed>()];
                bytes.copy_from_slice(input.bytes(core::mem::size_of::<$fixed>())?);
                Ok(<$fixed>::from_le_bytes(bytes))
            }
        })+

        $(impl Emit for $unsigned {
            fn emit(&self, out: &mut Vec<u8>) {
                emit_varint(u64::from(*self), out);
            }
        }

        impl Parse for $unsigned {
            const LEN_MIN: usize = 1;

            fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {
                let value = input.varint(<$unsigned>::BITS)?;
                <$unsigned>::try_from(value).map_err(|_| WireError::TooLarge)
            }
        })+

        $(impl Emit for $signed {
            fn emit(&self, out: &mut Vec<u8>) {
                emit_varint(zigzag(i64::from(*self)), out);
            }
        }

        impl Parse for $signed {
            const LEN_MIN: usize = 1;

            fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {
                let value = unzigzag(input.varint(<$signed>::BITS)?);
                <$signed>::try_from(value).map_err(|_| WireError::TooLarge)
            }
        })+
    };
}

numbers! {
    fixed: i8, f32, f64;
    unsigned: u16, u32, u64;
    signed: i16, i32, i64;
}

/// Small numbers of either sign as small numbers.
pub(crate) fn zigzag(value: i64) -> u64 {
    u64::from_le_bytes(((value << 1) ^ (value >> 63)).to_le_bytes())
}

/// The inverse of [`zigzag`].
pub(crate) fn unzigzag(value: u64) -> i64 {
    i64::from_le_bytes(((value >> 1) ^ (value & 1).wrapping_neg()).to_le_bytes())
}

impl Emit for bool {
    fn emit(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
}

impl Parse for bool {
    const LEN_MIN: usize = 1;

    fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {
        input.flag()
    }
}

impl Emit for char {
    fn emit(&self, out: &mut Vec<u8>) {
        let mut bytes = [0; 4];
        (*self.encode_utf8(&mut bytes)).emit(out);
    }
}

impl Parse for char {
    const LEN_MIN: usize = 2;

    fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {
        let mut characters = input.text()?.chars();
        match (characters.next(), characters.next()) {
            (Some(character), None) => Ok(character),
            _ => Err(WireError::Text),
        }
    }
}

impl Emit for str {
    fn emit(&self, out: &mut Vec<u8>) {
        self.as_bytes().emit(out);
    }
}

impl Emit for String {
    fn emit(&self, out: &mut Vec<u8>) {
        self.as_bytes().emit(out);
    }
}

impl Parse for String {
    const LEN_MIN: usize = 1;

    fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {
        input.text().map(Self::from)
    }
}

impl<T: Emit> Emit for [T] {
    fn emit(&self, out: &mut Vec<u8>) {
        emit_varint(self.len() as u64, out);
        T::emit_all(self, out);
    }
}

impl<T: Emit> Emit for Vec<T> {
    fn emit(&self, out: &mut Vec<u8>) {
        self.as_slice().emit(out);
    }
}

impl<T: Parse> Parse for Vec<T> {
    const LEN_MIN: usize = 1;

    fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {
        let len = input.len(T::LEN_MIN)?;
        <T as Parse>::parse_all(len, input)
    }
}

impl<T: Emit> Emit for Option<T> {
    fn emit(&self, out: &mut Vec<u8>) {
        self.is_some().emit(out);
        if let Some(value) = self {
            value.emit(out);
        }
    }
}

impl<T: Parse> Parse for Option<T> {
    const LEN_MIN: usize = 1;

    fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {
        if input.flag()? { T::parse(input).map(Some) } else { Ok(None) }
    }
}

impl<T: Emit, E: Emit> Emit for Result<T, E> {
    fn emit(&self, out: &mut Vec<u8>) {
        self.is_err().emit(out);
        match self {
            Ok(value) => value.emit(out),
            Err(error) => error.emit(out),
        }
    }
}

impl<T: Parse, E: Parse> Parse for Result<T, E> {
    const LEN_MIN: usize = 1;

    fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {
        match input.varint(32)? {
            0 => T::parse(input).map(Ok),
            1 => E::parse(input).map(Err),
            _ => Err(WireError::Tag),
        }
    }
}

/// Tuples of all lengths that interfaces may have.
macro_rules! tuples {
    ($(($($item:ident $index:tt),*))+) => {
        $(impl<$($item: Emit),*> Emit for ($($item,)*) {
            fn emit(&self, _out: &mut Vec<u8>) {
                $(self.$index.emit(_out);)*
            }
        }

        impl<$($item: Parse),*> Parse for ($($item,)*) {
            const LEN_MIN: usize = 0 $(+ $item::LEN_MIN)*;

            fn parse(_input: &mut WireReader<'_>) -> Result<Self, WireError> {
                Ok(($($item::parse(_input)?,)*))
            }
        })+
    };
}

tuples! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
}
