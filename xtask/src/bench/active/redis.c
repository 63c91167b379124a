/*
 * Scripts that get and put entries of a hash table at a Redis server, as fast as one thread asks.
 *
 *     redis ADDRESS PORT plain|tls get|put block|spin CONNECTIONS DEPTH KEYS BYTES MILLISECONDS
 *
 * Each of CONNECTIONS has DEPTH calls of EVALSHA under way; the replies that one read brings are
 * answered by as many new calls in one write. KEYS entries of BYTES each are put first, and a quarter
 * of the time is not counted. "block" sleeps until something comes; "spin" looks for it for 50 µs
 * before. Prints one line of JSON: calls a second, microseconds of a call, and seconds of processor
 * time of this program for a million calls.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <openssl/ssl.h>

#define CONNECTIONS_MAX 1000
#define DEPTH_MAX 256
#define BYTES_MAX 1024
#define SPIN_S 50e-6
/* Tenths of a microsecond that are counted one by one. */
#define TENTHS_MAX 1000000

static const char GET[] = "return redis.call('GET',KEYS[1])";
static const char PUT[] = "return redis.call('SET',KEYS[1],ARGV[1])";

struct connection {
	int fd;
	SSL *tls;
	char in[DEPTH_MAX * (BYTES_MAX + 32)];
	size_t have;
	/* When the calls under way were sent, the oldest first. */
	double sent[DEPTH_MAX];
	unsigned oldest, under_way;
};

static struct {
	int is_tls, is_put, spins;
	unsigned connections, depth, keys, bytes;
	double seconds;
	char hash[41];
} work;

static struct connection *connections[CONNECTIONS_MAX];
static uint32_t tenths[TENTHS_MAX + 1];
static uint64_t calls;
static char out[DEPTH_MAX * (BYTES_MAX + 160)];

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double busy(void)
{
	struct rusage use;
	getrusage(RUSAGE_SELF, &use);
	return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec)
		+ (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static void sleep_until(const struct connection *connection, short events)
{
	struct pollfd wait = { .fd = connection->fd, .events = events };
	if (poll(&wait, 1, 5000) != 1)
		errx(1, "the server is silent for 5 s");
}

static void send_all(struct connection *connection, const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t sent = connection->tls ? SSL_write(connection->tls, bytes, (int)len)
			: send(connection->fd, bytes, len, MSG_NOSIGNAL);
		if (sent <= 0) {
			if (!connection->tls && errno != EAGAIN)
				err(1, "cannot send");
			sleep_until(connection, POLLOUT);
			continue;
		}
		bytes += sent;
		len -= (size_t)sent;
	}
}

/* Takes what has come; 0 if that is nothing. */
static size_t receive(struct connection *connection)
{
	char *into = connection->in + connection->have;
	const size_t room = sizeof connection->in - connection->have;
	ssize_t got = connection->tls ? SSL_read(connection->tls, into, (int)room)
		: recv(connection->fd, into, room, 0);
	if (got <= 0) {
		const int wants = connection->tls
			? SSL_get_error(connection->tls, (int)got) == SSL_ERROR_WANT_READ
			: got < 0 && errno == EAGAIN;
		if (!wants)
			errx(1, "the server has closed the connection");
		return 0;
	}
	connection->have += (size_t)got;
	return (size_t)got;
}

static void await(struct connection *connection)
{
	const double start = now();
	while (!receive(connection)) {
		if (!work.spins || now() - start > SPIN_S)
			sleep_until(connection, POLLIN);
	}
}

/* The length of the reply at the beginning, or 0 if it is not whole. */
static size_t reply_len(const char *reply, size_t have)
{
	const char *end = memchr(reply, '\n', have);
	size_t line, body;
	if (!end)
		return 0;
	line = (size_t)(end - reply) + 1;
	if (reply[0] == '-')
		errx(1, "the server answers %.*s", (int)line - 2, reply);
	if (reply[0] != '$')
		return line;
	if (reply[1] == '-')
		errx(1, "the server has lost an entry");
	body = strtoul(reply + 1, NULL, 10) + 2;
	return have < line + body ? 0 : line + body;
}

static size_t call(char *into)
{
	static uint64_t state = 88172645463325252ull;
	static const char filler[BYTES_MAX];
	size_t len;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	len = (size_t)sprintf(into, "*%d\r\n$7\r\nEVALSHA\r\n$40\r\n%s\r\n$1\r\n1\r\n$8\r\n%08x\r\n",
			      work.is_put ? 5 : 4, work.hash, (unsigned)(state % work.keys));
	if (work.is_put) {
		len += (size_t)sprintf(into + len, "$%u\r\n", work.bytes);
		memcpy(into + len, filler, work.bytes);
		memcpy(into + len + work.bytes, "\r\n", 2);
		len += work.bytes + 2;
	}
	return len;
}

static void ask(struct connection *connection, unsigned count)
{
	const double time = now();
	size_t len = 0;
	for (unsigned at = 0; at < count; at++) {
		const unsigned next = (connection->oldest + connection->under_way) % work.depth;
		connection->sent[next] = time;
		connection->under_way++;
		len += call(out + len);
	}
	send_all(connection, out, len);
}

static unsigned settle(struct connection *connection)
{
	const double time = now();
	size_t used = 0, len;
	unsigned count = 0;
	while ((len = reply_len(connection->in + used, connection->have - used)) > 0) {
		const double took = (time - connection->sent[connection->oldest]) * 1e7;
		tenths[took < TENTHS_MAX ? (size_t)took : TENTHS_MAX]++;
		connection->oldest = (connection->oldest + 1) % work.depth;
		connection->under_way--;
		used += len;
		count++;
	}
	connection->have -= used;
	memmove(connection->in, connection->in + used, connection->have);
	calls += count;
	return count;
}

