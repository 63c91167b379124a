//! Structures as the modules' headers lay them out: little-endian, each member at a multiple of its
//! own size, nothing between members.
//!
//! A value is taken from bytes or is not there; no bytes make it panic.

/// A value of a fixed layout.
pub trait FsLayout: Sized {
    /// Its bytes.
    const LEN: usize;

    /// Appends it.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes it off the front; `None`, and nothing is taken, if there are too few bytes.
    fn take(bytes: &mut &[u8]) -> Option<Self>;

    /// Names its members, with their sizes, in order: what a header is compared with.
    fn members(name: &str, out: &mut Vec<(String, usize)>);

    /// Its bytes alone.
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::LEN);
        self.put(&mut out);
        out
    }

    /// The value that these bytes begin with, and what is behind it.
    fn split(mut bytes: &[u8]) -> Option<(Self, &[u8])> {
        Self::take(&mut bytes).map(|value| (value, bytes))
    }
}

macro_rules! layout_of_numbers {
    ($($number:ty),*) => {$(
        impl FsLayout for $number {
            const LEN: usize = size_of::<Self>();

            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                let (first, rest) = bytes.split_first_chunk()?;
                *bytes = rest;
                Some(Self::from_le_bytes(*first))
            }

            fn members(name: &str, out: &mut Vec<(String, usize)>) {
                out.push((name.to_owned(), Self::LEN));
            }
        }
    )*};
}
layout_of_numbers!(u16, u32, u64, i64);

impl<T: FsLayout + Copy + Default, const COUNT: usize> FsLayout for [T; COUNT] {
    const LEN: usize = COUNT * T::LEN;

    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|one| one.put(out));
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        let mut rest = *bytes;
        let mut all = [T::default(); COUNT];
        for one in &mut all {
            *one = T::take(&mut rest)?;
        }
        *bytes = rest;
        Some(all)
    }

    fn members(name: &str, out: &mut Vec<(String, usize)>) {
        (0..COUNT).for_each(|at| T::members(&format!("{name}[{at}]"), out));
    }
}

/// Defines structures with the layout of their members.
macro_rules! layouts {
    ($(
        $(#[$about:meta])*
        $name:ident { $($(#[$of:meta])* $member:ident: $kind:ty,)* }
    )*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$of])* pub $member: $kind,)*
        }

        impl $crate::protocol::FsLayout for $name {
            const LEN: usize = 0 $(+ <$kind as $crate::protocol::FsLayout>::LEN)*;

            fn put(&self, out: &mut Vec<u8>) {
                $(self.$member.put(out);)*
            }

            fn take(bytes: &mut &[u8]) -> Option<Self> {
                let mut rest = *bytes;
                let taken = Self { $($member: $crate::protocol::FsLayout::take(&mut rest)?,)* };
                *bytes = rest;
                Some(taken)
            }

            fn members(name: &str, out: &mut Vec<(String, usize)>) {
                $(<$kind as $crate::protocol::FsLayout>::members(
                    &format!("{name}.{}", stringify!($member)), out);)*
            }
        }
    )*};
}
pub(super) use layouts;
