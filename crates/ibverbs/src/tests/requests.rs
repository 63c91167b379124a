//! Every operation and flag, lists, and what is refused.

use super::*;

fn remote(bed: &Bed, wr: &mut ibv_send_wr, at: usize) {
    let (remote_addr, rkey) = (bed.address(at), bed.rkey());
    wr.wr.rdma = ibv_send_wr__bindgen_ty_2__bindgen_ty_1 { remote_addr, rkey };
}

fn atomic(bed: &Bed, wr: &mut ibv_send_wr, at: usize, compare_add: u64, swap: u64) {
    let (remote_addr, rkey) = (bed.address(at), bed.rkey());
    wr.wr.atomic = ibv_send_wr__bindgen_ty_2__bindgen_ty_2 { remote_addr, compare_add, swap, rkey };
}

#[test]
fn a_send_arrives() {
    let mut bed = Bed::new();
    bed.put(0, b"hello");
    assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
    assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
    let mut found = bed.poll(2);
    found.sort_by_key(|wc| wc.wr_id);
    assert_eq!([found[0].wr_id, found[1].wr_id], [5, 7]);
    assert_eq!([found[0].opcode, found[1].opcode], [IBV_WC_RECV, IBV_WC_SEND]);
    assert_eq!([found[0].status, found[1].status], [IBV_WC_SUCCESS; 2]);
    assert_eq!(found[0].byte_len, 5);
    assert_eq!(found[0].qp_num, unsafe { (*bed.qps[1]).qp_num });
    assert_eq!(bed.bytes(100, 5), b"hello");
}

#[test]
fn writes_and_reads() {
    let mut bed = Bed::new();
    bed.put(0, b"abcdefgh");
    let mut pieces = [bed.sge(4, 4), bed.sge(0, 4)];
    let mut write = wr(IBV_WR_RDMA_WRITE, &mut pieces[0]);
    write.num_sge = 2;
    remote(&bed, &mut write, 200);
    assert_eq!(bed.post_send(0, &mut write), 0);
    assert_eq!(bed.poll(1)[0].opcode, IBV_WC_RDMA_WRITE);
    let mut sge = bed.sge(300, 8);
    let mut read = wr(IBV_WR_RDMA_READ, &mut sge);
    remote(&bed, &mut read, 200);
    assert_eq!(bed.post_send(0, &mut read), 0);
    let found = bed.poll(1);
    assert_eq!((found[0].opcode, found[0].byte_len), (IBV_WC_RDMA_READ, 8));
    assert_eq!(bed.bytes(300, 8), b"efghabcd");
}

#[test]
fn immediate_data_keeps_its_bytes() {
    let mut bed = Bed::new();
    bed.put(0, b"data");
    assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
    let mut sge = bed.sge(0, 4);
    let mut write = wr(IBV_WR_RDMA_WRITE_WITH_IMM, &mut sge);
    remote(&bed, &mut write, 200);
    write.send_flags = 0;
    write.__bindgen_anon_1.imm_data = 0x0102_0304_u32.to_be();
    assert_eq!(bed.post_send(0, &mut write), 0);
    let found = bed.poll(1);
    assert_eq!((found[0].opcode, found[0].byte_len), (IBV_WC_RECV_RDMA_WITH_IMM, 4));
    assert_eq!(found[0].wc_flags, IBV_WC_WITH_IMM);
    assert_eq!(unsafe { found[0].__bindgen_anon_1.imm_data }, 0x0102_0304_u32.to_be());
    assert_eq!(bed.bytes(200, 4), b"data");
}

