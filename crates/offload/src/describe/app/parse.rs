//! Reads `APP.toml`.

use super::super::fault::{LineIndex, TextFault};
use super::super::name::{ImportName, NameError, OffcodeName};
use super::super::offcode::{DeviceKind, ReferenceKind, attributes};
use super::super::table::{Located, TableReader};
use super::{
    APP_END, APP_FILE_LEN_MAX, AppChannel, AppConstraint, AppDevices, AppFile, AppImport,
    AppOffcode, CHANNELS_MAX, CONSTRAINTS_MAX, ChannelEnd, ChannelSettings, CopyMode, DevicePin,
    OFFCODES_MAX, RECEIVERS_MAX, WhenLoaded, WhenLost,
};
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::hash::Hash;
use std::str::FromStr;

const KEYS: &[&str] = &["app", "offcode", "channel", "import", "layout", "device"];
const OFFCODE_KEYS: &[&str] =
    &["name", "package", "on", "priority", "attributes", "when-lost", "when-loaded"];
const CHANNEL_KEYS: &[&str] = &["from", "to", "reliable", "copy", "depth", "message-max"];
const DEVICE_KEYS: &[&str] = &["cores", "nodes", "nics"];

const CONSTRAINTS: [(&str, ReferenceKind); 4] = [
    ("pull", ReferenceKind::Pull),
    ("gang", ReferenceKind::Gang),
    ("gang-if", ReferenceKind::GangIf),
    ("link", ReferenceKind::Link),
];

/// Devices of a kind in a list.
const DEVICES_MAX: usize = 1024;
/// Bytes of a package's path.
const PACKAGE_LEN_MAX: usize = 4096;

/// The layout file in a text.
pub(super) fn app(text: &str) -> Result<AppFile, TextFault> {
    if text.len() > APP_FILE_LEN_MAX {
        return Err(TextFault::new(1, format!("it has more than {APP_FILE_LEN_MAX} bytes")));
    }
    let lines = LineIndex::new(text);
    let mut file = TableReader::document(text, &lines, KEYS)?;
    let mut head = file
        .table("app", &["name"])?
        .ok_or_else(|| file.fault("the file lacks the table [app] with the application's name"))?;
    let devices = file.table("device", DEVICE_KEYS)?.map(devices).transpose()?.unwrap_or_default();
    let app = AppFile {
        name: head.required("name")?.name()?,
        offcodes: offcodes(&mut file, &devices)?,
        channels: each(&mut file, "channel", CHANNEL_KEYS, CHANNELS_MAX, channel)?,
        imports: each(&mut file, "import", &["from", "to"], CONSTRAINTS_MAX, import)?,
        constraints: each(
            &mut file,
            "layout",
            &CONSTRAINTS.map(|(word, _)| word),
            CONSTRAINTS_MAX,
            constraint,
        )?,
        devices,
    };
    check_senders(&app)?;
    check_imports(&app)?;
    Ok(app)
}

