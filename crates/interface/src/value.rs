//! Values whose types are known only at run time, and their bytes.
//!
//! The same bytes as [`crate::wire`] makes of Rust types. Never panics on hostile bytes; what is
//! decoded has at most [`VALUES_MAX`] values and a few dozen bytes of memory for each byte read.

use crate::error::ValueError;
use crate::types::{ListType, RecordType, Type, VariantType};
use crate::wire::{Emit, Parse, WireError, WireReader, emit_varint};

/// Bytes that parameters or results take, at most: 16 MiB.
pub const ENCODED_LEN_MAX: usize = 16 << 20;
/// Values within values that parameters or results hold, at most; a list of bytes counts once.
pub const VALUES_MAX: usize = 1 << 20;

/// A value of a [`Type`].
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "called as the types")]
pub enum Value {
    Bool(bool),
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    S8(i8),
    S16(i16),
    S32(i32),
    S64(i64),
    F32(f32),
    F64(f64),
    Char(char),
    String(String),
    /// Of type `list<u8>`, and only that.
    Bytes(Vec<u8>),
    List(Vec<Self>),
    Option(Option<Box<Self>>),
    Result(Result<Option<Box<Self>>, Option<Box<Self>>>),
    Tuple(Vec<Self>),
    /// The fields' values, in the type's order.
    Record(Vec<Self>),
    /// The case's number.
    Enum(u32),
    /// Bits, the type's first flag the lowest.
    Flags(u64),
    /// The case's number, and its value if it has one.
    Variant(u32, Option<Box<Self>>),
}

impl Value {
    /// What it is, for texts of errors.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "a bool",
            Self::U8(_) => "a u8",
            Self::U16(_) => "a u16",
            Self::U32(_) => "a u32",
            Self::U64(_) => "a u64",
            Self::S8(_) => "an s8",
            Self::S16(_) => "an s16",
            Self::S32(_) => "an s32",
            Self::S64(_) => "an s64",
            Self::F32(_) => "an f32",
            Self::F64(_) => "an f64",
            Self::Char(_) => "a char",
            Self::String(_) => "a string",
            Self::Bytes(_) => "bytes",
            Self::List(_) => "a list",
            Self::Option(_) => "an option",
            Self::Result(_) => "a result",
            Self::Tuple(_) => "a tuple",
            Self::Record(_) => "a record",
            Self::Enum(_) => "an enum",
            Self::Flags(_) => "flags",
            Self::Variant(..) => "a variant",
        }
    }

    /// The value as bytes.
    ///
    /// # Errors
    ///
    /// [`ValueError`] if it is not of type `ty`, or takes more than [`ENCODED_LEN_MAX`].
    pub fn encode(&self, ty: &Type) -> Result<Vec<u8>, ValueError> {
        let mut out = Vec::new();
        encode(self, ty, &mut out)?;
        check_len(out.len())?;
        Ok(out)
    }

    /// The value of type `ty` that is all of `bytes`.
    ///
    /// # Errors
    ///
    /// [`ValueError`] if none is.
    pub fn decode(ty: &Type, bytes: &[u8]) -> Result<Self, ValueError> {
        let mut decoder = Decoder::new(bytes)?;
        let value = decoder.value(ty)?;
        decoder.finish()?;
        Ok(value)
    }
}

pub(crate) fn check_len(len: usize) -> Result<(), ValueError> {
    if len <= ENCODED_LEN_MAX {
        Ok(())
    } else {
        Err(ValueError::too_large("bytes", ENCODED_LEN_MAX))
    }
}

/// Appends the bytes of `value`.
pub(crate) fn encode(value: &Value, ty: &Type, out: &mut Vec<u8>) -> Result<(), ValueError> {
    match (ty, value) {
        (Type::Bool, Value::Bool(value)) => value.emit(out),
        (Type::U8, Value::U8(value)) => value.emit(out),
        (Type::U16, Value::U16(value)) => value.emit(out),
        (Type::U32, Value::U32(value)) => value.emit(out),
        (Type::U64, Value::U64(value)) => value.emit(out),
        (Type::S8, Value::S8(value)) => value.emit(out),
        (Type::S16, Value::S16(value)) => value.emit(out),
        (Type::S32, Value::S32(value)) => value.emit(out),
        (Type::S64, Value::S64(value)) => value.emit(out),
        (Type::F32, Value::F32(value)) => value.emit(out),
        (Type::F64, Value::F64(value)) => value.emit(out),
        (Type::Char, Value::Char(value)) => value.emit(out),
        (Type::String, Value::String(value)) => value.emit(out),
        (Type::List(_), Value::Bytes(bytes)) if ty.is_bytes() => bytes.emit(out),
        _ => return encode_compound(value, ty, out),
    }
    Ok(())
}

