//! The kernel modules that siw needs, and the order in which to insert them.
//!
//! Reads the "depends=" line that every module carries in its `.modinfo` section; it needs no
//! kmod and no depmod. Names are compared with '-' read as '_', as the kernel does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The modules that the guest uses, in the order of insertion; the dependencies of each come before
/// it. siw requests "crc32c" from the crypto layer when it is loaded, so that comes first.
const WANTED: [&str; 9] = [
    "crc32c_generic",
    "virtio_pci",
    "virtio_net",
    "ib_core",
    "iw_cm",
    "rdma_cm",
    "ib_uverbs",
    "rdma_ucm",
    "siw",
];

/// All module files under `root`, by module name.
pub(super) fn files_under(root: &Path) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![root.to_owned()];
    while let Some(directory) = pending.pop() {
        let listing = std::fs::read_dir(&directory)
            .map_err(|error| format!("cannot list {}: {error}", directory.display()))?;
        for path in listing.filter_map(|entry| Some(entry.ok()?.path())) {
            if path.is_dir() && !path.is_symlink() {
                pending.push(path);
            } else if let Some(name) = module_name(&path) {
                found.insert(name, path);
            }
        }
    }
    Ok(found)
}

/// The wanted modules and everything they depend on, in the order of insertion.
pub(super) fn load_order(files: &BTreeMap<String, PathBuf>) -> Result<Vec<String>, String> {
    let mut order = Vec::new();
    for name in WANTED {
        visit(name, files, &mut order)?;
    }
    Ok(order)
}

fn visit(
    name: &str,
    files: &BTreeMap<String, PathBuf>,
    order: &mut Vec<String>,
) -> Result<(), String> {
    if order.iter().any(|placed| placed == name) {
        return Ok(());
    }
    let path = files.get(name).ok_or_else(|| format!("kernel module {name} is nowhere"))?;
    let content =
        std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    for dependency in dependencies(&content) {
        visit(&dependency, files, order)?;
    }
    order.push(name.to_owned());
    Ok(())
}

/// The names in the NUL-terminated "depends=a,b" of a module.
fn dependencies(module: &[u8]) -> Vec<String> {
    let value = module
        .split(|byte| *byte == 0)
        .find_map(|text| text.strip_prefix(b"depends="))
        .map(String::from_utf8_lossy)
        .unwrap_or_default();
    value.split(',').filter(|name| !name.is_empty()).map(plain).collect()
}

fn module_name(path: &Path) -> Option<String> {
    Some(plain(path.file_name()?.to_str()?.strip_suffix(".ko")?))
}

fn plain(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_modinfo() {
        let module = b"\x7fELF\0license=GPL\0depends=ib_core,iw-cm\0name=siw\0";
        assert_eq!(dependencies(module), ["ib_core", "iw_cm"]);
        assert!(dependencies(b"\0depends=\0").is_empty());
    }

    #[test]
    fn a_module_comes_after_what_it_depends_on_and_only_once() {
        let directory = std::env::temp_dir().join(format!("siw-modules-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("deep")).unwrap();
        for name in WANTED {
            let depends: &[u8] = if name == "siw" { b"\0depends=late-one\0" } else { b"" };
            std::fs::write(directory.join(format!("{name}.ko")), depends).unwrap();
        }
        let late = directory.join("deep/late-one.ko");
        std::fs::write(late, b"\0depends=ib_core\0").unwrap();
        let order = load_order(&files_under(&directory).unwrap()).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(order[..8], WANTED[..8]);
        assert_eq!(order[8..], ["late_one", "siw"]);
    }
}
