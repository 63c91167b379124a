//! Names of codes (ibv_event_type_str(3) and similar), and rates in the three units that programs
//! use (ibv_rate_to_mbps(3)). Texts are those of rdma-core: programs print and compare them.

use crate::abi::{
    IBV_RATE_2_5_GBPS, IBV_RATE_5_GBPS, IBV_RATE_10_GBPS, IBV_RATE_14_GBPS, IBV_RATE_20_GBPS,
    IBV_RATE_25_GBPS, IBV_RATE_28_GBPS, IBV_RATE_30_GBPS, IBV_RATE_40_GBPS, IBV_RATE_50_GBPS,
    IBV_RATE_56_GBPS, IBV_RATE_60_GBPS, IBV_RATE_80_GBPS, IBV_RATE_100_GBPS, IBV_RATE_112_GBPS,
    IBV_RATE_120_GBPS, IBV_RATE_168_GBPS, IBV_RATE_200_GBPS, IBV_RATE_300_GBPS, IBV_RATE_400_GBPS,
    IBV_RATE_600_GBPS, IBV_RATE_800_GBPS, IBV_RATE_1200_GBPS, IBV_RATE_MAX, ibv_rate,
};
use libc::{c_char, c_int};
use std::ffi::CStr;

/// By `ibv_node_type`; 0 is no type.
const NODE_TYPES: [&CStr; 8] = [
    c"unknown",
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// By `ibv_port_state`.
const PORT_STATES: [&CStr; 6] =
    [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

/// By `ibv_event_type`.
const EVENTS: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
];

/// By `ibv_wc_status`.
const STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

/// By `ibv_wr_opcode`; rdma-core has left two numbers out.
const OPCODES: [&CStr; 16] = [
    c"rdma-write",
    c"rdma-write-with-imm",
    c"send",
    c"send-with-imm",
    c"rdma-read",
    c"atomic-cmp-and-swp",
    c"atomic-fetch-and-add",
    c"local-inv",
    c"bind-mw",
    c"send-with-inv",
    c"tso",
    c"driver1",
    c"unknown",
    c"unknown",
    c"flush",
    c"atomic-write",
];

/// Rates with their multiples of 2.5 Gb/s, where the API has one, and Mb/s on the wire.
const RATES: [(ibv_rate, Option<c_int>, c_int); 23] = [
    (IBV_RATE_2_5_GBPS, Some(1), 2_500),
    (IBV_RATE_5_GBPS, Some(2), 5_000),
    (IBV_RATE_10_GBPS, Some(4), 10_000),
    (IBV_RATE_20_GBPS, Some(8), 20_000),
    (IBV_RATE_30_GBPS, Some(12), 30_000),
    (IBV_RATE_40_GBPS, Some(16), 40_000),
    (IBV_RATE_60_GBPS, Some(24), 60_000),
    (IBV_RATE_80_GBPS, Some(32), 80_000),
    (IBV_RATE_120_GBPS, Some(48), 120_000),
    (IBV_RATE_14_GBPS, None, 14_062),
    (IBV_RATE_56_GBPS, None, 56_250),
    (IBV_RATE_112_GBPS, None, 112_500),
    (IBV_RATE_168_GBPS, None, 168_750),
    (IBV_RATE_25_GBPS, None, 25_781),
    (IBV_RATE_100_GBPS, None, 103_125),
    (IBV_RATE_200_GBPS, None, 206_250),
    (IBV_RATE_300_GBPS, None, 309_375),
    (IBV_RATE_28_GBPS, Some(11), 28_125),
    (IBV_RATE_50_GBPS, Some(20), 53_125),
    (IBV_RATE_400_GBPS, Some(160), 425_000),
    (IBV_RATE_600_GBPS, Some(240), 637_500),
    (IBV_RATE_800_GBPS, Some(320), 850_000),
    (IBV_RATE_1200_GBPS, Some(480), 1_275_000),
];

/// The text for a code, whatever number the program passes.
fn name(names: &[&'static CStr], code: c_int) -> *const c_char {
    let known = usize::try_from(code).ok().and_then(|code| names.get(code));
    known.unwrap_or(&c"unknown").as_ptr()
}

/// ibv_node_type_str(3).
#[unsafe(no_mangle)]
pub extern "C" fn ibv_node_type_str(node_type: c_int) -> *const c_char {
    name(&NODE_TYPES, node_type)
}

/// ibv_port_state_str(3).
#[unsafe(no_mangle)]
pub extern "C" fn ibv_port_state_str(port_state: c_int) -> *const c_char {
    name(&PORT_STATES, port_state)
}

/// ibv_event_type_str(3).
#[unsafe(no_mangle)]
pub extern "C" fn ibv_event_type_str(event: c_int) -> *const c_char {
    name(&EVENTS, event)
}

/// The text for a status of ibv_poll_cq(3).
#[unsafe(no_mangle)]
pub extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    name(&STATUSES, status)
}

/// The name of a send request's opcode: declared in `verbs.h`, but exported under the private
/// version.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_wr_opcode_str(opcode: c_int) -> *const c_char {
    name(&OPCODES, opcode)
}

