//! Types of an interface as types of Rust, with `Emit` and `Parse`.
//!
//! Never names a type of the prelude that WIT could redefine: those are reserved.

use std::collections::{HashMap, HashSet};

use super::names::{NameTable, RUST_KEYWORDS, RUST_TAKEN, camel, snake, upper};
use super::text::Text;
use crate::interface::{Interface, Method};
use crate::types::{LabelsType, RecordType, Type, VariantType};

/// Written above all modules: names are WIT's, and not all are used.
pub(super) const RUST_ALLOW: &str = "#[allow(dead_code, missing_docs, non_camel_case_types, \
    unreachable_pub, unused_imports, unused_mut, unused_variables, clippy::all, \
    clippy::pedantic, clippy::nursery)]";

/// What a module of an interface uses, for paths that begin with `{wire}`.
pub(super) const RUST_USES: &str = "Emit, Parse, String, Vec, WireError, WireReader";

/// The named types of an interface.
pub(super) struct RustTypes<'a> {
    names: HashMap<&'a Type, String>,
    order: Vec<&'a Type>,
}

/// A method with names of Rust.
pub(super) struct RustMethod<'a> {
    pub(super) name: String,
    pub(super) parameters: Vec<(String, &'a Type)>,
    /// The type that it returns, `()` if it returns nothing.
    pub(super) result: String,
}

impl<'a> RustTypes<'a> {
    pub(super) fn of(interface: &'a Interface) -> Self {
        let mut types = Self { names: HashMap::new(), order: Vec::new() };
        let (mut table, mut seen) = (NameTable::new(&[RUST_KEYWORDS, RUST_TAKEN]), HashSet::new());
        for method in &interface.methods {
            for ty in method.parameters.iter().map(|(_, ty)| ty).chain(&method.result) {
                types.collect(ty, &mut table, &mut seen);
            }
        }
        types
    }

    /// A type's parts come before it.
    fn collect(&mut self, ty: &'a Type, table: &mut NameTable, seen: &mut HashSet<&'a Type>) {
        if !seen.insert(ty) {
            return;
        }
        for part in ty.parts() {
            self.collect(part, table, seen);
        }
        if let Some(name) = ty.name() {
            self.names.insert(ty, table.fresh(camel(name)));
            self.order.push(ty);
        }
    }

    /// The type of an owned value.
    pub(super) fn owned(&self, ty: &Type) -> String {
        let plain = match ty {
            Type::Bool => "bool",
            Type::U8 => "u8",
            Type::U16 => "u16",
            Type::U32 => "u32",
            Type::U64 => "u64",
            Type::S8 => "i8",
            Type::S16 => "i16",
            Type::S32 => "i32",
            Type::S64 => "i64",
            Type::F32 => "f32",
            Type::F64 => "f64",
            Type::Char => "char",
            Type::String => "String",
            Type::List(list) => return format!("Vec<{}>", self.owned(list.item())),
            Type::Option(inner) => return format!("Option<{}>", self.owned(inner)),
            Type::Result(ok, err) => {
                let [ok, err] = [ok, err].map(|ty| self.payload(ty.as_deref()));
                return format!("Result<{ok}, {err}>");
            }
            Type::Tuple(items) => {
                let items: String =
                    items.iter().map(|ty| format!("{}, ", self.owned(ty))).collect();
                return format!("({})", items.trim_end_matches(' '));
            }
            _ => self.names.get(ty).map_or("", String::as_str),
        };
        plain.to_owned()
    }

    fn payload(&self, ty: Option<&Type>) -> String {
        ty.map_or_else(|| "()".to_owned(), |ty| self.owned(ty))
    }

    /// The type of a parameter that is only read.
    pub(super) fn borrowed(&self, ty: &Type) -> String {
        match ty {
            Type::String => "&str".to_owned(),
            Type::List(list) => format!("&[{}]", self.owned(list.item())),
            _ if is_copied(ty) => self.owned(ty),
            _ => format!("&{}", self.owned(ty)),
        }
    }

