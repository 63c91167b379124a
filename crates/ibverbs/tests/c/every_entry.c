/*
 * Uses every entry of libibverbs.so.1 and librdmacm.so.1 that is supported, as programs do, and
 * checks that the others report that they are unsupported. Built with AddressSanitizer. A server
 * and a client are both in this process and communicate through loopback.
 */
#define _GNU_SOURCE
#include "check.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <rdma/rsocket.h>
#include <sys/uio.h>

enum { SIZE = 4096, ALL_ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
	IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };

/* Of the program's headers only; programs for rdma-core's own use call them too. */
extern const char *ibv_get_sysfs_path(void);
extern int ibv_read_sysfs_file(const char *, const char *, char *, size_t);
extern int ibv_dontfork_range(void *, size_t);
extern int ibv_dofork_range(void *, size_t);
struct ibv_kern_ah_attr;
extern void ibv_copy_ah_attr_from_kern(struct ibv_ah_attr *, void *);
extern void ibv_copy_path_rec_from_kern(struct ibv_sa_path_rec *, void *);
extern void ibv_copy_path_rec_to_kern(void *, struct ibv_sa_path_rec *);
extern void ibv_copy_qp_attr_from_kern(struct ibv_qp_attr *, void *);

static int is_roce;

/* ---- texts and rates ---- */