#[test]
fn a_send_invalidates() {
    let bed = Bed::new();
    let mut own = [0u8; 64];
    let access = ALL.cast_signed();
    let mr = unsafe { ibv_reg_mr(bed.pd, own.as_mut_ptr().cast(), 64, access) };
    assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
    let mut sge = bed.sge(0, 1);
    let mut send = wr(IBV_WR_SEND_WITH_INV, &mut sge);
    send.__bindgen_anon_1.invalidate_rkey = unsafe { (*mr).rkey };
    send.send_flags = 0;
    assert_eq!(bed.post_send(0, &mut send), 0);
    let found = bed.poll(1);
    assert_eq!(found[0].wc_flags, IBV_WC_WITH_INV);
    assert_eq!(unsafe { found[0].__bindgen_anon_1.invalidated_rkey }, unsafe { (*mr).rkey });
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
}

#[test]
fn atomics_return_the_original() {
    let mut bed = Bed::new();
    bed.put(800, &40u64.to_ne_bytes());
    let mut sge = bed.sge(8, 8);
    let mut add = wr(IBV_WR_ATOMIC_FETCH_AND_ADD, &mut sge);
    atomic(&bed, &mut add, 800, 2, 0);
    assert_eq!(bed.post_send(0, &mut add), 0);
    let found = bed.poll(1);
    assert_eq!((found[0].opcode, found[0].byte_len), (IBV_WC_FETCH_ADD, 8));
    assert_eq!(bed.bytes(8, 8), 40u64.to_ne_bytes());
    let mut swap = wr(IBV_WR_ATOMIC_CMP_AND_SWP, &mut sge);
    atomic(&bed, &mut swap, 800, 42, 99);
    assert_eq!(bed.post_send(0, &mut swap), 0);
    assert_eq!(bed.poll(1)[0].opcode, IBV_WC_COMP_SWAP);
    assert_eq!(bed.bytes(8, 8), 42u64.to_ne_bytes());
    assert_eq!(bed.bytes(800, 8), 99u64.to_ne_bytes());
}

#[test]
fn a_list_stops_at_the_first_that_is_refused() {
    let bed = Bed::new();
    let mut sge = bed.sge(0, 8);
    let mut wrs = [IBV_WR_RDMA_WRITE; 4].map(|op| wr(op, &mut sge));
    wrs.iter_mut().for_each(|wr| remote(&bed, wr, 200));
    wrs[2].opcode = 77;
    assert_eq!(bed.post_list(0, &mut wrs), (libc::EOPNOTSUPP, Some(2)));
    assert_eq!(bed.poll(2).len(), 2);
    assert_eq!(bed.poll_once(4).len(), 0);
}

#[test]
fn a_ring_ends() {
    let bed = Bed::new();
    let mut sge = bed.sge(0, 8);
    let mut wrs = [IBV_WR_SEND; 2].map(|op| wr(op, &mut sge));
    wrs[1].next = &mut wrs[0];
    assert_eq!(bed.post_list(0, &mut wrs).0, libc::ENOMEM);
    bed.poll(16);
}

#[test]
fn nonsense_is_refused() {
    let bed = Bed::new();
    let refused = |change: &dyn Fn(&mut ibv_send_wr)| {
        let mut sge = bed.sge(0, 8);
        let mut send = wr(IBV_WR_SEND, &mut sge);
        change(&mut send);
        bed.post_send(0, &mut send)
    };
    assert_eq!(refused(&|wr| wr.num_sge = -1), libc::EINVAL);
    assert_eq!(refused(&|wr| wr.num_sge = 5), libc::EINVAL);
    assert_eq!(refused(&|wr| wr.sg_list = null_mut()), libc::EINVAL);
    assert_eq!(refused(&|wr| wr.send_flags = 1 << 30), libc::EINVAL);
    assert_eq!(refused(&|wr| wr.opcode = IBV_WR_SEND_WITH_IMM), libc::EOPNOTSUPP);
    let inline_read = |wr: &mut ibv_send_wr| {
        wr.opcode = IBV_WR_RDMA_READ;
        wr.send_flags |= IBV_SEND_INLINE;
    };
    assert_eq!(refused(&inline_read), libc::EINVAL);
    let long_inline = |wr: &mut ibv_send_wr| {
        wr.send_flags |= IBV_SEND_INLINE;
        unsafe { (*wr.sg_list).length = 65 };
    };
    assert_eq!(refused(&long_inline), libc::EINVAL);
    let mut post = wr(IBV_WR_SEND, &mut bed.sge(0, 8));
    let mut bad = null_mut();
    let send = unsafe { (*bed.context).ops.post_send }.unwrap();
    assert_eq!(unsafe { send(null_mut(), &mut post, &mut bad) }, libc::EINVAL);
    assert!(std::ptr::eq(bad, &post));
    assert_eq!(bed.poll_once(4).len(), 0);
}

