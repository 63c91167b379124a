//! Types of an interface as types of C, with functions that put and take them.
//!
//! Types are called `INTERFACE_NAME_t`, functions `oc_VERB_INTERFACE_NAME`: as no interface's
//! names begin with `oc_`, the two never meet.

use std::collections::HashMap;

use super::names::{C_KEYWORDS, NameTable, snake, upper};
use super::text::Text;
use crate::interface::Interface;
use crate::types::{LabelsType, RecordType, Type, VariantType};

/// Longer names of types are cut.
const MANGLED_LEN_MAX: usize = 48;

/// The types of one interface that have names in C.
pub(super) struct CTypes<'a> {
    prefix: String,
    bases: HashMap<&'a Type, String>,
    order: Vec<&'a Type>,
}

/// How values of a type are written in C.
enum Shape {
    /// By value, by the runtime's functions of this name.
    Runtime(&'static str, &'static str),
    /// By value, by functions of its own: enums and flags.
    Number,
    /// By pointer, by functions of its own.
    Compound,
}

fn shape(ty: &Type) -> Shape {
    let (name, ty) = match ty {
        Type::Bool => ("bool", "bool"),
        Type::U8 => ("u8", "uint8_t"),
        Type::U16 => ("u16", "uint16_t"),
        Type::U32 => ("u32", "uint32_t"),
        Type::U64 => ("u64", "uint64_t"),
        Type::S8 => ("s8", "int8_t"),
        Type::S16 => ("s16", "int16_t"),
        Type::S32 => ("s32", "int32_t"),
        Type::S64 => ("s64", "int64_t"),
        Type::F32 => ("f32", "float"),
        Type::F64 => ("f64", "double"),
        Type::Char => ("char", "uint32_t"),
        Type::String => ("string", "oc_string"),
        _ if ty.is_bytes() => ("bytes", "oc_bytes"),
        Type::Enum(_) | Type::Flags(_) => return Shape::Number,
        _ => return Shape::Compound,
    };
    Shape::Runtime(name, ty)
}

impl<'a> CTypes<'a> {
    /// `table` holds the names of the whole file.
    pub(super) fn of(interface: &'a Interface, prefix: String, table: &mut NameTable) -> Self {
        let mut types = Self { prefix, bases: HashMap::new(), order: Vec::new() };
        for method in &interface.methods {
            for ty in method.parameters.iter().map(|(_, ty)| ty).chain(&method.result) {
                types.collect(ty, table);
            }
        }
        types
    }

    /// A type's parts come before it.
    fn collect(&mut self, ty: &'a Type, table: &mut NameTable) {
        if matches!(shape(ty), Shape::Runtime(..)) || self.bases.contains_key(ty) {
            return;
        }
        for part in ty.parts() {
            self.collect(part, table);
        }
        let mangled: String = mangle(ty).chars().take(MANGLED_LEN_MAX).collect();
        let base = table.fresh(format!("{}_{mangled}", self.prefix));
        self.bases.insert(ty, base);
        self.order.push(ty);
    }

    fn base(&self, ty: &Type) -> &str {
        self.bases.get(ty).map_or("", String::as_str)
    }

    /// The type of a value.
    pub(super) fn value(&self, ty: &Type) -> String {
        match shape(ty) {
            Shape::Runtime(_, name) => name.to_owned(),
            _ => format!("{}_t", self.base(ty)),
        }
    }

    /// The type of a parameter that is only read.
    pub(super) fn parameter(&self, ty: &Type) -> String {
        match shape(ty) {
            Shape::Compound => format!("const {} *", self.value(ty)),
            _ => format!("{} ", self.value(ty)),
        }
    }

    /// How a variable is handed to a parameter.
    pub(super) fn argument(&self, ty: &Type, variable: &str) -> String {
        match shape(ty) {
            Shape::Compound => format!("&{variable}"),
            _ => variable.to_owned(),
        }
    }

    /// A statement that writes what such a parameter holds.
    pub(super) fn put(&self, ty: &Type, out: &str, parameter: &str) -> String {
        match shape(ty) {
            Shape::Runtime(name, _) => format!("oc_put_{name}({out}, {parameter});"),
            _ => format!("oc_put_{}({out}, {parameter});", self.base(ty)),
        }
    }

    fn put_place(&self, ty: &Type, place: &str) -> String {
        self.put(ty, "out", &self.argument(ty, place))
    }

    /// An expression that reads a value into a place, and says whether it could.
    pub(super) fn take(&self, ty: &Type, input: &str, place: &str) -> String {
        match shape(ty) {
            Shape::Runtime(name, _) => format!("oc_take_{name}({input}, &{place})"),
            _ => format!("oc_take_{}({input}, &{place})", self.base(ty)),
        }
    }

