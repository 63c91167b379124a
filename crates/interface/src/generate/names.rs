//! Names of WIT (`kebab-case`) as names of Rust and C, each different from all that are taken.
//!
//! Never forgets a name: one table belongs to one scope.

use std::collections::HashSet;

/// Keywords of Rust up to edition 2024.
pub(super) const RUST_KEYWORDS: &str = "abstract as async await become box break const continue \
    crate do dyn else enum extern false final fn for gen if impl in let loop macro match mod move \
    mut override priv pub ref return self static struct super trait true try type typeof unsafe \
    unsized use virtual where while yield Self";

/// Names of modules, types and variables that generated files of Rust use themselves.
pub(super) const RUST_TAKEN: &str = "wire alloc core std guest oc_call device call deadline_ms \
    bytes out bool char u8 u16 u32 u64 i8 i16 i32 i64 f32 f64 str Option Some None Result Ok Err \
    String Vec Emit Parse WireReader WireError Exports CallReply CallFault Device TypedCall Guid \
    Default Clone Copy Debug PartialEq Eq";

/// Keywords of C up to C23 and of C++, and macros that compilers define.
pub(super) const C_KEYWORDS: &str = "auto break case char const continue default do double else \
    enum extern float for goto if inline int long register restrict return short signed sizeof \
    static struct switch typedef union unsigned void volatile while alignas alignof bool constexpr \
    false nullptr static_assert thread_local true typeof typeof_unqual and and_eq asm bitand bitor \
    catch class compl concept const_cast decltype delete dynamic_cast explicit export friend \
    mutable namespace new noexcept not not_eq operator or or_eq private protected public \
    reinterpret_cast requires static_cast template this throw try typeid typename using virtual \
    wchar_t xor xor_eq unix linux errno stdin stdout stderr offsetof";

/// Names of variables that generated headers use themselves.
pub(super) const C_TAKEN: &str = "call arena out ptr len deadline_ms scratch value";

/// The names of one scope.
pub(super) struct NameTable(HashSet<String>);

impl NameTable {
    /// A scope in which the words of all `reserved` texts are taken.
    pub(super) fn new(reserved: &[&str]) -> Self {
        let words = reserved.iter().flat_map(|words| words.split_whitespace());
        Self(words.map(str::to_owned).collect())
    }

    /// `name`, with underscores behind it if it is taken.
    pub(super) fn fresh(&mut self, mut name: String) -> String {
        while !self.0.insert(name.clone()) {
            name.push('_');
        }
        name
    }

    /// Names for all of `names`, in order.
    pub(super) fn all<'a>(
        reserved: &[&str],
        names: impl Iterator<Item = &'a String>,
        convert: fn(&str) -> String,
    ) -> Vec<String> {
        let mut table = Self::new(reserved);
        names.map(|name| table.fresh(convert(name))).collect()
    }
}

/// `ab-cd` as `ab_cd`.
pub(super) fn snake(name: &str) -> String {
    name.replace('-', "_").to_lowercase()
}

/// `ab-cd` as `AB_CD`.
pub(super) fn upper(name: &str) -> String {
    snake(name).to_uppercase()
}

/// `ab-cd` as `AbCd`.
pub(super) fn camel(name: &str) -> String {
    let capitalised = |word: &str| {
        let (first, rest) = word.split_at_checked(1).unwrap_or(("", word));
        format!("{}{}", first.to_uppercase(), rest.to_lowercase())
    };
    name.split('-').map(capitalised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_converted_and_stay_apart() {
        assert_eq!((snake("ab-CD"), upper("ab-cd")), ("ab_cd".into(), "AB_CD".into()));
        assert_eq!((camel("ab-CD-e1"), camel("x")), ("AbCdE1".into(), "X".into()));
        let names = ["type", "type", "self", "fine"].map(str::to_owned);
        let fresh = NameTable::all(&[RUST_KEYWORDS], names.iter(), snake);
        assert_eq!(fresh, ["type_", "type__", "self_", "fine"]);
    }
}
