//! Directories that the client does not export, but in which a job makes files.
//!
//! The view does not know what these directories contain. A name that the job itself would make is
//! reported absent, as the job will overwrite it. Any other name may exist at the client, so
//! looking it up makes the job run there.

use outboard_export::path::split;

/// Last extensions of the files that compilers make beside their outputs, including temporary
/// files.
const MADE: &[&str] = &[
    "o", "obj", "lo", "d", "Td", "Po", "Tpo", "Plo", "TPlo", "dwo", "su", "gcno", "bc", "ci",
    "json", "yaml", "dia", "tmp",
];

/// The directories that the client does not export but in which a job makes files, and those files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// The directories, by absolute paths.
    pub directories: Vec<Vec<u8>>,
    /// The files that the job is known to make, by absolute paths.
    pub files: Vec<Vec<u8>>,
    /// Prefixes of further files that the job may make; a dot or a hyphen must follow.
    pub stems: Vec<Vec<u8>>,
}

impl Places {
    /// Whether a path leads to one of the directories, or is one.
    pub(super) fn lead(&self, path: &[u8]) -> bool {
        let leads = |place: &Vec<u8>| {
            place.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        self.directories.iter().any(leads)
    }

    /// Whether this is one of the directories.
    pub(super) fn has(&self, dir: &[u8]) -> bool {
        self.directories.iter().any(|place| place == dir)
    }

    /// Whether a path in one of the directories can be reported absent to the job.
    pub(super) fn is_for_the_job(&self, path: &[u8]) -> bool {
        let Some((dir, name)) = split(path) else { return false };
        self.has(dir)
            && (self.files.iter().any(|file| file == path)
                || self.is_named_after(name)
                || self.is_objcopys(name))
    }

    fn is_named_after(&self, name: &[u8]) -> bool {
        let extension = name.rsplit(|byte| *byte == b'.').next();
        let begins = |stem: &Vec<u8>| {
            let rest = name.strip_prefix(&**stem);
            rest.is_some_and(|rest| matches!(rest.first(), Some(b'.' | b'-')))
        };
        MADE.iter().any(|made| extension == Some(made.as_bytes())) && self.stems.iter().any(begins)
    }

    /// `stAb12Cd`, the temporary file to which objcopy extracts debug information from the object.
    fn is_objcopys(&self, name: &[u8]) -> bool {
        let rest = name.strip_prefix(b"st").filter(|rest| rest.len() == 6);
        rest.is_some_and(|rest| rest.iter().all(u8::is_ascii_alphanumeric))
            && self.files.iter().any(|file| file.ends_with(b".dwo"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(files: &[&str]) -> Places {
        Places {
            directories: vec![b"/p/.build".to_vec()],
            files: files.iter().map(|file| file.as_bytes().to_vec()).collect(),
            stems: vec![b"net".to_vec(), b"obj".to_vec()],
        }
    }

    #[test]
    fn only_what_a_job_makes_itself_is_absent() {
        let places = places(&["/p/.build/obj.o"]);
        for name in ["obj.o", "obj.d", "obj.su", "obj-1a2b.o.tmp", "net.gcno"] {
            assert!(places.is_for_the_job(format!("/p/.build/{name}").as_bytes()), "{name}");
        }
        for name in
            ["config.h", "net.h", "net.c", "obj", "objo", "other.o", "net.h.gch", "stAb12Cd"]
        {
            assert!(!places.is_for_the_job(format!("/p/.build/{name}").as_bytes()), "{name}");
        }
        assert!(!places.is_for_the_job(b"/p/.other/obj.o"));
    }

    #[test]
    fn objcopys_own_file_is_absent_where_it_is_called() {
        let places = places(&["/p/.build/obj.o", "/p/.build/obj.dwo"]);
        assert!(places.is_for_the_job(b"/p/.build/stAb12Cd"));
        for name in ["st", "stAb12C.", "stAb12Cde"] {
            assert!(!places.is_for_the_job(format!("/p/.build/{name}").as_bytes()), "{name}");
        }
    }
}
