//! Calls of methods and their answers, as they cross channels.
//!
//! Never looks into parameters and results: [`crate::Method`] knows their types.

use std::marker::PhantomData;

use crate::guid::Guid;
use crate::value::ENCODED_LEN_MAX;
use crate::wire::{Emit, Parse, WireError, WireReader, parse_all};

/// Bytes of a fault's text that are sent, at most.
const FAULT_TEXT_LEN_MAX: usize = 4096;
/// Bytes in front of parameters, at most: GUID and method index.
const HEAD_LEN_MAX: usize = 16 + 5;

/// A call of a method: in postcard `(guid, index, parameters...)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The interface as the caller knows it.
    pub interface: Guid,
    /// The method's index in it.
    pub method: u32,
    /// The parameters as the method encodes them.
    pub parameters: Vec<u8>,
}

impl Call {
    /// The call as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_LEN_MAX + self.parameters.len());
        out.extend_from_slice(self.interface.as_bytes());
        self.method.emit(&mut out);
        out.extend_from_slice(&self.parameters);
        out
    }

    /// The call that is all of `bytes`. Its parameters are not looked at.
    ///
    /// # Errors
    ///
    /// [`WireError`] if its head is not there, or more than [`ENCODED_LEN_MAX`] follows.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut input = WireReader::new(bytes);
        let mut guid = [0; 16];
        guid.copy_from_slice(input.bytes(16)?);
        let method = u32::parse(&mut input)?;
        let parameters = rest(&mut input)?.to_vec();
        Ok(Self { interface: Guid::from_bytes(guid), method, parameters })
    }
}

/// All that follows, if it is not too much.
fn rest<'a>(input: &mut WireReader<'a>) -> Result<&'a [u8], WireError> {
    if input.left() > ENCODED_LEN_MAX {
        return Err(WireError::TooLarge);
    }
    input.bytes(input.left())
}

/// Why a call has no results; the numbers are those of `oc_answer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallFault {
    /// The callee refused, and says why.
    Refused = 1,
    /// The callee's code trapped.
    Trapped = 2,
    /// The callee is gone.
    Gone = 3,
    /// The caller's deadline passed.
    DeadlinePassed = 4,
    /// The callee has no such method, or its types are others.
    Mismatch = 5,
}

impl CallFault {
    const ALL: [Self; 5] =
        [Self::Refused, Self::Trapped, Self::Gone, Self::DeadlinePassed, Self::Mismatch];

    /// Its number as a status of `oc_answer`, which is not 0.
    #[must_use]
    pub const fn status(self) -> u32 {
        self as u32
    }

    /// The fault of a status.
    #[must_use]
    pub fn of_status(status: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.status() == status)
    }
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallAnswer {
    /// What the method returned, as the method encodes it.
    Results(Vec<u8>),
    /// Why it returned nothing, and words about it.
    Fault(CallFault, String),
}

impl CallAnswer {
    /// The answer as bytes: the status, 0 or a fault's, then results or text, to the end.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (status, rest) = match self {
            Self::Results(results) => (0, results.as_slice()),
            Self::Fault(fault, text) => (fault.status(), bounded(text).as_bytes()),
        };
        let mut out = Vec::with_capacity(1 + rest.len());
        status.emit(&mut out);
        out.extend_from_slice(rest);
        out
    }

    /// The answer that is all of `bytes`. Results are not looked at; of a text only so much is
    /// kept as is sent.
    ///
    /// # Errors
    ///
    /// [`WireError`] if the status is unknown, or what follows too long or no text.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let mut input = WireReader::new(bytes);
        let status = u32::parse(&mut input)?;
        let rest = rest(&mut input)?;
        if status == 0 {
            return Ok(Self::Results(rest.to_vec()));
        }
        let fault = CallFault::of_status(status).ok_or(WireError::Tag)?;
        let text = std::str::from_utf8(rest).map_err(|_| WireError::Text)?;
        Ok(Self::Fault(fault, bounded(text).to_owned()))
    }
}

