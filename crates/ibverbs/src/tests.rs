//! Two queue pairs in one process, connected natively, with traffic through the C entries.

// These are calls of a C program: what makes each of them sound is the whole test.
#![allow(clippy::undocumented_unsafe_blocks)]

mod closed;
mod completions;
mod extended;
mod on_roce;
mod queues;
mod requests;
mod revoked;

use crate::abi::*;
use crate::channel::*;
use crate::context::{Context, ibv_close_device, ibv_open_device};
use crate::cq::*;
use crate::device::devices;
use crate::mr::{ibv_dereg_mr, ibv_reg_mr};
use crate::object::find;
use crate::pd::{ibv_alloc_pd, ibv_dealloc_pd};
use crate::qp::*;
use libc::c_int;
use outboard_testkit::PATIENCE;
use outboard_verbs::ConnectParams;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// A device with two connected queue pairs on one completion queue, and registered memory.
pub(crate) struct Bed {
    pub(crate) context: *mut ibv_context,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) qps: [*mut ibv_qp; 2],
    pub(crate) mr: *mut ibv_mr,
    pub(crate) memory: Vec<u64>,
}

const ALL: u32 = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC;

pub(crate) fn init_attr(cq: *mut ibv_cq) -> ibv_qp_init_attr {
    let (max_send_wr, max_recv_wr, max_send_sge, max_recv_sge) = (16, 16, 4, 4);
    ibv_qp_init_attr {
        qp_context: null_mut(),
        send_cq: cq,
        recv_cq: cq,
        srq: null_mut(),
        cap: ibv_qp_cap {
            max_send_wr,
            max_recv_wr,
            max_send_sge,
            max_recv_sge,
            max_inline_data: 64,
        },
        qp_type: IBV_QPT_RC,
        sq_sig_all: 0,
    }
}

impl Bed {
    pub(crate) fn new() -> Self {
        let bed = Self::unconnected(|pd, cq| unsafe { ibv_create_qp(pd, &mut init_attr(cq)) });
        bed.connect();
        bed
    }

    pub(crate) fn unconnected(make: impl Fn(*mut ibv_pd, *mut ibv_cq) -> *mut ibv_qp) -> Self {
        Self::on(unsafe { ibv_open_device(devices()[0].0) }, make)
    }

    pub(crate) fn on(
        context: *mut ibv_context,
        make: impl Fn(*mut ibv_pd, *mut ibv_cq) -> *mut ibv_qp,
    ) -> Self {
        unsafe {
            let pd = ibv_alloc_pd(context);
            let channel = ibv_create_comp_channel(context);
            let cq = ibv_create_cq(context, 64, null_mut(), channel, 0);
            let qps = [make(pd, cq), make(pd, cq)];
            assert!(qps.iter().all(|qp| !qp.is_null()));
            let mut memory = vec![0u64; 1024];
            let mr = ibv_reg_mr(pd, memory.as_mut_ptr().cast(), 8192, ALL.cast_signed());
            assert!(!mr.is_null());
            Self { context, pd, channel, cq, qps, mr, memory }
        }
    }

    pub(crate) fn qp(&self, at: usize) -> &Qp {
        find(self.qps[at]).unwrap()
    }

    pub(crate) fn connect(&self) {
        let native = &find::<Context>(self.context).unwrap().native;
        let listener = native.listen("127.0.0.1:0".parse().unwrap(), 1).unwrap();
        let (a, b) = (self.qp(0), self.qp(1));
        let events = native.create_cm_channel().unwrap();
        let params = ConnectParams::default();
        a.set_state(IBV_QPS_INIT);
        b.set_state(IBV_QPS_INIT);
        a.native.start_connect(listener.local_addr(), &params, &events).unwrap();
        let request = listener.next_request(Some(PATIENCE)).unwrap();
        request.accept(&b.native, &params).unwrap();
        events.next(Some(PATIENCE)).unwrap();
        a.set_state(IBV_QPS_RTS);
        b.set_state(IBV_QPS_RTS);
    }

    pub(crate) fn sge(&self, at: usize, length: u32) -> ibv_sge {
        let lkey = unsafe { (*self.mr).lkey };
        ibv_sge { addr: self.address(at), length, lkey }
    }