static void texts(void)
{
	union { char room[1024]; struct ibv_sa_path_rec path; struct ibv_qp_attr qp;
		struct ibv_ah_attr ah; } kernel, user;
	char text[64];

	MUST(strlen(ibv_node_type_str(IBV_NODE_RNIC)));
	MUST(!strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active"));
	MUST(strlen(ibv_event_type_str(IBV_EVENT_QP_FATAL)));
	MUST(!strcmp(ibv_wc_status_str(IBV_WC_SUCCESS), "success"));
	MUST(!strcmp(rdma_event_str(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED"));
	MUST(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4);
	MUST(mult_to_ibv_rate(4) == IBV_RATE_10_GBPS);
	MUST(ibv_rate_to_mbps(IBV_RATE_10_GBPS) == 10000);
	MUST(mbps_to_ibv_rate(10000) == IBV_RATE_10_GBPS);
	MUST(ibv_get_sysfs_path());
	MUST(ibv_read_sysfs_file("/nowhere", "nothing", text, sizeof(text)) == -1);
	memset(&kernel, 0, sizeof(kernel));
	ibv_copy_ah_attr_from_kern(&user.ah, &kernel);
	ibv_copy_qp_attr_from_kern(&user.qp, &kernel);
	ibv_copy_path_rec_from_kern(&user.path, &kernel);
	ibv_copy_path_rec_to_kern(&kernel, &user.path);
	/* Forking is always in order: there is nothing to protect. */
	ZERO(ibv_fork_init());
	MUST(ibv_is_fork_initialized() != IBV_FORK_DISABLED);
	ibv_dontfork_range(text, sizeof(text));
	ibv_dofork_range(text, sizeof(text));
}

/* ---- devices ---- */

static struct ibv_context *device(void)
{
	int count = -1;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context;

	MUST(list && count > 0 && list[0] && !list[count]);
	MUST(strlen(ibv_get_device_name(list[0])));
	MUST(ibv_get_device_guid(list[0]));
	MUST(ibv_get_device_index(list[0]) >= -1);
	is_roce = list[0]->transport_type == IBV_TRANSPORT_IB;
	MUST(context = ibv_open_device(list[0]));
	ibv_free_device_list(list);
	return context;
}

static void attributes(struct ibv_context *context)
{
	struct ibv_device_attr device;
	struct ibv_device_attr_ex more;
	struct ibv_port_attr port;
	struct ibv_gid_entry entry, table[8];
	struct ibv_values_ex values = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };
	union ibv_gid gid;
	__be16 key;

	ZERO(ibv_query_device(context, &device));
	MUST(device.phys_port_cnt == 1 && device.max_qp > 0);
	ZERO(ibv_query_device_ex(context, NULL, &more));
	MUST(more.orig_attr.max_cqe == device.max_cqe);
	ZERO(ibv_query_port(context, 1, &port));
	MUST(port.state == IBV_PORT_ACTIVE);
	MUST(ibv_query_port(context, 2, &port) != 0);
	ZERO(ibv_query_gid(context, 1, 0, &gid));
	ZERO(ibv_query_gid_ex(context, 1, 0, &entry, 0));
	ZERO(memcmp(&gid, &entry.gid, sizeof(gid)));
	MUST(ibv_query_gid_table(context, table, 8, 0) >= 1);
	ZERO(ibv_query_pkey(context, 1, 0, &key));
	ZERO(ibv_get_pkey_index(context, 1, key));
	/* A clock is not promised. */
	ibv_query_rt_values_ex(context, &values);
}

/* ---- memory ---- */

static void memory(struct ibv_pd *pd)
{
	static char bytes[SIZE], others[SIZE];
	struct ibv_mr *mr;

	MUST(mr = (ibv_reg_mr)(pd, bytes, SIZE, ALL_ACCESS));
	MUST(mr->addr == bytes && mr->length == SIZE && mr->lkey);
	/* Either it works or it returns an error. */
	if (ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, others, SIZE, 0))
		MUST(mr->addr == bytes);
	ZERO(ibv_dereg_mr(mr));
	MUST(mr = ibv_reg_mr_iova(pd, bytes, SIZE, 0x1000, IBV_ACCESS_LOCAL_WRITE));
	ZERO(ibv_dereg_mr(mr));
	MUST(mr = ibv_reg_mr_iova2(pd, bytes, SIZE, 0, IBV_ACCESS_RELAXED_ORDERING));
	ZERO(ibv_dereg_mr(mr));
	MUST(!(ibv_reg_mr)(pd, bytes, SIZE, IBV_ACCESS_REMOTE_WRITE) && errno == EINVAL);
}

/* ---- queues ---- */

static void queues(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_attr limits = { .max_wr = 4, .srq_limit = 1 };
	struct ibv_comp_channel *channel;
	struct ibv_recv_wr work = { .wr_id = 1 }, *bad;
	struct ibv_srq *srq;
	struct ibv_cq *cq;
	struct ibv_wc done;

	MUST(channel = ibv_create_comp_channel(context));
	MUST(fcntl(channel->fd, F_GETFL) >= 0);
	MUST(cq = ibv_create_cq(context, 10, context, channel, 0));
	MUST(cq->cqe >= 10 && cq->cq_context == context && cq->channel == channel);
	/* A CQ may be resized or not. */
	if (!ibv_resize_cq(cq, 20))
		MUST(cq->cqe >= 20);
	ZERO(ibv_req_notify_cq(cq, 0));
	ZERO(ibv_poll_cq(cq, 1, &done));
	MUST(srq = ibv_create_srq(pd, &shared));
	ZERO(ibv_post_srq_recv(srq, &work, &bad));
	ZERO(ibv_modify_srq(srq, &limits, IBV_SRQ_LIMIT));
	ZERO(ibv_query_srq(srq, &limits));
	MUST(limits.srq_limit == 1 && limits.max_wr >= 4);
	ZERO(ibv_destroy_srq(srq));
	MUST(ibv_destroy_comp_channel(channel) == EBUSY);
	ZERO(ibv_destroy_cq(cq));
	ZERO(ibv_destroy_comp_channel(channel));
}

static void extended_queue(struct ibv_context *context)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 8, .wc_flags = IBV_WC_STANDARD_FLAGS };
	struct ibv_poll_cq_attr poll_attr = { 0 };
	struct ibv_cq_ex *cq;

	MUST(cq = ibv_create_cq_ex(context, &attr));
	MUST(ibv_start_poll(cq, &poll_attr) == ENOENT);
	ZERO(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)));
}

