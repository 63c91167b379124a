/*
 * Small writes, each on the disk before the next.
 *
 *   commits FILE SECONDS               writes and syncs FILE; prints how many times, and seconds
 *   commits serve PORT FILE            a server that commits what its clients send in groups
 *   commits send ADDRESS PORT SECONDS  its client: as the first, through the server
 *
 * The server is the best that a plain program can do: what has come from all clients is one write
 * and one fdatasync, and each is answered then.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 4096, CLIENTS = 64 };

struct client {
    int socket;
    size_t have;
    char bytes[BYTES];
};

static struct client clients[CLIENTS];
static int client_count;
static char group[CLIENTS * BYTES];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void without_delay(int socket)
{
    int yes = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

static int write_alone(const char *path, double seconds)
{
    int file = open(path, O_CREAT | O_WRONLY, 0644);
    double begun = now(), end = begun + seconds;
    unsigned long commits = 0;
    if (file < 0)
        fail(path);
    while (now() < end) {
        if (pwrite(file, group, BYTES, (off_t)(commits % 256) * BYTES) != BYTES || fsync(file) != 0)
            fail(path);
        commits++;
    }
    printf("%lu %.3f\n", commits, now() - begun);
    return 0;
}

static int send_all(const char *address, int port, double seconds)
{
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
    int server = socket(AF_INET, SOCK_STREAM, 0);
    double begun = now(), end = begun + seconds;
    unsigned long commits = 0;
    char answer;
    inet_pton(AF_INET, address, &to.sin_addr);
    if (connect(server, (struct sockaddr *)&to, sizeof to) != 0)
        fail(address);
    without_delay(server);
    while (now() < end) {
        if (send(server, group, BYTES, 0) != BYTES || recv(server, &answer, 1, 0) != 1)
            fail("the server");
        commits++;
    }
    printf("%lu %.3f\n", commits, now() - begun);
    return 0;
}

static void drop(int index)
{
    close(clients[index].socket);
    clients[index] = clients[--client_count];
}

/* Receives until a client has sent all of its bytes; false when it is gone. */
static int receive(struct client *from)
{
    ssize_t got = recv(from->socket, from->bytes + from->have, BYTES - from->have, MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN))
        return 0;
    from->have += got > 0 ? (size_t)got : 0;
    return 1;
}

static void commit(int file, off_t *at)
{
    size_t len = 0;
    for (int index = 0; index < client_count; index++) {
        if (clients[index].have == BYTES) {
            memcpy(group + len, clients[index].bytes, BYTES);
            len += BYTES;
        }
    }
    if (len == 0)
        return;
    if (pwrite(file, group, len, *at) != (ssize_t)len || fdatasync(file) != 0)
        fail("the disk");
    *at = (*at + (off_t)len) % (64 << 20);
    for (int index = 0; index < client_count; index++) {
        if (clients[index].have == BYTES) {
            clients[index].have = 0;
            send(clients[index].socket, "k", 1, MSG_NOSIGNAL);
        }
    }
}

static void take_new(int listener)
{
    int one = accept(listener, NULL, NULL);
    if (one >= 0 && client_count < CLIENTS) {
        without_delay(one);
        clients[client_count++] = (struct client) { .socket = one };
    }
}

static _Noreturn void serve(int port, const char *path)
{
    struct sockaddr_in own = { .sin_family = AF_INET, .sin_port = htons((unsigned short)port) };
    int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    int file = open(path, O_CREAT | O_WRONLY, 0644);
    off_t at = 0;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (file < 0 || bind(listener, (struct sockaddr *)&own, sizeof own) != 0
        || listen(listener, CLIENTS) != 0)
        fail("the server");
    /* The log of a store is there before it is written to; so is this. */
    if (posix_fallocate(file, 0, (64 << 20) + sizeof group) != 0)
        fail(path);
    for (;;) {
        struct pollfd all[CLIENTS + 1] = { { .fd = listener, .events = POLLIN } };
        for (int index = 0; index < client_count; index++)
            all[index + 1] = (struct pollfd) { .fd = clients[index].socket, .events = POLLIN };
        if (poll(all, (nfds_t)client_count + 1, -1) < 0)
            fail("poll");
        for (int index = client_count - 1; index >= 0; index--) {
            if (all[index + 1].revents != 0 && !receive(&clients[index]))
                drop(index);
        }
        if (all[0].revents != 0)
            take_new(listener);
        commit(file, &at);
    }
}

int main(int count, char **words)
{
    if (count == 3)
        return write_alone(words[1], atof(words[2]));
    if (count == 4 && strcmp(words[1], "serve") == 0)
        serve(atoi(words[2]), words[3]);
    if (count == 5 && strcmp(words[1], "send") == 0)
        return send_all(words[2], atoi(words[3]), atof(words[4]));
    fprintf(stderr, "commits FILE SECONDS | serve PORT FILE | send ADDRESS PORT SECONDS\n");
    return 2;
}
