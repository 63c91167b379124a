/* check.h: what the test programs share. Each gets the node, the region's name and the file of the
 * module of tests (crates/active/tests/support/modules.rs), and ends with 0 if all was as it
 * should be. */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <outboard_active.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what)                                                                     \
    do {                                                                                \
        if (!(what)) {                                                                  \
            fprintf(stderr, "%s:%d: not so: %s; the last message: %s\n", __FILE__, __LINE__, #what, \
                    outboard_active_message());                                         \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

/* The call must have this status. */
#define IS(status, call)                                                                \
    do {                                                                                \
        int is_ = (call);                                                               \
        if (is_ != OUTBOARD_ACTIVE_##status) {                                          \
            fprintf(stderr, "%s:%d: %s is %s, not " #status ": %s\n", __FILE__, __LINE__, #call, \
                    outboard_active_status_name(is_), outboard_active_message());       \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

/* Longer than anything takes on a busy machine. */
#define SOON_MS 60000

struct fixture {
    const char *node;
    outboard_active *client;
    uint32_t region;
    outboard_active_hash module;
};

/* As a program does that has time: one attempt may be too short for a machine that is busy. */
static inline int open_soon(const char *node, const outboard_active_options *options,
                            outboard_active **client)
{
    int status = OUTBOARD_ACTIVE_UNREACHABLE;

    for (int tries = 0; tries < 20 && status == OUTBOARD_ACTIVE_UNREACHABLE; tries++)
        status = outboard_active_open(node, options, client);
    return status;
}

static inline outboard_active *open_client(const char *node, uint32_t timeout_ms)
{
    outboard_active_options options = OUTBOARD_ACTIVE_OPTIONS_INIT;
    outboard_active *client;

    options.timeout_ms = timeout_ms;
    IS(OK, open_soon(node, &options, &client));
    return client;
}

/* A client with a region and a module that is loaded. */
static inline struct fixture set_up(char **argv, uint32_t timeout_ms)
{
    struct fixture is;

    is.node = argv[1];
    is.client = open_client(argv[1], timeout_ms);
    IS(OK, outboard_active_attach(is.client, argv[2], &is.region));
    IS(OK, outboard_active_know_file(is.client, argv[3], &is.module));
    return is;
}

static inline outboard_active_call call_of(const struct fixture *is, const char *entry)
{
    outboard_active_call call = OUTBOARD_ACTIVE_CALL_INIT;

    call.region = is->region;
    call.module = &is->module;
    call.entry = entry;
    return call;
}

static inline void sleep_ms(long ms)
{
    struct timespec time;

    time.tv_sec = ms / 1000;
    time.tv_nsec = ms % 1000 * 1000000;
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

static inline double now_s(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The entries of a directory, such as this process's descriptors or threads. */
static inline int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;

    CHECK(directory != NULL);
    while (readdir(directory) != NULL)
        count++;
    closedir(directory);
    return count;
}

/* Tells the driver a word, which may do something, and waits until it has. */
static inline void tell(const char *word)
{
    char line[64];

    printf("%s\n", word);
    fflush(stdout);
    CHECK(fgets(line, sizeof line, stdin) != NULL);
}

#endif