static void pair_of_queues(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_qp_init_attr_ex attr = { .qp_type = IBV_QPT_RC };
	struct ibv_qp_init_attr as_made;
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	struct ibv_recv_wr receive = { .wr_id = 7 }, *bad;
	struct ibv_ece ece = { 0 };
	struct ibv_wc done;
	struct ibv_cq *cq;
	struct ibv_qp *qp;

	MUST(cq = ibv_create_cq(context, 10, NULL, NULL, 0));
	attr.send_cq = attr.recv_cq = cq;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 4;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	attr.pd = pd;
	attr.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	attr.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE;
	MUST(qp = ibv_create_qp_ex(context, &attr));
	MUST(ibv_qp_to_qp_ex(qp));
	MUST(qp->qp_num && qp->state == IBV_QPS_RESET);
	ZERO(ibv_modify_qp(qp, &state, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
		IBV_QP_ACCESS_FLAGS));
	ZERO(ibv_query_qp(qp, &state, IBV_QP_STATE | IBV_QP_CAP, &as_made));
	MUST(state.qp_state == IBV_QPS_INIT && as_made.cap.max_send_wr >= 4);
	ibv_query_qp_data_in_order(qp, IBV_WR_RDMA_WRITE, 0);
	ZERO(ibv_post_recv(qp, &receive, &bad));
	state.qp_state = IBV_QPS_ERR;
	ZERO(ibv_modify_qp(qp, &state, IBV_QP_STATE));
	while (ibv_poll_cq(cq, 1, &done) == 0)
		;
	MUST(done.status == IBV_WC_WR_FLUSH_ERR && done.wr_id == 7);
	UNSUPPORTED(ibv_set_ece(qp, &ece));
	UNSUPPORTED(ibv_query_ece(qp, &ece));
	MUST(ibv_destroy_cq(cq) == EBUSY);
	ZERO(ibv_destroy_qp(qp));
	ZERO(ibv_destroy_cq(cq));
}

static void address(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_ah_attr attr = { .is_global = 1, .port_num = 1 };
	struct ibv_wc done = { 0 };
	struct ibv_grh header = { 0 };
	uint8_t mac[6];
	uint16_t vlan;
	struct ibv_ah *ah;

	ZERO(ibv_query_gid(context, 1, 0, &attr.grh.dgid));
	ah = ibv_create_ah(pd, &attr);
	if (!ah) {
		MUST(!is_roce);
		return;
	}
	ZERO(ibv_destroy_ah(ah));
	if (!ibv_init_ah_from_wc(context, 1, &done, &header, &attr) &&
	    (ah = ibv_create_ah_from_wc(pd, &done, &header, 1)))
		ZERO(ibv_destroy_ah(ah));
	ibv_resolve_eth_l2_from_gid(context, &attr, mac, &vlan);
}

static void unsupported(struct ibv_context *context, struct ibv_pd *pd)
{
	struct ibv_parent_domain_init_attr domain = { .pd = pd };
	struct ibv_td_init_attr thread = { 0 };
	struct ibv_xrcd_init_attr xrcd = { 0 };

	UNSUPPORTED(ibv_import_device(0));
	UNSUPPORTED(ibv_import_pd(context, 1));
	UNSUPPORTED(ibv_import_mr(pd, 1));
	UNSUPPORTED(ibv_import_dm(context, 1));
	ibv_unimport_pd(NULL);
	ibv_unimport_mr(NULL);
	ibv_unimport_dm(NULL);
	UNSUPPORTED(ibv_reg_dmabuf_mr(pd, 0, SIZE, 0, 0, 0));
	UNSUPPORTED(ibv_alloc_td(context, &thread));
	UNSUPPORTED(ibv_alloc_parent_domain(context, &domain));
	UNSUPPORTED(ibv_open_xrcd(context, &xrcd));
}

static void no_multicast(struct ibv_pd *pd)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };
	union ibv_gid gid = { .raw = { 0xff } };
	struct ibv_qp *qp;

	MUST(attr.send_cq = attr.recv_cq = ibv_create_cq(pd->context, 2, NULL, NULL, 0));
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 1;
	MUST(qp = ibv_create_qp(pd, &attr));
	MUST(ibv_attach_mcast(qp, &gid, 0) != 0);
	MUST(ibv_detach_mcast(qp, &gid, 0) != 0);
	ZERO(ibv_destroy_qp(qp));
	ZERO(ibv_destroy_cq(attr.send_cq));
}

