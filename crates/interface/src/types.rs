//! The types of parameters and results, and the bounds that every type keeps.
//!
//! Never holds a recursive type: WIT has none. What is built here is small enough that walking
//! it, and building the smallest of its values, costs little.

use std::fmt;
use std::sync::Arc;

/// Levels of types within types, at most.
pub(crate) const TYPE_DEPTH_MAX: usize = 32;
/// Types that a type consists of, each counted wherever it is used, at most.
pub(crate) const TYPE_NODES_MAX: usize = 4096;
/// Items of a tuple, at most: generated Rust has so many.
pub(crate) const TUPLE_LEN_MAX: usize = 8;
/// Fields of a record, cases of an enum or variant, at most; of flags 64.
pub(crate) const MEMBERS_MAX: usize = 256;
/// Flags of one type, at most: they are the bits of a `u64`.
pub(crate) const FLAGS_MAX: usize = 64;

/// A type of WIT without resources, handles, streams and futures.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the first ones are called as in WIT")]
pub enum Type {
    Bool,
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    F32,
    F64,
    Char,
    String,
    /// Any number of one type.
    List(Arc<ListType>),
    /// One value or none.
    Option(Arc<Self>),
    /// A success or a failure, each with a value or without one.
    Result(Option<Arc<Self>>, Option<Arc<Self>>),
    /// Values in order.
    Tuple(Arc<[Self]>),
    /// Named values in order.
    Record(Arc<RecordType>),
    /// One of several names.
    Enum(Arc<LabelsType>),
    /// Any of several names.
    Flags(Arc<LabelsType>),
    /// One of several cases, each with a value or without one.
    Variant(Arc<VariantType>),
}

/// The type of a list. Its items take at least one byte each.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListType {
    item: Type,
    item_len_min: usize,
}

impl ListType {
    /// The type of its items.
    #[must_use]
    pub fn item(&self) -> &Type {
        &self.item
    }

    /// How many bytes an item takes at least: 1 or more.
    #[must_use]
    pub fn item_len_min(&self) -> usize {
        self.item_len_min
    }
}

/// A record's name and its fields in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RecordType {
    /// As in WIT, without `%`.
    pub name: String,
    /// Names and types.
    pub fields: Vec<(String, Type)>,
}

/// The name of an enum or of flags, and its members in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LabelsType {
    /// As in WIT, without `%`.
    pub name: String,
    /// Names of the cases, or of the bits from the lowest on.
    pub labels: Vec<String>,
}

impl LabelsType {
    /// The bits that have names.
    #[must_use]
    pub fn mask(&self) -> u64 {
        u32::try_from(self.labels.len())
            .ok()
            .and_then(|len| u64::MAX.checked_shl(len))
            .map_or(u64::MAX, |above| !above)
    }
}

/// A variant's name and its cases in order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct VariantType {
    /// As in WIT, without `%`.
    pub name: String,
    /// Names, and types of the cases that have a value.
    pub cases: Vec<(String, Option<Type>)>,
}

/// How large a type is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Extent {
    pub(crate) depth: usize,
    pub(crate) nodes: usize,
    pub(crate) len_min: usize,
}

impl Type {
    /// A list of `item`s, or `None` if they take no bytes: a few bytes could then say that there
    /// are billions.
    #[must_use]
    pub fn list(item: Self) -> Option<Self> {
        let item_len_min = item.extent().len_min;
        (item_len_min > 0).then(|| Self::List(Arc::new(ListType { item, item_len_min })))
    }

    /// The name of a record, enum, variant or of flags.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Record(record) => Some(&record.name),
            Self::Enum(labels) | Self::Flags(labels) => Some(&labels.name),
            Self::Variant(variant) => Some(&variant.name),
            _ => None,
        }
    }

    /// The types that it is directly made of.
    pub(crate) fn parts(&self) -> Vec<&Self> {
        match self {
            Self::List(list) => vec![&list.item],
            Self::Option(inner) => vec![inner],
            Self::Result(ok, err) => ok.iter().chain(err).map(AsRef::as_ref).collect(),
            Self::Tuple(items) => items.iter().collect(),
            Self::Record(record) => record.fields.iter().map(|(_, field)| field).collect(),
            Self::Variant(variant) => {
                variant.cases.iter().filter_map(|(_, case)| case.as_ref()).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Measures no further than somewhat beyond the bounds.
    pub(crate) fn extent(&self) -> Extent {
        let mut extent = Extent { depth: 1, nodes: 1, len_min: 1 };
        let mut sum = 0;
        for part in self.parts() {
            let inner = part.extent();
            extent.depth = extent.depth.max(inner.depth + 1);
            extent.nodes += inner.nodes;
            sum += inner.len_min;
            if extent.nodes > TYPE_NODES_MAX {
                break;
            }
        }
        match self {
            Self::Char => extent.len_min = 2,
            Self::F32 => extent.len_min = 4,
            Self::F64 => extent.len_min = 8,
            Self::Tuple(_) | Self::Record(_) => extent.len_min = sum,
            _ => {}
        }
        extent
    }

    /// Whether it keeps the bounds on depth and size.
    pub(crate) fn is_bounded(&self) -> bool {
        let extent = self.extent();
        extent.depth <= TYPE_DEPTH_MAX && extent.nodes <= TYPE_NODES_MAX
    }

    /// Whether it is a list of bytes, which is not kept as a list of values.
    pub(crate) fn is_bytes(&self) -> bool {
        matches!(self, Self::List(list) if list.item == Self::U8)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::S8 => "s8",
            Self::S16 => "s16",
            Self::S32 => "s32",
            Self::S64 => "s64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::Char => "char",
            Self::String => "string",
            Self::Result(None, None) => "result",
            Self::List(list) => return write!(formatter, "list<{}>", list.item),
            Self::Option(inner) => return write!(formatter, "option<{inner}>"),
            Self::Result(Some(ok), None) => return write!(formatter, "result<{ok}>"),
            Self::Result(None, Some(err)) => return write!(formatter, "result<_, {err}>"),
            Self::Result(Some(ok), Some(err)) => return write!(formatter, "result<{ok}, {err}>"),
            Self::Tuple(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                return write!(formatter, "tuple<{}>", items.join(", "));
            }
            Self::Record(_) | Self::Enum(_) | Self::Flags(_) | Self::Variant(_) => {
                self.name().unwrap_or_default()
            }
        };
        formatter.write_str(word)
    }
}
