//! The Debian packages that the virtual machine is built from, and whether they are installed.
//!
//! Only asks dpkg; it never installs anything. The kernel image and its headers are not here:
//! they are fetched as files and unpacked into the cache, so the host keeps its own kernel.

use std::process::Command;

/// The packages to be installed by `apt-get install --no-install-recommends` on Debian 12.
pub const PACKAGES: &[&str] = &[
    "busybox-static",
    "gcc-12",
    "ibverbs-providers",
    "iproute2",
    "libelf1",
    "libssl3",
    "linux-source-6.1",
    "make",
    "perftest",
    "qemu-system-x86",
    "rdmacm-utils",
    "xz-utils",
];

/// Fails with the one command that installs the missing packages.
pub(super) fn require() -> Result<(), String> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err("the siw virtual machine needs an x86-64 host".into());
    }
    missing_of(&installed()?)
}

/// The names among [`PACKAGES`] which dpkg reports as installed, one per line.
fn installed() -> Result<String, String> {
    // dpkg-query exits with 1 when it does not know a package, yet lists the others.
    let output = Command::new("dpkg-query")
        .args(["--show", "--showformat", "${db:Status-Status} ${Package}\n"])
        .args(PACKAGES)
        .output()
        .map_err(|error| {
            format!("the siw virtual machine needs Debian 12 (dpkg-query: {error})")
        })?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn missing_of(listing: &str) -> Result<(), String> {
    let there: Vec<&str> =
        listing.lines().filter_map(|line| line.strip_prefix("installed ")).collect();
    let missing: Vec<&str> =
        PACKAGES.iter().copied().filter(|package| !there.contains(package)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let command = "apt-get install --no-install-recommends";
    Err(format!("packages are missing (Debian 12); run: {command} {}", missing.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(packages: &[&str]) -> String {
        packages.iter().map(|package| format!("installed {package}\n")).collect()
    }

    #[test]
    fn nothing_is_missing_when_all_are_listed() {
        assert_eq!(missing_of(&listing(PACKAGES)), Ok(()));
    }

    #[test]
    fn names_exactly_the_missing_ones() {
        let mut text = listing(&PACKAGES[2..]);
        text.push_str("config-files busybox-static\n");
        let error = missing_of(&text).unwrap_err();
        assert!(error.ends_with("--no-install-recommends busybox-static gcc-12"), "{error}");
    }
}