    /// Writes all definitions.
    pub(super) fn emit(&self, table: &mut NameTable, out: &mut Text) {
        for ty in &self.order {
            out.blank();
            match ty {
                Type::Enum(labels) => self.emit_enum(ty, labels, table, out),
                Type::Flags(labels) => self.emit_flags(ty, labels, table, out),
                Type::Variant(variant) => self.emit_variant(ty, variant, table, out),
                Type::Record(record) => self.emit_record(ty, record, out),
                Type::Tuple(items) => {
                    let names = (0..items.len()).map(|at| format!("f{at}"));
                    self.emit_fields(ty, &names.zip(items.iter()).collect::<Vec<_>>(), out);
                }
                Type::List(list) => self.emit_list(ty, list.item(), list.item_len_min(), out),
                Type::Option(inner) => self.emit_option(ty, inner, out),
                Type::Result(ok, err) => self.emit_result(ty, [ok.as_deref(), err.as_deref()], out),
                _ => {}
            }
        }
    }

    fn functions(&self, ty: &Type, put: &[String], take: &[String], out: &mut Text) {
        let base = self.base(ty);
        let parameter = self.parameter(ty);
        out.line(format_args!("static inline void oc_put_{base}(oc_writer *out, {parameter}v) {{"));
        put.iter().for_each(|line| out.line(line));
        out.line("}");
        out.blank();
        out.line(format_args!("static inline bool oc_take_{base}(oc_reader *in, {base}_t *v) {{"));
        take.iter().for_each(|line| out.line(line));
        out.line("}");
    }

    fn emit_record(&self, ty: &Type, record: &RecordType, out: &mut Text) {
        let names = record.fields.iter().map(|(name, _)| name);
        let names = NameTable::all(&[C_KEYWORDS], names, snake);
        let fields = names.into_iter().zip(record.fields.iter().map(|(_, ty)| ty));
        self.emit_fields(ty, &fields.collect::<Vec<_>>(), out);
    }

    fn emit_fields(&self, ty: &Type, fields: &[(String, &Type)], out: &mut Text) {
        out.line("typedef struct {");
        for (name, field) in fields {
            out.line(format_args!("{} {name};", self.value(field)));
        }
        if fields.is_empty() {
            out.line("char nothing;");
        }
        out.line(format_args!("}} {}_t;", self.base(ty)));
        out.blank();
        let mut put: Vec<_> = fields
            .iter()
            .map(|(name, field)| self.put_place(field, &format!("v->{name}")))
            .collect();
        let mut take: Vec<_> = fields
            .iter()
            .flat_map(|(name, field)| or_false(&self.take(field, "in", &format!("v->{name}"))))
            .collect();
        if fields.is_empty() {
            put = vec!["(void)out;".into(), "(void)v;".into()];
            take = vec!["(void)in;".into(), "v->nothing = 0;".into()];
        }
        take.push("return true;".into());
        self.functions(ty, &put, &take, out);
    }

    fn emit_enum(&self, ty: &Type, labels: &LabelsType, table: &mut NameTable, out: &mut Text) {
        let base = self.base(ty);
        out.line(format_args!("typedef uint32_t {base}_t;"));
        constants(base, &labels.labels, table, out);
        let put = ["oc_put_u32(out, v);".to_owned()];
        let take = [format!("return oc_take_u32(in, v) && *v < {};", labels.labels.len())];
        self.functions(ty, &put, &take, out);
    }

    fn emit_flags(&self, ty: &Type, labels: &LabelsType, table: &mut NameTable, out: &mut Text) {
        let base = self.base(ty);
        let mask = format!("UINT64_C({:#x})", labels.mask());
        out.line(format_args!("typedef uint64_t {base}_t;"));
        for (bit, label) in labels.labels.iter().enumerate() {
            let name = table.fresh(format!("{}_{}", base.to_uppercase(), upper(label)));
            out.line(format_args!("#define {name} (UINT64_C(1) << {bit})"));
        }
        let put = [format!("oc_put_u64(out, v & {mask});")];
        let take = [format!("return oc_take_u64(in, v) && (*v & ~{mask}) == 0;")];
        self.functions(ty, &put, &take, out);
    }

    fn emit_list(&self, ty: &Type, item: &Type, item_len_min: usize, out: &mut Text) {
        let value = self.value(item);
        out.line(format_args!(
            "typedef struct {{ const {value} *items; size_t len; }} {}_t;",
            self.base(ty)
        ));
        let put = [
            "size_t i;".to_owned(),
            "oc_put_u64(out, v->len);".into(),
            "for (i = 0; i < v->len; i++) {".into(),
            self.put_place(item, "v->items[i]"),
            "}".into(),
        ];
        let mut take = vec!["size_t len, i;".to_owned(), format!("{value} *items;")];
        take.extend(or_false(&format!("oc_take_len(in, {item_len_min}, &len)")));
        take.push(format!("items = ({value} *)oc_alloc(in->arena, sizeof({value}), len);"));
        take.extend(or_false("items"));
        take.push("for (i = 0; i < len; i++) {".into());
        take.extend(or_false(&self.take(item, "in", "items[i]")));
        take.extend(["}", "v->items = items;", "v->len = len;", "return true;"].map(str::to_owned));
        self.functions(ty, &put, &take, out);
    }

