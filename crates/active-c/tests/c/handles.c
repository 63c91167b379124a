/* A thousand clients, opened and closed, some with calls under way: no descriptor, no thread and
 * no memory stays behind (the last is looked for by the sanitizer). */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <fcntl.h>

#define CLIENTS 1000

static void use(char **argv, int number)
{
    struct fixture is = set_up(argv, SOON_MS);
    outboard_active_call call = call_of(&is, "get");
    uint64_t word;
    uint32_t buffer;
    int descriptor;

    if (number % 3 == 0)
        IS(OK, outboard_active_descriptor(is.client, &descriptor));
    if (number % 4 == 0)
        IS(OK, outboard_active_expose(is.client, &word, sizeof word, &buffer));
    if (number % 2 == 0)
        IS(OK, outboard_active_execute(is.client, &call, 0, &word, sizeof word, NULL));
    if (number % 5 == 0)
        IS(OK, outboard_active_submit(is.client, &call, NULL, NULL));
    IS(OK, outboard_active_close(is.client));
    IS(CLOSED, outboard_active_close(is.client));
}

/* Threads end a moment after they were told. */
static int settled(const char *path, int most)
{
    int count = count_entries(path);

    for (int tries = 0; count > most && tries < 200; tries++) {
        sleep_ms(50);
        count = count_entries(path);
    }
    return count;
}

/* Descriptors that a program which is executed gets. */
static int inherited(void)
{
    int count = 0;

    for (int each = 0; each < 1024; each++) {
        int flags = fcntl(each, F_GETFD);
        count += flags >= 0 && !(flags & FD_CLOEXEC);
    }
    return count;
}

static void closes_by_exec(char **argv)
{
    int before = inherited(), all = count_entries("/proc/self/fd"), descriptor;
    struct fixture is = set_up(argv, SOON_MS);

    IS(OK, outboard_active_descriptor(is.client, &descriptor));
    CHECK(count_entries("/proc/self/fd") > all + 4);
    CHECK(inherited() == before);
    IS(OK, outboard_active_close(is.client));
}

int main(int argc, char **argv)
{
    int descriptors, threads;

    CHECK(argc == 4);
    closes_by_exec(argv);
    use(argv, 0);
    descriptors = count_entries("/proc/self/fd");
    threads = settled("/proc/self/task", 3);
    for (int i = 0; i < CLIENTS; i++)
        use(argv, i);
    CHECK(settled("/proc/self/fd", descriptors) <= descriptors);
    CHECK(settled("/proc/self/task", threads) <= threads);
    return 0;
}
