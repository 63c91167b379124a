/*
 * What a program in plain C needs to pass a file on: nothing is encrypted, hashed or repeated.
 *
 *   relay PORT FILE [ADDRESS PORT]         receives, writes FILE, forwards; for ever
 *   relay send ADDRESS PORT FILE BYTES     sends FILE, or zeros if FILE is -; prints the seconds
 *                                          until the last receiver of the chain has it all
 *   relay put FILE PORT ADDRESS...         sends FILE to each address, one after the other
 *
 * A stream is its length in eight bytes and its data; the answer is one byte, sent when the data
 * are written and the next one has answered.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static char buffer[1 << 18];

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

static void send_all(int to, const char *data, size_t len)
{
    while (len > 0) {
        ssize_t sent = write(to, data, len);
        if (sent < 0)
            fail("write");
        data += sent;
        len -= (size_t)sent;
    }
}

static size_t receive(int from, char *into, size_t len)
{
    ssize_t got = read(from, into, len);
    if (got < 0)
        fail("read");
    return (size_t)got;
}

static int reach(const char *address, const char *port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int socket_fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1)
        fail(address);
    setsockopt(socket_fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(socket_fd, (struct sockaddr *)&to, sizeof to) < 0)
        fail("connect");
    return socket_fd;
}

static int listen_on(const char *port)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    int socket_fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    setsockopt(socket_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(socket_fd, (struct sockaddr *)&own, sizeof own) < 0 || listen(socket_fd, 64) < 0)
        fail("listen");
    return socket_fd;
}

static void pass_on(int from, const char *path, int to)
{
    uint64_t len;
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (file < 0)
        fail(path);
    if (receive(from, (char *)&len, sizeof len) != sizeof len)
        fail("length");
    if (to >= 0)
        send_all(to, (char *)&len, sizeof len);
    while (len > 0) {
        size_t most = len < sizeof buffer ? (size_t)len : sizeof buffer;
        size_t got = receive(from, buffer, most);
        if (got == 0)
            fail("the stream is cut");
        if (to >= 0)
            send_all(to, buffer, got);
        send_all(file, buffer, got);
        len -= got;
    }
    close(file);
    if (to >= 0 && receive(to, buffer, 1) != 1)
        fail("no answer");
    send_all(from, "k", 1);
}

static void send_file(int to, const char *path, uint64_t len)
{
    int file = strcmp(path, "-") ? open(path, O_RDONLY) : -1;
    send_all(to, (char *)&len, sizeof len);
    while (len > 0) {
        size_t most = len < sizeof buffer ? (size_t)len : sizeof buffer;
        size_t got = file < 0 ? most : receive(file, buffer, most);
        if (got == 0)
            fail(path);
        send_all(to, buffer, got);
        len -= got;
    }
    if (file >= 0)
        close(file);
    if (receive(to, buffer, 1) != 1)
        fail("no answer");
}

int main(int count, char **words)
{
    if (count == 6 && !strcmp(words[1], "send")) {
        double start = now();
        int to = reach(words[2], words[3]);
        send_file(to, words[4], strtoull(words[5], NULL, 10));
        printf("%.6f\n", now() - start);
        return 0;
    }
    if (count >= 5 && !strcmp(words[1], "put")) {
        double start = now();
        off_t len = 0;
        int file = open(words[2], O_RDONLY);
        if (file < 0 || (len = lseek(file, 0, SEEK_END)) < 0)
            fail(words[2]);
        for (int at = 4; at < count; at++) {
            int to = reach(words[at], words[3]);
            send_file(to, words[2], (uint64_t)len);
            close(to);
        }
        printf("%.6f\n", now() - start);
        return 0;
    }
    if (count != 3 && count != 5) {
        fprintf(stderr, "see the head of relay.c\n");
        return 2;
    }
    int from = listen_on(words[1]);
    for (;;) {
        int peer = accept(from, NULL, NULL);
        if (peer < 0)
            fail("accept");
        int to = count == 5 ? reach(words[3], words[4]) : -1;
        pass_on(peer, words[2], to);
        if (to >= 0)
            close(to);
        close(peer);
    }
}
