//! An interface: its name, GUID and methods; parameters and results as bytes.
//!
//! Knows nothing of who implements it.

use crate::call::Call;
use crate::error::{InterfaceError, ValueError};
use crate::guid::Guid;
use crate::name::InterfaceName;
use crate::types::Type;
use crate::value::{Decoder, Value, check_len, encode_fields};

/// Methods of an interface, at most.
pub const METHODS_MAX: usize = 256;
/// Parameters of a method, at most.
pub const PARAMETERS_MAX: usize = 32;

/// An interface of offcodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its versioned name.
    pub name: InterfaceName,
    /// UUIDv5 of the name, unless whoever describes the offcode pins another.
    pub guid: Guid,
    /// In the order of the text: a method's index is its number in calls.
    pub methods: Vec<Method>,
}

/// A method of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// As in WIT, without `%`.
    pub name: String,
    /// Names and types in order.
    pub parameters: Vec<(String, Type)>,
    /// The type of what it returns, if it returns anything.
    pub result: Option<Type>,
}

impl Interface {
    /// The method of this name, and its index.
    #[must_use]
    pub fn method(&self, name: &str) -> Option<(u32, &Method)> {
        let index = self.methods.iter().position(|method| method.name == name)?;
        Some((u32::try_from(index).ok()?, &self.methods[index]))
    }

    /// A call of the method with this index, as the caller has checked.
    ///
    /// # Errors
    ///
    /// [`ValueError`] if there is no such method or the parameters are not its.
    pub fn call(&self, method: u32, parameters: &[Value]) -> Result<Call, ValueError> {
        let Some(found) = self.methods.get(method as usize) else {
            let found = format!("method {method}");
            return Err(ValueError::mismatch(format!("a method of {}", self.name), found)
                .within(|| "call".into()));
        };
        Ok(Call { interface: self.guid, method, parameters: found.encode_parameters(parameters)? })
    }

    /// Whether who was built with `wanted` can call this: the versions are compatible, and this
    /// begins with all of `wanted`'s methods, unchanged.
    ///
    /// # Errors
    ///
    /// [`InterfaceError::Incompatible`] with the first reason found.
    pub fn serves(&self, wanted: &Self) -> Result<(), InterfaceError> {
        let incompatible = |reason: String| InterfaceError::Incompatible {
            found: self.name.to_string(),
            wanted: wanted.name.to_string(),
            reason,
        };
        if !self.name.serves(&wanted.name) {
            return Err(incompatible("the versions are not compatible".into()));
        }
        for (index, method) in wanted.methods.iter().enumerate() {
            if self.methods.get(index) != Some(method) {
                let name = &method.name;
                return Err(incompatible(format!("it has no equal method {name} at {index}")));
            }
        }
        Ok(())
    }
}

impl Method {
    /// The parameters in order as a tuple's bytes.
    ///
    /// # Errors
    ///
    /// [`ValueError`] if they are not of this method.
    pub fn encode_parameters(&self, values: &[Value]) -> Result<Vec<u8>, ValueError> {
        let mut out = Vec::new();
        if values.len() != self.parameters.len() {
            let count = ValueError::count(self.parameters.len(), values.len());
            return Err(count.within(|| self.name.clone()));
        }
        encode_fields(values, &self.parameters, &mut out)?;
        check_len(out.len()).map_err(|error| error.within(|| self.name.clone()))?;
        Ok(out)
    }

    /// The parameters that are all of `bytes`.
    ///
    /// # Errors
    ///
    /// [`ValueError`] if they are not of this method.
    pub fn decode_parameters(&self, bytes: &[u8]) -> Result<Vec<Value>, ValueError> {
        let whole = |error: ValueError| error.within(|| self.name.clone());
        let mut decoder = Decoder::new(bytes).map_err(whole)?;
        let values = decoder.fields(&self.parameters)?;
        decoder.finish().map_err(whole)?;
        Ok(values)
    }

    /// What the method returns, as bytes; no bytes if it returns nothing.
    ///
    /// # Errors
    ///
    /// [`ValueError`] if it does not return this.
    pub fn encode_results(&self, value: Option<&Value>) -> Result<Vec<u8>, ValueError> {
        let encoded = match (&self.result, value) {
            (None, None) => Ok(Vec::new()),
            (Some(ty), Some(value)) => value.encode(ty),
            (Some(ty), None) => Err(ValueError::mismatch(ty.to_string(), "nothing")),
            (None, Some(value)) => Err(ValueError::mismatch("nothing", value.kind())),
        };
        encoded.map_err(|error| error.within(|| "result".into()))
    }

    /// What the method returned, of `bytes`.
    ///
    /// # Errors
    ///
    /// [`ValueError`] if it does not return such.
    pub fn decode_results(&self, bytes: &[u8]) -> Result<Option<Value>, ValueError> {
        let decoded = match &self.result {
            Some(ty) => Value::decode(ty, bytes).map(Some),
            None => Decoder::new(bytes).and_then(Decoder::finish).map(|()| None),
        };
        decoded.map_err(|error| error.within(|| "result".into()))
    }
}
