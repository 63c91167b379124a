//! Tests of one offcode, in a local runner: `tests.toml` beside its description says what it is
//! sent and called with, and what it does then.
//!
//! Each test has a new instance on a device of its own, with nothing else on it.

use crate::describe::OffcodePackage;
use crate::describe::offcode::{DeviceKind, OffcodeBody};
use crate::device::{DeviceLimits, PortSend, WasmCodes};
use crate::devices::{DeviceLink, HostDevice};
use crate::planning::layout::{code_of, interfaces_of};
use crate::request::BodyNeeds;
use crate::runtime::{
    AppEnd, PlannedChannel, PlannedEnd, PlannedOffcode, Running, Runtime, RuntimeEvent,
    RuntimeOptions, RuntimePlan, WhenDeviceLost,
};
use outboard_interface::Interface;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// The file with the tests.
pub const TESTS_FILE: &str = "tests.toml";
/// Bytes of the file, at most.
const FILE_MAX: usize = 1 << 20;
/// How long a step may take.
const LIMIT: Duration = Duration::from_secs(10);
/// The only offcode.
const NAME: &str = "tested";

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TestsFile {
    #[serde(default)]
    test: Vec<OffcodeTest>,
}

/// One test.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OffcodeTest {
    name: String,
    #[serde(default)]
    attributes: BTreeMap<String, String>,
    steps: Vec<TestStep>,
}

/// One step of a test.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a step is { send = PORT, text = … }, { expect = PORT, text = … }, \
{ call = METHOD, params = […], result = … } or { ends = TEXT }"
)]
enum TestStep {
    /// A message to a port.
    Send { send: String, text: String },
    /// The next message of a port.
    Expect { expect: String, text: String },
    /// A Call with its result, or with words of its fault.
    Call {
        call: String,
        #[serde(default)]
        params: Vec<Value>,
        result: Option<Value>,
        fault: Option<String>,
    },
    /// The offcode ends; the reason has these words.
    Ends { ends: String },
}

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestResult {
    /// Its name.
    pub name: String,
    /// Why it failed; `None`: it passed.
    pub failed: Option<String>,
}

/// Runs all tests of a package.
///
/// # Errors
/// In words: the file or the package cannot be used.
pub fn run(directory: &Path) -> Result<Vec<TestResult>, String> {
    let package = OffcodePackage::read(directory).map_err(|error| error.to_string())?;
    let path = directory.join(TESTS_FILE);
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let length = fs::metadata(&path).map_err(|error| said(&error))?.len();
    if length > FILE_MAX as u64 {
        return Err(said(&format!("{length} bytes, {FILE_MAX} are the most")));
    }
    let text = fs::read_to_string(&path).map_err(|error| said(&error))?;
    let file: TestsFile = toml::from_str(&text).map_err(|error| said(&error))?;
    let interfaces = interfaces_of(&package)?;
    let one = |test: OffcodeTest| {
        let failed = Bench::start(&package, &interfaces, &test).and_then(|bench| bench.run(&test));
        TestResult { name: test.name, failed: failed.err() }
    };
    Ok(file.test.into_iter().map(one).collect())
}

/// An instance under test.
struct Bench<'a> {
    running: Running,
    interfaces: &'a [Interface],
    /// The application's ends towards each port.
    ends: HashMap<String, AppEnd>,
}

impl<'a> Bench<'a> {
    fn start(
        package: &OffcodePackage,
        interfaces: &'a [Interface],
        test: &OffcodeTest,
    ) -> Result<Self, String> {
        let plan = plan(package, interfaces, test)?;
        let codes = WasmCodes::new(None)?;
        let host = HostDevice::start("test", DeviceLimits::default(), codes);
        let host = host.map_err(|error| error.to_string())?;
        let links: Vec<Box<dyn DeviceLink>> = vec![Box::new(host)];
        let running = Runtime::start(plan, links, RuntimeOptions::default());
        let running = running.map_err(|error| error.to_string())?;
        let mut ends = HashMap::new();
        for port in &package.file.ports {
            let end = running.handle().end(port.as_str()).map_err(|error| error.to_string())?;
            ends.insert(port.to_string(), end);
        }
        Ok(Self { running, interfaces, ends })
    }

    fn run(&self, test: &OffcodeTest) -> Result<(), String> {
        for (at, step) in test.steps.iter().enumerate() {
            self.step(step).map_err(|why| format!("step {}: {why}", at + 1))?;
        }
        Ok(())
    }

    fn step(&self, step: &TestStep) -> Result<(), String> {
        match step {
            TestStep::Send { send, text } => {
                match self.end(send)?.send_within(text.as_bytes(), LIMIT) {
                    PortSend::Taken => Ok(()),
                    other => Err(format!("the message was not taken: {other:?}")),
                }
            }
            TestStep::Expect { expect, text } => self.expect(expect, text),
            TestStep::Call { call, params, result, fault } => {
                self.call(call, params, result.as_ref(), fault.as_deref())
            }
            TestStep::Ends { ends } => self.ends(ends),
        }
    }

    fn end(&self, port: &str) -> Result<&AppEnd, String> {
        self.ends.get(port).ok_or_else(|| format!("the offcode has no port {port}"))
    }

    fn expect(&self, port: &str, text: &str) -> Result<(), String> {
        let found = self.end(port)?.receive_within(LIMIT);
        let found = found.ok_or_else(|| format!("no message came out of {port} in 10 s"))?;
        if found == text.as_bytes() {
            return Ok(());
        }
        let found = String::from_utf8_lossy(&found);
        Err(format!("expected {text:?} out of {port}, found {found:?}"))
    }

