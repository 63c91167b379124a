//! Reads the packages of an application and finds who serves each import; offcodes that an import
//! requires are created as the paper's figure 1 has it.
//!
//! Never takes one of several that would do: then the layout file must say which.

use super::super::app::{
    APP_FILE_LEN_MAX, AppFile, AppImport, AppOffcode, ChannelEnd, OFFCODES_MAX,
};
use super::super::fault::{DescribeError, TextFault};
use super::super::name::{OffcodeName, QualifiedName};
use super::super::offcode::OffcodeImport;
use super::super::package::OffcodePackage;
use super::super::table::did_you_mean;
use super::{
    APPLICATION_LEN_MAX, Application, ApplicationChannel, ApplicationConstraint, ApplicationEnd,
    ApplicationOffcode, ApplicationReference, priority,
};
use outboard_unix::regular::read_regular;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Reads an application as a whole.
pub(super) fn read(path: &Path) -> Result<Application, DescribeError> {
    let bytes =
        read_regular(path, APP_FILE_LEN_MAX).map_err(|source| DescribeError::file(path, source))?;
    let text = String::from_utf8(bytes).map_err(|_| {
        let source = io::Error::new(io::ErrorKind::InvalidData, "it is no text in UTF-8");
        DescribeError::file(path, source)
    })?;
    let file = AppFile::parse(&text).map_err(|fault| fault.at(path))?;
    let mut resolver = Resolver::new(path, &file);
    resolver.read_listed(&file.offcodes)?;
    resolver.create_required()?;
    let references = resolver.references()?;
    resolver.check_assignments()?;
    let order = priority::order(resolver.offcodes.len(), &references)
        .map_err(|cycle| resolver.cycle_fault(&cycle, &references))?;
    priority::inherit(&mut resolver.offcodes, &references, &order);
    Ok(Application {
        path: path.into(),
        references,
        constraints: resolver.constraints(&file)?,
        channels: resolver.channels(&file)?,
        name: file.name.clone(),
        devices: file.devices.clone(),
        offcodes: resolver.offcodes,
    })
}

/// An application while its offcodes are being found.
struct Resolver<'a> {
    path: &'a Path,
    /// The directory of the layout file.
    base: PathBuf,
    /// Packages by their directories.
    packages: HashMap<PathBuf, Arc<OffcodePackage>>,
    /// Bytes of all packages' bodies.
    len: usize,
    offcodes: Vec<ApplicationOffcode>,
    by_name: HashMap<OffcodeName, usize>,
    /// Imports that the layout file assigns, by offcode and import.
    assigned: HashMap<(&'a str, &'a str), &'a AppImport>,
}

impl<'a> Resolver<'a> {
    fn new(path: &'a Path, file: &'a AppFile) -> Self {
        let key = |import: &'a AppImport| (import.offcode.as_str(), import.import.as_str());
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        Self {
            path,
            base: parent.unwrap_or_else(|| Path::new(".")).into(),
            packages: HashMap::new(),
            len: 0,
            offcodes: Vec::new(),
            by_name: HashMap::new(),
            assigned: file.imports.iter().map(|import| (key(import), import)).collect(),
        }
    }

    fn read_listed(&mut self, listed: &[AppOffcode]) -> Result<(), DescribeError> {
        for offcode in listed {
            let directory = self.base.join(&offcode.package);
            if !directory.is_dir() {
                let message = format!(
                    "the offcode {} has no package: {} is no directory; write \"package\" as its \
                     path relative to this file",
                    offcode.name,
                    directory.display()
                );
                return Err(self.fault(offcode.line, message));
            }
            let package = self.package(&directory)?;
            self.add(ApplicationOffcode::listed(offcode.clone(), package));
        }
        Ok(())
    }

    /// A package, read once.
    fn package(&mut self, directory: &Path) -> Result<Arc<OffcodePackage>, DescribeError> {
        let failed = |source| DescribeError::file(directory, source);
        let real = directory.canonicalize().map_err(failed)?;
        if let Some(package) = self.packages.get(&real) {
            return Ok(package.clone());
        }
        let package = Arc::new(OffcodePackage::read(&real)?);
        self.len += package.code_len();
        if self.len > APPLICATION_LEN_MAX {
            let message =
                format!("bodies of all packages have more than {APPLICATION_LEN_MAX} bytes");
            return Err(failed(io::Error::new(io::ErrorKind::FileTooLarge, message)));
        }
        self.packages.insert(real, package.clone());
        Ok(package)
    }

