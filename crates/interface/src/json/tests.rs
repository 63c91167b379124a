//! JSON that people write, and what they are told where it does not fit.

use super::*;
use crate::interface::Interface;

const TEXT: &str = "package a:b@1.0.0; interface i {
    enum color { red, green }
    flags rights { read, write }
    record point { x: s8, name: option<string>, colors: list<color> }
    variant shape { none, circle(f32), poly(list<point>) }
    f: func(shapes: list<shape>, rights: rights, data: list<u8>,
        nested: option<option<u8>>, outcome: result<_, string>);
}";

fn method() -> Method {
    Interface::parse_wit("x", TEXT).unwrap().remove(0).methods.remove(0)
}

fn read(json: &str) -> Result<Vec<Value>, ValueError> {
    let json: Vec<Json> = serde_json::from_str(json).unwrap();
    method().parameters_from_json(&json)
}

#[test]
fn what_people_write_is_read() {
    let json = r#"[["none", {"circle": 0.1}, {"poly": [{"x": -1, "colors": ["green"]}]}],
        ["write"], "0x01ff", {"some": null}, {"ok": null}]"#;
    let values = read(json).unwrap();
    let point =
        Value::Record(vec![Value::S8(-1), Value::Option(None), Value::List(vec![Value::Enum(1)])]);
    let shapes = vec![
        Value::Variant(0, None),
        Value::Variant(1, Some(Box::new(Value::F32(0.1)))),
        Value::Variant(2, Some(Box::new(Value::List(vec![point])))),
    ];
    assert_eq!(values[0], Value::List(shapes));
    assert_eq!(values[1], Value::Flags(2));
    assert_eq!(values[2], Value::Bytes(vec![1, 255]));
    assert_eq!(values[3], Value::Option(Some(Box::new(Value::Option(None)))));
    assert_eq!(values[4], Value::Result(Ok(None)));
    let method = method();
    let encoded = method.encode_parameters(&values).unwrap();
    assert_eq!(method.decode_parameters(&encoded).unwrap(), values);
}

#[test]
fn errors_name_the_path_and_what_is_expected() {
    let rest = r#"["read"], [1], null, {"ok": null}"#;
    let table = [
        (r#"[{"poly": [{"x": 200, "colors": []}]}]"#, "shapes[0].poly[0].x must be s8, not 200"),
        (r#"[{"poly": [{"x": 2}]}]"#, "shapes[0].poly[0].colors must be list<color>, not left out"),
        (r#"[{"poly": [{"x": 2, "y": 1}]}]"#, "shapes[0].poly[0] must be an object with x, name"),
        (r#"["square"]"#, "shapes[0] must be one of the cases none, circle, poly, not \"square\""),
        (r#"["circle"]"#, "shapes[0].circle must be f32, not null"),
        (r#"{}"#, "shapes must be an array"),
    ];
    for (shapes, expected) in table {
        let refused = read(&format!("[{shapes}, {rest}]")).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    assert_eq!(read("[]").unwrap_err().to_string(), "f takes 5 values, 0 are given");
    let refused = read(r#"[[], ["exec"], "ff", 1, {}]"#).unwrap_err().to_string();
    assert_eq!(refused, "rights must be an array of read, write, not an array of 1");
    let refused = read(r#"[[], [], "0x+1", 1, {}]"#).unwrap_err().to_string();
    assert!(refused.starts_with("data must be an array of bytes"), "{refused}");
}

#[test]
fn floats_that_json_lacks_have_words() {
    for (word, value) in [("inf", f64::INFINITY), ("-inf", f64::NEG_INFINITY)] {
        assert_eq!(Value::from_json(&Type::F64, &json!(word)), Ok(Value::F64(value)));
        assert_eq!(Value::F64(value).to_json(&Type::F64), Ok(json!(word)));
    }
    let nan = Value::from_json(&Type::F32, &json!("nan")).unwrap();
    assert!(matches!(nan, Value::F32(value) if value.is_nan()));
    assert_eq!(nan.to_json(&Type::F32), Ok(json!("nan")));
}
