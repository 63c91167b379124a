//! The paper's description of an offcode in XML (figure 2, which is not well-formed), read into the
//! same [`OffcodeFile`] as `offcode.toml`.
//!
//! Never refuses what can be understood: it says what it has assumed. What HYDRA's hardware of 2006
//! needed and no device here does is named and left out.

mod markup;
#[cfg(test)]
mod tests;

use super::fault::TextFault;
use super::name::{NameError, OffcodeName, PackagePath, QualifiedName};
use super::offcode::{
    AttributeSet, LIBRARIES_MAX, LinkPlace, OFFCODE_FILE_LEN_MAX, OffcodeBody, OffcodeFile,
    OffcodeImport, OffcodeNeeds, ReferenceKind,
};
use markup::{Element, Markup};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use uuid::Uuid;

/// The name of the file in a package's directory, read if there is no `offcode.toml`.
pub const OFFCODE_XML: &str = "offcode.xml";

/// The version of everything that the XML names, which has no place for one.
const VERSION: &str = "1.0.0";
/// Elements that have no content, in figure 2 without saying so.
const EMPTY: &[&str] = &["reference"];

/// What a description left open or got wrong, and how it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assumption {
    /// The line of the description.
    pub line: u32,
    /// What was found, and what it was taken for.
    pub text: String,
}

impl fmt::Display for Assumption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

impl OffcodeFile {
    /// Reads the paper's XML; the assumptions are in the order of their lines.
    ///
    /// # Errors
    /// What no assumption helps against: no offcode, no name, no file that could be a body, or more
    /// than a description may have.
    pub fn parse_xml(text: &str) -> Result<(Self, Vec<Assumption>), TextFault> {
        if text.len() > OFFCODE_FILE_LEN_MAX {
            let message = format!("it has more than {OFFCODE_FILE_LEN_MAX} bytes");
            return Err(TextFault::new(1, message));
        }
        let markup = Markup::parse(text, EMPTY)?;
        let mut reader = XmlReader { assumptions: markup.assumptions.clone(), markup: &markup };
        let file = reader.offcode()?;
        let mut assumptions = reader.assumptions;
        assumptions.sort_by_key(|assumption| assumption.line);
        Ok((file, assumptions))
    }
}

/// A description while it is read.
struct XmlReader<'m> {
    markup: &'m Markup,
    assumptions: Vec<Assumption>,
}

impl<'m> XmlReader<'m> {
    /// The text itself is the parent of the outermost element.
    fn offcode(&mut self) -> Result<OffcodeFile, TextFault> {
        let root = &self.markup.elements[0];
        let Some(offcode) = self.markup.child(root, "offcode") else {
            return Err(TextFault::new(1, "there is no element <offcode bindname=\"…\">"));
        };
        let bindname = self.bindname(offcode)?;
        let name = self.name(offcode.line, &bindname)?;
        let version = named(offcode.line, VERSION)?;
        self.assume(offcode.line, format!("there is no version: {VERSION} is taken"));
        let guid = match self.markup.child(offcode, "GUID") {
            Some(guid) => self.guid(guid)?,
            None => OffcodeFile::derived_guid(&name, &version),
        };
        let package = self.markup.child(offcode, "package");
        let bodies = match package {
            Some(package) => self.bodies(package)?,
            None => return Err(TextFault::new(offcode.line, "there is no element <package>")),
        };
        let imports = self.imports(offcode)?;
        self.hardware(offcode);
        Ok(OffcodeFile {
            interfaces: vec![self.interface(offcode.line, &bindname)?],
            paths: vec![named(offcode.line, "wit")?],
            ports: Vec::new(),
            bodies,
            needs: OffcodeNeeds::default(),
            imports,
            attributes: AttributeSet::default(),
            name,
            version,
            guid,
        })
    }

    fn assume(&mut self, line: u32, text: impl Into<String>) {
        self.assumptions.push(Assumption { line, text: text.into() });
    }

