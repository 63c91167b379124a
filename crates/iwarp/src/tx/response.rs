//! What the peer asked for, in the order it asked (RFC 5040 §5.5 rule 20), and Terminates.

use super::Current;
use super::frame::{Payload, cut};
use crate::Connection;
use crate::batch::Readable;
use crate::fault::{Fault, protection_code};
use crate::inbound::Inbound;
use outboard_mem::{Access, MemError, StagTable};
use outboard_wire::ddp::{Header, TAGGED_LEN, Tagged};
use outboard_wire::rdmap::{AtomicRequest, AtomicResponse, Opcode, ReadRequest};
use outboard_wire::terminate::TerminateCode;

impl Connection {
    /// Appends the next FPDU of the answer to the peer's oldest request.
    pub(super) fn push_response(&mut self, stags: &StagTable) -> Result<(), Fault> {
        match self.inbound.front_mut() {
            Some(Inbound::Read { request }) => {
                let request = *request;
                self.push_read_response(request, stags)
            }
            Some(Inbound::Atomic(request)) => {
                let request = *request;
                self.push_atomic_response(&request, stags)
            }
            None => Ok(()),
        }
    }

    fn push_read_response(&mut self, request: ReadRequest, stags: &StagTable) -> Result<(), Fault> {
        let remaining = request.size as usize;
        let len = cut(remaining, self.max_ulpdu - TAGGED_LEN);
        let last = len == remaining;
        let header = Header::Tagged(Tagged {
            opcode: Opcode::ReadResponse,
            last,
            stag: request.sink_stag,
            offset: request.sink_offset,
        });
        let payload =
            Payload::Response { stag: request.source_stag, offset: request.source_offset, len };
        self.push_fpdu(header, &[], payload, stags)
            .map_err(|fault| fault.with_read_request(request))?;
        if last {
            self.inbound.pop();
        } else if let Some(Inbound::Read { request }) = self.inbound.front_mut() {
            request.size -= u32::try_from(len).unwrap_or(0);
            request.sink_offset = request.sink_offset.wrapping_add(len as u64);
            request.source_offset = request.source_offset.wrapping_add(len as u64);
            self.tx.current = Some(Current::Response);
        }
        Ok(())
    }

    fn push_atomic_response(
        &mut self,
        request: &AtomicRequest,
        stags: &StagTable,
    ) -> Result<(), Fault> {
        if self.batch.refers_to_responses() {
            // A Read before it must not see its effect. Memory that has gone shows when it is
            // sent.
            let memory = Readable { stags, pd: self.pd };
            let _gone = self.batch.freeze(&self.sends, memory);
        }
        let original = stags
            .resolve(request.stag.0, self.pd, Access::REMOTE_ATOMIC, request.offset, 8)
            .map_err(|error| Fault::bare(protection_code(error)))?
            .fetch_update_u64(0, |value| request.apply(value))
            .map_err(|error| Fault::bare(atomic_code(&error)))?;
        self.inbound.pop();
        let response = AtomicResponse { request_id: request.request_id, original };
        self.push_control(Opcode::AtomicResponse, |out| response.emit(out), stags)
    }

    pub(super) fn push_terminate(&mut self, fault: &Fault, stags: &StagTable) {
        self.tx.current = None;
        let terminate = fault.to_terminate();
        // Its payload is ours, so nothing can fail here.
        let _infallible = self.push_control(Opcode::Terminate, |out| terminate.emit(out), stags);
    }
}

/// Alignment was looked at when the request came; registered memory that is not there is as good as
/// not registered.
fn atomic_code(error: &MemError) -> TerminateCode {
    match error {
        MemError::Missing { .. } => TerminateCode::PROTECTION_INVALID_STAG,
        _ => TerminateCode::OPERATION_STREAM,
    }
}