/// ibv_rate_to_mult(3); -1 when the rate is no multiple of 2.5 Gb/s.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mult(rate: ibv_rate) -> c_int {
    RATES.iter().find(|known| known.0 == rate).and_then(|known| known.1).unwrap_or(-1)
}

/// mult_to_ibv_rate(3).
#[unsafe(no_mangle)]
pub extern "C" fn mult_to_ibv_rate(mult: c_int) -> ibv_rate {
    RATES.iter().find(|known| known.1 == Some(mult)).map_or(IBV_RATE_MAX, |known| known.0)
}

/// ibv_rate_to_mbps(3); -1 for what is no rate.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mbps(rate: ibv_rate) -> c_int {
    RATES.iter().find(|known| known.0 == rate).map_or(-1, |known| known.2)
}

/// mbps_to_ibv_rate(3).
#[unsafe(no_mangle)]
pub extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> ibv_rate {
    RATES.iter().find(|known| known.2 == mbps).map_or(IBV_RATE_MAX, |known| known.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pointer: *const c_char) -> &'static str {
        // SAFETY: texts of this file.
        unsafe { CStr::from_ptr(pointer) }.to_str().unwrap_or("?")
    }

    #[test]
    fn every_code_has_its_name_and_others_are_unknown() {
        use crate::abi::{
            IBV_EVENT_WQ_FATAL, IBV_NODE_RNIC, IBV_PORT_ACTIVE, IBV_WC_TM_RNDV_INCOMPLETE,
            IBV_WC_WR_FLUSH_ERR, IBV_WR_DRIVER1,
        };
        assert_eq!(text(ibv_node_type_str(IBV_NODE_RNIC)), "iWARP NIC");
        assert_eq!(text(ibv_port_state_str(IBV_PORT_ACTIVE.cast_signed())), "active");
        assert_eq!(text(ibv_event_type_str(IBV_EVENT_WQ_FATAL.cast_signed())), "WQ fatal");
        let flushed = IBV_WC_WR_FLUSH_ERR.cast_signed();
        assert_eq!(text(ibv_wc_status_str(flushed)), "Work Request Flushed Error");
        let last = IBV_WC_TM_RNDV_INCOMPLETE.cast_signed();
        assert_eq!(text(ibv_wc_status_str(last)), "TM software rendezvous");
        assert_eq!(text(ibv_wr_opcode_str(IBV_WR_DRIVER1.cast_signed())), "driver1");
        assert_eq!(text(ibv_wr_opcode_str(15)), "atomic-write");
        for call in [
            ibv_node_type_str,
            ibv_port_state_str,
            ibv_event_type_str,
            ibv_wc_status_str,
            ibv_wr_opcode_str,
        ] {
            for code in [-1, 24, c_int::MAX, c_int::MIN] {
                assert_eq!(text(call(code)), "unknown");
            }
        }
    }

    #[test]
    fn rates_convert_there_and_back() {
        for (rate, mult, mbps) in RATES {
            assert_eq!((ibv_rate_to_mbps(rate), mbps_to_ibv_rate(mbps)), (mbps, rate));
            assert_eq!(ibv_rate_to_mult(rate), mult.unwrap_or(-1));
            if let Some(mult) = mult {
                assert_eq!(mult_to_ibv_rate(mult), rate);
            }
        }
        assert_eq!(ibv_rate_to_mbps(99), -1);
        assert_eq!(mult_to_ibv_rate(-1), IBV_RATE_MAX);
        assert_eq!(mbps_to_ibv_rate(1), IBV_RATE_MAX);
    }
}
