//! Values as JSON, for people who call methods by hand.
//!
//! Records are objects (an option's field may be left out), tuples and lists arrays, enums
//! strings, flags arrays of strings. An option is null or its value, but `{"some": value}` where
//! the value may be null itself. A result is `{"ok": value}` or `{"err": value}`, a variant
//! `{"case": value}`, or `"case"` where it has no value. Bytes are written `"0x0a0b"` and read as
//! an array too; floats that JSON lacks are `"nan"`, `"inf"` and `"-inf"`.
//!
//! Never guesses: what does not fit the type is refused, with the path to it.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use crate::error::ValueError;
use crate::interface::Method;
use crate::types::{LabelsType, RecordType, Type, VariantType};
use crate::value::{VALUES_MAX, Value};

impl Value {
    /// The value of type `ty` that the JSON describes.
    ///
    /// # Errors
    ///
    /// [`ValueError`] with the path to what does not fit.
    pub fn from_json(ty: &Type, json: &Json) -> Result<Self, ValueError> {
        Reader { values_left: VALUES_MAX }.value(ty, json)
    }

    /// The value as JSON.
    ///
    /// # Errors
    ///
    /// [`ValueError`] if it is not of type `ty`.
    pub fn to_json(&self, ty: &Type) -> Result<Json, ValueError> {
        write(self, ty)
    }
}

impl Method {
    /// The parameters that the JSON values describe, in order.
    ///
    /// # Errors
    ///
    /// [`ValueError`] with the path to what does not fit, which begins with the parameter's name.
    pub fn parameters_from_json(&self, json: &[Json]) -> Result<Vec<Value>, ValueError> {
        if json.len() != self.parameters.len() {
            let count = ValueError::count(self.parameters.len(), json.len());
            return Err(count.within(|| self.name.clone()));
        }
        let values = self.parameters.iter().zip(json).map(|((name, ty), json)| {
            Value::from_json(ty, json).map_err(|error| error.within(|| name.clone()))
        });
        values.collect()
    }
}

/// Whether JSON's null is a value of the type.
fn may_be_null(ty: &Type) -> bool {
    matches!(ty, Type::Option(_))
}

struct Reader {
    values_left: usize,
}

impl Reader {
    fn value(&mut self, ty: &Type, json: &Json) -> Result<Value, ValueError> {
        self.values_left = self
            .values_left
            .checked_sub(1)
            .ok_or_else(|| ValueError::too_large("values", VALUES_MAX))?;
        match ty {
            Type::Option(inner) => self.option(inner, json),
            Type::Result(ok, err) => self.result(ok, err, json),
            Type::Variant(variant) => self.variant(variant, json),
            Type::Record(record) => self.record(record, json),
            Type::Tuple(types) => self.tuple(types, json),
            Type::List(list) if !ty.is_bytes() => {
                let items = array(ty, json)?.iter().enumerate().map(|(index, item)| {
                    let value = self.value(list.item(), item);
                    value.map_err(|error| error.within(|| format!("[{index}]")))
                });
                items.collect::<Result<_, _>>().map(Value::List)
            }
            _ => scalar(ty, json).ok_or_else(|| mismatch(ty, json)),
        }
    }

    fn option(&mut self, inner: &Type, json: &Json) -> Result<Value, ValueError> {
        if json.is_null() {
            return Ok(Value::Option(None));
        }
        let value = if may_be_null(inner) {
            let (_, value) = single(json, &["some"])
                .ok_or_else(|| ValueError::mismatch("null or {\"some\": ...}", kind(json)))?;
            self.value(inner, value)?
        } else {
            self.value(inner, json)?
        };
        Ok(Value::Option(Some(Box::new(value))))
    }

    fn result(
        &mut self,
        ok: &Option<Arc<Type>>,
        err: &Option<Arc<Type>>,
        json: &Json,
    ) -> Result<Value, ValueError> {
        let (word, inner) = single(json, &["ok", "err"])
            .ok_or_else(|| ValueError::mismatch("{\"ok\": ...} or {\"err\": ...}", kind(json)))?;
        let ty = if word == "ok" { ok } else { err };
        let value = self.payload(ty.as_deref(), inner);
        let value = value.map_err(|error| error.within(|| word.to_owned()))?;
        Ok(Value::Result(if word == "ok" { Ok(value) } else { Err(value) }))
    }