    fn add(&mut self, offcode: ApplicationOffcode) -> usize {
        let index = self.offcodes.len();
        self.by_name.insert(offcode.name.clone(), index);
        self.offcodes.push(offcode);
        index
    }

    /// Creates what imports require by the name of a package and nothing serves yet.
    fn create_required(&mut self) -> Result<(), DescribeError> {
        let mut offcode = 0;
        while let Some(from) = self.offcodes.get(offcode) {
            let package = from.package.clone();
            for (index, import) in package.file.imports.iter().enumerate() {
                if import.offcode.is_some() && self.assignment(offcode, import).is_none() {
                    self.hinted(offcode, index, import)?;
                }
            }
            offcode += 1;
        }
        Ok(())
    }

    /// The layout file's word on an import.
    fn assignment(&self, offcode: usize, import: &OffcodeImport) -> Option<&'a AppImport> {
        let key = (self.offcodes[offcode].name.as_str(), import.name.as_str());
        self.assigned.get(&key).copied()
    }

    /// The offcode that serves an import which names a package; created if there is none.
    fn hinted(
        &mut self,
        offcode: usize,
        index: usize,
        import: &OffcodeImport,
    ) -> Result<usize, DescribeError> {
        let hint = import.offcode.as_deref().unwrap_or_default();
        let named = hint.parse().ok().and_then(|name: OffcodeName| self.by_name.get(&name));
        if let Some(to) = named {
            return Ok(*to);
        }
        let found = self.those(|other| other.package.file.name.as_str() == hint);
        match found[..] {
            [] => self.at_directory(offcode, index, import, hint),
            [to] => Ok(to),
            _ => Err(self.ambiguous(offcode, import, &found)),
        }
    }

    /// The indices of such offcodes.
    fn those(&self, is_one: impl Fn(&ApplicationOffcode) -> bool) -> Vec<usize> {
        (0..self.offcodes.len()).filter(|index| is_one(&self.offcodes[*index])).collect()
    }

    /// The offcode of the package at the place that an import names; created if there is none.
    fn at_directory(
        &mut self,
        offcode: usize,
        index: usize,
        import: &OffcodeImport,
        hint: &str,
    ) -> Result<usize, DescribeError> {
        let directory = self.find(offcode, import, hint)?;
        let real = directory.canonicalize().map_err(|e| DescribeError::file(&directory, e))?;
        let found = self.those(|other| other.package.directory == real);
        match found[..] {
            [] => self.create(offcode, index, import, &directory),
            [to] => Ok(to),
            _ => Err(self.ambiguous(offcode, import, &found)),
        }
    }

    /// The directory of the package that an import names: a path from its own package's directory,
    /// or a name beside it or beside the layout file.
    fn find(
        &self,
        offcode: usize,
        import: &OffcodeImport,
        hint: &str,
    ) -> Result<PathBuf, DescribeError> {
        let own = &self.offcodes[offcode].package.directory;
        let is_path = hint.contains('/') || hint.starts_with('.');
        let places = match is_path {
            true => vec![own.join(hint)],
            false => vec![own.parent().unwrap_or(own).join(hint), self.base.join(hint)],
        };
        places.iter().find(|place| place.is_dir()).cloned().ok_or_else(|| {
            let looked: Vec<String> =
                places.iter().map(|place| place.display().to_string()).collect();
            let message = format!(
                "the import {} needs the package {hint:?}, which is not there (looked for {}): \
                 put it there, or name an offcode for it by [[import]] in {}",
                import.name,
                looked.join(" and "),
                self.path.display()
            );
            self.import_fault(offcode, import, message)
        })
    }

    fn create(
        &mut self,
        offcode: usize,
        index: usize,
        import: &OffcodeImport,
        directory: &Path,
    ) -> Result<usize, DescribeError> {
        let package = self.package(directory)?;
        let name = package.file.name.clone();
        let refuse = |message: String| Err(self.import_fault(offcode, import, message));
        if self.by_name.contains_key(&name) || name.as_str() == super::super::app::APP_END {
            return refuse(format!(
                "the import {} needs an offcode of the package {}, and the name {name} is taken: \
                 list one under another name, and assign the import by [[import]]",
                import.name,
                directory.display()
            ));
        }
        if self.offcodes.len() == OFFCODES_MAX {
            return refuse(format!("the application would have more than {OFFCODES_MAX} offcodes"));
        }
        Ok(self.add(ApplicationOffcode::required(name, package, offcode, index)))
    }

    /// Who serves each import.
    fn references(&mut self) -> Result<Vec<ApplicationReference>, DescribeError> {
        let mut references = Vec::new();
        for offcode in 0..self.offcodes.len() {
            let package = self.offcodes[offcode].package.clone();
            for (index, import) in package.file.imports.iter().enumerate() {
                let to = match (self.assignment(offcode, import), &import.offcode) {
                    (Some(assigned), _) => self.assigned(assigned)?,
                    (None, Some(_)) => self.hinted(offcode, index, import)?,
                    (None, None) => self.by_interface(offcode, import)?,
                };
                references.push(ApplicationReference {
                    from: offcode,
                    import: index,
                    to,
                    interface: self.offered(offcode, import, to)?,
                    kind: import.reference,
                });
            }
        }
        Ok(references)
    }

    fn assigned(&self, import: &AppImport) -> Result<usize, DescribeError> {
        self.named(&import.to, import.line)
    }

    fn named(&self, name: &OffcodeName, line: u32) -> Result<usize, DescribeError> {
        self.by_name.get(name).copied().ok_or_else(|| {
            let names: Vec<&str> = self.offcodes.iter().map(|other| other.name.as_str()).collect();
            let hint = did_you_mean(name.as_str(), &names);
            self.fault(line, format!("there is no offcode {name}{hint}"))
        })
    }

    /// The one other offcode that offers the interface of an import.
    fn by_interface(&self, offcode: usize, import: &OffcodeImport) -> Result<usize, DescribeError> {
        let offers = |(index, other): &(usize, &ApplicationOffcode)| {
            *index != offcode && other.package.file.interfaces.contains(&import.interface)
        };
        let found: Vec<usize> =
            self.offcodes.iter().enumerate().filter(offers).map(|(index, _)| index).collect();
        match found[..] {
            [to] => Ok(to),
            [] => Err(self.nobody(offcode, import)),
            _ => Err(self.ambiguous(offcode, import, &found)),
        }
    }

    /// The index of the interface at the offcode that is to serve an import.
    fn offered(
        &self,
        offcode: usize,
        import: &OffcodeImport,
        to: usize,
    ) -> Result<usize, DescribeError> {
        let server = &self.offcodes[to];
        let file = &server.package.file;
        let (name, interface) = (&server.name, &import.interface);
        if let Some(guid) = import.guid.filter(|guid| *guid != file.guid) {
            let message = format!(
                "the import {} needs the offcode with the GUID {guid}, and {name} has {}",
                import.name, file.guid
            );
            return Err(self.import_fault(offcode, import, message));
        }
        file.interfaces.iter().position(|offered| offered == interface).ok_or_else(|| {
            let offered: Vec<&str> = file.interfaces.iter().map(QualifiedName::as_str).collect();
            let offers = if offered.is_empty() { "none".into() } else { offered.join(", ") };
            let message = format!(
                "the import {} needs the interface {interface}, which {name} does not offer (it \
                 offers {offers}): assign another offcode by [[import]] in {}",
                import.name,
                self.path.display()
            );
            self.import_fault(offcode, import, message)
        })
    }

    /// Refuses an assignment of an import that does not exist.
    fn check_assignments(&self) -> Result<(), DescribeError> {
        let mut assigned: Vec<&AppImport> = self.assigned.values().copied().collect();
        assigned.sort_by_key(|import| import.line);
        for import in assigned {
            let offcode = &self.offcodes[self.named(&import.offcode, import.line)?];
            let imports = &offcode.package.file.imports;
            if !imports.iter().any(|other| other.name == import.import) {
                let names: Vec<&str> = imports.iter().map(|other| other.name.as_str()).collect();
                let hint = did_you_mean(import.import.as_str(), &names);
                let message = format!("{} has no import {}{hint}", import.offcode, import.import);
                return Err(self.fault(import.line, message));
            }
        }
        Ok(())
    }

    fn constraints(&self, file: &AppFile) -> Result<Vec<ApplicationConstraint>, DescribeError> {
        let mut constraints = Vec::new();
        for constraint in &file.constraints {
            let line = constraint.line;
            let offcodes: Vec<usize> = constraint
                .offcodes
                .iter()
                .map(|name| self.named(name, line))
                .collect::<Result<_, _>>()?;
            if offcodes.iter().collect::<BTreeSet<_>>().len() < offcodes.len() {
                let message = "an offcode is there twice: a constraint is between different ones";
                return Err(self.fault(line, message));
            }
            constraints.push(ApplicationConstraint { kind: constraint.kind, offcodes, line });
        }
        Ok(constraints)
    }

    fn channels(&self, file: &AppFile) -> Result<Vec<ApplicationChannel>, DescribeError> {
        let mut channels = Vec::new();
        for channel in &file.channels {
            let end = |end| self.end(end, channel.line);
            channels.push(ApplicationChannel {
                from: end(&channel.from)?,
                to: channel.to.iter().map(end).collect::<Result<_, _>>()?,
                settings: channel.settings.clone(),
                line: channel.line,
            });
        }
        Ok(channels)
    }

    fn end(&self, end: &ChannelEnd, line: u32) -> Result<ApplicationEnd, DescribeError> {
        let (name, port) = match end {
            ChannelEnd::App(name) => return Ok(ApplicationEnd::App(name.clone())),
            ChannelEnd::Port(name, port) => (name, port),
        };
        let offcode = self.named(name, line)?;
        let ports = &self.offcodes[offcode].package.file.ports;
        match ports.iter().position(|other| other == port) {
            Some(port) => Ok(ApplicationEnd::Port { offcode, port }),
            None => {
                let names: Vec<&str> = ports.iter().map(|other| other.as_str()).collect();
                let hint = match did_you_mean(port.as_str(), &names) {
                    hint if hint.is_empty() && !names.is_empty() => {
                        format!("; its ports are {}", names.join(", "))
                    }
                    hint => hint,
                };
                Err(self.fault(line, format!("{name} has no port {port}{hint}")))
            }
        }
    }
}

