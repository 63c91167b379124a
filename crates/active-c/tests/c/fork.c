/* A child process does not have its parent's clients, may open its own, and whatever it does to
 * the parent's, and however it ends, these go on. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>
#include <sys/wait.h>

static char **arguments;
static volatile int ends;

static void child(const struct fixture *is)
{
    outboard_active_call call = call_of(is, "count");
    outboard_active_outcome outcome;
    struct fixture own;
    uint64_t word;

    IS(FORKED, outboard_active_execute(is->client, &call, 0, &word, sizeof word, NULL));
    IS(FORKED, outboard_active_poll(is->client, 0, NULL, 0, &outcome));
    IS(FORKED, outboard_active_write(is->client, is->region, 0, "12345678", 8));
    IS(FORKED, outboard_active_close(is->client));
    own = set_up(arguments, SOON_MS);
    call = call_of(&own, "count");
    IS(OK, outboard_active_execute(own.client, &call, 0, &word, sizeof word, NULL));
    IS(OK, outboard_active_close(own.client));
    IS(FORKED, outboard_active_close(is->client));
    exit(0);
}

/* Opens and closes while others fork. */
static void *opens(void *unused)
{
    while (!ends) {
        struct fixture is = set_up(arguments, SOON_MS);
        IS(OK, outboard_active_close(is.client));
    }
    return unused;
}

static void expect_end(pid_t process)
{
    int status = -1;

    for (int tries = 0; tries < SOON_MS / 10; tries++) {
        pid_t ended = waitpid(process, &status, WNOHANG);
        CHECK(ended >= 0);
        if (ended == process) {
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
            return;
        }
        sleep_ms(10);
    }
    CHECK(!"the child ends");
}

int main(int argc, char **argv)
{
    struct fixture is;
    outboard_active_call call;
    outboard_active_outcome outcome;
    pthread_t thread;
    uint64_t word;

    CHECK(argc == 4);
    arguments = argv;
    is = set_up(argv, SOON_MS);
    call = call_of(&is, "get");
    CHECK(pthread_create(&thread, NULL, opens, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t process;
        for (int each = 0; each < 10; each++)
            IS(OK, outboard_active_submit(is.client, &call, NULL, NULL));
        process = fork();
        CHECK(process >= 0);
        if (process == 0)
            child(&is);
        for (int each = 0; each < 10; each++) {
            IS(OK, outboard_active_poll(is.client, SOON_MS, &word, sizeof word, &outcome));
            IS(OK, outcome.status);
        }
        expect_end(process);
    }
    ends = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    IS(OK, outboard_active_execute(is.client, &call, 0, &word, sizeof word, NULL));
    CHECK(word == 20);
    IS(OK, outboard_active_close(is.client));
    return 0;
}