    /// A line that appends a parameter of [`Self::borrowed`]'s type.
    pub(super) fn emit_borrowed(&self, name: &str, ty: &Type) -> String {
        let reference = if is_copied(ty) { "&" } else { "" };
        format!("Emit::emit({reference}{name}, out);")
    }

    /// The methods with names of Rust.
    pub(super) fn methods(&self, methods: &'a [Method]) -> Vec<RustMethod<'a>> {
        let names = methods.iter().map(|method| &method.name);
        let names = NameTable::all(&[RUST_KEYWORDS], names, snake);
        let named = names.into_iter().zip(methods).map(|(name, method)| RustMethod {
            name,
            parameters: parameters(method),
            result: self.payload(method.result.as_ref()),
        });
        named.collect()
    }

    /// Writes all definitions.
    pub(super) fn emit(&self, out: &mut Text) {
        for ty in &self.order {
            let name = &self.names[*ty];
            out.blank();
            match ty {
                Type::Record(record) => self.emit_record(name, record, out),
                Type::Enum(labels) => emit_enum(name, labels, out),
                Type::Flags(labels) => emit_flags(name, labels, out),
                Type::Variant(variant) => self.emit_variant(name, variant, out),
                _ => {}
            }
        }
    }

    fn emit_record(&self, name: &str, record: &RecordType, out: &mut Text) {
        let fields =
            NameTable::all(&[RUST_KEYWORDS], record.fields.iter().map(|(name, _)| name), snake);
        out.line("#[derive(Clone, Debug, PartialEq)]");
        out.line(format_args!("pub struct {name} {{"));
        for (field, (_, ty)) in fields.iter().zip(&record.fields) {
            out.line(format_args!("pub {field}: {},", self.owned(ty)));
        }
        out.line("}");
        emit_impl(name, out, |out| {
            fields
                .iter()
                .for_each(|field| out.line(format_args!("Emit::emit(&self.{field}, out);")));
        });
        let len_min = record.fields.iter().map(|(_, ty)| self.len_min(ty));
        let len_min: Vec<_> = ["0".to_owned()].into_iter().chain(len_min).collect();
        parse_impl(name, &len_min.join(" + "), out, |out| {
            out.line(format_args!("Ok({name} {{"));
            for field in &fields {
                out.line(format_args!("{field}: Parse::parse(input)?,"));
            }
            out.line("})");
        });
    }

    fn len_min(&self, ty: &Type) -> String {
        format!("<{} as Parse>::LEN_MIN", self.owned(ty))
    }

    fn emit_variant(&self, name: &str, variant: &VariantType, out: &mut Text) {
        let cases =
            NameTable::all(&[RUST_KEYWORDS], variant.cases.iter().map(|(name, _)| name), camel);
        let cases: Vec<_> = cases.iter().zip(variant.cases.iter().map(|(_, ty)| ty)).collect();
        out.line("#[derive(Clone, Debug, PartialEq)]");
        out.line(format_args!("pub enum {name} {{"));
        for (case, ty) in &cases {
            let payload = ty.as_ref().map(|ty| format!("({})", self.owned(ty)));
            out.line(format_args!("{case}{},", payload.unwrap_or_default()));
        }
        out.line("}");
        emit_impl(name, out, |out| {
            out.line("match self {");
            for (number, (case, ty)) in cases.iter().enumerate() {
                let (pattern, rest) = match ty {
                    Some(_) => ("(value)", " Emit::emit(value, out); }"),
                    None => ("", " }"),
                };
                let head = format!("{name}::{case}{pattern} => {{ Emit::emit(&{number}u32, out);");
                out.line(format_args!("{head}{rest}"));
            }
            out.line("}");
        });
        parse_impl(name, "1", out, |out| {
            out.line("match u32::parse(input)? {");
            for (number, (case, ty)) in cases.iter().enumerate() {
                let made = match ty {
                    Some(_) => format!("Parse::parse(input).map({name}::{case})"),
                    None => format!("Ok({name}::{case})"),
                };
                out.line(format_args!("{number} => {made},"));
            }
            out.line("_ => Err(WireError::Tag),");
            out.line("}");
        });
    }
}

fn is_copied(ty: &Type) -> bool {
    let is_plain = ty.parts().is_empty() && !matches!(ty, Type::String | Type::Tuple(_));
    is_plain && !matches!(ty, Type::Record(_) | Type::Variant(_) | Type::Result(..))
}

fn parameters(method: &Method) -> Vec<(String, &Type)> {
    let names = method.parameters.iter().map(|(name, _)| name);
    let names = NameTable::all(&[RUST_KEYWORDS, RUST_TAKEN], names, snake);
    names.into_iter().zip(method.parameters.iter().map(|(_, ty)| ty)).collect()
}

fn emit_impl(name: &str, out: &mut Text, body: impl FnOnce(&mut Text)) {
    out.blank();
    out.line(format_args!("impl Emit for {name} {{"));
    out.line("fn emit(&self, out: &mut Vec<u8>) {");
    body(out);
    out.line("}");
    out.line("}");
}

fn parse_impl(name: &str, len_min: &str, out: &mut Text, body: impl FnOnce(&mut Text)) {
    out.blank();
    out.line(format_args!("impl Parse for {name} {{"));
    out.line(format_args!("const LEN_MIN: usize = {len_min};"));
    out.blank();
    out.line("fn parse(input: &mut WireReader<'_>) -> Result<Self, WireError> {");
    body(out);
    out.line("}");
    out.line("}");
}

fn emit_enum(name: &str, labels: &LabelsType, out: &mut Text) {
    let cases = NameTable::all(&[RUST_KEYWORDS], labels.labels.iter(), camel);
    out.line("#[derive(Clone, Copy, Debug, PartialEq, Eq)]");
    out.line(format_args!("pub enum {name} {{"));
    for (number, case) in cases.iter().enumerate() {
        out.line(format_args!("{case} = {number},"));
    }
    out.line("}");
    emit_impl(name, out, |out| out.line("Emit::emit(&(*self as u32), out);"));
    parse_impl(name, "1", out, |out| {
        out.line("match u32::parse(input)? {");
        for (number, case) in cases.iter().enumerate() {
            out.line(format_args!("{number} => Ok({name}::{case}),"));
        }
        out.line("_ => Err(WireError::Tag),");
        out.line("}");
    });
}

fn emit_flags(name: &str, labels: &LabelsType, out: &mut Text) {
    let flags = NameTable::all(&["ALL"], labels.labels.iter(), upper);
    out.line("#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]");
    out.line(format_args!("pub struct {name}(pub u64);"));
    out.blank();
    out.line(format_args!("impl {name} {{"));
    for (bit, flag) in flags.iter().enumerate() {
        out.line(format_args!("pub const {flag}: {name} = {name}(1 << {bit});"));
    }
    out.line(format_args!("pub const ALL: {name} = {name}({:#x});", labels.mask()));
    out.blank();
    out.line(format_args!("pub fn contains(self, other: {name}) -> bool {{"));
    out.line("self.0 & other.0 == other.0");
    out.line("}");
    out.line("}");
    out.blank();
    out.line(format_args!("impl core::ops::BitOr for {name} {{"));
    out.line(format_args!("type Output = {name};"));
    out.blank();
    out.line(format_args!("fn bitor(self, other: {name}) -> {name} {{"));
    out.line(format_args!("{name}(self.0 | other.0)"));
    out.line("}");
    out.line("}");
    emit_impl(name, out, |out| {
        out.line(format_args!("Emit::emit(&(self.0 & {name}::ALL.0), out);"));
    });
    parse_impl(name, "1", out, |out| {
        out.line("let bits = u64::parse(input)?;");
        let made = format!("Ok({name}(bits))");
        out.line(format_args!(
            "if bits & !{name}::ALL.0 == 0 {{ {made} }} else {{ Err(WireError::Tag) }}"
        ));
    });
}