static struct connection *reach(const char *address, const char *port)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)) };
	struct connection *made = calloc(1, sizeof *made);
	const int on = 1;
	if (!made || inet_pton(AF_INET, address, &to.sin_addr) != 1)
		errx(2, "%s is no address", address);
	made->fd = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(made->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	if (connect(made->fd, (struct sockaddr *)&to, sizeof to))
		err(1, "cannot connect to %s port %s", address, port);
	if (work.is_tls) {
		static SSL_CTX *context;
		if (!context)
			context = SSL_CTX_new(TLS_client_method());
		made->tls = SSL_new(context);
		SSL_set_fd(made->tls, made->fd);
		if (SSL_connect(made->tls) != 1)
			errx(1, "no TLS with %s port %s", address, port);
	}
	if (fcntl(made->fd, F_SETFL, O_NONBLOCK))
		err(1, "nonblocking");
	return made;
}

/* Sends a command whose words are strings, and waits for its reply. */
static const char *order(struct connection *connection, const char *text)
{
	send_all(connection, text, strlen(text));
	connection->have = 0;
	while (!reply_len(connection->in, connection->have))
		await(connection);
	connection->have = 0;
	return connection->in;
}

static void prepare(struct connection *connection)
{
	char text[BYTES_MAX + 256], value[BYTES_MAX + 1];
	const char *script = work.is_put ? PUT : GET;
	memset(value, 'v', work.bytes);
	value[work.bytes] = 0;
	for (unsigned key = 0; key < work.keys; key++) {
		sprintf(text, "*3\r\n$3\r\nSET\r\n$8\r\n%08x\r\n$%u\r\n%s\r\n", key, work.bytes, value);
		order(connection, text);
	}
	sprintf(text, "*3\r\n$6\r\nSCRIPT\r\n$4\r\nLOAD\r\n$%zu\r\n%s\r\n", strlen(script), script);
	/* The answer is $40, a line's end and the hash. */
	memcpy(work.hash, order(connection, text) + 5, 40);
}

static void serve_one(double until)
{
	struct connection *only = connections[0];
	while (now() < until) {
		const unsigned count = settle(only);
		if (count)
			ask(only, count);
		await(only);
	}
}

static void serve_many(double until)
{
	struct epoll_event events[CONNECTIONS_MAX];
	static int set = -1;
	if (set < 0) {
		set = epoll_create1(0);
		for (unsigned at = 0; at < work.connections; at++) {
			struct epoll_event event = { .events = EPOLLIN, .data.u32 = at };
			epoll_ctl(set, EPOLL_CTL_ADD, connections[at]->fd, &event);
		}
	}
	while (now() < until) {
		const int ready = epoll_wait(set, events, CONNECTIONS_MAX, 5000);
		if (ready <= 0)
			errx(1, "the server is silent for 5 s");
		for (int at = 0; at < ready; at++) {
			struct connection *connection = connections[events[at].data.u32];
			unsigned count;
			/* TLS may hold more than a read takes. */
			do {
				if (!receive(connection))
					break;
				count = settle(connection);
				if (count)
					ask(connection, count);
			} while (connection->tls && SSL_pending(connection->tls));
		}
	}
}

static void serve(double seconds)
{
	if (work.connections == 1)
		serve_one(now() + seconds);
	else
		serve_many(now() + seconds);
}

/* The microseconds that so many of 1,000 calls took at most. */
static double took(unsigned thousandths)
{
	uint64_t seen = 0;
	for (size_t at = 0; at <= TENTHS_MAX; at++) {
		seen += tenths[at];
		if (seen * 1000 >= calls * thousandths)
			return (double)(at + 1) / 10;
	}
	return 0;
}

static unsigned number(const char *word, unsigned most)
{
	const unsigned long value = strtoul(word, NULL, 10);
	if (value < 1 || value > most)
		errx(2, "%s is not between 1 and %u", word, most);
	return (unsigned)value;
}

int main(int count, char **words)
{
	double start, cpu, seconds;
	if (count != 11)
		errx(2, "see the head of redis.c");
	signal(SIGPIPE, SIG_IGN);
	work.is_tls = !strcmp(words[3], "tls");
	work.is_put = !strcmp(words[4], "put");
	work.spins = !strcmp(words[5], "spin");
	work.connections = number(words[6], CONNECTIONS_MAX);
	work.depth = number(words[7], DEPTH_MAX);
	work.keys = number(words[8], 1u << 24);
	work.bytes = number(words[9], BYTES_MAX);
	work.seconds = number(words[10], 60000) / 1000.0;
	for (unsigned at = 0; at < work.connections; at++)
		connections[at] = reach(words[1], words[2]);
	prepare(connections[0]);
	for (unsigned at = 0; at < work.connections; at++)
		ask(connections[at], work.depth);
	serve(work.seconds / 4);
	memset(tenths, 0, sizeof tenths);
	calls = 0;
	start = now();
	cpu = busy();
	serve(work.seconds);
	seconds = now() - start;
	printf("{\"calls_per_s\": %.0f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"cpu_s_per_million\": %.3f}\n",
	       (double)calls / seconds, took(500), took(990),
	       (busy() - cpu) / (double)calls * 1e6);
	return 0;
}