#[test]
fn receives_need_memory_to_write_to() {
    let bed = Bed::new();
    let own = [0u8; 64];
    let mr = unsafe { ibv_reg_mr(bed.pd, own.as_ptr().cast_mut().cast(), 64, 0) };
    let lkey = unsafe { (*mr).lkey };
    let addr = own.as_ptr().expose_provenance() as u64;
    assert_eq!(bed.post_recv(1, 5, ibv_sge { addr, length: 64, lkey }), 0);
    assert_eq!(bed.post_send(0, &mut wr(IBV_WR_SEND, &mut bed.sge(0, 5))), 0);
    let found = bed.poll(2);
    let received = found.iter().find(|wc| wc.wr_id == 5).unwrap();
    assert_eq!(received.status, IBV_WC_LOC_PROT_ERR);
    assert_eq!(own, [0; 64]);
    assert_eq!(unsafe { ibv_dereg_mr(mr) }, 0);
}

/// Whether the second queue pair's peer may take these rights back.
fn takes_back(rights: u32, prepare: impl Fn(&Bed)) -> bool {
    let bed = Bed::new();
    prepare(&bed);
    let mut memory = [0u64; 8];
    let start = memory.as_mut_ptr().cast();
    let mr = unsafe { crate::mr::ibv_reg_mr(bed.pd, start, 64, rights.cast_signed()) };
    assert_eq!(bed.post_recv(1, 5, bed.sge(100, 64)), 0);
    let (mut sge, stag) = (bed.sge(0, 8), unsafe { (*mr).rkey });
    let mut send = wr(IBV_WR_SEND_WITH_INV, &mut sge);
    send.__bindgen_anon_1.invalidate_rkey = stag;
    assert_eq!(bed.post_send(0, &mut send), 0);
    let found = bed.poll(2);
    let receive = found.iter().find(|wc| wc.wr_id == 5).unwrap();
    let taken = receive.status == IBV_WC_SUCCESS;
    assert_eq!(taken, receive.wc_flags & IBV_WC_WITH_INV != 0);
    assert_eq!(unsafe { crate::mr::ibv_dereg_mr(mr) }, 0);
    taken
}

#[test]
fn a_peer_takes_back_only_rights_that_were_given() {
    let local = IBV_ACCESS_LOCAL_WRITE;
    assert!(!takes_back(0, |_| ()));
    assert!(!takes_back(local, |_| ()));
    for remote in [IBV_ACCESS_REMOTE_READ, IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_ATOMIC] {
        assert!(takes_back(local | remote, |_| ()));
    }
}

#[test]
fn a_queue_pair_without_remote_rights_has_no_stag_taken_back() {
    let set = |flags| {
        move |bed: &Bed| {
            let mut attr: ibv_qp_attr = unsafe { std::mem::zeroed() };
            attr.qp_access_flags = flags;
            let mask = IBV_QP_ACCESS_FLAGS.cast_signed();
            assert_eq!(unsafe { modify::ibv_modify_qp(bed.qps[1], &mut attr, mask) }, 0);
        }
    };
    assert!(!takes_back(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, set(0)));
    let given = set(IBV_ACCESS_REMOTE_READ);
    assert!(takes_back(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ, given));
}