    fn call(
        &self,
        name: &str,
        params: &[Value],
        result: Option<&Value>,
        fault: Option<&str>,
    ) -> Result<(), String> {
        let found = self.interfaces.iter().find_map(|interface| {
            interface.method(name).map(|(number, method)| (interface, number, method))
        });
        let missing = || format!("no interface of the offcode has a method {name}");
        let (interface, number, method) = found.ok_or_else(missing)?;
        let values = method.parameters_from_json(params).map_err(|error| error.to_string())?;
        let bytes = method.encode_parameters(&values).map_err(|error| error.to_string())?;
        let handle = self.running.handle();
        let id = handle.offcode(NAME).map_err(|error| error.to_string())?;
        let answer = handle.call(id, *interface.guid.as_bytes(), number, &bytes, Some(LIMIT));
        let results = match (answer, fault) {
            (Ok(_), Some(fault)) => {
                return Err(format!("it answered, and should have failed: {fault}"));
            }
            (Err(found), Some(fault)) if found.to_string().contains(fault) => return Ok(()),
            (Err(found), _) => return Err(found.to_string()),
            (Ok(results), None) => results,
        };
        let value = method.decode_results(&results).map_err(|error| error.to_string())?;
        let json = match (&value, &method.result) {
            (Some(value), Some(ty)) => value.to_json(ty).map_err(|error| error.to_string())?,
            _ => Value::Null,
        };
        match result.unwrap_or(&Value::Null) {
            expected if *expected == json => Ok(()),
            expected => Err(format!("expected {expected}, found {json}")),
        }
    }

    fn ends(&self, words: &str) -> Result<(), String> {
        let began = Instant::now();
        while began.elapsed() < LIMIT {
            match self.running.handle().next_event(LIMIT) {
                Some(RuntimeEvent::Ended { why, .. }) if why.contains(words) => return Ok(()),
                Some(RuntimeEvent::Ended { why, .. }) => return Err(format!("it ended: {why}")),
                _ => {}
            }
        }
        Err("it did not end in 10 s".to_owned())
    }
}

/// The offcode, with the application at the other end of each of its ports.
fn plan(
    package: &OffcodePackage,
    interfaces: &[Interface],
    test: &OffcodeTest,
) -> Result<RuntimePlan, String> {
    let file = &package.file;
    let body = package.body(DeviceKind::Host).ok_or("it has no body for a host")?;
    let mut attributes: BTreeMap<String, String> =
        file.attributes.own.iter().map(|(name, value)| (name.to_string(), value.clone())).collect();
    attributes.extend(test.attributes.clone());
    let needs = &file.needs;
    let is_builtin = matches!(body.body, OffcodeBody::Builtin { .. });
    let offcode = PlannedOffcode {
        name: NAME.to_owned(),
        guid: *file.guid.as_bytes(),
        code: code_of(body)?,
        needs: BodyNeeds {
            memory_bytes: needs.memory_bytes,
            clock: needs.clock || is_builtin,
            timers: needs.timers,
            watchdog_ms: 0,
        },
        interfaces: interfaces.iter().map(|one| *one.guid.as_bytes()).collect(),
        ports: u16::try_from(file.ports.len()).unwrap_or(u16::MAX),
        imports: Vec::new(),
        attributes,
        device: 0,
        parent: None,
        obsolete: None,
        when_lost: WhenDeviceLost::End,
    };
    let channels = file.ports.iter().enumerate().flat_map(|(at, port)| {
        let own = PlannedEnd::Offcode(NAME.to_owned(), u16::try_from(at).unwrap_or(u16::MAX));
        let ours = PlannedEnd::Application(port.to_string());
        [channel(ours.clone(), own.clone()), channel(own, ours)]
    });
    let channels = channels.collect();
    Ok(RuntimePlan { name: NAME.to_owned(), offcodes: vec![offcode], channels })
}

fn channel(from: PlannedEnd, to: PlannedEnd) -> PlannedChannel {
    PlannedChannel { from, to: vec![to], is_reliable: true, depth: 64, message_max: 1 << 20 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_pass_and_fail_with_their_reasons() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let description = "name = \"relay\"\nversion = \"1.0.0\"\nports = [\"in\", \"out\"]\n\
                           [[body]]\nkind = \"builtin\"\nname = \"relay\"\n";
        fs::write(at("offcode.toml"), description).expect("written");
        let step = |text: &str| {
            format!("{{ send = \"in\", text = \"a\" }}, {{ expect = \"out\", text = \"{text}\" }}")
        };
        let test = |name: &str, text: &str| {
            format!("[[test]]\nname = \"{name}\"\nsteps = [{}]\n", step(text))
        };
        let text = format!("{}{}", test("good", "a"), test("bad", "b"));
        fs::write(at(TESTS_FILE), text).expect("written");
        let results = run(directory.path()).expect("tests");
        assert_eq!(results[0], TestResult { name: "good".into(), failed: None });
        let failed = results[1].failed.clone().expect("it fails");
        assert_eq!(failed, "step 2: expected \"b\" out of out, found \"a\"");
        fs::write(at(TESTS_FILE), "[[test]]\nname = \"x\"\nsteps = [{ jump = 1 }]")
            .expect("written");
        let error = run(directory.path()).expect_err("no step");
        assert!(error.contains("a step is"), "{error}");
    }
}
