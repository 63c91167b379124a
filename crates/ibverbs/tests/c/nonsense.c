/*
 * Passes invalid arguments to every entry of libibverbs.so.1 and librdmacm.so.1: each call must
 * return an error, and must never crash or hang the program.
 *
 * Each call is made in a child process. First every object is a null, foreign, or wrong one; then
 * the objects are valid and everything else is invalid.
 *
 *     nonsense [PART OF A NAME]
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* How an entry reports that it failed. */
enum failure {
	NONZERO, /* by an errno number, or by -1 */
	MINUS,   /* by a negative number and errno */
	NEGATIVE, /* by a negative errno number */
	POINTER, /* by NULL and errno */
	NEVER,   /* it cannot, or not for sure: it only has to return */
};

/*
 * The letters of `arguments`:
 *   objects: d device, c context, p PD, m MR, n completion channel, k CQ, s SRQ, q QP, a AH,
 *            e event channel, I identifier, x one of a kind that this program cannot make;
 *   P a pointer that is needed, O one that may be null, S a string that may be null,
 *   N one that the headers' own code follows, so never null,
 *   T always zeros (a time that must not be for ever), i a number, f a descriptor, z always 0.
 * A `!` at the end: the structure holds pointers that nobody can check, so none of 0xff bytes.
 */
struct entry {
	const char *name;
	enum failure failure;
	const char *arguments;
	void *inlined; /* of the headers' inline functions */
};

#define E(failure, name, arguments) { #name, failure, arguments, NULL }
#define INLINE(failure, name, arguments) { #name, failure, arguments, (void *)name }

