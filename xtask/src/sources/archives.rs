//! The package archives that this machine uses, as archives of sources.
//!
//! Reads apt's configuration in both its formats and never writes there. Only the archives of
//! Debian and Ubuntu count, recognized by the last part of their address: others carry other
//! packages under the same names.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

/// Where apt looks.
const CONFIGURATION: &str = "/etc/apt";
/// The ends of the addresses of these archives and their mirrors.
const ARCHIVES: &[&str] = &["/debian", "/debian-security", "/ubuntu", "/ubuntu-ports"];

/// Writes the machine's archives to `directory` as archives of sources, for apt's
/// `Dir::Etc::SourceParts`. Returns whether there are any.
///
/// # Errors
/// When a file cannot be read or written.
pub(super) fn write_to(directory: &Path) -> Result<bool> {
    let mut any = false;
    for path in configured()? {
        let (Some(name), Ok(text)) = (path.file_name(), fs::read_to_string(&path)) else {
            continue;
        };
        let one_line = path.extension().is_some_and(|ending| ending == "list");
        let sources = if one_line { of_lines(&text) } else { of_stanzas(&text) };
        any |= !sources.is_empty();
        fs::write(directory.join(name), sources)?;
    }
    Ok(any)
}

/// The files that apt would read.
fn configured() -> Result<Vec<PathBuf>> {
    let configuration = Path::new(CONFIGURATION);
    let mut files = vec![configuration.join("sources.list")];
    let parts = configuration.join("sources.list.d");
    if parts.is_dir() {
        for entry in fs::read_dir(parts)? {
            files.push(entry?.path());
        }
    }
    let ending = |path: &PathBuf| path.extension().is_some_and(|e| e == "list" || e == "sources");
    files.retain(|path| path.is_file() && ending(path));
    Ok(files)
}

/// The format with one archive per line: `deb [options] address suite component...`.
fn of_lines(text: &str) -> String {
    let sources = text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix("deb ")?;
        rest.split_whitespace().any(is_archive).then(|| format!("deb-src {rest}\n"))
    });
    sources.collect()
}

/// The format of stanzas with fields, which may continue on lines that begin with a space.
fn of_stanzas(text: &str) -> String {
    let uncommented: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let stanzas = uncommented.split(|line| line.trim().is_empty());
    stanzas.filter(|stanza| is_wanted(stanza)).map(as_sources).collect()
}

fn is_wanted(stanza: &[&str]) -> bool {
    let field = |name: &str| {
        let mut fields = stanza.iter().filter_map(|line| line.split_once(':'));
        fields.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value.trim())
    };
    field("Types").split_whitespace().any(|kind| kind == "deb")
        && !field("Enabled").eq_ignore_ascii_case("no")
        && field("URIs").split_whitespace().all(is_archive)
}

fn as_sources(stanza: &[&str]) -> String {
    let is_types = |line: &&&str| line.to_ascii_lowercase().starts_with("types:");
    let rest = stanza.iter().filter(|line| !is_types(line)).map(|line| format!("{line}\n"));
    format!("Types: deb-src\n{}\n", rest.collect::<String>())
}

fn is_archive(address: &str) -> bool {
    let address = address.trim_end_matches('/');
    address.contains("://") && ARCHIVES.iter().any(|ending| address.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_lines_of_sources_and_other_archives_are_left_out() {
        let text = "# deb http://deb.debian.org/debian old main\n\
            deb [arch=amd64 signed-by=/k.gpg] http://deb.debian.org/debian/ bookworm main\n\
            deb https://example.org/cloud-sdk cloud main\n\
            deb-src http://deb.debian.org/debian bookworm main\n";
        assert_eq!(
            of_lines(text),
            "deb-src [arch=amd64 signed-by=/k.gpg] http://deb.debian.org/debian/ bookworm main\n"
        );
    }

    #[test]
    fn stanzas_become_stanzas_of_sources() {
        let text = "Types: deb\n# a remark\nURIs: http://deb.debian.org/debian\nSuites: a b\n\
            Signed-By:\n -----BEGIN\n .\n -----END\n\n\
            Types: deb\nURIs: https://deb.nodesource.com/node_20.x\nSuites: nodistro\n\n\
            Types: deb deb-src\nURIs: http://archive.ubuntu.com/ubuntu\nEnabled: no\n";
        assert_eq!(
            of_stanzas(text),
            "Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: a b\n\
             Signed-By:\n -----BEGIN\n .\n -----END\n\n"
        );
    }

    #[test]
    fn mirrors_count_and_look_alikes_do_not() {
        assert!(is_archive("http://mirror.example.org/pub/debian/"));
        assert!(!is_archive("http://example.org/not-debian"));
        assert!(!is_archive("main/debian"));
    }
}