    fn emit_option(&self, ty: &Type, inner: &Type, out: &mut Text) {
        let value = self.value(inner);
        out.line(format_args!(
            "typedef struct {{ bool is_some; {value} value; }} {}_t;",
            self.base(ty)
        ));
        let put = [
            "oc_put_bool(out, v->is_some);".to_owned(),
            "if (v->is_some) {".into(),
            self.put_place(inner, "v->value"),
            "}".into(),
        ];
        let mut take = or_false("oc_take_bool(in, &v->is_some)").to_vec();
        take.push(format!("return !v->is_some || {};", self.take(inner, "in", "v->value")));
        self.functions(ty, &put, &take, out);
    }

    fn emit_result(&self, ty: &Type, payloads: [Option<&Type>; 2], out: &mut Text) {
        let names = ["ok", "err"];
        out.line("typedef struct {");
        out.line("bool is_ok;");
        let cases: Vec<_> = names.into_iter().map(str::to_owned).zip(payloads).collect();
        self.emit_union(&cases, out);
        out.line(format_args!("}} {}_t;", self.base(ty)));
        let put_one = |at: usize| {
            payloads[at].map(|ty| self.put_place(ty, &format!("v->value.{}", names[at])))
        };
        let mut put = vec!["oc_put_bool(out, !v->is_ok);".to_owned()];
        put.extend(["if (v->is_ok) {".to_owned()].into_iter().chain(put_one(0)));
        put.extend(["} else {".to_owned()].into_iter().chain(put_one(1)).chain(["}".to_owned()]));
        let take_one = |at: usize| {
            let place = format!("v->value.{}", names[at]);
            payloads[at].map_or_else(|| "true".to_owned(), |ty| self.take(ty, "in", &place))
        };
        let mut take = vec!["uint32_t tag;".to_owned()];
        take.extend(or_false("(oc_take_u32(in, &tag) && tag < 2)"));
        take.push("v->is_ok = tag == 0;".into());
        take.push(format!("return v->is_ok ? {} : {};", take_one(0), take_one(1)));
        self.functions(ty, &put, &take, out);
    }

    fn emit_union(&self, cases: &[(String, Option<&Type>)], out: &mut Text) {
        let valued = cases.iter().filter_map(|(name, ty)| ty.map(|ty| (name, ty)));
        let members: Vec<_> =
            valued.map(|(name, ty)| format!("{} {name};", self.value(ty))).collect();
        if !members.is_empty() {
            out.line("union {");
            members.iter().for_each(|member| out.line(member));
            out.line("} value;");
        }
    }

    fn emit_variant(
        &self,
        ty: &Type,
        variant: &VariantType,
        table: &mut NameTable,
        out: &mut Text,
    ) {
        let names: Vec<String> = variant.cases.iter().map(|(name, _)| name.clone()).collect();
        let members = NameTable::all(&[C_KEYWORDS], names.iter(), snake);
        let cases: Vec<_> =
            members.into_iter().zip(variant.cases.iter().map(|(_, ty)| ty.as_ref())).collect();
        out.line("typedef struct {");
        out.line("uint32_t tag;");
        self.emit_union(&cases, out);
        out.line(format_args!("}} {}_t;", self.base(ty)));
        constants(self.base(ty), &names, table, out);
        let mut put = vec!["oc_put_u32(out, v->tag);".to_owned(), "switch (v->tag) {".into()];
        let mut take = or_false("oc_take_u32(in, &v->tag)").to_vec();
        take.push("switch (v->tag) {".into());
        for (number, (name, ty)) in cases.iter().enumerate() {
            let place = format!("v->value.{name}");
            if let Some(ty) = ty {
                put.push(format!("case {number}: {} break;", self.put_place(ty, &place)));
            }
            let taken = ty.map_or_else(|| "true".to_owned(), |ty| self.take(ty, "in", &place));
            take.push(format!("case {number}: return {taken};"));
        }
        put.extend(["default: break;", "}"].map(str::to_owned));
        take.extend(["default: return false;", "}"].map(str::to_owned));
        self.functions(ty, &put, &take, out);
    }
}

fn or_false(expression: &str) -> [String; 3] {
    [format!("if (!{expression}) {{"), "return false;".into(), "}".into()]
}

fn constants(base: &str, names: &[String], table: &mut NameTable, out: &mut Text) {
    for (number, name) in names.iter().enumerate() {
        let name = table.fresh(format!("{}_{}", base.to_uppercase(), upper(name)));
        out.line(format_args!("#define {name} {number}u"));
    }
}

/// A readable name for a type; two types may have the same.
fn mangle(ty: &Type) -> String {
    let word = match ty {
        Type::List(_) if ty.is_bytes() => return "bytes".into(),
        Type::List(_) => "list",
        Type::Option(_) => "option",
        Type::Result(..) => "result",
        Type::Tuple(_) => "tuple",
        _ => return ty.name().map_or_else(|| ty.to_string(), snake),
    };
    let parts = ty.parts().into_iter().map(|part| format!("_{}", mangle(part)));
    format!("{word}{}", parts.collect::<String>())
}