fn each<T>(
    file: &mut TableReader<'_>,
    key: &str,
    keys: &[&str],
    len_max: usize,
    read: fn(TableReader<'_>) -> Result<T, TextFault>,
) -> Result<Vec<T>, TextFault> {
    file.tables(key, keys, len_max)?.into_iter().map(read).collect()
}

fn devices(mut table: TableReader<'_>) -> Result<AppDevices, TextFault> {
    let devices = AppDevices {
        cores: table.numbers("cores", DEVICES_MAX)?,
        nodes: names(&table.texts("nodes", DEVICES_MAX)?)?,
        nics: names(&table.texts("nics", DEVICES_MAX)?)?,
    };
    check_unique(&table, &devices.cores)?;
    check_unique(&table, &devices.nodes)?;
    check_unique(&table, &devices.nics)?;
    Ok(devices)
}

fn check_unique<T: Display + Eq + Hash>(
    table: &TableReader<'_>,
    devices: &[T],
) -> Result<(), TextFault> {
    let mut seen = HashSet::new();
    match devices.iter().find(|device| !seen.insert(*device)) {
        None => Ok(()),
        Some(device) => Err(table.fault(format!("[device] has {device} twice"))),
    }
}

fn names<T: FromStr<Err = NameError>>(texts: &[Located<String>]) -> Result<Vec<T>, TextFault> {
    texts.iter().map(Located::name).collect()
}

fn offcodes(
    file: &mut TableReader<'_>,
    devices: &AppDevices,
) -> Result<Vec<AppOffcode>, TextFault> {
    let mut lines = HashMap::new();
    let mut offcodes = Vec::new();
    for table in file.tables("offcode", OFFCODE_KEYS, OFFCODES_MAX)? {
        let offcode = offcode(table, devices)?;
        if let Some(first) = lines.insert(offcode.name.clone(), offcode.line) {
            let message = format!("the offcode {} is there since line {first}", offcode.name);
            return Err(TextFault::new(offcode.line, message));
        }
        offcodes.push(offcode);
    }
    Ok(offcodes)
}

fn offcode(mut table: TableReader<'_>, devices: &AppDevices) -> Result<AppOffcode, TextFault> {
    let name = table.required("name")?;
    if name.value == APP_END {
        return Err(name.fault("\"app\" is the application itself: give the offcode another name"));
    }
    let package = table.text("package")?;
    let own = table.any_table("attributes")?;
    let lost = table.text("when-lost")?;
    let loaded = table.text("when-loaded")?;
    let on = table.text("on")?;
    Ok(AppOffcode {
        package: package_path(package)?.unwrap_or_else(|| name.value.clone()),
        name: name.name()?,
        on: on.map(|text| pin(&text, devices)).transpose()?,
        priority: table.priority("priority")?,
        attributes: own.map(attributes).transpose()?.unwrap_or_default(),
        when_lost: choice(lost, &[("end", WhenLost::End), ("move", WhenLost::Move)])?,
        when_loaded: choice(loaded, &[("stay", WhenLoaded::Stay), ("move", WhenLoaded::Move)])?,
        line: table.line,
    })
}

fn package_path(text: Option<Located<String>>) -> Result<Option<String>, TextFault> {
    let is_path = |text: &str| (1..=PACKAGE_LEN_MAX).contains(&text.len()) && !text.contains('\0');
    match text {
        Some(text) if !is_path(&text.value) => {
            Err(text.fault("\"package\" is no path of a directory, relative to this file"))
        }
        text => Ok(text.map(|text| text.value)),
    }
}

fn choice<T: Copy + Default>(
    word: Option<Located<String>>,
    choices: &[(&str, T)],
) -> Result<T, TextFault> {
    Ok(word.map(|word| word.choice(choices)).transpose()?.unwrap_or_default())
}

/// Where an offcode must run: `KIND` or `KIND:WHICH`.
fn pin(text: &Located<String>, devices: &AppDevices) -> Result<DevicePin, TextFault> {
    let (word, which) = match text.value.split_once(':') {
        Some((word, which)) => (word, Some(which)),
        None => (text.value.as_str(), None),
    };
    let part = |value: &str| Located { line: text.line, value: value.to_owned() };
    let kind = part(word).choice(&DeviceKind::ALL.map(|kind| (kind.as_str(), kind)))?;
    let pin = match (kind, which) {
        (kind, None) => DevicePin::Any(kind),
        (DeviceKind::Host, Some(_)) => {
            return Err(text.fault("there is one host: write \"host\" alone"));
        }
        (DeviceKind::Core, Some(which)) => DevicePin::Core(which.parse().map_err(|_| {
            text.fault(format!("{which:?} is no processor's number: write such as core:1"))
        })?),
        (DeviceKind::Node, Some(which)) => DevicePin::Node(part(which).name()?),
        (DeviceKind::Nic, Some(which)) => DevicePin::Nic(part(which).name()?),
    };
    match devices.has(&pin) {
        true => Ok(pin),
        false => {
            let list = format!("{kind}s", kind = kind.as_str());
            let message = format!("{pin} is no device of the file: add it to {list} in [device]");
            Err(text.fault(message))
        }
    }
}

fn channel(mut table: TableReader<'_>) -> Result<AppChannel, TextFault> {
    let from = end(&table.required("from")?)?;
    let texts = table.texts("to", RECEIVERS_MAX)?;
    if texts.is_empty() {
        return Err(table.fault("[[channel]] lacks the key \"to\": one end, or a list"));
    }
    let mut to = Vec::new();
    for text in &texts {
        let end = end(text)?;
        if end == from || to.contains(&end) {
            return Err(text.fault(format!("{end} is twice an end of this channel")));
        }
        to.push(end);
    }
    Ok(AppChannel { from, to, line: table.line, settings: settings(&mut table)? })
}

fn settings(table: &mut TableReader<'_>) -> Result<ChannelSettings, TextFault> {
    let defaults = ChannelSettings::default();
    let copy = table.text("copy")?;
    let copy = copy.map(|word| word.choice(&[("zero", CopyMode::Zero), ("copy", CopyMode::Copy)]));
    let bytes = table.bytes("message-max")?.map(|bytes| {
        let fits = u32::try_from(bytes.value).ok();
        fits.filter(|fits| (1..=ChannelSettings::MESSAGE_BYTES_MAX).contains(fits))
            .ok_or_else(|| bytes.fault("\"message-max\" must be from 1 byte to 16MiB"))
    });
    Ok(ChannelSettings {
        reliable: table.flag("reliable")?.unwrap_or(defaults.reliable),
        copy: copy.transpose()?.unwrap_or(defaults.copy),
        depth: table.number("depth", 1..=ChannelSettings::DEPTH_MAX)?.unwrap_or(defaults.depth),
        message_bytes_max: bytes.transpose()?.unwrap_or(defaults.message_bytes_max),
    })
}

/// An end: `app`, `app.NAME` or `OFFCODE.PORT`.
fn end(text: &Located<String>) -> Result<ChannelEnd, TextFault> {
    if text.value == APP_END {
        return Ok(ChannelEnd::App(None));
    }
    let (offcode, port) = halves(text, "OFFCODE.PORT, or \"app\" for the application")?;
    match offcode.value.as_str() {
        APP_END => Ok(ChannelEnd::App(Some(port.name()?))),
        _ => Ok(ChannelEnd::Port(offcode.name()?, port.name()?)),
    }
}

fn halves(
    text: &Located<String>,
    expected: &str,
) -> Result<(Located<String>, Located<String>), TextFault> {
    let (left, right) = text
        .value
        .split_once('.')
        .ok_or_else(|| text.fault(format!("{:?} has no dot: write {expected}", text.value)))?;
    let half = |half: &str| Located { line: text.line, value: half.to_owned() };
    Ok((half(left), half(right)))
}

fn import(mut table: TableReader<'_>) -> Result<AppImport, TextFault> {
    let (offcode, import) = halves(&table.required("from")?, "OFFCODE.IMPORT")?;
    Ok(AppImport {
        offcode: offcode.name()?,
        import: import.name()?,
        to: table.required("to")?.name()?,
        line: table.line,
    })
}

fn constraint(mut table: TableReader<'_>) -> Result<AppConstraint, TextFault> {
    let mut found = None;
    for (word, kind) in CONSTRAINTS {
        let texts = table.texts(word, OFFCODES_MAX)?;
        match (texts.is_empty(), &found) {
            (true, _) => {}
            (false, None) => found = Some((word, kind, texts)),
            (false, Some(_)) => {
                return Err(table.fault("[[layout]] has two constraints: write a table for each"));
            }
        }
    }
    let Some((word, kind, texts)) = found else {
        let message =
            "[[layout]] has no constraint: write pull, gang, gang-if or link = [\"a\", \"b\"]";
        return Err(table.fault(message));
    };
    let offcodes: Vec<OffcodeName> = names(&texts)?;
    let right = if kind == ReferenceKind::GangIf { 2..=2 } else { 2..=OFFCODES_MAX };
    if !right.contains(&offcodes.len()) {
        let expected = if kind == ReferenceKind::GangIf { "two" } else { "two or more" };
        let message = format!("{word:?} is between {expected} offcodes, not {}", offcodes.len());
        return Err(table.fault(message));
    }
    Ok(AppConstraint { kind, offcodes, line: table.line })
}

/// Refuses two channels out of one end: what is sent there could go into either.
fn check_senders(app: &AppFile) -> Result<(), TextFault> {
    let mut lines: HashMap<&ChannelEnd, u32> = HashMap::new();
    for channel in &app.channels {
        if let Some(first) = lines.insert(&channel.from, channel.line) {
            let message = format!(
                "{} sends into the channel of line {first} already: use another port, or give \
                 that channel a list of receivers",
                channel.from
            );
            return Err(TextFault::new(channel.line, message));
        }
    }
    Ok(())
}

/// Refuses two answers to the question who serves an import.
fn check_imports(app: &AppFile) -> Result<(), TextFault> {
    let mut lines: HashMap<(&OffcodeName, &ImportName), u32> = HashMap::new();
    for import in &app.imports {
        if let Some(first) = lines.insert((&import.offcode, &import.import), import.line) {
            let message =
                format!("{}.{} is assigned since line {first}", import.offcode, import.import);
            return Err(TextFault::new(import.line, message));
        }
    }
    Ok(())
}
