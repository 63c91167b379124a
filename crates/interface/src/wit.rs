//! Interfaces of WIT text.
//!
//! Never reads a file: a package that the text uses must stand in the text. Worlds are passed
//! over. What cannot be sent, and what is larger than the bounds, is refused.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use wit_parser::{FunctionKind, Resolve, TypeDef, TypeDefKind, TypeId};

use crate::error::InterfaceError;
use crate::interface::{Interface, METHODS_MAX, Method, PARAMETERS_MAX};
use crate::name::InterfaceName;
use crate::types::{LabelsType, RecordType, Type, VariantType};

/// Bytes of a text that is read, at most.
pub const WIT_LEN_MAX: usize = 64 << 10;
/// Interfaces of a text, at most.
pub const INTERFACES_MAX: usize = 64;
/// Types that a text defines, named or not, at most.
const TYPES_MAX: usize = 1024;

impl Interface {
    /// The interfaces of a WIT text, in its order. `file` names the text in errors.
    ///
    /// # Errors
    ///
    /// [`InterfaceError`] if the text is not valid, has what cannot be sent (resources, handles,
    /// streams, futures), lacks a version, or is larger than the bounds.
    pub fn parse_wit(file: &str, text: &str) -> Result<Vec<Self>, InterfaceError> {
        if text.len() > WIT_LEN_MAX {
            return Err(InterfaceError::TextLen { found: text.len(), max: WIT_LEN_MAX });
        }
        let mut resolve = Resolve::default();
        if let Err(error) = resolve.push_source(file, text) {
            return Err(InterfaceError::Syntax { reason: resolve.render_error(&error) });
        }
        InterfaceError::check(file, resolve.types.len(), "types", TYPES_MAX)?;
        InterfaceError::check(file, resolve.interfaces.len(), "interfaces", INTERFACES_MAX)?;
        let types = Types::read(&resolve)?;
        let named = resolve.interfaces.iter().filter(|(_, interface)| interface.name.is_some());
        named.map(|(_, interface)| read_interface(&resolve, &types, interface)).collect()
    }
}

fn read_interface(
    resolve: &Resolve,
    types: &Types,
    interface: &wit_parser::Interface,
) -> Result<Interface, InterfaceError> {
    let place = interface.name.clone().unwrap_or_default();
    let package = interface.package.map(|id| &resolve.packages[id].name);
    let Some(package) = package else {
        return Err(InterfaceError::Name { found: place });
    };
    let path = format!("{}:{}", package.namespace, package.name);
    let Some(version) = package.version.clone() else {
        return Err(InterfaceError::NoVersion { package: path });
    };
    InterfaceError::check(&place, interface.functions.len(), "methods", METHODS_MAX)?;
    check_names(&place, interface.functions.keys())?;
    let methods = interface.functions.values().map(|function| read_method(types, &place, function));
    let methods = methods.collect::<Result<_, _>>()?;
    let name = InterfaceName::new(&path, &place, version);
    Ok(Interface { guid: name.guid(), name, methods })
}

fn read_method(
    types: &Types,
    interface: &str,
    function: &wit_parser::Function,
) -> Result<Method, InterfaceError> {
    let place = format!("{interface}.{}", function.name);
    if function.kind != FunctionKind::Freestanding {
        return Err(InterfaceError::Unsupported { place, found: "async or of a resource" });
    }
    InterfaceError::check(&place, function.params.len(), "parameters", PARAMETERS_MAX)?;
    check_names(&place, function.params.iter().map(|parameter| &parameter.name))?;
    let parameters = function
        .params
        .iter()
        .map(|parameter| Ok((parameter.name.clone(), types.of(&parameter.ty, &place)?)))
        .collect::<Result<_, InterfaceError>>()?;
    let result = function.result.as_ref().map(|ty| types.of(ty, &place)).transpose()?;
    Ok(Method { name: function.name.clone(), parameters, result })
}

/// Generated code in some languages knows no capitals, or changes them.
fn check_names<'a>(
    place: &str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), InterfaceError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name.to_lowercase()) {
            return Err(InterfaceError::SameName { place: place.into(), name: name.clone() });
        }
    }
    Ok(())
}

/// The types that a text defines.
struct Types(HashMap<TypeId, Type>);

impl Types {
    /// Reads them in wit-parser's order, in which a type follows those that it is made of: no
    /// chain of types, however long, recurses here.
    fn read(resolve: &Resolve) -> Result<Self, InterfaceError> {
        let mut types = Self(HashMap::new());
        for (id, definition) in resolve.types.iter() {
            let place = definition.name.clone().unwrap_or_else(|| "a type".to_owned());
            let ty = types.definition(definition, &place)?;
            if !ty.is_bounded() {
                return Err(InterfaceError::TypeExtent { place });
            }
            types.0.insert(id, ty);
        }
        Ok(types)
    }