/* clang-format off */
static const struct entry ENTRIES[] = {
	/* libibverbs */
	E(NONZERO, _ibv_query_gid_ex, "ciiPii"),
	E(NEGATIVE, _ibv_query_gid_table, "cPiii"),
	E(NEVER, ibv_ack_async_event, "P"),
	E(NEVER, ibv_ack_cq_events, "ki"),
	E(POINTER, ibv_alloc_pd, "c"),
	E(NONZERO, ibv_attach_mcast, "qPi"),
	E(MINUS, ibv_close_device, "c"),
	E(NEVER, ibv_copy_ah_attr_from_kern, "PP"),
	E(NEVER, ibv_copy_path_rec_from_kern, "PP"),
	E(NEVER, ibv_copy_path_rec_to_kern, "PP"),
	E(NEVER, ibv_copy_qp_attr_from_kern, "PP"),
	E(POINTER, ibv_create_ah, "pP"),
	E(POINTER, ibv_create_ah_from_wc, "pPPi"),
	E(POINTER, ibv_create_comp_channel, "c"),
	E(POINTER, ibv_create_cq, "ciOni"),
	E(POINTER, ibv_create_qp, "pP"),
	E(POINTER, ibv_create_srq, "pP"),
	E(NONZERO, ibv_dealloc_pd, "p"),
	E(NONZERO, ibv_dereg_mr, "m"),
	E(NONZERO, ibv_destroy_ah, "a"),
	E(NONZERO, ibv_destroy_comp_channel, "n"),
	E(NONZERO, ibv_destroy_cq, "k"),
	E(NONZERO, ibv_destroy_qp, "q"),
	E(NONZERO, ibv_destroy_srq, "s"),
	E(NONZERO, ibv_detach_mcast, "qPi"),
	E(NEVER, ibv_dofork_range, "Oi"),
	E(NEVER, ibv_dontfork_range, "Oi"),
	E(NEVER, ibv_event_type_str, "i"),
	E(NEVER, ibv_fork_init, ""),
	E(NEVER, ibv_free_device_list, "x"),
	E(MINUS, ibv_get_async_event, "cP"),
	E(MINUS, ibv_get_cq_event, "nPP"),
	E(NEVER, ibv_get_device_guid, "d"),
	E(MINUS, ibv_get_device_index, "d"),
	E(NEVER, ibv_get_device_list, "O"),
	E(POINTER, ibv_get_device_name, "d"),
	E(MINUS, ibv_get_pkey_index, "cii"),
	E(NEVER, ibv_get_sysfs_path, ""),
	E(POINTER, ibv_import_device, "f"),
	E(POINTER, ibv_import_dm, "ci"),
	E(POINTER, ibv_import_mr, "pi"),
	E(POINTER, ibv_import_pd, "ci"),
	E(NONZERO, ibv_init_ah_from_wc, "ciPPP"),
	E(NEVER, ibv_is_fork_initialized, ""),
	E(NONZERO, ibv_modify_qp, "qPi"),
	E(NONZERO, ibv_modify_srq, "sPi"),
	E(NEVER, ibv_node_type_str, "i"),
	E(POINTER, ibv_open_device, "d"),
	E(NEVER, ibv_port_state_str, "i"),
	E(POINTER, ibv_qp_to_qp_ex, "q"),
	E(NONZERO, ibv_query_device, "cP"),
	E(NONZERO, ibv_query_ece, "qP"),
	E(MINUS, ibv_query_gid, "ciiP"),
	E(MINUS, ibv_query_pkey, "ciiP"),
	E(NONZERO, ibv_query_port, "ciP"),
	E(NONZERO, ibv_query_qp, "qPiP"),
	E(NEVER, ibv_query_qp_data_in_order, "qii"),
	E(NONZERO, ibv_query_srq, "sP"),
	E(NEVER, ibv_rate_to_mbps, "i"),
	E(NEVER, ibv_rate_to_mult, "i"),
	E(MINUS, ibv_read_sysfs_file, "SSPi"),
	E(POINTER, ibv_reg_dmabuf_mr, "piiifi"),
	E(POINTER, ibv_reg_mr, "pOii"),
	E(POINTER, ibv_reg_mr_iova, "pOiii"),
	E(POINTER, ibv_reg_mr_iova2, "pOiii"),
	E(NONZERO, ibv_rereg_mr, "mipOii"),
	E(NONZERO, ibv_resize_cq, "ki"),
	E(NONZERO, ibv_resolve_eth_l2_from_gid, "cPPP"),
	E(NONZERO, ibv_set_ece, "qP"),
	E(NEVER, ibv_unimport_dm, "x"),
	E(NEVER, ibv_unimport_mr, "m"),
	E(NEVER, ibv_unimport_pd, "p"),
	E(NEVER, ibv_wc_status_str, "i"),
	E(NEVER, mbps_to_ibv_rate, "i"),
	E(NEVER, mult_to_ibv_rate, "i"),
	/* The functions behind the headers' inline ones, which cannot be called without objects. */
	INLINE(NONZERO, ibv_post_send, "QOO!"),
	INLINE(NONZERO, ibv_post_recv, "QOO!"),
	INLINE(NONZERO, ibv_post_srq_recv, "ROO!"),
	INLINE(NEVER, ibv_poll_cq, "KzO"),
	INLINE(NEVER, ibv_req_notify_cq, "Ki"),
	INLINE(NONZERO, ibv_query_device_ex, "COP"),
	INLINE(POINTER, ibv_create_cq_ex, "CP"),
	INLINE(POINTER, ibv_create_qp_ex, "CN"),
	INLINE(POINTER, ibv_create_srq_ex, "CN"),
	INLINE(NONZERO, ibv_modify_cq, "KP"),
	INLINE(NEVER, ibv_alloc_td, "CP"),
	INLINE(NEVER, ibv_alloc_parent_domain, "CP"),
	INLINE(NEVER, ibv_alloc_null_mr, "W"),
	INLINE(NEVER, ibv_alloc_mw, "Wi"),
	INLINE(NEVER, ibv_alloc_dm, "CP"),
	INLINE(NEVER, ibv_advise_mr, "WiiPi!"),
	INLINE(NEVER, ibv_open_xrcd, "CP"),
	INLINE(NEVER, ibv_get_srq_num, "RP"),
	INLINE(NEVER, ibv_query_rt_values_ex, "CP"),
	/* librdmacm */
	E(MINUS, rdma_accept, "IO!"),
	E(MINUS, rdma_ack_cm_event, "x"),
	E(MINUS, rdma_bind_addr, "IP"),
	E(MINUS, rdma_connect, "IO!"),
	E(MINUS, rdma_create_ep, "PPpO!"),
	E(NEVER, rdma_create_event_channel, ""),
	E(MINUS, rdma_create_id, "ePOi"),
	E(MINUS, rdma_create_qp, "IpP"),
	E(MINUS, rdma_create_qp_ex, "IP"),
	E(MINUS, rdma_create_srq, "IpP"),
	E(MINUS, rdma_create_srq_ex, "IP"),
	E(NEVER, rdma_destroy_ep, "I"),
	E(NEVER, rdma_destroy_event_channel, "e"),
	E(MINUS, rdma_destroy_id, "I"),
	E(NEVER, rdma_destroy_qp, "I"),
	E(NEVER, rdma_destroy_srq, "I"),
	E(MINUS, rdma_disconnect, "I"),
	E(MINUS, rdma_establish, "I"),
	E(NEVER, rdma_event_str, "i"),
	E(NEVER, rdma_free_devices, "x"),
	E(NEVER, rdma_freeaddrinfo, "x"),
	E(MINUS, rdma_get_cm_event, "eP"),
	E(NEVER, rdma_get_devices, "O"),
	E(NEVER, rdma_get_dst_port, "I"),
	E(MINUS, rdma_get_remote_ece, "IP"),
	E(MINUS, rdma_get_request, "IP"),
	E(NEVER, rdma_get_src_port, "I"),
	E(MINUS, rdma_getaddrinfo, "SSOP!"),
	E(MINUS, rdma_init_qp_attr, "IPP"),
	E(MINUS, rdma_join_multicast, "IPO"),
	E(MINUS, rdma_join_multicast_ex, "IPO!"),
	E(MINUS, rdma_leave_multicast, "IP"),
	E(MINUS, rdma_listen, "Ii"),
	E(MINUS, rdma_migrate_id, "Ie"),
	E(MINUS, rdma_notify, "Ii"),
	E(MINUS, rdma_reject, "IOi"),
	E(MINUS, rdma_reject_ece, "IOi"),
	E(MINUS, rdma_resolve_addr, "IOPi"),
	E(MINUS, rdma_resolve_route, "Ii"),
	E(MINUS, rdma_set_local_ece, "IP"),
	E(MINUS, rdma_set_option, "IiiPi"),
	E(MINUS, raccept, "fOO"),
	E(MINUS, rbind, "fPz"),
	E(MINUS, rclose, "f"),
	E(MINUS, rconnect, "fPz"),
	E(MINUS, rfcntl, "fii"),
	E(MINUS, rgetpeername, "fPP"),
	E(MINUS, rgetsockname, "fPP"),
	E(MINUS, rgetsockopt, "fiiPP"),
	E(MINUS, riomap, "fPiiii"),
	E(MINUS, riounmap, "fPi"),
	E(MINUS, riowrite, "fPzii"),
	E(MINUS, rlisten, "fi"),
	E(NEVER, rpoll, "Ozz"),
	E(MINUS, rread, "fPz"),
	E(MINUS, rreadv, "fPz"),
	E(MINUS, rrecv, "fPzi"),
	E(MINUS, rrecvfrom, "fPziOO"),
	E(MINUS, rrecvmsg, "fPi"),
	E(NEVER, rselect, "zOOOT"),
	E(MINUS, rsend, "fPzi"),
	E(MINUS, rsendmsg, "fPi"),
	E(MINUS, rsendto, "fPziPz"),
	E(MINUS, rsetsockopt, "fiiPz"),
	E(MINUS, rshutdown, "fi"),
	E(NEVER, rsocket, "iii"),
	E(MINUS, rwrite, "fPz"),
	E(MINUS, rwritev, "fPz"),
};
/* clang-format on */

