/*
 * A link between two network namespaces that holds every packet for a set time. It is made of an
 * interface in each (a TAP with IFF_VNET_HDR, so that packets of up to 64 KiB pass in one piece and
 * nobody sums them), and loses none: while BUFFER bytes are held, the rest waits in the sender's
 * interface.
 *
 *     delay NANOSECONDS NAMESPACE HARDWARE NAMESPACE HARDWARE
 *
 * Prints "up" once the interfaces are there, called eth0 and with these hardware addresses. They go
 * with this program, which ends when its input does, and then prints one line of JSON: packets and
 * bytes passed, packets that a host did not take, and how late packets were passed, in microseconds.
 *
 * It spins on its processor while it holds packets and for 10 ms after the last one; a packet that
 * finds it asleep is late by the time of a wake-up, which "woken" counts.
 */
#define _GNU_SOURCE
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_arp.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (64u << 20)
/* A packet with its header. */
#define PACKET_MAX (66u << 10)
#define AWAKE_NS 10000000
#define LOOKS_MAX 4096
/* Microseconds that are counted one by one. */
#define LATE_MAX 1000

struct held {
	uint64_t due;
	uint32_t len, next;
	unsigned char bytes[];
};

/* One direction: packets from one interface, in order, for another. */
struct way {
	int from, to;
	unsigned char *buffer;
	/* Where the oldest is, where the next will be; equal if there is none. */
	uint32_t head, tail;
	uint64_t packets, bytes, refused;
};

static uint64_t late[LATE_MAX + 1], latest, woken;

static uint64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

static int interface_in(const char *namespace, const char *hardware)
{
	const unsigned offloads = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };
	unsigned char *to = (unsigned char *)request.ifr_hwaddr.sa_data;
	char path[256];
	int enter, tap;

	snprintf(path, sizeof path, "/run/netns/%s", namespace);
	enter = open(path, O_RDONLY | O_CLOEXEC);
	if (enter < 0 || setns(enter, CLONE_NEWNET))
		err(1, "cannot enter the network namespace %s", path);
	close(enter);
	tap = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
	if (tap < 0)
		err(1, "cannot open /dev/net/tun");
	strcpy(request.ifr_name, "eth0");
	if (ioctl(tap, TUNSETIFF, &request))
		err(1, "cannot make an interface in %s", namespace);
	if (ioctl(tap, TUNSETOFFLOAD, offloads))
		err(1, "the kernel's TAP does not pass whole segments");
	if (sscanf(hardware, "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx",
		   to, to + 1, to + 2, to + 3, to + 4, to + 5) != 6)
		errx(2, "%s is no hardware address", hardware);
	request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
	if (ioctl(tap, SIOCSIFHWADDR, &request))
		err(1, "cannot set the address %s", hardware);
	return tap;
}

static void way_init(struct way *way, int from, int to)
{
	const int kind = MAP_PRIVATE | MAP_ANONYMOUS;
	way->from = from;
	way->to = to;
	way->buffer = mmap(NULL, BUFFER, PROT_READ | PROT_WRITE, kind, -1, 0);
	if (way->buffer == MAP_FAILED)
		err(1, "no memory for packets");
}

static struct held *held_at(const struct way *way, uint32_t at)
{
	return (struct held *)(way->buffer + at);
}

static uint32_t after(uint32_t at, uint32_t len)
{
	const uint32_t next = (at + (uint32_t)sizeof(struct held) + len + 63) & ~63u;
	return next + sizeof(struct held) + PACKET_MAX > BUFFER ? 0 : next;
}

/* Whether a packet of any size fits behind the tail without reaching the head. */
static int has_room(const struct way *way)
{
	const uint32_t need = sizeof(struct held) + PACKET_MAX + 64;
	if (way->tail < way->head)
		return way->head - way->tail > need;
	/* The end of the buffer always holds one more; what follows it begins at 0. */
	return way->head > 0 || way->tail + 2 * need < BUFFER;
}