fn encode_compound(value: &Value, ty: &Type, out: &mut Vec<u8>) -> Result<(), ValueError> {
    match (ty, value) {
        (Type::List(list), Value::List(items)) if !ty.is_bytes() => encode_list(items, list, out),
        (Type::Option(inner), Value::Option(value)) => {
            value.is_some().emit(out);
            value.as_ref().map_or(Ok(()), |value| encode(value, inner, out))
        }
        (Type::Result(ok, _), Value::Result(Ok(value))) => {
            out.push(0);
            encode_case(value.as_deref(), ok.as_deref(), out).map_err(|e| e.within(|| "ok".into()))
        }
        (Type::Result(_, err), Value::Result(Err(value))) => {
            out.push(1);
            encode_case(value.as_deref(), err.as_deref(), out)
                .map_err(|e| e.within(|| "err".into()))
        }
        (Type::Tuple(types), Value::Tuple(items)) => encode_tuple(items, types, out),
        (Type::Record(record), Value::Record(fields)) => encode_record(fields, record, out),
        (Type::Variant(variant), Value::Variant(case, value)) => {
            encode_variant(*case, value.as_deref(), variant, out)
        }
        (Type::Enum(labels), Value::Enum(case)) if (*case as usize) < labels.labels.len() => {
            case.emit(out);
            Ok(())
        }
        (Type::Flags(labels), Value::Flags(bits)) if bits & !labels.mask() == 0 => {
            bits.emit(out);
            Ok(())
        }
        _ => Err(ValueError::mismatch(ty.to_string(), value.kind())),
    }
}

fn encode_list(items: &[Value], list: &ListType, out: &mut Vec<u8>) -> Result<(), ValueError> {
    emit_varint(items.len() as u64, out);
    for (index, item) in items.iter().enumerate() {
        encode(item, list.item(), out).map_err(|error| error.within(|| format!("[{index}]")))?;
        check_len(out.len())?;
    }
    Ok(())
}

fn encode_case(
    value: Option<&Value>,
    ty: Option<&Type>,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    match (value, ty) {
        (None, None) => Ok(()),
        (Some(value), Some(ty)) => encode(value, ty, out),
        (Some(value), None) => Err(ValueError::mismatch("without a value", value.kind())),
        (None, Some(ty)) => Err(ValueError::mismatch(ty.to_string(), "without a value")),
    }
}

fn encode_tuple(items: &[Value], types: &[Type], out: &mut Vec<u8>) -> Result<(), ValueError> {
    if items.len() != types.len() {
        return Err(ValueError::count(types.len(), items.len()));
    }
    for (index, (item, ty)) in items.iter().zip(types).enumerate() {
        encode(item, ty, out).map_err(|error| error.within(|| format!("[{index}]")))?;
    }
    Ok(())
}

fn encode_record(
    fields: &[Value],
    record: &RecordType,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    if fields.len() != record.fields.len() {
        return Err(ValueError::count(record.fields.len(), fields.len()));
    }
    encode_fields(fields, &record.fields, out)
}

/// Values under names; there are as many of the one as of the other.
pub(crate) fn encode_fields(
    values: &[Value],
    fields: &[(String, Type)],
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    for (value, (name, ty)) in values.iter().zip(fields) {
        encode(value, ty, out).map_err(|error| error.within(|| name.clone()))?;
    }
    Ok(())
}

fn encode_variant(
    case: u32,
    value: Option<&Value>,
    variant: &VariantType,
    out: &mut Vec<u8>,
) -> Result<(), ValueError> {
    let Some((name, ty)) = variant.cases.get(case as usize) else {
        return Err(ValueError::mismatch(variant.name.clone(), format!("case {case}")));
    };
    case.emit(out);
    encode_case(value, ty.as_ref(), out).map_err(|error| error.within(|| name.clone()))
}

/// Bytes that are decoded, and how many values may still come of them.
pub(crate) struct Decoder<'a> {
    input: WireReader<'a>,
    values_left: usize,
}

