/* The cost of one more connection when there are many: processor time of both ends, on the C
 * libraries, as JSON. The client is this process and the server a child of it, because both ends
 * together would need more descriptors than a process may have. All completions go to one queue.
 *
 * A connection goes on costing something after the call: in its first half second the client sends
 * some zero-length Writes in case the peer is siw (crates/iwarp/src/nudge.rs), and an end lingers.
 * So a measurement begins when nothing is left of earlier ones, and ends when nothing is left of
 * its own; otherwise the last of 8,000 connections pay for hundreds before them, which with 10
 * there are not.
 *
 * usage: growth CONNECTIONS
 */
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(x)                                                          \
	do {                                                             \
		if (!(x)) {                                              \
			fprintf(stderr, "%s failed: %m\n", #x);          \
			exit(1);                                         \
		}                                                        \
	} while (0)

/* Connections that are measured at a time, beside the existing ones. */
enum { SAMPLE = 10, READS = 2000, REGISTRATIONS = 200, RECEIVES = 4, PAGE = 4096 };

struct told {
	uint64_t address;
	uint32_t key;
	uint16_t port;
};

static clockid_t child_clock;

/* Processor time of both processes, in microseconds. */
static double spent(void)
{
	struct timespec ours, theirs;
	MUST(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ours) == 0);
	MUST(clock_gettime(child_clock, &theirs) == 0);
	return (ours.tv_sec + theirs.tv_sec) * 1e6 + (ours.tv_nsec + theirs.tv_nsec) * 1e-3;
}

/* Sleeps until no connection has anything to do; costs next to nothing. */
static void settle(void)
{
	const struct timespec second = { .tv_sec = 1 };
	MUST(nanosleep(&second, NULL) == 0);
}

static struct rdma_cm_event *event(struct rdma_event_channel *channel)
{
	struct rdma_cm_event *event;
	MUST(rdma_get_cm_event(channel, &event) == 0);
	return event;
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *found = event(channel);
	if (found->event != wanted) {
		fprintf(stderr, "%s instead of %s\n", rdma_event_str(found->event),
			rdma_event_str(wanted));
		exit(1);
	}
	rdma_ack_cm_event(found);
}