    fn payload(
        &mut self,
        ty: Option<&Type>,
        json: &Json,
    ) -> Result<Option<Box<Value>>, ValueError> {
        match ty {
            Some(ty) => self.value(ty, json).map(|value| Some(Box::new(value))),
            None if json.is_null() => Ok(None),
            None => Err(ValueError::mismatch("null", kind(json))),
        }
    }

    fn variant(&mut self, variant: &VariantType, json: &Json) -> Result<Value, ValueError> {
        let (name, inner) = match json {
            Json::String(name) => (name.as_str(), &Json::Null),
            Json::Object(map) if map.len() == 1 => {
                map.iter().next().map_or(("", &Json::Null), |(name, inner)| (name.as_str(), inner))
            }
            _ => return Err(ValueError::mismatch(cases_of(variant), kind(json))),
        };
        let case = variant.cases.iter().position(|(case, _)| case == name);
        let case = case.ok_or_else(|| ValueError::mismatch(cases_of(variant), quoted(name)))?;
        let value = self.payload(variant.cases[case].1.as_ref(), inner);
        let value = value.map_err(|error| error.within(|| name.to_owned()))?;
        Ok(Value::Variant(number(case), value))
    }

    fn record(&mut self, record: &RecordType, json: &Json) -> Result<Value, ValueError> {
        let Json::Object(map) = json else {
            return Err(ValueError::mismatch(format!("an object ({})", record.name), kind(json)));
        };
        let unknown = map.keys().find(|key| record.fields.iter().all(|(name, _)| name != *key));
        if let Some(key) = unknown {
            let fields: Vec<_> = record.fields.iter().map(|(name, _)| name.as_str()).collect();
            let expected = format!("an object with {}", fields.join(", "));
            return Err(ValueError::mismatch(expected, format!("one with {}", quoted(key))));
        }
        let fields = record.fields.iter().map(|(name, ty)| {
            let value = match map.get(name) {
                Some(field) => self.value(ty, field),
                None if may_be_null(ty) => Ok(Value::Option(None)),
                None => Err(ValueError::mismatch(ty.to_string(), "left out")),
            };
            value.map_err(|error| error.within(|| name.clone()))
        });
        fields.collect::<Result<_, _>>().map(Value::Record)
    }

    fn tuple(&mut self, types: &[Type], json: &Json) -> Result<Value, ValueError> {
        let Json::Array(items) = json else {
            return Err(ValueError::mismatch(format!("an array of {}", types.len()), kind(json)));
        };
        if items.len() != types.len() {
            return Err(ValueError::count(types.len(), items.len()));
        }
        let items = types.iter().zip(items).enumerate().map(|(index, (ty, item))| {
            self.value(ty, item).map_err(|error| error.within(|| format!("[{index}]")))
        });
        items.collect::<Result<_, _>>().map(Value::Tuple)
    }
}

fn array<'a>(ty: &Type, json: &'a Json) -> Result<&'a Vec<Json>, ValueError> {
    json.as_array().ok_or_else(|| ValueError::mismatch(format!("an array ({ty})"), kind(json)))
}

/// The one entry of an object, if it has one of these keys.
fn single<'a>(json: &'a Json, keys: &[&'static str]) -> Option<(&'static str, &'a Json)> {
    let map = json.as_object().filter(|map| map.len() == 1)?;
    keys.iter().find_map(|key| map.get(*key).map(|value| (*key, value)))
}