    pub(crate) fn address(&self, at: usize) -> u64 {
        self.memory.as_ptr().expose_provenance() as u64 + at as u64
    }

    pub(crate) fn rkey(&self) -> u32 {
        unsafe { (*self.mr).rkey }
    }

    /// The bytes as they are now; peers write them.
    pub(crate) fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let start = self.memory.as_ptr().cast::<u8>();
        (at..at + len).map(|at| unsafe { start.add(at).read_volatile() }).collect()
    }

    pub(crate) fn put(&mut self, at: usize, bytes: &[u8]) {
        let start = self.memory.as_mut_ptr().cast::<u8>();
        bytes.iter().enumerate().for_each(|(i, o)| unsafe { start.add(at + i).write_volatile(*o) });
    }

    pub(crate) fn poll_once(&self, room: usize) -> Vec<ibv_wc> {
        let mut found = vec![unsafe { std::mem::zeroed() }; room];
        let poll = unsafe { (*self.context).ops.poll_cq }.unwrap();
        let count = unsafe { poll(self.cq, c_int::try_from(room).unwrap(), found.as_mut_ptr()) };
        assert!(count >= 0);
        found.truncate(count as usize);
        found
    }

    pub(crate) fn poll(&self, count: usize) -> Vec<ibv_wc> {
        let mut found = Vec::new();
        let started = Instant::now();
        while found.len() < count {
            assert!(started.elapsed() < PATIENCE, "{} of {count}", found.len());
            found.extend(self.poll_once(count - found.len()));
        }
        found
    }

    pub(crate) fn post_send(&self, at: usize, wr: &mut ibv_send_wr) -> c_int {
        let (post, mut bad) = (unsafe { (*self.context).ops.post_send }.unwrap(), null_mut());
        let result = unsafe { post(self.qps[at], wr, &mut bad) };
        assert_eq!(result != 0, !bad.is_null());
        result
    }

    /// Posts a list; where it stopped.
    pub(crate) fn post_list(&self, at: usize, wrs: &mut [ibv_send_wr]) -> (c_int, Option<usize>) {
        for at in (1..wrs.len()).rev() {
            wrs[at - 1].next = &mut wrs[at];
        }
        let (post, mut bad) = (unsafe { (*self.context).ops.post_send }.unwrap(), null_mut());
        let result = unsafe { post(self.qps[at], wrs.as_mut_ptr(), &mut bad) };
        (result, wrs.iter().position(|wr| std::ptr::eq(wr, bad)))
    }

    pub(crate) fn modify(&self, at: usize, state: ibv_qp_state) -> c_int {
        let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
        attr.qp_state = state;
        unsafe { modify::ibv_modify_qp(self.qps[at], &mut attr, IBV_QP_STATE.cast_signed()) }
    }

    pub(crate) fn post_recv(&self, at: usize, wr_id: u64, mut sge: ibv_sge) -> c_int {
        let mut wr = ibv_recv_wr { wr_id, next: null_mut(), sg_list: &mut sge, num_sge: 1 };
        let (post, mut bad) = (unsafe { (*self.context).ops.post_recv }.unwrap(), null_mut());
        unsafe { post(self.qps[at], &mut wr, &mut bad) }
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The engine may still use the memory.
            std::mem::take(&mut self.memory).leak();
            return;
        }
        unsafe {
            if self.qps != [null_mut(); 2] {
                assert_eq!(self.qps.map(|qp| ibv_destroy_qp(qp)), [0, 0]);
            }
            assert_eq!(ibv_destroy_cq(self.cq), 0);
            assert_eq!(ibv_destroy_comp_channel(self.channel), 0);
            assert_eq!(ibv_dereg_mr(self.mr), 0);
            assert_eq!(ibv_dealloc_pd(self.pd), 0);
            assert_eq!(ibv_close_device(self.context), 0);
        }
    }
}

pub(crate) fn wr(opcode: ibv_wr_opcode, sge: &mut ibv_sge) -> ibv_send_wr {
    let mut wr: ibv_send_wr = unsafe { std::mem::zeroed() };
    (wr.wr_id, wr.sg_list, wr.num_sge, wr.opcode) = (7, sge, 1, opcode);
    wr.send_flags = IBV_SEND_SIGNALED;
    wr
}