    fn of(&self, ty: &wit_parser::Type, place: &str) -> Result<Type, InterfaceError> {
        use wit_parser::Type as Wit;
        let unsupported = |found| InterfaceError::Unsupported { place: place.to_owned(), found };
        Ok(match ty {
            Wit::Bool => Type::Bool,
            Wit::U8 => Type::U8,
            Wit::U16 => Type::U16,
            Wit::U32 => Type::U32,
            Wit::U64 => Type::U64,
            Wit::S8 => Type::S8,
            Wit::S16 => Type::S16,
            Wit::S32 => Type::S32,
            Wit::S64 => Type::S64,
            Wit::F32 => Type::F32,
            Wit::F64 => Type::F64,
            Wit::Char => Type::Char,
            Wit::String => Type::String,
            Wit::ErrorContext => return Err(unsupported("an error-context")),
            Wit::Id(id) => match self.0.get(id) {
                Some(ty) => ty.clone(),
                None => return Err(unsupported("a type that is not known yet")),
            },
        })
    }

    fn shared(&self, ty: &wit_parser::Type, place: &str) -> Result<Arc<Type>, InterfaceError> {
        self.of(ty, place).map(Arc::new)
    }

    fn optional(
        &self,
        ty: Option<&wit_parser::Type>,
        place: &str,
    ) -> Result<Option<Arc<Type>>, InterfaceError> {
        ty.map(|ty| self.shared(ty, place)).transpose()
    }

    fn definition(&self, definition: &TypeDef, place: &str) -> Result<Type, InterfaceError> {
        match &definition.kind {
            TypeDefKind::Type(ty) => self.of(ty, place),
            TypeDefKind::Option(ty) => self.shared(ty, place).map(Type::Option),
            TypeDefKind::List(ty) => Type::list(self.of(ty, place)?)
                .ok_or_else(|| InterfaceError::EmptyItems { place: place.to_owned() }),
            TypeDefKind::Result(result) => Ok(Type::Result(
                self.optional(result.ok.as_ref(), place)?,
                self.optional(result.err.as_ref(), place)?,
            )),
            TypeDefKind::Tuple(tuple) => self.tuple(tuple, place),
            TypeDefKind::Record(record) => self.record(record, place),
            TypeDefKind::Variant(variant) => self.variant(variant, place),
            TypeDefKind::Enum(cases) => {
                let labels = labels(place, cases.cases.iter().map(|case| &case.name))?;
                check_some(place, labels.labels.len())?;
                Ok(Type::Enum(Arc::new(labels)))
            }
            TypeDefKind::Flags(flags) => {
                InterfaceError::check_flags(place, flags.flags.len())?;
                let labels = labels(place, flags.flags.iter().map(|flag| &flag.name))?;
                Ok(Type::Flags(Arc::new(labels)))
            }
            other => {
                Err(InterfaceError::Unsupported { place: place.into(), found: other.as_str() })
            }
        }
    }

    fn tuple(&self, tuple: &wit_parser::Tuple, place: &str) -> Result<Type, InterfaceError> {
        InterfaceError::check_tuple(place, tuple.types.len())?;
        let items = tuple.types.iter().map(|ty| self.of(ty, place));
        items.collect::<Result<_, _>>().map(Type::Tuple)
    }

    fn record(&self, record: &wit_parser::Record, place: &str) -> Result<Type, InterfaceError> {
        InterfaceError::check_members(place, record.fields.len())?;
        check_names(place, record.fields.iter().map(|field| &field.name))?;
        let fields = record.fields.iter().map(|field| {
            let place = format!("{place}.{}", field.name);
            Ok((field.name.clone(), self.of(&field.ty, &place)?))
        });
        let fields = fields.collect::<Result<_, InterfaceError>>()?;
        Ok(Type::Record(Arc::new(RecordType { name: place.to_owned(), fields })))
    }

    fn variant(&self, variant: &wit_parser::Variant, place: &str) -> Result<Type, InterfaceError> {
        InterfaceError::check_members(place, variant.cases.len())?;
        check_some(place, variant.cases.len())?;
        check_names(place, variant.cases.iter().map(|case| &case.name))?;
        let cases = variant.cases.iter().map(|case| {
            let place = format!("{place}.{}", case.name);
            let ty = case.ty.as_ref().map(|ty| self.of(ty, &place)).transpose()?;
            Ok((case.name.clone(), ty))
        });
        let cases = cases.collect::<Result<_, InterfaceError>>()?;
        Ok(Type::Variant(Arc::new(VariantType { name: place.to_owned(), cases })))
    }
}

fn labels<'a>(
    place: &str,
    names: impl ExactSizeIterator<Item = &'a String> + Clone,
) -> Result<LabelsType, InterfaceError> {
    InterfaceError::check_members(place, names.len())?;
    check_names(place, names.clone())?;
    Ok(LabelsType { name: place.to_owned(), labels: names.cloned().collect() })
}

fn check_some(place: &str, cases: usize) -> Result<(), InterfaceError> {
    if cases > 0 { Ok(()) } else { Err(InterfaceError::Empty { place: place.to_owned() }) }
}

#[cfg(test)]
mod tests;