fn scalar(ty: &Type, json: &Json) -> Option<Value> {
    Some(match ty {
        Type::Bool => Value::Bool(json.as_bool()?),
        Type::U8 => Value::U8(json.as_u64()?.try_into().ok()?),
        Type::U16 => Value::U16(json.as_u64()?.try_into().ok()?),
        Type::U32 => Value::U32(json.as_u64()?.try_into().ok()?),
        Type::U64 => Value::U64(json.as_u64()?),
        Type::S8 => Value::S8(json.as_i64()?.try_into().ok()?),
        Type::S16 => Value::S16(json.as_i64()?.try_into().ok()?),
        Type::S32 => Value::S32(json.as_i64()?.try_into().ok()?),
        Type::S64 => Value::S64(json.as_i64()?),
        Type::F32 => Value::F32(narrow(float(json)?)),
        Type::F64 => Value::F64(float(json)?),
        Type::Char => Value::Char(json.as_str()?.parse().ok()?),
        Type::String => Value::String(json.as_str()?.to_owned()),
        Type::Enum(labels) => Value::Enum(number(label(labels, json)?)),
        Type::Flags(labels) => Value::Flags(flags(labels, json)?),
        _ => Value::Bytes(bytes(json)?),
    })
}

fn float(json: &Json) -> Option<f64> {
    match json.as_str() {
        Some("nan") => Some(f64::NAN),
        Some("inf") => Some(f64::INFINITY),
        Some("-inf") => Some(f64::NEG_INFINITY),
        Some(_) => None,
        None => json.as_f64(),
    }
}

/// To the nearest `f32`, as whoever writes 0.1 means.
#[allow(clippy::cast_possible_truncation, reason = "rounding is what is wanted")]
fn narrow(value: f64) -> f32 {
    value as f32
}

fn label(labels: &LabelsType, json: &Json) -> Option<usize> {
    let name = json.as_str()?;
    labels.labels.iter().position(|label| label == name)
}

fn flags(labels: &LabelsType, json: &Json) -> Option<u64> {
    json.as_array()?.iter().try_fold(0, |bits, flag| Some(bits | (1 << label(labels, flag)?)))
}

fn bytes(json: &Json) -> Option<Vec<u8>> {
    if let Some(items) = json.as_array() {
        return items.iter().map(|item| item.as_u64()?.try_into().ok()).collect();
    }
    let digits = json.as_str()?.strip_prefix("0x")?;
    if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) || digits.len() % 2 != 0 {
        return None;
    }
    let pairs = (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16));
    pairs.collect::<Result<_, _>>().ok()
}

/// Cases are bounded far below `u32`.
fn number(case: usize) -> u32 {
    u32::try_from(case).unwrap_or(u32::MAX)
}

fn mismatch(ty: &Type, json: &Json) -> ValueError {
    let expected = match ty {
        Type::Enum(labels) => format!("one of {}", labels.labels.join(", ")),
        Type::Flags(labels) => format!("an array of {}", labels.labels.join(", ")),
        Type::List(_) => "an array of bytes or a string \"0x...\"".to_owned(),
        Type::Char => "a string of one character".to_owned(),
        _ => ty.to_string(),
    };
    ValueError::mismatch(expected, kind(json))
}

fn cases_of(variant: &VariantType) -> String {
    let cases: Vec<_> = variant.cases.iter().map(|(name, _)| name.as_str()).collect();
    format!("one of the cases {}", cases.join(", "))
}

/// A piece of JSON for an error's text: at most 40 characters of it.
fn kind(json: &Json) -> String {
    match json {
        Json::Array(items) => format!("an array of {}", items.len()),
        Json::Object(map) => format!("an object with {} keys", map.len()),
        Json::String(text) => quoted(text),
        other => other.to_string(),
    }
}

fn quoted(text: &str) -> String {
    let short: String = text.chars().take(40).collect();
    format!("{short:?}")
}

