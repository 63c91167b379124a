//! Random values of random types: what is encoded comes back, what is hostile is refused.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::types::LabelsType;

fn labels(count: usize) -> Arc<LabelsType> {
    let labels = (0..count).map(|index| format!("l{index}")).collect();
    Arc::new(LabelsType { name: "labels".into(), labels })
}

fn named(types: Vec<Type>) -> Vec<(String, Type)> {
    types.into_iter().enumerate().map(|(index, ty)| (format!("m{index}"), ty)).collect()
}

/// A list, or an option where the items take no bytes.
fn list(item: Type) -> Type {
    Type::list(item.clone()).unwrap_or_else(|| Type::Option(Arc::new(item)))
}

pub(crate) fn types() -> impl Strategy<Value = Type> {
    let leaf = prop_oneof![
        prop::sample::select(vec![
            Type::Bool,
            Type::U8,
            Type::U16,
            Type::U32,
            Type::U64,
            Type::S8,
            Type::S16,
            Type::S32,
            Type::S64,
            Type::F32,
            Type::F64,
            Type::Char,
            Type::String,
            list(Type::U8),
            Type::Result(None, None),
        ]),
        (1_usize..300).prop_map(|count| Type::Enum(labels(count))),
        (0_usize..65).prop_map(|count| Type::Flags(labels(count))),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let several = vec(inner.clone(), 0..4);
        prop_oneof![
            inner.clone().prop_map(list),
            inner.clone().prop_map(|inner| Type::Option(Arc::new(inner))),
            (inner.clone(), inner.clone())
                .prop_map(|(ok, err)| Type::Result(Some(Arc::new(ok)), Some(Arc::new(err)))),
            several.clone().prop_map(|items| Type::Tuple(items.into())),
            several.clone().prop_map(|fields| {
                let fields = named(fields);
                Type::Record(Arc::new(RecordType { name: "record".into(), fields }))
            }),
            several.prop_map(|cases| {
                let cases = named(cases).into_iter().map(|(name, ty)| (name, Some(ty)));
                let cases = cases.chain([("none".to_owned(), None)]).collect();
                Type::Variant(Arc::new(VariantType { name: "variant".into(), cases }))
            }),
        ]
    })
}

/// Choices that become a value of whatever type: numbers, used one after the other.
struct Choices(std::vec::IntoIter<u64>);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0.next().unwrap_or(0)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    fn number(&mut self, end: usize) -> u32 {
        self.below(end).try_into().unwrap()
    }

    fn value(&mut self, ty: &Type) -> Value {
        let bits = self.next();
        let bytes = bits.to_le_bytes();
        match ty {
            Type::Bool => Value::Bool(bits & 1 == 1),
            Type::U8 => Value::U8(bytes[0]),
            Type::U16 => Value::U16(u16::from_le_bytes([bytes[0], bytes[1]])),
            Type::U32 => Value::U32(u32::from_le_bytes(bytes[..4].try_into().unwrap())),
            Type::U64 => Value::U64(bits),
            Type::S8 => Value::S8(i8::from_le_bytes([bytes[0]])),
            Type::S16 => Value::S16(i16::from_le_bytes([bytes[0], bytes[1]])),
            Type::S32 => Value::S32(i32::from_le_bytes(bytes[..4].try_into().unwrap())),
            Type::S64 => Value::S64(i64::from_le_bytes(bytes)),
            Type::F32 => Value::F32(f32::from(bytes[0]) / 3.0),
            Type::F64 => Value::F64(f64::from(bytes[0]) / 7.0),
            Type::Char => Value::Char(char::from_u32(self.number(0xd800)).unwrap()),
            Type::String => Value::String("aö😀\0".repeat(self.below(4))),
            Type::List(_) if ty.is_bytes() => Value::Bytes(bytes[..self.below(8)].to_vec()),
            Type::List(list) => {
                Value::List((0..self.below(4)).map(|_| self.value(list.item())).collect())
            }
            Type::Option(inner) => {
                Value::Option((bits & 1 == 1).then(|| Box::new(self.value(inner))))
            }
            Type::Result(ok, _) if bits & 1 == 1 => Value::Result(Ok(self.payload(ok.as_deref()))),
            Type::Result(_, err) => Value::Result(Err(self.payload(err.as_deref()))),
            Type::Tuple(types) => Value::Tuple(types.iter().map(|ty| self.value(ty)).collect()),
            Type::Record(record) => {
                Value::Record(record.fields.iter().map(|(_, ty)| self.value(ty)).collect())
            }
            Type::Enum(labels) => Value::Enum(self.number(labels.labels.len())),
            Type::Flags(labels) => Value::Flags(bits & labels.mask()),
            Type::Variant(variant) => {
                let case = self.below(variant.cases.len());
                Value::Variant(
                    u32::try_from(case).unwrap(),
                    self.payload(variant.cases[case].1.as_ref()),
                )
            }
        }
    }

    fn payload(&mut self, ty: Option<&Type>) -> Option<Box<Value>> {
        ty.map(|ty| Box::new(self.value(ty)))
    }
}