/* Takes a packet from the interface, if there is one. */
static int take(struct way *way, uint64_t time, uint64_t delay)
{
	struct held *packet = held_at(way, way->tail);
	ssize_t got;

	if (!has_room(way))
		return 0;
	got = read(way->from, packet->bytes, PACKET_MAX);
	if (got <= 0)
		return 0;
	packet->due = time + delay;
	packet->len = (uint32_t)got;
	packet->next = way->tail = after(way->tail, (uint32_t)got);
	return 1;
}

static void count_late(uint64_t ns)
{
	const uint64_t us = ns / 1000;
	late[us < LATE_MAX ? us : LATE_MAX]++;
	if (ns > latest)
		latest = ns;
}

/* Passes the oldest packet on, if its time has come. */
static int pass(struct way *way, uint64_t time)
{
	const struct held *packet = held_at(way, way->head);
	if (way->head == way->tail || packet->due > time)
		return 0;
	count_late(time - packet->due);
	way->packets++;
	way->bytes += packet->len;
	if (write(way->to, packet->bytes, packet->len) < 0)
		way->refused++;
	way->head = packet->next;
	return 1;
}

static int is_empty(const struct way *way)
{
	return way->head == way->tail;
}

/* Whether the input has ended. Waits for it or for a packet. */
static int rest(const struct way *ways, int milliseconds)
{
	struct pollfd wait[] = {
		{ .fd = 0, .events = POLLIN },
		{ .fd = ways[0].from, .events = POLLIN },
		{ .fd = ways[1].from, .events = POLLIN },
	};
	char byte;
	if (poll(wait, milliseconds ? 3 : 1, milliseconds) < 0 && errno != EINTR)
		err(1, "poll");
	return wait[0].revents && read(0, &byte, 1) <= 0;
}

static void run(struct way *ways, uint64_t delay)
{
	uint64_t active = now();
	for (unsigned looks = 1;; looks++) {
		int any = 0;
		for (int at = 0; at < 2; at++) {
			any |= pass(&ways[at], now());
			any |= take(&ways[at], now(), delay);
		}
		if (any)
			active = now();
		if (looks % LOOKS_MAX == 0 && rest(ways, 0))
			return;
		if (!any && is_empty(&ways[0]) && is_empty(&ways[1]) && now() - active > AWAKE_NS) {
			if (rest(ways, -1))
				return;
			woken++;
			active = now();
		}
	}
}

/* The microseconds within which so many of 1,000 packets were passed. */
static unsigned late_at(uint64_t of, unsigned thousandths)
{
	uint64_t seen = 0;
	for (unsigned us = 0; us < LATE_MAX; us++) {
		seen += late[us];
		if (seen * 1000 >= of * thousandths)
			return us + 1;
	}
	return LATE_MAX;
}

int main(int count, char **words)
{
	struct way ways[2] = { 0 };
	uint64_t packets;
	int one, other;

	if (count != 6)
		errx(2, "see the head of delay.c");
	one = interface_in(words[2], words[3]);
	other = interface_in(words[4], words[5]);
	way_init(&ways[0], one, other);
	way_init(&ways[1], other, one);
	puts("up");
	fflush(stdout);
	run(ways, strtoull(words[1], NULL, 10));
	packets = ways[0].packets + ways[1].packets;
	printf("{\"packets\": %llu, \"bytes\": %llu, \"refused\": %llu, \"woken\": %llu, "
	       "\"late_p50_us\": %u, \"late_p99_us\": %u, \"late_most_us\": %llu}\n",
	       (unsigned long long)packets, (unsigned long long)(ways[0].bytes + ways[1].bytes),
	       (unsigned long long)(ways[0].refused + ways[1].refused), (unsigned long long)woken,
	       late_at(packets, 500), late_at(packets, 990), (unsigned long long)(latest / 1000));
	return 0;
}
