//! What slurm.conf says of sbcast: BcastParameters and BcastExclude.
//!
//! The file is read where it is on this machine; slurmctld is not asked. Without a file, or in a
//! cluster without files, everything is as Slurm has it by default.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// Where the file is, unless SLURM_CONF names it: Debian, SchedMD, and clusters without files.
const PLACES: [&str; 3] =
    ["/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf", "/run/slurm/conf/slurm.conf"];
/// Bytes of the file that are read, at most.
const LEN_MAX: u64 = 16 << 20;

/// See the [module](self).
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BcastConf {
    /// Below which relative destinations are.
    pub(super) directory: Option<PathBuf>,
    /// Whether libraries are sent by default.
    pub(super) sends_libs: bool,
    /// Directories whose libraries are not.
    pub(super) excluded: Option<String>,
}

impl BcastConf {
    pub(super) fn of_this_machine() -> Self {
        let named = env::var_os("SLURM_CONF").map(PathBuf::from);
        let places = named.into_iter().chain(PLACES.map(PathBuf::from));
        let opened = places.filter_map(|path| File::open(path).ok()).next();
        let mut bytes = Vec::new();
        match opened.map(|file| file.take(LEN_MAX).read_to_end(&mut bytes)) {
            Some(Ok(_)) => Self::parse(&String::from_utf8_lossy(&bytes)),
            // The node's own commands will complain.
            Some(Err(_)) | None => Self::default(),
        }
    }

    fn parse(text: &str) -> Self {
        let mut conf = Self::default();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            let Some((name, value)) = line.split_once('=') else { continue };
            let value = value.trim();
            match name.trim().to_ascii_lowercase().as_str() {
                "bcastexclude" => conf.excluded = Some(value.to_owned()),
                "bcastparameters" => conf.parameters(value),
                _ => {}
            }
        }
        conf
    }

    fn parameters(&mut self, value: &str) {
        for parameter in value.split(',') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            match name.trim().to_ascii_lowercase().as_str() {
                "destdir" => self.directory = Some(value.into()),
                "send_libs" => self.sends_libs = !value.eq_ignore_ascii_case("no"),
                // Compression: chunks are not compressed.
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_concerns_sbcast_is_read() {
        let text = "ClusterName=lab\n#BcastExclude=/no\nbcastparameters=DestDir=/local,send_libs,\
                    Compression=lz4 # comment\nBcastExclude=/lib,/opt\n";
        let conf = BcastConf::parse(text);
        assert_eq!(conf.directory.as_deref(), Some("/local".as_ref()));
        assert!(conf.sends_libs);
        assert_eq!(conf.excluded.as_deref(), Some("/lib,/opt"));
        assert_eq!(BcastConf::parse("NodeName=n1"), BcastConf::default());
    }
}