static void no_rsockets(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	struct sockaddr *name = (struct sockaddr *)&to;
	struct msghdr message = { 0 };
	struct iovec part = { 0 };
	socklen_t length = sizeof(to);
	struct pollfd wanted = { .fd = -1 };
	struct timeval now = { 0 };
	char text[4] = "";

	UNSUPPORTED(rsocket(AF_INET, SOCK_STREAM, 0));
	UNSUPPORTED(rbind(-1, name, length));
	UNSUPPORTED(rlisten(-1, 1));
	UNSUPPORTED(raccept(-1, name, &length));
	UNSUPPORTED(rconnect(-1, name, length));
	UNSUPPORTED(rshutdown(-1, 0));
	UNSUPPORTED(rclose(-1));
	UNSUPPORTED(rrecv(-1, text, 1, 0));
	UNSUPPORTED(rrecvfrom(-1, text, 1, 0, name, &length));
	UNSUPPORTED(rrecvmsg(-1, &message, 0));
	UNSUPPORTED(rsend(-1, text, 1, 0));
	UNSUPPORTED(rsendto(-1, text, 1, 0, name, length));
	UNSUPPORTED(rsendmsg(-1, &message, 0));
	UNSUPPORTED(rread(-1, text, 1));
	UNSUPPORTED(rreadv(-1, &part, 1));
	UNSUPPORTED(rwrite(-1, text, 1));
	UNSUPPORTED(rwritev(-1, &part, 1));
	UNSUPPORTED(rgetpeername(-1, name, &length));
	UNSUPPORTED(rgetsockname(-1, name, &length));
	UNSUPPORTED(rsetsockopt(-1, 0, 0, text, 1));
	UNSUPPORTED(rgetsockopt(-1, 0, 0, text, &length));
	UNSUPPORTED(rfcntl(-1, F_GETFL));
	UNSUPPORTED(riomap(-1, text, 1, 0, 0, 0));
	UNSUPPORTED(riounmap(-1, text, 1));
	UNSUPPORTED(riowrite(-1, text, 1, 0, 0));
	/* These two serve ordinary descriptors as well. */
	rpoll(&wanted, 1, 0);
	rselect(0, NULL, NULL, NULL, &now);
}

/* ---- a connection, with events ---- */

struct end {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	char bytes[SIZE];
};

static struct end client, server;

/* What the peer must know about an end's memory. */
struct place { uint64_t address; uint32_t key; } __attribute__((packed));

/* Waits for one event, checks it and hands it out; the caller acknowledges it. */
static struct rdma_cm_event *next(struct rdma_event_channel *events, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;

	ZERO(rdma_get_cm_event(events, &event));
	if (event->event != type)
		FAIL("%s, status %d, instead of %s", rdma_event_str(event->event), event->status,
		     rdma_event_str(type));
	return event;
}

static void await(struct rdma_event_channel *events, enum rdma_cm_event_type type)
{
	ZERO(rdma_ack_cm_event(next(events, type)));
}

static void equip(struct end *end)
{
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };

	MUST(end->pd = ibv_alloc_pd(end->id->verbs));
	MUST(end->channel = ibv_create_comp_channel(end->id->verbs));
	MUST(end->cq = ibv_create_cq(end->id->verbs, 32, end, end->channel, 0));
	MUST(end->mr = (ibv_reg_mr)(end->pd, end->bytes, SIZE, ALL_ACCESS));
	attr.send_cq = attr.recv_cq = end->cq;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 16;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 2;
	attr.cap.max_inline_data = 64;
	ZERO(rdma_create_qp(end->id, end->pd, &attr));
	MUST(end->id->qp && end->id->qp->qp_type == IBV_QPT_RC);
}

static void strip(struct end *end)
{
	rdma_destroy_qp(end->id);
	ZERO(ibv_dereg_mr(end->mr));
	ZERO(ibv_destroy_cq(end->cq));
	ZERO(ibv_destroy_comp_channel(end->channel));
	ZERO(ibv_dealloc_pd(end->pd));
	ZERO(rdma_destroy_id(end->id));
}

/* Sleeps until a completion is there, takes it, and checks it. */
static struct ibv_wc completion(struct end *end, enum ibv_wc_opcode opcode)
{
	struct ibv_wc done;
	struct ibv_cq *cq;
	void *context;

	for (;;) {
		int count = ibv_poll_cq(end->cq, 1, &done);

		MUST(count >= 0);
		if (count)
			break;
		ZERO(ibv_req_notify_cq(end->cq, 0));
		count = ibv_poll_cq(end->cq, 1, &done);
		if (count)
			break;
		ZERO(ibv_get_cq_event(end->channel, &cq, &context));
		MUST(cq == end->cq && context == end);
		ibv_ack_cq_events(cq, 1);
	}
	if (done.status != IBV_WC_SUCCESS || done.opcode != opcode)
		FAIL("completion: %s, opcode %d", ibv_wc_status_str(done.status), done.opcode);
	return done;
}

static void receive(struct end *end, uint64_t number)
{
	struct ibv_sge into = { (uintptr_t)end->bytes, SIZE / 2, end->mr->lkey };
	struct ibv_recv_wr work = { .wr_id = number, .sg_list = &into, .num_sge = 1 }, *bad;

	ZERO(ibv_post_recv(end->id->qp, &work, &bad));
}