/* What stands for objects and pointers. */
enum nonsense {
	NULLS,       /* objects: null; pointers: null; numbers: 0 */
	MINUS_ONES,  /* objects: -1; pointers: zeros; numbers: -1 */
	ODD,         /* objects: at an odd address; pointers: zeros; numbers: 1 */
	FOREIGN,     /* objects: zeros, never made by the library; pointers: zeros; numbers: 0 */
	FILLED,      /* objects: 0xff bytes; pointers: zeros; numbers: the largest */
	WRONG_KIND,  /* objects: a good one of another kind */
	DESTROYED,   /* objects: destroyed a moment ago */
	/* From here on objects are good. */
	GOOD_NULLS,  /* pointers: null; numbers: 0 */
	GOOD_ZEROS,  /* pointers: zeros; numbers: 0 */
	GOOD_FILLED, /* pointers: 0xff bytes; numbers: -1 */
	GOOD_LARGE,  /* pointers: zeros; numbers: the largest */
	KINDS,
};

static const char *const NAMES[KINDS] = {
	"null objects", "objects at -1", "objects at an odd address", "foreign objects of zeros",
	"foreign objects of 0xff", "objects of another kind", "destroyed objects",
	"null pointers", "zeros", "0xff bytes", "large numbers",
};

/* Good objects, made in each child that needs them. */
static struct {
	struct ibv_device *device;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_comp_channel *completions;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct rdma_event_channel *events;
	struct rdma_cm_id *id;
} good;

static char zeros[1 << 16] __attribute__((aligned(64)));
static char filled[1 << 16] __attribute__((aligned(64)));