/// The text, cut at a character's end.
fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(FAULT_TEXT_LEN_MAX)]
}

/// Why a [`TypedCall`] has no results.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The callee, its machine or the deadline is at fault, as the fault says.
    #[error("the call failed ({0:?}): {1}")]
    Fault(CallFault, String),
    /// The callee answered with what the method does not return.
    #[error("the callee's results are not of the method's type: {0}")]
    Results(WireError),
}

/// A call whose results have a type of Rust: what methods of generated proxies return.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedCall<T> {
    /// What is to be sent.
    pub call: Call,
    results: PhantomData<fn() -> T>,
}

impl<T: Parse> TypedCall<T> {
    /// A call of the method `method`, with parameters that `emit` appends.
    pub fn new(interface: Guid, method: u32, emit: impl FnOnce(&mut Vec<u8>)) -> Self {
        let mut parameters = Vec::new();
        emit(&mut parameters);
        Self { call: Call { interface, method, parameters }, results: PhantomData }
    }

    /// What the method returned.
    ///
    /// # Errors
    ///
    /// [`CallError`] if it returned nothing, or something of another type.
    pub fn results(&self, answer: &CallAnswer) -> Result<T, CallError> {
        match answer {
            CallAnswer::Results(bytes) => parse_all(bytes).map_err(CallError::Results),
            CallAnswer::Fault(fault, text) => Err(CallError::Fault(*fault, text.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_the_postcard_tuple_of_its_parts() {
        let interface = Guid::of_name("a:b/c@1.0.0");
        let parameters = postcard::to_stdvec(&("abc", 7_u8)).unwrap();
        let call = Call { interface, method: 300, parameters };
        let expected = postcard::to_stdvec(&(interface, 300_u32, ("abc", 7_u8))).unwrap();
        assert_eq!(call.encode(), expected);
        assert_eq!(Call::decode(&expected), Ok(call));
        for len in 0..18 {
            assert_eq!(Call::decode(&expected[..len]), Err(WireError::Short), "{len}");
        }
    }

    #[test]
    fn answers_come_back_and_hostile_ones_are_refused() {
        let fault = |fault| CallAnswer::Fault(fault, "wörds".into());
        let mut answers: Vec<_> = CallFault::ALL.into_iter().map(fault).collect();
        answers.push(CallAnswer::Results(vec![1, 2, 3]));
        answers.push(CallAnswer::Results(Vec::new()));
        for answer in answers {
            assert_eq!(CallAnswer::decode(&answer.encode()), Ok(answer));
        }
        assert_eq!(CallAnswer::decode(&[]), Err(WireError::Short));
        assert_eq!(CallAnswer::decode(&[6]), Err(WireError::Tag));
        assert_eq!(CallAnswer::decode(&[1, 0xff]), Err(WireError::Text));
        let long = CallAnswer::Fault(CallFault::Refused, "ö".repeat(FAULT_TEXT_LEN_MAX)).encode();
        assert!(long.len() <= 1 + FAULT_TEXT_LEN_MAX, "{}", long.len());
        assert!(CallAnswer::decode(&long).is_ok());
        let too_long = vec![0; ENCODED_LEN_MAX + 2];
        assert_eq!(CallAnswer::decode(&too_long), Err(WireError::TooLarge));
    }

    #[test]
    fn typed_calls_read_their_results() {
        let call = TypedCall::<u32>::new(Guid::from_bytes([1; 16]), 2, |out| 5_u8.emit(out));
        assert_eq!(call.call.parameters, [5]);
        assert_eq!(call.results(&CallAnswer::Results(vec![9])), Ok(9));
        let wrong = call.results(&CallAnswer::Results(vec![9, 9]));
        assert_eq!(wrong, Err(CallError::Results(WireError::Trailing)));
        let gone = CallAnswer::Fault(CallFault::Gone, "dead".into());
        assert_eq!(call.results(&gone), Err(CallError::Fault(CallFault::Gone, "dead".into())));
    }
}
