//! The cluster's key and the services' keys derived from it.
//!
//! A service's key is HKDF-SHA256 (RFC 5869) of the cluster's key without salt, with the info
//! `outboard service key v1` followed by the service's name: from one no other can be computed,
//! nor the cluster's. Keys are never printed; [`ServiceKey::export`] writes a file.

use crate::keyfile::{self, Holding, KeyFileError};
use crate::name::ServiceName;
use crate::secret::{self, NoEntropy, Secret};
use ring::hkdf;
use std::path::Path;
use zeroize::Zeroizing;

const SERVICE_INFO: &[u8] = b"outboard service key v1";

/// The key from which every service's key of a cluster is derived.
#[derive(Debug)]
pub struct ClusterKey(Secret);

/// The key of one service. A holder may use the service, and can also pose as a node that offers
/// it.
#[derive(Clone, Debug)]
pub struct ServiceKey {
    name: ServiceName,
    secret: Secret,
}

impl ClusterKey {
    /// A new key.
    ///
    /// # Errors
    /// [`NoEntropy`] when this machine gives no random numbers.
    pub fn generate() -> Result<Self, NoEntropy> {
        Secret::random().map(Self)
    }

    /// Reads the key.
    ///
    /// # Errors
    /// [`KeyFileError`] when there is none, it is not a cluster key, it is another user's or
    /// others have rights to it.
    pub fn load(path: &Path) -> Result<Self, KeyFileError> {
        keyfile::load(path, Holding::ClusterKey, Self::parse)
    }

    /// Makes a new key in a file that is not there yet, with its directory.
    ///
    /// # Errors
    /// [`KeyFileError::Exists`] when the file is there already, others when it cannot be made.
    pub fn create(path: &Path) -> Result<Self, KeyFileError> {
        let key = Self::generate()?;
        keyfile::create_with_parent(path, &line(&[Holding::ClusterKey.label()], &key.0))?;
        Ok(key)
    }

    /// Reads the key, and makes it first if there is none, with its directory. Of processes that
    /// do so at once, also on several machines that share the directory, all get the same key.
    ///
    /// # Errors
    /// As [`Self::load`], and when the file cannot be made.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyFileError> {
        keyfile::load_or_create(path, Holding::ClusterKey, Self::parse, || {
            Ok(line(&[Holding::ClusterKey.label()], &Self::generate()?.0))
        })
    }

    fn parse(line: &str) -> Option<Self> {
        let (_, digits) = line.split_once(' ')?;
        Secret::parse(digits).map(Self)
    }

    /// The key of one service.
    #[must_use]
    pub fn service(&self, name: &ServiceName) -> ServiceKey {
        let mut secret = Secret::zero();
        let extracted = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(self.0.bytes());
        extracted
            .expand(&[SERVICE_INFO, name.as_str().as_bytes()], hkdf::HKDF_SHA256)
            .and_then(|expanded| expanded.fill(secret.bytes_mut()))
            .expect("HKDF-SHA256 gives its own length, RFC 5869 §2.3");
        ServiceKey { name: name.clone(), secret }
    }
}

impl ServiceKey {
    /// Reads a service's key that was exported.
    ///
    /// # Errors
    /// [`KeyFileError`] when there is none, it is not a service's key, it is another user's or
    /// others have rights to it.
    pub fn load(path: &Path) -> Result<Self, KeyFileError> {
        keyfile::load(path, Holding::ServiceKey, Self::parse)
    }

    /// The key of [such a line](Self::to_line); `None` if it is another.
    #[must_use]
    pub fn from_line(line: &str) -> Option<Self> {
        line.starts_with(Holding::ServiceKey.label()).then(|| Self::parse(line))?
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ').skip(1);
        let name = words.next()?.parse().ok()?;
        let secret = Secret::parse(words.next()?)?;
        words.next().is_none().then_some(Self { name, secret })
    }

    /// Writes the key into a new file that only its owner may read.
    ///
    /// # Errors
    /// [`KeyFileError::Exists`] when the file is there already, others when it cannot be made.
    pub fn export(&self, path: &Path) -> Result<(), KeyFileError> {
        keyfile::create(path, &self.to_line())
    }

    /// What such a file holds, without the end of the line: for handing the key on by other ways.
    #[must_use]
    pub fn to_line(&self) -> Zeroizing<String> {
        line(&[Holding::ServiceKey.label(), self.name.as_str()], &self.secret)
    }

    /// The service.
    #[must_use]
    pub fn name(&self) -> &ServiceName {
        &self.name
    }

    pub(crate) fn bytes(&self) -> &[u8; secret::LEN] {
        self.secret.bytes()
    }
}

/// The words and the secret's digits, without leaving copies behind.
pub(crate) fn line(words: &[&str], secret: &Secret) -> Zeroizing<String> {
    let len = words.iter().map(|word| word.len() + 1).sum::<usize>() + 2 * secret::LEN;
    let mut text = Zeroizing::new(String::with_capacity(len));
    for word in words {
        text.push_str(word);
        text.push(' ');
    }
    secret.emit(&mut text);
    text
}

#[cfg(test)]
mod tests;