static void need(const void *object, const char *what)
{
	if (!object) {
		perror(what);
		_exit(3);
	}
}

static void nonblocking(int fd)
{
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

static void make_queues(void)
{
	struct ibv_srq_init_attr shared = { .attr = { .max_wr = 8, .max_sge = 1 } };
	struct ibv_qp_init_attr attr = { .qp_type = IBV_QPT_RC };

	need(good.completions = ibv_create_comp_channel(good.context), "ibv_create_comp_channel");
	nonblocking(good.completions->fd);
	need(good.cq = ibv_create_cq(good.context, 16, NULL, good.completions, 0), "ibv_create_cq");
	need(good.srq = ibv_create_srq(good.pd, &shared), "ibv_create_srq");
	attr.send_cq = attr.recv_cq = good.cq;
	attr.cap.max_send_wr = attr.cap.max_recv_wr = 8;
	attr.cap.max_send_sge = attr.cap.max_recv_sge = 2;
	need(good.qp = ibv_create_qp(good.pd, &attr), "ibv_create_qp");
}

static void make_connection(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET };

	any.sin_addr.s_addr = good.device ? htonl(INADDR_LOOPBACK) : 0;
	need(good.events = rdma_create_event_channel(), "rdma_create_event_channel");
	nonblocking(good.events->fd);
	if (rdma_create_id(good.events, &good.id, NULL, RDMA_PS_TCP) ||
	    rdma_bind_addr(good.id, (struct sockaddr *)&any))
		need(NULL, "rdma_create_id or rdma_bind_addr");
}

static void make_good_objects(void)
{
	static char memory[4096];
	struct ibv_ah_attr address = { .is_global = 1, .port_num = 1 };
	struct ibv_device **list = ibv_get_device_list(NULL);

	need(list, "ibv_get_device_list");
	need(good.device = list[0], "no device");
	need(good.context = ibv_open_device(good.device), "ibv_open_device");
	nonblocking(good.context->async_fd);
	need(good.pd = ibv_alloc_pd(good.context), "ibv_alloc_pd");
	good.mr = (ibv_reg_mr)(good.pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE);
	need(good.mr, "ibv_reg_mr");
	make_queues();
	/* Some personalities have no address handles. */
	ibv_query_gid(good.context, 1, 0, &address.grh.dgid);
	good.ah = ibv_create_ah(good.pd, &address);
	make_connection();
}

static void *good_object(char letter)
{
	switch (letter) {
	case 'd': return good.device;
	case 'c': case 'C': return good.context;
	case 'p': case 'W': return good.pd;
	case 'm': return good.mr;
	case 'n': return good.completions;
	case 'k': case 'K': return good.cq;
	case 's': case 'R': return good.srq;
	case 'q': case 'Q': return good.qp;
	case 'a': return good.ah;
	case 'e': return good.events;
	case 'I': return good.id;
	default: return NULL; /* x: there is none */
	}
}

static void destroy(char letter)
{
	switch (letter) {
	case 'a': if (good.ah) ibv_destroy_ah(good.ah); break;
	case 'q': ibv_destroy_qp(good.qp); break;
	case 's': ibv_destroy_srq(good.srq); break;
	case 'k': ibv_destroy_qp(good.qp); ibv_destroy_cq(good.cq); break;
	case 'n': ibv_destroy_qp(good.qp); ibv_destroy_cq(good.cq);
		ibv_destroy_comp_channel(good.completions); break;
	case 'm': ibv_dereg_mr(good.mr); break;
	case 'e': rdma_destroy_id(good.id); rdma_destroy_event_channel(good.events); break;
	case 'I': rdma_destroy_id(good.id); break;
	default: break;
	}
}

static void *object(enum nonsense kind, char letter)
{
	switch (kind) {
	case NULLS: return NULL;
	case MINUS_ONES: return (void *)-1;
	case ODD: return zeros + 1;
	case FOREIGN: return zeros + 4096;
	case FILLED: return filled + 4096;
	case WRONG_KIND: return letter == 'p' ? (void *)good.context : (void *)good.pd;
	default: return good_object(letter);
	}
}

static void *pointer(enum nonsense kind)
{
	switch (kind) {
	case NULLS: case GOOD_NULLS: return NULL;
	case GOOD_FILLED: return filled;
	default: return zeros;
	}
}

static long number(enum nonsense kind)
{
	switch (kind) {
	case MINUS_ONES: case GOOD_FILLED: return -1;
	case ODD: return 1;
	case FILLED: case GOOD_LARGE: return INT_MAX;
	default: return 0;
	}
}