static void send_work(struct end *end, struct ibv_send_wr *work)
{
	struct ibv_sge from = { (uintptr_t)end->bytes + SIZE / 2, 64, end->mr->lkey };
	struct ibv_send_wr *bad;

	if (work->opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    work->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
		from.length = 8;
	work->sg_list = &from;
	work->num_sge = 1;
	work->send_flags |= IBV_SEND_SIGNALED;
	ZERO(ibv_post_send(end->id->qp, work, &bad));
}

static struct place place(struct end *end)
{
	return (struct place){ (uintptr_t)end->bytes, end->mr->rkey };
}

static void connect_ends(struct rdma_event_channel *events)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct rdma_conn_param param = { .responder_resources = 4, .initiator_depth = 4 };
	struct rdma_cm_event *event;
	struct rdma_cm_id *listener;
	struct place offered;
	uint8_t no_ack = 14;
	int reuse = 1;

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ZERO(rdma_create_id(events, &listener, &server, RDMA_PS_TCP));
	ZERO(rdma_set_option(listener, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof(reuse)));
	ZERO(rdma_bind_addr(listener, (struct sockaddr *)&at));
	ZERO(rdma_listen(listener, 4));
	MUST(at.sin_port = rdma_get_src_port(listener));

	ZERO(rdma_create_id(events, &client.id, &client, RDMA_PS_TCP));
	ZERO(rdma_set_option(client.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &no_ack, 1));
	ZERO(rdma_resolve_addr(client.id, NULL, (struct sockaddr *)&at, 2000));
	await(events, RDMA_CM_EVENT_ADDR_RESOLVED);
	ZERO(rdma_resolve_route(client.id, 2000));
	await(events, RDMA_CM_EVENT_ROUTE_RESOLVED);
	equip(&client);
	offered = place(&client);
	param.private_data = &offered;
	param.private_data_len = sizeof(offered);
	ZERO(rdma_connect(client.id, &param));

	event = next(events, RDMA_CM_EVENT_CONNECT_REQUEST);
	MUST(event->listen_id == listener && event->id != listener);
	MUST(event->param.conn.private_data_len >= sizeof(offered));
	ZERO(memcmp(event->param.conn.private_data, &offered, sizeof(offered)));
	server.id = event->id;
	MUST(server.id->context == &server);
	ZERO(rdma_ack_cm_event(event));
	equip(&server);
	receive(&server, 1);
	receive(&server, 2);
	param.private_data_len = 0;
	ZERO(rdma_accept(server.id, &param));
	await(events, RDMA_CM_EVENT_ESTABLISHED);
	await(events, RDMA_CM_EVENT_ESTABLISHED);
	MUST(rdma_get_dst_port(client.id) == at.sin_port);
	MUST(rdma_get_local_addr(client.id)->sa_family == AF_INET);
	MUST(rdma_get_peer_addr(server.id)->sa_family == AF_INET);
	ZERO(rdma_destroy_id(listener));
}

