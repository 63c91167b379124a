/*
 * Forks while the engine runs, and checks that children end, whatever they do with what they
 * inherited; that they may open devices themselves; and that the parent's connection lives on.
 */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A connection from this process to itself, by rdma_cm. */
struct pair {
	struct rdma_cm_id *listener, *ends[2];
	char memory[2][64];
};

static void *accept_one(void *argument)
{
	struct pair *pair = argument;
	MUST(rdma_get_request(pair->listener, &pair->ends[1]) == 0);
	MUST(rdma_accept(pair->ends[1], NULL) == 0);
	return NULL;
}

static void connect_pair(struct pair *pair)
{
	struct rdma_addrinfo hints = {.ai_port_space = RDMA_PS_TCP}, *found;
	struct ibv_qp_init_attr attr = {
		.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC, .sq_sig_all = 1};
	struct ibv_qp_init_attr again = attr;
	pthread_t thread;
	char port[8];
	memset(pair, 0, sizeof *pair);
	hints.ai_flags = RAI_PASSIVE;
	MUST(rdma_getaddrinfo("127.0.0.1", "0", &hints, &found) == 0);
	MUST(rdma_create_ep(&pair->listener, found, NULL, &attr) == 0);
	rdma_freeaddrinfo(found);
	MUST(rdma_listen(pair->listener, 1) == 0);
	snprintf(port, sizeof port, "%d", ntohs(rdma_get_src_port(pair->listener)));
	hints.ai_flags = 0;
	MUST(rdma_getaddrinfo("127.0.0.1", port, &hints, &found) == 0);
	MUST(rdma_create_ep(&pair->ends[0], found, NULL, &again) == 0);
	rdma_freeaddrinfo(found);
	MUST(pthread_create(&thread, NULL, accept_one, pair) == 0);
	MUST(rdma_connect(pair->ends[0], NULL) == 0);
	MUST(pthread_join(thread, NULL) == 0);
}

static void converse(struct pair *pair, const char *text)
{
	struct ibv_wc wc;
	struct ibv_mr *mr[2];
	for (int at = 0; at < 2; at++) {
		mr[at] = rdma_reg_msgs(pair->ends[at], pair->memory[at], 64);
		MUST(mr[at] != NULL);
	}
	MUST(rdma_post_recv(pair->ends[1], NULL, pair->memory[1], 64, mr[1]) == 0);
	strcpy(pair->memory[0], text);
	MUST(rdma_post_send(pair->ends[0], NULL, pair->memory[0], 64, mr[0], 0) == 0);
	MUST(rdma_get_send_comp(pair->ends[0], &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	MUST(rdma_get_recv_comp(pair->ends[1], &wc) == 1 && wc.status == IBV_WC_SUCCESS);
	MUST(strcmp(pair->memory[1], text) == 0);
	MUST(rdma_dereg_mr(mr[0]) == 0 && rdma_dereg_mr(mr[1]) == 0);
}

static void close_pair(struct pair *pair)
{
	MUST(rdma_disconnect(pair->ends[0]) == 0);
	rdma_disconnect(pair->ends[1]);
	rdma_destroy_ep(pair->ends[0]);
	rdma_destroy_ep(pair->ends[1]);
	rdma_destroy_ep(pair->listener);
}

/* What children do. */

static void leave(struct pair *pair)
{
	(void)pair;
}

static void close_descriptors(struct pair *pair)
{
	(void)pair;
	for (int fd = 3; fd < 256; fd++)
		close(fd);
}

static void use_the_parents(struct pair *pair)
{
	struct rdma_cm_id *end = pair->ends[0];
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_async_event event;
	MUST(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE) == EINVAL);
	MUST(ibv_destroy_qp(end->qp) == EINVAL);
	MUST(ibv_dealloc_pd(end->pd) == EINVAL);
	MUST(ibv_get_async_event(end->verbs, &event) == -1);
	MUST(ibv_close_device(end->verbs) == -1);
	MUST(rdma_disconnect(end) == -1);
	MUST(rdma_destroy_id(end) == -1);
}

static void open_own(struct pair *pair)
{
	struct pair own;
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	struct ibv_context *context;
	(void)pair;
	MUST(list != NULL && count > 0);
	context = ibv_open_device(list[0]);
	MUST(context != NULL);
	ibv_free_device_list(list);
	MUST(ibv_close_device(context) == 0);
	connect_pair(&own);
	converse(&own, "the child's own");
	close_pair(&own);
}

static void in_child(struct pair *pair, void (*act)(struct pair *))
{
	struct timespec tick = {0, 10000000};
	int status, waited = 0;
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0) {
		act(pair);
		exit(0);
	}
	while (waitpid(child, &status, WNOHANG) == 0) {
		MUST(waited++ < 1000);
		nanosleep(&tick, NULL);
	}
	MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static volatile int busy = 1;

/* Keeps the locks of objects moving while others fork. */
static void *make_and_drop(void *argument)
{
	struct ibv_context *context = argument;
	while (busy) {
		struct ibv_pd *pd = ibv_alloc_pd(context);
		MUST(pd != NULL && ibv_dealloc_pd(pd) == 0);
	}
	return NULL;
}

int main(void)
{
	struct pair pair;
	pthread_t thread;
	MUST(ibv_fork_init() == 0);
	MUST(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	connect_pair(&pair);
	converse(&pair, "before");
	in_child(&pair, leave);
	in_child(&pair, close_descriptors);
	in_child(&pair, use_the_parents);
	in_child(&pair, open_own);
	converse(&pair, "between");
	MUST(pthread_create(&thread, NULL, make_and_drop, pair.ends[0]->verbs) == 0);
	for (int at = 0; at < 25; at++)
		in_child(&pair, open_own);
	busy = 0;
	MUST(pthread_join(thread, NULL) == 0);
	converse(&pair, "after");
	close_pair(&pair);
	return 0;
}