static long argument(enum nonsense kind, char letter)
{
	static char text[] = "\xff\xff";

	switch (letter) {
	case 0: case '!': case 'z': return 0;
	case 'i': return number(kind);
	case 'f': return kind == FILLED ? 123456 : -1;
	case 'P': case 'O': return (long)pointer(kind);
	case 'N': return (long)(pointer(kind) ? pointer(kind) : zeros);
	case 'S': return (long)(pointer(kind) == filled ? text : pointer(kind));
	case 'T': return (long)zeros;
	/* Behind inline functions objects are always good. */
	case 'Q': case 'R': case 'K': case 'C': case 'W': return (long)good_object(letter);
	default: return (long)object(kind, letter);
	}
}

/* Whether these arguments are certainly invalid. */
static int must_fail(const struct entry *entry, enum nonsense kind)
{
	if (strchr(entry->arguments, 'f'))
		return 1;
	if (strchr(entry->arguments, 'P') && (kind == NULLS || kind == GOOD_NULLS))
		return 1;
	return kind < GOOD_NULLS && strpbrk(entry->arguments, "dcpmnksqaIx");
}

static int failed(const struct entry *entry, long result)
{
	switch (entry->failure) {
	case NONZERO: return (int)result != 0;
	case MINUS: return (int)result < 0 && errno;
	case NEGATIVE: return result < 0;
	case POINTER: return !result && errno;
	default: return 1;
	}
}

static void call(const struct entry *entry, enum nonsense kind)
{
	long (*function)(long, long, long, long, long, long) = entry->inlined;
	const char *letters = entry->arguments;
	long a[6] = { 0 }, result;
	size_t i;

	if (!function)
		function = dlsym(RTLD_DEFAULT, entry->name);
	if (!function)
		_exit(4);
	memset(filled, 0xff, sizeof(filled));
	if (kind >= WRONG_KIND || entry->inlined)
		make_good_objects();
	for (i = 0; letters[i] && i < 6; i++)
		a[i] = argument(kind, letters[i]);
	if (kind == DESTROYED)
		destroy(letters[0]);
	alarm(10);
	errno = 0;
	result = function(a[0], a[1], a[2], a[3], a[4], a[5]);
	if (!must_fail(entry, kind) || failed(entry, result))
		_exit(0);
	printf("%s, %s: returned %ld, errno %d\n", entry->name, NAMES[kind], result, errno);
	fflush(stdout);
	_exit(1);
}

/* Whether the combination is a test. */
static int applies(const struct entry *entry, enum nonsense kind)
{
	if (kind == DESTROYED)
		return strchr("aqsknmeI", entry->arguments[0]) != NULL && entry->arguments[0];
	if (kind == WRONG_KIND)
		return strpbrk(entry->arguments, "dcpmnksqaeIx") != NULL;
	if (kind == GOOD_FILLED)
		return !strchr(entry->arguments, '!');
	return 1;
}

/* Returns whether all calls behaved. */
static int check(const struct entry *entry, enum nonsense kind)
{
	int status;
	pid_t child;

	fflush(stdout);
	child = fork();
	if (child == 0)
		call(entry, kind);
	if (child < 0 || waitpid(child, &status, 0) < 0) {
		perror("fork");
		return 0;
	}
	if (WIFSIGNALED(status))
		printf("%s, %s: %s\n", entry->name, NAMES[kind],
		       WTERMSIG(status) == SIGALRM ? "hangs" : strsignal(WTERMSIG(status)));
	else if (WEXITSTATUS(status) == 3)
		printf("%s, %s: no valid objects can be made\n", entry->name, NAMES[kind]);
	else if (WEXITSTATUS(status) == 4)
		printf("%s: no such entry\n", entry->name);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Whether valid objects can be made at all. */
static int prepared(void)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		make_good_objects();
		_exit(0);
	}
	return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv)
{
	int calls = 0, bad = 0;
	size_t i;

	if (!prepared())
		return 1;
	for (i = 0; i < sizeof(ENTRIES) / sizeof(ENTRIES[0]); i++) {
		enum nonsense kind;

		if (argc > 1 && !strstr(ENTRIES[i].name, argv[1]))
			continue;
		for (kind = 0; kind < KINDS; kind++) {
			if (!applies(&ENTRIES[i], kind))
				continue;
			calls++;
			bad += !check(&ENTRIES[i], kind);
		}
	}
	printf("%d calls, %d not as they should be\n", calls, bad);
	return bad != 0;
}
