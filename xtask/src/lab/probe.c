/*
 * What a link between two network namespaces does, in figures.
 *
 *     probe udp|tcp NAMESPACE NAMESPACE ADDRESS COUNT
 *     probe stream NAMESPACE NAMESPACE ADDRESS MILLISECONDS
 *
 * ADDRESS is one of the second namespace. The first two send eight bytes there and back COUNT times,
 * from one spinning thread with a socket in each namespace, so that no wake-up is in the figures, and
 * print microseconds of a round trip. The third sends one TCP stream, and prints the bytes a second
 * that came after the first half of the time.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PORT 9
#define SILENCE_MAX 1.0

static char buffer[1 << 18];

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int socket_in(const char *namespace, int kind)
{
	const int on = 1;
	char path[256];
	int enter, made;

	snprintf(path, sizeof path, "/run/netns/%s", namespace);
	enter = open(path, O_RDONLY | O_CLOEXEC);
	if (enter < 0 || setns(enter, CLONE_NEWNET))
		err(1, "cannot enter the network namespace %s", path);
	close(enter);
	made = socket(AF_INET, kind, 0);
	if (made < 0)
		err(1, "cannot make a socket");
	setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (kind == SOCK_STREAM)
		setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	return made;
}

/* Sockets of both ends, connected to each other. */
static void connected(char **words, int kind, int ends[2])
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	struct sockaddr_in from;
	socklen_t len = sizeof from;
	int listener;

	if (inet_pton(AF_INET, words[4], &to.sin_addr) != 1)
		errx(2, "%s is no address", words[4]);
	listener = ends[1] = socket_in(words[3], kind);
	if (bind(listener, (struct sockaddr *)&to, sizeof to))
		err(1, "cannot bind %s", words[4]);
	if (kind == SOCK_STREAM && listen(listener, 1))
		err(1, "cannot listen");
	ends[0] = socket_in(words[2], kind);
	if (connect(ends[0], (struct sockaddr *)&to, sizeof to))
		err(1, "cannot connect to %s", words[4]);
	if (kind == SOCK_STREAM) {
		ends[1] = accept(listener, NULL, NULL);
		if (ends[1] < 0)
			err(1, "cannot accept");
		close(listener);
	} else if (send(ends[0], "first", 5, 0) != 5
		   || recvfrom(ends[1], buffer, sizeof buffer, 0, (struct sockaddr *)&from, &len) != 5
		   || connect(ends[1], (struct sockaddr *)&from, len)) {
		err(1, "no first datagram");
	}
}

static void cross(int from, int to)
{
	const double start = now();
	if (send(from, "pingpong", 8, 0) != 8)
		err(1, "cannot send");
	while (recv(to, buffer, sizeof buffer, MSG_DONTWAIT) != 8) {
		if (errno != EAGAIN)
			err(1, "cannot receive");
		if (now() - start > SILENCE_MAX)
			errx(1, "nothing came for a second");
	}
}

static int by_size(const void *one, const void *other)
{
	const double a = *(const double *)one, b = *(const double *)other;
	return (a > b) - (a < b);
}

static int ping(char **words)
{
	const int kind = strcmp(words[1], "udp") ? SOCK_STREAM : SOCK_DGRAM;
	const size_t count = strtoul(words[5], NULL, 10);
	double *times = calloc(count, sizeof *times);
	int ends[2];

	if (!count || !times)
		errx(2, "a count is missing");
	connected(words, kind, ends);
	for (size_t at = 0; at < count; at++) {
		const double start = now();
		cross(ends[0], ends[1]);
		cross(ends[1], ends[0]);
		times[at] = (now() - start) * 1e6;
	}
	qsort(times, count, sizeof *times, by_size);
	printf("{\"least_us\": %.2f, \"p50_us\": %.2f, \"p99_us\": %.2f}\n",
	       times[0], times[count / 2], times[count * 99 / 100]);
	return 0;
}

static double drain(int from, double seconds)
{
	const double start = now();
	double bytes = 0, began = 0;
	for (;;) {
		const ssize_t got = recv(from, buffer, sizeof buffer, 0);
		const double time = now();
		if (got <= 0)
			err(1, "the stream is cut");
		if (time - start > seconds)
			return bytes / (time - began);
		if (time - start < seconds / 2)
			began = time;
		else
			bytes += (double)got;
	}
}

static int stream(char **words)
{
	const double seconds = strtod(words[5], NULL) / 1000;
	int ends[2];
	pid_t sender;
	double rate;

	connected(words, SOCK_STREAM, ends);
	sender = fork();
	if (sender < 0)
		err(1, "cannot start a sender");
	if (sender == 0) {
		close(ends[1]);
		while (send(ends[0], buffer, sizeof buffer, MSG_NOSIGNAL) > 0)
			;
		_exit(0);
	}
	rate = drain(ends[1], seconds);
	kill(sender, SIGKILL);
	waitpid(sender, NULL, 0);
	printf("{\"bytes_per_s\": %.0f}\n", rate);
	return 0;
}

int main(int count, char **words)
{
	if (count == 6 && (!strcmp(words[1], "udp") || !strcmp(words[1], "tcp")))
		return ping(words);
	if (count == 6 && !strcmp(words[1], "stream"))
		return stream(words);
	errx(2, "see the head of probe.c");
}