fn typed_values() -> impl Strategy<Value = (Type, Value)> {
    let numbers = prop_oneof![any::<u64>(), 0_u64..300, Just(u64::MAX)];
    (types(), vec(numbers, 1..64)).prop_map(|(ty, numbers)| {
        let value = Choices(numbers.into_iter()).value(&ty);
        (ty, value)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn values_come_back_from_bytes_and_json((ty, value) in typed_values()) {
        let bytes = value.encode(&ty).unwrap();
        prop_assert!(bytes.len() >= ty.extent().len_min);
        prop_assert_eq!(&Value::decode(&ty, &bytes).unwrap(), &value);
        let json = value.to_json(&ty).unwrap();
        let text = serde_json::to_string(&json).unwrap();
        let json = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(Value::from_json(&ty, &json).unwrap(), value);
    }

    #[test]
    fn hostile_bytes_are_refused_or_are_a_value(
        (ty, value) in typed_values(),
        at: prop::sample::Index,
        byte: u8,
        len: prop::sample::Index,
        noise in vec(any::<u8>(), 0..40),
    ) {
        let mut bytes = value.encode(&ty).unwrap();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        for bytes in [&bytes[..], &bytes[..len.index(bytes.len() + 1)], &noise] {
            if let Ok(value) = Value::decode(&ty, bytes) {
                // The same value may have been written with longer varints.
                let again = value.encode(&ty).unwrap();
                prop_assert!(again.len() <= bytes.len());
                let twice = Value::decode(&ty, &again).unwrap().encode(&ty).unwrap();
                prop_assert_eq!(again, twice);
            }
        }
    }

    #[test]
    fn values_of_other_types_are_refused((ty, value) in typed_values(), other in types()) {
        if let Ok(bytes) = value.encode(&other) {
            prop_assert_eq!(&Value::decode(&other, &bytes).unwrap(), &value);
        }
        let json = value.to_json(&ty).unwrap();
        let _ = (value.to_json(&other), Value::from_json(&other, &json));
    }
}

#[test]
fn the_bytes_are_postcards() {
    type Fields = (u8, u16, u32, u64, i8, i16, i32, i64, f32, f64, char, bool);
    let fields: Fields =
        (200, 300, 70_000, 1 << 40, -3, -300, -70_000, -(1 << 40), 1.5, -0.1, 'ß', true);
    let value = Value::Tuple(vec![
        Value::U8(200),
        Value::U16(300),
        Value::U32(70_000),
        Value::U64(1 << 40),
        Value::S8(-3),
        Value::S16(-300),
        Value::S32(-70_000),
        Value::S64(-(1 << 40)),
        Value::F32(1.5),
        Value::F64(-0.1),
        Value::Char('ß'),
        Value::Bool(true),
    ]);
    let types = [
        Type::U8,
        Type::U16,
        Type::U32,
        Type::U64,
        Type::S8,
        Type::S16,
        Type::S32,
        Type::S64,
        Type::F32,
        Type::F64,
        Type::Char,
        Type::Bool,
    ];
    let ty = Type::Tuple(types.into());
    assert_eq!(value.encode(&ty).unwrap(), postcard::to_stdvec(&fields).unwrap());

    let compound = (Some("text"), vec![Ok(7_u32), Err("no")], vec![1_u8, 2]);
    let item = Type::Result(Some(Arc::new(Type::U32)), Some(Arc::new(Type::String)));
    let option = Type::Option(Arc::new(Type::String));
    let ty = Type::Tuple([option, list(item), list(Type::U8)].into());
    let text = |text: &str| Box::new(Value::String(text.into()));
    let value = Value::Tuple(vec![
        Value::Option(Some(text("text"))),
        Value::List(vec![
            Value::Result(Ok(Some(Box::new(Value::U32(7))))),
            Value::Result(Err(Some(text("no")))),
        ]),
        Value::Bytes(vec![1, 2]),
    ]);
    assert_eq!(value.encode(&ty).unwrap(), postcard::to_stdvec(&compound).unwrap());
}

#[test]
fn a_few_bytes_make_no_large_value() {
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f, 1, 2, 3];
    for ty in [list(Type::U8), list(Type::Bool), list(list(Type::U64)), Type::String] {
        let refused = Value::decode(&ty, &huge).unwrap_err();
        assert!(
            matches!(refused, ValueError::Wire { source: WireError::TooLarge, .. }),
            "{refused}"
        );
    }
    let empty = Type::Tuple([].into());
    assert_eq!(Type::list(empty.clone()), None);
    // 64 values that take no bytes beside one that does: a megabyte would make 64 million.
    let fields = named([vec![empty; 64], vec![Type::Bool]].concat());
    let item = Type::Record(Arc::new(RecordType { name: "r".into(), fields }));
    let mut bytes = Vec::new();
    vec![0_u8; 1 << 16].emit(&mut bytes);
    let refused = Value::decode(&list(item), &bytes).unwrap_err();
    assert!(matches!(refused, ValueError::TooLarge { .. }), "{refused}");
}

#[test]
fn numbers_beyond_their_type_are_refused() {
    for (ty, bytes) in [
        (Type::U16, &[0xff, 0xff, 0x04][..]),
        (Type::U16, &[0x80, 0x80, 0x80, 0x00]),
        (Type::U64, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]),
        (Type::Bool, &[2]),
        (Type::Char, &[2, b'a', b'b']),
        (Type::Char, &[0]),
        (Type::Enum(labels(3)), &[3]),
        (Type::Flags(labels(3)), &[8]),
        (Type::Result(None, None), &[2]),
    ] {
        assert!(Value::decode(&ty, bytes).is_err(), "{ty} {bytes:?}");
    }
    assert_eq!(labels(64).mask(), u64::MAX);
}

#[test]
fn errors_name_the_path() {
    let point = RecordType { name: "p".into(), fields: named(vec![Type::U8, list(Type::String)]) };
    let ty = list(Type::Record(Arc::new(point)));
    let refused = Value::decode(&ty, &[2, 1, 0, 1, 2, 1, b'a', 1, 0xff]).unwrap_err();
    assert!(refused.to_string().contains("[1].m1[1]"), "{refused}");
}