static void operations(void)
{
	struct ibv_send_wr send = { .wr_id = 11, .opcode = IBV_WR_SEND };
	struct ibv_send_wr short_send = { .wr_id = 12, .opcode = IBV_WR_SEND };
	struct ibv_send_wr write = { .wr_id = 13, .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_send_wr read = { .wr_id = 14, .opcode = IBV_WR_RDMA_READ };
	struct place there = place(&server);
	struct ibv_wc done;

	memcpy(client.bytes + SIZE / 2, "from the client", 16);
	send_work(&client, &send);
	MUST(completion(&client, IBV_WC_SEND).wr_id == 11);
	done = completion(&server, IBV_WC_RECV);
	MUST(done.wr_id == 1 && done.byte_len == 64 && done.qp_num == server.id->qp->qp_num);
	ZERO(strcmp(server.bytes, "from the client"));

	short_send.send_flags = IBV_SEND_INLINE | IBV_SEND_SOLICITED;
	send_work(&client, &short_send);
	completion(&client, IBV_WC_SEND);
	completion(&server, IBV_WC_RECV);

	write.wr.rdma.remote_addr = there.address + 128;
	write.wr.rdma.rkey = there.key;
	send_work(&client, &write);
	completion(&client, IBV_WC_RDMA_WRITE);

	memcpy(server.bytes, "from the server", 16);
	read.wr.rdma.remote_addr = there.address;
	read.wr.rdma.rkey = there.key;
	send_work(&client, &read);
	MUST(completion(&client, IBV_WC_RDMA_READ).wr_id == 14);
	ZERO(strcmp(client.bytes + SIZE / 2, "from the server"));
	ZERO(strcmp(server.bytes + 128, "from the client"));
}

static void atomics(void)
{
	struct ibv_send_wr add = { .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD };
	struct ibv_send_wr swap = { .opcode = IBV_WR_ATOMIC_CMP_AND_SWP };
	struct place there = place(&server);
	uint64_t *target = (uint64_t *)server.bytes, *before = (uint64_t *)(client.bytes + SIZE / 2);

	*target = 5;
	add.wr.atomic.remote_addr = swap.wr.atomic.remote_addr = there.address;
	add.wr.atomic.rkey = swap.wr.atomic.rkey = there.key;
	add.wr.atomic.compare_add = 3;
	send_work(&client, &add);
	completion(&client, IBV_WC_FETCH_ADD);
	MUST(*before == 5 && *target == 8);
	swap.wr.atomic.compare_add = 8;
	swap.wr.atomic.swap = 1;
	send_work(&client, &swap);
	completion(&client, IBV_WC_COMP_SWAP);
	MUST(*before == 8 && *target == 1);
}

static void refused(struct rdma_event_channel *events)
{
	struct ibv_send_wr write = { .opcode = IBV_WR_RDMA_WRITE };
	struct ibv_async_event event;
	struct ibv_wc done;

	/* No such key: the connection ends, and both ends are told. */
	write.wr.rdma.remote_addr = place(&server).address;
	write.wr.rdma.rkey = place(&server).key ^ 0xff;
	send_work(&client, &write);
	await(events, RDMA_CM_EVENT_DISCONNECTED);
	await(events, RDMA_CM_EVENT_DISCONNECTED);
	while (ibv_poll_cq(client.cq, 1, &done) > 0)
		;
	MUST(fcntl(server.id->verbs->async_fd, F_SETFL, O_NONBLOCK) == 0);
	while (ibv_get_async_event(server.id->verbs, &event) == 0)
		ibv_ack_async_event(&event);
	MUST(ibv_get_async_event(server.id->verbs, &event) == -1 && errno == EAGAIN);
}

static void connection(void)
{
	struct rdma_event_channel *events, *other;
	struct ibv_qp_attr state = { .qp_state = IBV_QPS_RTR };
	int mask;

	MUST(events = rdma_create_event_channel());
	MUST(other = rdma_create_event_channel());
	connect_ends(events);
	operations();
	atomics();
	ZERO(rdma_init_qp_attr(client.id, &state, &mask));
	rdma_notify(client.id, IBV_EVENT_COMM_EST);
	refused(events);
	ZERO(rdma_migrate_id(server.id, other));
	rdma_disconnect(client.id);
	strip(&client);
	strip(&server);
	rdma_destroy_event_channel(other);
	rdma_destroy_event_channel(events);
}

/* ---- a connection without an event channel, and a refused one ---- */

static struct rdma_addrinfo *resolved(int flags)
{
	struct rdma_addrinfo hints = { .ai_flags = flags, .ai_port_space = RDMA_PS_TCP };
	struct rdma_addrinfo *found;

	ZERO(rdma_getaddrinfo("127.0.0.1", "19571", &hints, &found));
	return found;
}

static struct ibv_qp_init_attr small(void)
{
	struct ibv_qp_init_attr attr = { .sq_sig_all = 1, .qp_type = IBV_QPT_RC };

	attr.cap.max_send_wr = attr.cap.max_recv_wr = 2;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 1;
	return attr;
}

/* Sends one message, then is refused once. */
static void *active(void *nothing)
{
	struct ibv_qp_init_attr attr = small();
	struct rdma_addrinfo *to = resolved(0);
	static char bytes[64] = "without events";
	struct rdma_cm_id *id;
	struct ibv_mr *mr;
	struct ibv_wc done;

	ZERO(rdma_create_ep(&id, to, NULL, &attr));
	MUST(mr = rdma_reg_msgs(id, bytes, sizeof(bytes)));
	ZERO(rdma_connect(id, NULL));
	ZERO(rdma_post_send(id, NULL, bytes, sizeof(bytes), mr, 0));
	MUST(rdma_get_send_comp(id, &done) == 1 && done.status == IBV_WC_SUCCESS);
	ZERO(rdma_disconnect(id));
	ZERO(rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	attr = small();
	ZERO(rdma_create_ep(&id, to, NULL, &attr));
	MUST(rdma_connect(id, NULL) == -1 && errno == ECONNREFUSED);
	rdma_destroy_ep(id);
	rdma_freeaddrinfo(to);
	return nothing;
}

static void without_events(void)
{
	struct ibv_qp_init_attr attr = small();
	struct rdma_addrinfo *at = resolved(RAI_PASSIVE);
	struct rdma_cm_id *listener, *id;
	static char bytes[64];
	pthread_t thread;
	struct ibv_mr *mr;
	struct ibv_wc done;

	ZERO(rdma_create_ep(&listener, at, NULL, &attr));
	rdma_freeaddrinfo(at);
	ZERO(rdma_listen(listener, 0));
	ZERO(pthread_create(&thread, NULL, active, NULL));
	ZERO(rdma_get_request(listener, &id));
	MUST(mr = rdma_reg_msgs(id, bytes, sizeof(bytes)));
	ZERO(rdma_post_recv(id, NULL, bytes, sizeof(bytes), mr));
	ZERO(rdma_accept(id, NULL));
	MUST(rdma_get_recv_comp(id, &done) == 1 && done.status == IBV_WC_SUCCESS);
	ZERO(strcmp(bytes, "without events"));
	rdma_disconnect(id);
	ZERO(rdma_dereg_mr(mr));
	rdma_destroy_ep(id);
	ZERO(rdma_get_request(listener, &id));
	ZERO(rdma_reject(id, "no", 3));
	rdma_destroy_ep(id);
	ZERO(pthread_join(thread, NULL));
	rdma_destroy_ep(listener);
}

/* ---- what remains of librdmacm ---- */

static void rest_of_cm(void)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_srq_init_attr_ex more = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_qp_init_attr_ex pair = { .qp_type = IBV_QPT_RC };
	struct rdma_cm_join_mc_attr_ex join = { 0 };
	struct sockaddr_in at = { .sin_family = AF_INET };
	struct sockaddr *name = (struct sockaddr *)&at;
	struct ibv_context **devices;
	struct ibv_ece ece = { .vendor_id = 1 };
	struct rdma_cm_id *id;
	int count;

	MUST((devices = rdma_get_devices(&count)) && count > 0);
	rdma_free_devices(devices);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ZERO(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP));
	ZERO(rdma_resolve_addr(id, NULL, name, 2000));
	ZERO(rdma_create_srq(id, NULL, &shared));
	MUST(id->srq);
	rdma_destroy_srq(id);
	more.pd = id->pd;
	more.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
	more.srq_type = IBV_SRQT_BASIC;
	ZERO(rdma_create_srq_ex(id, &more));
	rdma_destroy_srq(id);
	pair.cap = small().cap;
	pair.pd = id->pd;
	pair.comp_mask = IBV_QP_INIT_ATTR_PD;
	ZERO(rdma_create_qp_ex(id, &pair));
	rdma_destroy_qp(id);
	ZERO(rdma_set_local_ece(id, &ece));
	ZERO(rdma_get_remote_ece(id, &ece));
	ZERO(ece.vendor_id);
	MUST(rdma_reject_ece(id, NULL, 0) == -1);
	MUST(rdma_establish(id) == -1);
	MUST(rdma_join_multicast(id, name, NULL) == -1);
	MUST(rdma_join_multicast_ex(id, &join, NULL) == -1);
	MUST(rdma_leave_multicast(id, name) == -1);
	ZERO(rdma_destroy_id(id));
}

static void step(const char *name)
{
	printf("%s\n", name);
	fflush(stdout);
}

int main(void)
{
	struct ibv_context *context;
	struct ibv_pd *pd;

	step("texts");
	texts();
	step("device");
	context = device();
	attributes(context);
	MUST(pd = ibv_alloc_pd(context));
	step("memory");
	memory(pd);
	step("queues");
	queues(context, pd);
	extended_queue(context);
	pair_of_queues(context, pd);
	step("address");
	address(context, pd);
	step("unsupported");
	unsupported(context, pd);
	no_multicast(pd);
	no_rsockets();
	ZERO(ibv_dealloc_pd(pd));
	ZERO(ibv_close_device(context));
	step("connection");
	connection();
	step("without events");
	without_events();
	step("rest of librdmacm");
	rest_of_cm();
	step("all entries used");
	return 0;
}
