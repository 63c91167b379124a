/* What ends while calls are under way: the driver does to the node what this program tells it.
 * SIGPIPE is at its default: it would end the process. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <poll.h>

#define CALLS 2000

/* The service's process is killed again and again: every call is executed once. */
static void killed_service(char **argv)
{
    static char seen[CALLS];
    struct fixture is = set_up(argv, SOON_MS);
    outboard_active_call call = call_of(&is, "count");
    outboard_active_outcome outcome;
    uint64_t word;
    int begun = 0, over = 0, kills = 0;

    while (over < CALLS) {
        while (begun < CALLS && begun - over < 100) {
            IS(OK, outboard_active_submit(is.client, &call, NULL, NULL));
            begun++;
        }
        if (begun > (kills + 1) * CALLS / 3 && begun < CALLS) {
            if (outboard_active_poll(is.client, 0, &word, sizeof word, &outcome) ==
                OUTBOARD_ACTIVE_OK) {
                CHECK(outcome.status == OUTBOARD_ACTIVE_OK && word < CALLS && !seen[word]);
                seen[word] = 1;
                over++;
            }
            tell("kill service");
            kills++;
            continue;
        }
        IS(OK, outboard_active_poll(is.client, -1, &word, sizeof word, &outcome));
        IS(OK, outcome.status);
        CHECK(word < CALLS && !seen[word]);
        seen[word] = 1;
        over++;
    }
    CHECK(kills == 2);
    IS(OK, outboard_active_close(is.client));
}

/* The same with a descriptor: readable whenever there is something to do, also when that is to
 * connect again. */
static void killed_service_by_descriptor(char **argv)
{
    static char seen[CALLS];
    struct fixture is = set_up(argv, SOON_MS);
    outboard_active_call call = call_of(&is, "count");
    outboard_active_outcome outcome;
    struct pollfd waits;
    uint64_t word, first;
    int begun = 0, over = 0, kills = 0, status;

    IS(OK, outboard_active_execute(is.client, &call, 0, &first, sizeof first, NULL));
    IS(OK, outboard_active_descriptor(is.client, &waits.fd));
    waits.events = POLLIN;
    while (over < CALLS) {
        while (begun < CALLS && begun - over < 50) {
            IS(OK, outboard_active_submit(is.client, &call, NULL, NULL));
            begun++;
        }
        while ((status = outboard_active_poll(is.client, 0, &word, sizeof word, &outcome)) ==
               OUTBOARD_ACTIVE_OK) {
            IS(OK, outcome.status);
            word -= first + 1;
            CHECK(word < CALLS && !seen[word]);
            seen[word] = 1;
            over++;
        }
        IS(AGAIN, status);
        if (begun > (kills + 1) * CALLS / 3 && begun < CALLS) {
            tell("kill service");
            kills++;
        }
        if (begun > over)
            CHECK(poll(&waits, 1, SOON_MS) == 1);
    }
    CHECK(kills == 2);
    IS(OK, outboard_active_close(is.client));
}

/* The node is gone: what was sent is unknown, what was not is unreachable, and nothing hangs. */
static void killed_node(char **argv)
{
    struct fixture is = set_up(argv, SOON_MS), late;
    outboard_active_call call = call_of(&is, "count");
    outboard_active_outcome outcome;
    struct pollfd waits;
    uint64_t word;
    double since;
    int status;

    IS(OK, outboard_active_execute(is.client, &call, 0, &word, sizeof word, NULL));
    late.client = open_client(argv[1], 700);
    IS(OK, outboard_active_attach(late.client, argv[2], &late.region));
    IS(OK, outboard_active_descriptor(late.client, &waits.fd));
    waits.events = POLLIN;
    call.region = late.region;
    call.entry = "spin";
    IS(OK, outboard_active_submit(late.client, &call, argv, NULL));
    IS(AGAIN, outboard_active_poll(late.client, 0, NULL, 0, &outcome));
    tell("kill node");

    since = now_s();
    do {
        CHECK(poll(&waits, 1, SOON_MS) == 1);
        status = outboard_active_poll(late.client, 0, NULL, 0, &outcome);
    } while (status == OUTBOARD_ACTIVE_AGAIN);
    IS(OK, status);
    IS(UNKNOWN, outcome.status);
    CHECK(outcome.user == (void *)argv && now_s() - since < 30);
    CHECK(strstr(outboard_active_message(), "not known") != NULL);

    call.entry = "get";
    IS(UNREACHABLE, outboard_active_execute(late.client, &call, 300, NULL, 0, NULL));
    IS(UNREACHABLE, outboard_active_read(late.client, late.region, 0, &word, 8));
    IS(UNREACHABLE, outboard_active_write(late.client, late.region, 0, &word, 8));
    IS(OK, outboard_active_submit(late.client, &call, NULL, NULL));
    IS(OK, outboard_active_close(late.client));

    tell("start node");
    /* What this client sends on the connection that is gone would be unknown; a read is made again. */
    IS(OK, outboard_active_read(is.client, is.region, 0, &word, 8));
    call.entry = "count";
    call.region = is.region;
    IS(OK, outboard_active_execute(is.client, &call, 0, &word, sizeof word, NULL));
    CHECK(word == 0);
    IS(OK, outboard_active_close(is.client));
}

/* The node stands still: calls end in time. A write may have been made, a read has changed
 * nothing. */
static void stopped_node(char **argv)
{
    struct fixture is = set_up(argv, SOON_MS), late;
    outboard_active_call call = call_of(&is, "count");
    uint64_t word = 0;

    IS(OK, outboard_active_execute(is.client, &call, 0, &word, sizeof word, NULL));
    late.client = open_client(argv[1], 300);
    IS(OK, outboard_active_attach(late.client, argv[2], &late.region));
    call.region = late.region;
    tell("stop service");
    IS(UNKNOWN, outboard_active_execute(late.client, &call, 0, NULL, 0, NULL));
    IS(TIMED_OUT, outboard_active_read(late.client, late.region, 0, &word, 8));
    IS(UNKNOWN, outboard_active_write(late.client, late.region, 64, &word, 8));
    IS(UNKNOWN, outboard_active_fetch_add(late.client, late.region, 72, 1, &word));
    IS(OK, outboard_active_close(late.client));
    tell("continue service");
    IS(OK, outboard_active_execute(is.client, &call, SOON_MS, &word, sizeof word, NULL));
    IS(OK, outboard_active_close(is.client));
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    killed_service(argv);
    killed_service_by_descriptor(argv);
    stopped_node(argv);
    killed_node(argv);
    return 0;
}