static void raise_limit(void)
{
	struct rlimit limit;
	MUST(getrlimit(RLIMIT_NOFILE, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	MUST(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

static struct ibv_qp_init_attr attributes(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr wanted = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC };
	wanted.cap.max_send_wr = wanted.cap.max_recv_wr = 16;
	wanted.cap.max_send_sge = wanted.cap.max_recv_sge = 1;
	return wanted;
}

static const struct rdma_conn_param PARAMETERS = { .responder_resources = 4, .initiator_depth = 4 };

static void post_receives(struct ibv_qp *qp, struct ibv_mr *mr)
{
	struct ibv_sge place = { (uintptr_t)mr->addr, 64, mr->lkey };
	struct ibv_recv_wr receive = { .sg_list = &place, .num_sge = 1 }, *bad;
	for (int i = 0; i < RECEIVES; i++)
		MUST(ibv_post_recv(qp, &receive, &bad) == 0);
}

/* Accepts every connection and frees those that end; killed by the client. */
static void serve(int to_client)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in any = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct rdma_cm_id *listener;
	struct ibv_pd *pd = NULL;
	struct ibv_cq *cq = NULL;
	struct ibv_mr *mr = NULL;
	struct told told = { 0 };
	static char memory[PAGE];

	MUST(channel && rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP) == 0);
	MUST(rdma_bind_addr(listener, (struct sockaddr *)&any) == 0);
	MUST(rdma_listen(listener, 1000) == 0);
	told.port = rdma_get_src_port(listener);
	MUST(write(to_client, &told, sizeof told) == sizeof told);
	for (;;) {
		struct rdma_cm_event *found = event(channel);
		struct rdma_cm_id *id = found->id;
		enum rdma_cm_event_type kind = found->event;
		rdma_ack_cm_event(found);
		if (kind == RDMA_CM_EVENT_DISCONNECTED) {
			rdma_destroy_qp(id);
			MUST(rdma_destroy_id(id) == 0);
		}
		if (kind != RDMA_CM_EVENT_CONNECT_REQUEST)
			continue;
		if (!pd) {
			pd = ibv_alloc_pd(id->verbs);
			cq = ibv_create_cq(id->verbs, 200000, NULL, NULL, 0);
			mr = ibv_reg_mr(pd, memory, PAGE,
					IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
			MUST(pd && cq && mr);
			told.address = (uintptr_t)memory;
			told.key = mr->rkey;
			MUST(write(to_client, &told, sizeof told) == sizeof told);
		}
		struct ibv_qp_init_attr wanted = attributes(cq);
		struct rdma_conn_param parameters = PARAMETERS;
		MUST(rdma_create_qp(id, pd, &wanted) == 0);
		post_receives(id->qp, mr);
		MUST(rdma_accept(id, &parameters) == 0);
	}
}

struct client {
	struct rdma_event_channel *channel;
	struct sockaddr_in server;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
};

static struct rdma_cm_id *connect_one(struct client *client)
{
	static char memory[PAGE];
	struct rdma_cm_id *id;
	MUST(rdma_create_id(client->channel, &id, NULL, RDMA_PS_TCP) == 0);
	MUST(rdma_resolve_addr(id, NULL, (struct sockaddr *)&client->server, 1000) == 0);
	expect(client->channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	MUST(rdma_resolve_route(id, 1000) == 0);
	expect(client->channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (!client->pd) {
		client->pd = ibv_alloc_pd(id->verbs);
		client->cq = ibv_create_cq(id->verbs, 200000, NULL, NULL, 0);
		client->mr = ibv_reg_mr(client->pd, memory, PAGE, IBV_ACCESS_LOCAL_WRITE);
		MUST(client->pd && client->cq && client->mr);
	}
	struct ibv_qp_init_attr wanted = attributes(client->cq);
	struct rdma_conn_param parameters = PARAMETERS;
	MUST(rdma_create_qp(id, client->pd, &wanted) == 0);
	MUST(rdma_connect(id, &parameters) == 0);
	expect(client->channel, RDMA_CM_EVENT_ESTABLISHED);
	return id;
}

static void end_one(struct client *client, struct rdma_cm_id *id)
{
	MUST(rdma_disconnect(id) == 0);
	expect(client->channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_destroy_qp(id);
	MUST(rdma_destroy_id(id) == 0);
}

/* A successful poll: a short Read on one connection after another, waited for by polling. */
static void read_one(struct client *client, struct rdma_cm_id *id, struct told *told)
{
	struct ibv_sge place = { (uintptr_t)client->mr->addr, 8, client->mr->lkey };
	struct ibv_send_wr read = { .sg_list = &place,
				    .num_sge = 1,
				    .opcode = IBV_WR_RDMA_READ,
				    .send_flags = IBV_SEND_SIGNALED },
			   *bad;
	struct ibv_wc done;
	int count;
	read.wr.rdma.remote_addr = told->address;
	read.wr.rdma.rkey = told->key;
	MUST(ibv_post_send(id->qp, &read, &bad) == 0);
	while ((count = ibv_poll_cq(client->cq, 1, &done)) == 0)
		;
	MUST(count == 1 && done.status == IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 0, pipes[2];
	struct client client = { 0 };
	struct rdma_cm_id **ids = calloc(count + SAMPLE, sizeof *ids);
	struct told told;
	double start, connecting, reading, registering, deregistering, ending;
	struct ibv_mr *regions[REGISTRATIONS];
	static char page[PAGE];

	MUST(count > 0 && ids && pipe(pipes) == 0);
	raise_limit();
	pid_t child = fork();
	MUST(child >= 0);
	if (child == 0) {
		serve(pipes[1]);
	}
	MUST(clock_getcpuclockid(child, &child_clock) == 0);
	MUST(read(pipes[0], &told, sizeof told) == sizeof told);
	client.channel = rdma_create_event_channel();
	client.server = (struct sockaddr_in){ .sin_family = AF_INET,
					      .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
					      .sin_port = told.port };
	for (int i = 0; i < count; i++)
		ids[i] = connect_one(&client);
	MUST(read(pipes[0], &told, sizeof told) == sizeof told);

	settle();
	start = spent();
	for (int i = 0; i < SAMPLE; i++)
		ids[count + i] = connect_one(&client);
	settle();
	connecting = (spent() - start) / SAMPLE;
	start = spent();
	for (int i = 0; i < REGISTRATIONS; i++)
		MUST((regions[i] = ibv_reg_mr(client.pd, page, PAGE, IBV_ACCESS_LOCAL_WRITE)));
	registering = (spent() - start) / REGISTRATIONS;
	start = spent();
	for (int i = 0; i < REGISTRATIONS; i++)
		MUST(ibv_dereg_mr(regions[i]) == 0);
	deregistering = (spent() - start) / REGISTRATIONS;
	/* On as many connections as there are in the smallest case, because effects of the processor's
	 * caches are not to be measured here. */
	start = spent();
	for (int i = 0; i < READS; i++)
		read_one(&client, ids[i % SAMPLE], &told);
	reading = (spent() - start) / READS;
	settle();
	start = spent();
	for (int i = 0; i < SAMPLE; i++)
		end_one(&client, ids[count + i]);
	settle();
	ending = (spent() - start) / SAMPLE;
	printf("{\"connect_us\":%.3f,\"register_us\":%.3f,\"deregister_us\":%.3f,"
	       "\"read_us\":%.3f,\"end_us\":%.3f}\n",
	       connecting, registering, deregistering, reading, ending);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	/* The kernel frees the rest. */
	fflush(stdout);
	_exit(0);
}
