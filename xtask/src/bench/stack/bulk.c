/*
 * The work of a stream of RDMA Writes in plain C, as a reference for Outboard's: with "crc" the
 * sender copies a piece, sums it and sends it, and the receiver receives, sums and copies; with
 * "raw" there is no copy and no sum. One thread a side, each on a processor of its own, over loopback.
 *
 *     bulk raw|crc spin|block PIECE MESSAGE MILLISECONDS
 *
 * PIECE is the most bytes of one system call, MESSAGE the length of the memory that is sent
 * repeatedly. Prints one line of JSON: MiB a second, and seconds of processor time of both sides for
 * each GiB.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <time.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <nmmintrin.h>
#define CRC(sum, word) _mm_crc32_u64(sum, word)
#elif defined(__aarch64__)
#include <arm_acle.h>
#define CRC(sum, word) __crc32cd(sum, word)
#endif

struct work {
	int sums, blocks;
	size_t piece, message;
	double seconds;
};

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

static double busy(int of)
{
	struct rusage use;
	getrusage(of, &use);
	return use.ru_utime.tv_sec + use.ru_stime.tv_sec
		+ (use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

/* CRC32c of three stripes at a time, which keeps the processor's unit busy. */
static uint64_t sum(const unsigned char *bytes, size_t len)
{
	const size_t words = len / 24;
	const unsigned char *second = bytes + words * 8, *third = second + words * 8;
	uint64_t a = 0, b = 0, c = 0, x, y, z;

	for (size_t at = 0; at < words * 8; at += 8) {
		memcpy(&x, bytes + at, 8);
		memcpy(&y, second + at, 8);
		memcpy(&z, third + at, 8);
		a = CRC(a, x);
		b = CRC(b, y);
		c = CRC(c, z);
	}
	return a ^ b ^ c;
}

static unsigned char *memory(size_t len)
{
	unsigned char *bytes = aligned_alloc(4096, (len + 4095) / 4096 * 4096);
	if (!bytes)
		err(1, "memory");
	memset(bytes, 1, len);
	return bytes;
}

static void on_processor(int processor)
{
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	if (sched_setaffinity(0, sizeof set, &set))
		err(1, "processor %d", processor);
}

static void ready(int fd)
{
	const int yes = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
	/* Unpaced, as Outboard within one machine. */
	setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
	if (fcntl(fd, F_SETFL, O_NONBLOCK))
		err(1, "nonblocking");
}

static void rest(const struct work *work, int fd, short events)
{
	struct pollfd wait = { .fd = fd, .events = events };
	if (errno != EAGAIN)
		err(1, "the stream");
	if (work->blocks)
		poll(&wait, 1, -1);
}

static void send_all(const struct work *work, int fd, const unsigned char *bytes, size_t len)
{
	while (len > 0) {
		const ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
		if (sent < 0) {
			rest(work, fd, POLLOUT);
			continue;
		}
		bytes += sent;
		len -= (size_t)sent;
	}
}

static void send_stream(const struct work *work, int fd)
{
	unsigned char *from = memory(work->message), *copy = memory(work->piece);
	volatile uint64_t sums = 0;
	const double end = now() + work->seconds;

	while (now() < end)
		for (size_t at = 0; at < work->message; at += work->piece) {
			const size_t left = work->message - at;
			const size_t len = work->piece < left ? work->piece : left;
			if (work->sums) {
				memcpy(copy, from + at, len);
				sums += sum(copy, len);
			}
			send_all(work, fd, work->sums ? copy : from + at, len);
		}
}

/* Returns the bytes received. */
static size_t receive_stream(const struct work *work, int fd)
{
	unsigned char *to = memory(work->message), *copy = memory(work->piece);
	volatile uint64_t sums = 0;
	size_t total = 0, at = 0;

	for (;;) {
		const size_t left = work->message - at;
		const size_t most = work->sums || work->piece < left ? work->piece : left;
		const ssize_t got = recv(fd, work->sums ? copy : to + at, most, 0);
		if (got == 0)
			return total;
		if (got < 0) {
			rest(work, fd, POLLIN);
			continue;
		}
		total += (size_t)got;
		if (work->sums) {
			sums += sum(copy, (size_t)got);
			for (size_t done = 0, len; done < (size_t)got; done += len) {
				len = (size_t)got - done;
				if (len > work->message - at)
					len = work->message - at;
				memcpy(to + at, copy + done, len);
				at = (at + len) % work->message;
			}
		} else {
			at = (at + (size_t)got) % work->message;
		}
	}
}

static int client(const struct work *work, const struct sockaddr_in *address)
{
	const int fd = socket(AF_INET, SOCK_STREAM, 0);
	on_processor(0);
	if (connect(fd, (const void *)address, sizeof *address))
		err(1, "connect");
	ready(fd);
	send_stream(work, fd);
	return 0;
}

int main(int count, char **words)
{
	if (count != 6)
		errx(2, "bulk raw|crc spin|block PIECE MESSAGE MILLISECONDS");
	const struct work work = {
		.sums = !strcmp(words[1], "crc"),
		.blocks = !strcmp(words[2], "block"),
		.piece = strtoul(words[3], NULL, 10),
		.message = strtoul(words[4], NULL, 10),
		.seconds = strtod(words[5], NULL) / 1000,
	};
	struct sockaddr_in address = { .sin_family = AF_INET };
	socklen_t len = sizeof address;
	const int listener = socket(AF_INET, SOCK_STREAM, 0);

	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (void *)&address, len) || listen(listener, 1)
		|| getsockname(listener, (void *)&address, &len))
		err(1, "listen");
	if (fork() == 0)
		_exit(client(&work, &address));
	on_processor(1);
	const int fd = accept(listener, NULL, NULL);
	ready(fd);
	const double begin = now();
	const size_t total = receive_stream(&work, fd);
	const double seconds = now() - begin;
	wait(NULL);
	const double used = busy(RUSAGE_SELF) + busy(RUSAGE_CHILDREN);
	printf("{\"mib_per_s\": %.1f, \"cpu_s_per_gib\": %.4f}\n", total / seconds / (1 << 20),
		used / ((double)total / (1 << 30)));
	return 0;
}