    /// The name of an offcode: an attribute or, in an import, an element.
    fn bindname(&self, of: &Element) -> Result<String, TextFault> {
        let element = self.markup.child(of, "bindname").map(|element| element.text.as_str());
        let name = of.attribute("bindname").or(element).unwrap_or_default().trim_matches('"');
        match name.is_empty() {
            false => Ok(name.to_owned()),
            true => Err(TextFault::new(of.line, format!("<{}> has no bindname", of.name))),
        }
    }

    /// A name as offcodes have it here: `Hydra.net.Checksum` is `hydra-net-checksum`.
    fn name(&mut self, line: u32, bindname: &str) -> Result<OffcodeName, TextFault> {
        let name = bindname.to_ascii_lowercase().replace(['.', '_'], "-");
        if name != bindname {
            self.assume(line, format!("the name {bindname} is written {name} here"));
        }
        named(line, &name)
    }

    /// The interface that goes with a name: `Hydra.net.Checksum` is `hydra:net/checksum@1.0.0`.
    fn interface(&mut self, line: u32, bindname: &str) -> Result<QualifiedName, TextFault> {
        let lower = bindname.to_ascii_lowercase().replace('_', "-");
        let parts: Vec<&str> = lower.split('.').collect();
        let name = match parts.as_slice() {
            [only] => format!("hydra:{only}/{only}@{VERSION}"),
            [space, last] => format!("{space}:{last}/{last}@{VERSION}"),
            [space, between @ .., last] => {
                format!("{space}:{}/{last}@{VERSION}", between.join("-"))
            }
            [] => lower.clone(),
        };
        self.assume(line, format!("{bindname} names its interface, too: {name} is taken"));
        named(line, &name)
    }