/// Faults.
impl Resolver<'_> {
    /// One of the layout file.
    fn fault(&self, line: u32, message: impl Into<String>) -> DescribeError {
        TextFault::new(line, message).at(self.path)
    }

    /// One of the description that has the import.
    fn import_fault(
        &self,
        offcode: usize,
        import: &OffcodeImport,
        message: String,
    ) -> DescribeError {
        TextFault::new(import.line, message).at(&self.offcodes[offcode].package.path)
    }

    fn nobody(&self, offcode: usize, import: &OffcodeImport) -> DescribeError {
        let unversioned = |name: &str| name.split('@').next().unwrap_or_default().to_owned();
        let wanted = unversioned(import.interface.as_str());
        let other = self.offcodes.iter().find_map(|other| {
            let mut offered = other.package.file.interfaces.iter();
            let near = offered.find(|offered| unversioned(offered.as_str()) == wanted)?;
            Some(format!(" ({} offers {near}, which is another version)", other.name))
        });
        let message = format!(
            "the import {} needs the interface {}, and no offcode of the application offers \
             it{}: list one in {}, or name its package by \"offcode\" here",
            import.name,
            import.interface,
            other.unwrap_or_default(),
            self.path.display()
        );
        self.import_fault(offcode, import, message)
    }

    fn ambiguous(&self, offcode: usize, import: &OffcodeImport, found: &[usize]) -> DescribeError {
        let names: Vec<&str> =
            found.iter().map(|index| self.offcodes[*index].name.as_str()).collect();
        let message = format!(
            "the import {} could be served by {}: say by which, as [[import]] from = \"{}.{}\" \
             to = \"{}\" in {}",
            import.name,
            names.join(" and "),
            self.offcodes[offcode].name,
            import.name,
            names.first().copied().unwrap_or_default(),
            self.path.display()
        );
        self.import_fault(offcode, import, message)
    }

    /// Offcodes that require each other other than by a Link.
    fn cycle_fault(&self, cycle: &[usize], references: &[ApplicationReference]) -> DescribeError {
        let names: Vec<&str> =
            cycle.iter().chain(cycle.first()).map(|i| self.offcodes[*i].name.as_str()).collect();
        let message = format!(
            "offcodes require each other: {}; one of these references must be a link",
            names.join(" -> ")
        );
        let next = cycle.get(1).or_else(|| cycle.first());
        let first = references.iter().find(|reference| {
            cycle.first() == Some(&reference.from) && next == Some(&reference.to)
        });
        match first {
            None => self.fault(1, message),
            Some(reference) => {
                let import = &self.offcodes[reference.from].package.file.imports[reference.import];
                self.import_fault(reference.from, import, message)
            }
        }
    }
}
