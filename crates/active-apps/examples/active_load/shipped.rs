//! Modules that are shipped with Outboard, loaded from a directory with what they import.

use crate::Failure;
use crate::calls::done;
use outboard_active::{ActiveCall, ActiveClient, ModuleHash, RemoteRegion};
use outboard_active_apps::Structure;
use std::fs;
use std::path::Path;

/// Where every structure begins in its region.
pub(crate) const ROOT: u64 = 4096;

/// A module that the node has, on one region.
pub(crate) struct ShippedModule {
    pub(crate) client: ActiveClient,
    pub(crate) region: RemoteRegion,
    pub(crate) module: ModuleHash,
}

impl ShippedModule {
    /// Loads `NAME.wasm` of a directory, and of the others there what it imports.
    pub(crate) fn load(
        (mut client, region): (ActiveClient, RemoteRegion),
        directory: &str,
        name: &str,
    ) -> Result<Self, Failure> {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "wasm") {
                client.know(&stem(&path), &fs::read(&path)?)?;
            }
        }
        let path = Path::new(directory).join(name).with_extension("wasm");
        let bytes = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let (module, _) = client.load(name, &bytes)?;
        Ok(Self { client, region, module })
    }

    /// The structure of the module, at its usual place.
    pub(crate) fn structure(&self) -> Structure {
        Structure::new(&self.region, ROOT, self.module)
    }

    /// Executes an entry.
    pub(crate) fn call(&mut self, entry: &str, args: &[u8]) -> Result<Vec<u8>, Failure> {
        let call = ActiveCall::new(&self.region, self.module, entry, args);
        done(self.client.execute(&call)?)
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