    /// A GUID: a UUID, or a number as the paper has it.
    fn guid(&mut self, of: &Element) -> Result<Uuid, TextFault> {
        let text = of.text.trim_matches('"');
        if let Ok(guid) = Uuid::try_parse(text) {
            return Ok(guid);
        }
        let number = match text.strip_prefix("0x") {
            Some(digits) => u128::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let guid = number.map(Uuid::from_u128).ok_or_else(|| {
            TextFault::new(of.line, format!("{text:?} is no GUID: write a number or a UUID"))
        })?;
        self.assume(of.line, format!("the GUID {text} is a number: read as the UUID {guid}"));
        Ok(guid)
    }

    /// Bodies for devices: the first file of each is its module, further ones are libraries.
    fn bodies(&mut self, package: &'m Element) -> Result<Vec<OffcodeBody>, TextFault> {
        let mut bodies = Vec::new();
        for device in self.markup.children(package, "device") {
            let mut files = Vec::new();
            for file in self.markup.children(device, "file").take(LIBRARIES_MAX + 1) {
                files.push((file.line, self.path(file)?));
            }
            let mut files = files.into_iter();
            if let Some((line, file)) = files.next() {
                bodies.push(self.body(line, file, files.collect()));
            }
        }
        for host in self.markup.children(package, "host") {
            self.host(host);
        }
        match bodies.is_empty() {
            false => Ok(bodies),
            true => Err(TextFault::new(package.line, "no <device> of the package has a <file>")),
        }
    }

    fn body(
        &mut self,
        line: u32,
        file: PackagePath,
        others: Vec<(u32, PackagePath)>,
    ) -> OffcodeBody {
        let ending = Path::new(file.as_str()).extension().and_then(|ending| ending.to_str());
        if ending != Some("wasm") {
            let text = format!("{file} does not say what it is: taken for a WebAssembly module");
            self.assume(line, text);
        }
        for (line, other) in &others {
            let text = format!("{other} is a further file of the device: taken for a library");
            self.assume(*line, text);
        }
        let libraries = others.into_iter().map(|(_, path)| path).collect();
        OffcodeBody::Wasm { file, libraries, link: LinkPlace::default() }
    }

    /// What the paper loads into the host: generated proxies have taken its place.
    fn host(&mut self, host: &'m Element) {
        for file in self.markup.children(host, "file") {
            let text = format!("{} is native code of a host, which is never loaded", file.text);
            self.assume(file.line, text + ": left out, a generated proxy takes its place");
        }
        for word in ["os", "ver"] {
            if let Some(found) = self.markup.child(host, word) {
                let text = format!("the host's {word} {:?} plays no part", found.text);
                self.assume(found.line, text + ": left out");
            }
        }
    }

    /// A path of the paper's, which begins at a root: here, at the package's directory.
    fn path(&mut self, file: &Element) -> Result<PackagePath, TextFault> {
        let bare = file.text.trim_matches('"').trim();
        if bare != file.text {
            self.assume(file.line, format!("the path {} is in quotes: taken without", file.text));
        }
        let inside = bare.trim_start_matches('/');
        if inside != bare {
            self.assume(file.line, format!("{bare} is taken from the package's directory"));
        }
        named(file.line, inside)
    }

    fn imports(&mut self, offcode: &'m Element) -> Result<Vec<OffcodeImport>, TextFault> {
        let mut imports: Vec<OffcodeImport> = Vec::new();
        for section in self.markup.children(offcode, "sw-env") {
            for import in self.markup.children(section, "import") {
                let import = self.import(import)?;
                if imports.len() == super::offcode::IMPORTS_MAX {
                    return Err(TextFault::new(import.line, "there are too many imports"));
                }
                if imports.iter().any(|other| other.name == import.name) {
                    let message = format!("the import {} is there twice", import.name);
                    return Err(TextFault::new(import.line, message));
                }
                imports.push(import);
            }
        }
        Ok(imports)
    }

    fn import(&mut self, import: &'m Element) -> Result<OffcodeImport, TextFault> {
        let bindname = self.bindname(import)?;
        let line = import.line;
        let offcode = self.name(line, &bindname)?;
        let short = bindname.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        self.assume(line, format!("the import has no name of its own: {short} is taken"));
        let guid = self.markup.child(import, "GUID").map(|guid| self.guid(guid)).transpose()?;
        if let Some(file) = self.markup.child(import, "file") {
            let path = self.path(file)?;
            let text = format!("{path} belongs to the package {offcode}, whose own description");
            self.assume(file.line, text + " names it: left out");
        }
        let (reference, priority) = self.reference(import)?;
        Ok(OffcodeImport {
            name: named(line, &short)?,
            interface: self.interface(line, &bindname)?,
            offcode: Some(offcode.as_str().to_owned()),
            guid,
            reference,
            priority,
            line,
        })
    }

    fn reference(&mut self, import: &'m Element) -> Result<(ReferenceKind, Option<u8>), TextFault> {
        let Some(reference) = self.markup.child(import, "reference") else {
            self.assume(import.line, "the import has no reference: taken for a Link");
            return Ok((ReferenceKind::Link, None));
        };
        let kinds =
            [ReferenceKind::Link, ReferenceKind::Pull, ReferenceKind::Gang, ReferenceKind::GangIf];
        let word = reference.attribute("type").unwrap_or("link");
        let kind = kinds.into_iter().find(|kind| kind.as_str().eq_ignore_ascii_case(word));
        let fault = |message: String| TextFault::new(reference.line, message);
        let kind = kind.ok_or_else(|| {
            fault(format!("the reference's type {word:?} is none of Link, Pull, Gang, Gang-If"))
        })?;
        let priority = reference.attribute("pri").map(|text| {
            let fault = || fault(format!("the priority {text:?} is no number from 0 to 255"));
            text.parse::<u8>().map_err(|_| fault())
        });
        Ok((kind, priority.transpose()?))
    }

    /// Hardware of the paper's time: any device that runs a body stands for it.
    fn hardware(&mut self, offcode: &'m Element) {
        for section in self.markup.children(offcode, "hw-env") {
            for device in self.markup.children(section, "hydra-device") {
                let name = self.markup.child(device, "name").map_or("", |name| name.text.as_str());
                let text = format!("the hardware {name:?} is not looked for");
                self.assume(device.line, text + ": any device that runs a body will do");
            }
        }
    }
}

/// A name that is derived from the description's.
fn named<T: FromStr<Err = NameError>>(line: u32, text: &str) -> Result<T, TextFault> {
    text.parse().map_err(|error: NameError| TextFault::new(line, error.to_string()))
}
