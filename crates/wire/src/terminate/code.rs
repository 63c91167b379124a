//! Terminate codes: layer, error type and error code, with the RFCs' names for them.
//!
//! RFC 5040 figure 9, RFC 5041 §7.2, RFC 5044 §8, RFC 6581 §8. One table holds all rows; the
//! named constants are what the rest of Outboard uses. Codes outside the table are carried as
//! they are, never refused: the peer's report must reach the log.

use std::fmt;

/// Layer, error type and error code of a Terminate message.
///
/// `Display` gives the RFC's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TerminateCode {
    /// 0 RDMAP, 1 DDP, 2 the layer below (MPA); 4 bits.
    pub layer: u8,
    /// Kind of error within the layer; 4 bits.
    pub etype: u8,
    /// The error within its kind.
    pub code: u8,
}

/// Declares the constants and the table that names them, row by row.
macro_rules! codes {
    ($($name:ident = $layer:literal / $etype:literal / $code:literal, $words:literal;)*) => {
        impl TerminateCode {
            $(
                #[doc = concat!(
                    $words, " (layer ", stringify!($layer), ", type ", stringify!($etype),
                    ", code ", stringify!($code), ")."
                )]
                pub const $name: Self = Self { layer: $layer, etype: $etype, code: $code };
            )*

            /// Every code the RFCs define, with their words for it.
            pub const ALL: &[(Self, &'static str)] = &[$((Self::$name, $words),)*];
        }
    };
}

codes! {
    RDMAP_CATASTROPHIC = 0 / 0 / 0x00, "Local catastrophic error";
    PROTECTION_INVALID_STAG = 0 / 1 / 0x00, "Invalid STag";
    PROTECTION_BOUNDS = 0 / 1 / 0x01, "Base or bounds violation";
    PROTECTION_ACCESS = 0 / 1 / 0x02, "Access rights violation";
    PROTECTION_NOT_ASSOCIATED = 0 / 1 / 0x03, "STag not associated with RDMAP Stream";
    PROTECTION_WRAP = 0 / 1 / 0x04, "TO wrap";
    PROTECTION_CANNOT_INVALIDATE = 0 / 1 / 0x09, "STag cannot be Invalidated";
    PROTECTION_UNSPECIFIED = 0 / 1 / 0xff, "Unspecified Error";
    OPERATION_VERSION = 0 / 2 / 0x05, "Invalid RDMAP version";
    OPERATION_OPCODE = 0 / 2 / 0x06, "Unexpected OpCode";
    OPERATION_STREAM = 0 / 2 / 0x07, "Catastrophic error, localized to RDMAP Stream";
    OPERATION_GLOBAL = 0 / 2 / 0x08, "Catastrophic error, global";
    OPERATION_CANNOT_INVALIDATE = 0 / 2 / 0x09, "STag cannot be Invalidated";
    OPERATION_UNSPECIFIED = 0 / 2 / 0xff, "Unspecified Error";
    DDP_CATASTROPHIC = 1 / 0 / 0x00, "Local Catastrophic";
    TAGGED_INVALID_STAG = 1 / 1 / 0x00, "Invalid STag";
    TAGGED_BOUNDS = 1 / 1 / 0x01, "Base or bounds violation";
    TAGGED_NOT_ASSOCIATED = 1 / 1 / 0x02, "STag not associated with DDP Stream";
    TAGGED_WRAP = 1 / 1 / 0x03, "TO wrap";
    TAGGED_VERSION = 1 / 1 / 0x04, "Invalid DDP version";
    UNTAGGED_INVALID_QUEUE = 1 / 2 / 0x01, "Invalid QN";
    UNTAGGED_NO_BUFFER = 1 / 2 / 0x02, "Invalid MSN - no buffer available";
    UNTAGGED_INVALID_MSN = 1 / 2 / 0x03, "Invalid MSN - MSN range is not valid";
    UNTAGGED_INVALID_OFFSET = 1 / 2 / 0x04, "Invalid MO";
    UNTAGGED_TOO_LONG = 1 / 2 / 0x05, "DDP Message too long for available buffer";
    UNTAGGED_VERSION = 1 / 2 / 0x06, "Invalid DDP version";
    MPA_CONNECTION_LOST = 2 / 0 / 0x01, "TCP connection closed, terminated, or lost";
    MPA_CRC = 2 / 0 / 0x02, "Received MPA CRC does not match the calculated value for the FPDU";
    MPA_MARKER = 2 / 0 / 0x03, "Received MPA Marker and ULPDU Length fields do not agree on the \
        start of an FPDU";
    MPA_STARTUP = 2 / 0 / 0x04, "Invalid MPA Request Frame or MPA Response Frame received";
    MPA_CATASTROPHIC = 2 / 0 / 0x05, "Local catastrophic";
    MPA_INSUFFICIENT_IRD = 2 / 0 / 0x06, "Insufficient IRD resources";
    MPA_NO_MATCHING_RTR = 2 / 0 / 0x07, "No matching RTR option";
}

impl TerminateCode {
    /// The RFC's words for this code, if it defines it.
    #[must_use]
    pub fn words(&self) -> Option<&'static str> {
        let row = Self::ALL.iter().find(|(code, _)| *code == self.canonical())?;
        Some(row.1)
    }

    /// Whether an RFC defines this code.
    #[must_use]
    pub fn is_defined(&self) -> bool {
        self.words().is_some()
    }

    /// The code as it stands in the table: "any value in this field is acceptable" for a local
    /// catastrophic error of RDMAP (RFC 5040 figure 9).
    fn canonical(self) -> Self {
        match self {
            Self { layer: 0, etype: 0, .. } => Self::RDMAP_CATASTROPHIC,
            other => other,
        }
    }

    fn layer_name(&self) -> &'static str {
        match self.layer {
            0 => "RDMA",
            1 => "DDP",
            2 => "LLP",
            _ => "unknown layer",
        }
    }

    fn etype_name(&self) -> &'static str {
        match (self.layer, self.etype) {
            (0, 0) => "Local Catastrophic Error",
            (0, 1) => "Remote Protection Error",
            (0, 2) => "Remote Operation Error",
            (1, 0) => "Local Catastrophic",
            (1, 1) => "Tagged Buffer Error",
            (1, 2) => "Untagged Buffer Error",
            (2, 0) => "MPA Error",
            _ => "unknown error type",
        }
    }
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words().unwrap_or("unknown error code");
        write!(f, "{}, {}: {words} ", self.layer_name(), self.etype_name())?;
        write!(f, "({:#x}/{:#x}/{:#04x})", self.layer, self.etype, self.code)
    }
}