fn write(value: &Value, ty: &Type) -> Result<Json, ValueError> {
    let refused = || ValueError::mismatch(ty.to_string(), value.kind());
    Ok(match (ty, value) {
        (Type::Option(_), Value::Option(None)) => Json::Null,
        (Type::Option(inner), Value::Option(Some(value))) => {
            let written = write(value, inner)?;
            if may_be_null(inner) { json!({ "some": written }) } else { written }
        }
        (Type::Result(ok, _), Value::Result(Ok(value))) => {
            json!({ "ok": write_payload(value.as_deref(), ok.as_deref(), "ok")? })
        }
        (Type::Result(_, err), Value::Result(Err(value))) => {
            json!({ "err": write_payload(value.as_deref(), err.as_deref(), "err")? })
        }
        (Type::List(list), Value::List(items)) if !ty.is_bytes() => {
            write_items(items.iter().map(|item| (item, list.item())))?
        }
        (Type::Tuple(types), Value::Tuple(items)) if types.len() == items.len() => {
            write_items(items.iter().zip(types.iter()))?
        }
        (Type::Record(record), Value::Record(fields)) => write_record(fields, record)?,
        (Type::Variant(variant), Value::Variant(case, value)) => {
            let (name, ty) = variant.cases.get(*case as usize).ok_or_else(refused)?;
            match write_payload(value.as_deref(), ty.as_ref(), name)? {
                Json::Null if ty.is_none() => json!(name),
                written => json!({ name: written }),
            }
        }
        _ => write_scalar(value, ty).ok_or_else(refused)?,
    })
}

fn write_payload(value: Option<&Value>, ty: Option<&Type>, word: &str) -> Result<Json, ValueError> {
    match (value, ty) {
        (Some(value), Some(ty)) => {
            write(value, ty).map_err(|error| error.within(|| word.to_owned()))
        }
        (None, None) => Ok(Json::Null),
        _ => Err(ValueError::mismatch("a value exactly if the type has one", word)),
    }
}

fn write_items<'a>(items: impl Iterator<Item = (&'a Value, &'a Type)>) -> Result<Json, ValueError> {
    let items = items.enumerate().map(|(index, (item, ty))| {
        write(item, ty).map_err(|error| error.within(|| format!("[{index}]")))
    });
    items.collect::<Result<_, _>>().map(Json::Array)
}

fn write_record(fields: &[Value], record: &RecordType) -> Result<Json, ValueError> {
    if fields.len() != record.fields.len() {
        return Err(ValueError::count(record.fields.len(), fields.len()));
    }
    let mut map = Map::new();
    for ((name, ty), field) in record.fields.iter().zip(fields) {
        let written = write(field, ty).map_err(|error| error.within(|| name.clone()))?;
        map.insert(name.clone(), written);
    }
    Ok(Json::Object(map))
}

fn write_scalar(value: &Value, ty: &Type) -> Option<Json> {
    Some(match (ty, value) {
        (Type::Bool, Value::Bool(value)) => json!(value),
        (Type::U8, Value::U8(value)) => json!(value),
        (Type::U16, Value::U16(value)) => json!(value),
        (Type::U32, Value::U32(value)) => json!(value),
        (Type::U64, Value::U64(value)) => json!(value),
        (Type::S8, Value::S8(value)) => json!(value),
        (Type::S16, Value::S16(value)) => json!(value),
        (Type::S32, Value::S32(value)) => json!(value),
        (Type::S64, Value::S64(value)) => json!(value),
        (Type::F32, Value::F32(value)) => write_float(f64::from(*value)),
        (Type::F64, Value::F64(value)) => write_float(*value),
        (Type::Char, Value::Char(value)) => json!(value),
        (Type::String, Value::String(value)) => json!(value),
        (Type::Enum(labels), Value::Enum(case)) => json!(labels.labels.get(*case as usize)?),
        (Type::Flags(labels), Value::Flags(bits)) if bits & !labels.mask() == 0 => {
            let is_set = |index: &usize| bits >> index & 1 == 1;
            (0..labels.labels.len()).filter(is_set).map(|at| json!(labels.labels[at])).collect()
        }
        (Type::List(_), Value::Bytes(bytes)) if ty.is_bytes() => {
            let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!(format!("0x{digits}"))
        }
        _ => return None,
    })
}

fn write_float(value: f64) -> Json {
    match value {
        _ if value.is_nan() => json!("nan"),
        f64::INFINITY => json!("inf"),
        f64::NEG_INFINITY => json!("-inf"),
        _ => json!(value),
    }
}

#[cfg(test)]
mod tests;