impl<'a> Decoder<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, ValueError> {
        check_len(bytes.len())?;
        Ok(Self { input: WireReader::new(bytes), values_left: VALUES_MAX })
    }

    pub(crate) fn finish(self) -> Result<(), ValueError> {
        self.input.finish().map_err(ValueError::wire)
    }

    /// Reads one value. Its depth is the type's.
    pub(crate) fn value(&mut self, ty: &Type) -> Result<Value, ValueError> {
        self.values_left = self
            .values_left
            .checked_sub(1)
            .ok_or_else(|| ValueError::too_large("values", VALUES_MAX))?;
        match ty {
            Type::List(_) if ty.is_bytes() => self.plain().map(Value::Bytes),
            Type::List(list) => self.list(list),
            Type::Option(inner) => self.option(inner),
            Type::Result(ok, err) => self.result(ok.as_deref(), err.as_deref()),
            Type::Tuple(types) => self.tuple(types),
            Type::Record(record) => self.fields(&record.fields).map(Value::Record),
            Type::Variant(variant) => self.variant(variant),
            Type::Enum(labels) => self.case(labels.labels.len()).map(Value::Enum),
            Type::Flags(labels) => self.flags(labels.mask()),
            _ => self.scalar(ty),
        }
    }

    fn plain<T: Parse>(&mut self) -> Result<T, ValueError> {
        T::parse(&mut self.input).map_err(ValueError::wire)
    }

    fn scalar(&mut self, ty: &Type) -> Result<Value, ValueError> {
        Ok(match ty {
            Type::Bool => Value::Bool(self.plain()?),
            Type::U8 => Value::U8(self.plain()?),
            Type::U16 => Value::U16(self.plain()?),
            Type::U32 => Value::U32(self.plain()?),
            Type::U64 => Value::U64(self.plain()?),
            Type::S8 => Value::S8(self.plain()?),
            Type::S16 => Value::S16(self.plain()?),
            Type::S32 => Value::S32(self.plain()?),
            Type::S64 => Value::S64(self.plain()?),
            Type::F32 => Value::F32(self.plain()?),
            Type::F64 => Value::F64(self.plain()?),
            Type::Char => Value::Char(self.plain()?),
            // The others are compound: `value` has met them.
            _ => Value::String(self.plain()?),
        })
    }

    fn list(&mut self, list: &ListType) -> Result<Value, ValueError> {
        let len = self.input.len(list.item_len_min()).map_err(ValueError::wire)?;
        if len > self.values_left {
            return Err(ValueError::too_large("values", VALUES_MAX));
        }
        let mut items = Vec::with_capacity(len);
        for index in 0..len {
            let item = self.value(list.item());
            items.push(item.map_err(|error| error.within(|| format!("[{index}]")))?);
        }
        Ok(Value::List(items))
    }

    fn option(&mut self, inner: &Type) -> Result<Value, ValueError> {
        let is_some = self.plain()?;
        let value = if is_some { Some(Box::new(self.value(inner)?)) } else { None };
        Ok(Value::Option(value))
    }

    fn result(&mut self, ok: Option<&Type>, err: Option<&Type>) -> Result<Value, ValueError> {
        let is_err = self.case(2)? == 1;
        let ty = if is_err { err } else { ok };
        let word = || if is_err { "err".to_owned() } else { "ok".to_owned() };
        let value = self.payload(ty).map_err(|error| error.within(word))?;
        Ok(Value::Result(if is_err { Err(value) } else { Ok(value) }))
    }

    fn payload(&mut self, ty: Option<&Type>) -> Result<Option<Box<Value>>, ValueError> {
        ty.map(|ty| self.value(ty).map(Box::new)).transpose()
    }

    fn tuple(&mut self, types: &[Type]) -> Result<Value, ValueError> {
        let items = types.iter().enumerate().map(|(index, ty)| {
            self.value(ty).map_err(|error| error.within(|| format!("[{index}]")))
        });
        items.collect::<Result<_, _>>().map(Value::Tuple)
    }

    /// Reads values under names.
    pub(crate) fn fields(&mut self, fields: &[(String, Type)]) -> Result<Vec<Value>, ValueError> {
        let values = fields
            .iter()
            .map(|(name, ty)| self.value(ty).map_err(|error| error.within(|| name.clone())));
        values.collect()
    }

    fn case(&mut self, cases: usize) -> Result<u32, ValueError> {
        let case: u32 = self.plain()?;
        if (case as usize) < cases { Ok(case) } else { Err(ValueError::wire(WireError::Tag)) }
    }

    fn variant(&mut self, variant: &VariantType) -> Result<Value, ValueError> {
        let case = self.case(variant.cases.len())?;
        let (name, ty) = &variant.cases[case as usize];
        let value = self.payload(ty.as_ref()).map_err(|error| error.within(|| name.clone()))?;
        Ok(Value::Variant(case, value))
    }

    fn flags(&mut self, mask: u64) -> Result<Value, ValueError> {
        let bits: u64 = self.plain()?;
        if bits & !mask != 0 {
            return Err(ValueError::wire(WireError::Tag));
        }
        Ok(Value::Flags(bits))
    }
}

#[cfg(test)]
mod tests;
