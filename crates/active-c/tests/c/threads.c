/* Threads: clients of their own, one client in turns, and closing while another thread waits; and
 * signals that interrupt all of them. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

#define CALLS 300
#define THREADS 2

/* Longer than closing takes; the node goes on with it when the client is gone. */
#define SPIN_US 5000000

static char **arguments;
static char seen[4 * THREADS * CALLS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fixture shared;
static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    (void)number;
    signals = signals + 1;
}

/* Every system call that sleeps is interrupted now and then. */
static void interrupt_all(void)
{
    struct sigaction action;
    struct itimerval every = { { 0, 3000 }, { 0, 3000 } };

    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    CHECK(setitimer(ITIMER_REAL, &every, NULL) == 0);
}

static void count_calls(const struct fixture *is)
{
    outboard_active_call call = call_of(is, "count");
    uint64_t word;

    for (int i = 0; i < CALLS; i++) {
        call.entry = i % 50 == 7 ? "work" : "count";
        IS(OK, outboard_active_execute(is->client, &call, SOON_MS, &word, sizeof word, NULL));
        if (i % 50 == 7)
            continue;
        CHECK(pthread_mutex_lock(&lock) == 0);
        CHECK(word < sizeof seen && !seen[word]);
        seen[word] = 1;
        CHECK(pthread_mutex_unlock(&lock) == 0);
    }
}

static void *of_its_own(void *unused)
{
    struct fixture is = set_up(arguments, SOON_MS);

    count_calls(&is);
    IS(OK, outboard_active_close(is.client));
    return unused;
}

static void *in_turns(void *unused)
{
    count_calls(&shared);
    return unused;
}

static void *waits(void *entry)
{
    outboard_active_call call = call_of(&shared, "spin");
    outboard_active_outcome outcome;

    call.limit_us = SPIN_US;
    if (entry == NULL)
        IS(CLOSED, outboard_active_execute(shared.client, &call, SOON_MS, NULL, 0, NULL));
    else
        IS(CLOSED, outboard_active_poll(shared.client, -1, NULL, 0, &outcome));
    CHECK(strlen(outboard_active_message()) > 0);
    return NULL;
}

/* One thread waits in an execution or for an outcome; this one closes. */
static void close_while(void *entry)
{
    outboard_active_call call;
    pthread_t thread;
    double since;

    shared = set_up(arguments, SOON_MS);
    call = call_of(&shared, "spin");
    call.limit_us = SPIN_US;
    if (entry != NULL)
        IS(OK, outboard_active_submit(shared.client, &call, NULL, NULL));
    CHECK(pthread_create(&thread, NULL, waits, entry) == 0);
    sleep_ms(200);
    since = now_s();
    IS(OK, outboard_active_close(shared.client));
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(now_s() - since < 4);
}

static void *is_cancelled(void *unused)
{
    outboard_active_call call = call_of(&shared, "slow_count");
    uint64_t word;

    for (;;) {
        IS(OK, outboard_active_execute(shared.client, &call, SOON_MS, &word, sizeof word, NULL));
        pthread_testcancel();
    }
    return unused;
}

/* A thread that is cancelled leaves the client as it was. */
static void cancel(void)
{
    outboard_active_call call;
    pthread_t thread;
    void *ended;

    shared = set_up(arguments, SOON_MS);
    call = call_of(&shared, "count");
    for (int i = 0; i < 5; i++) {
        CHECK(pthread_create(&thread, NULL, is_cancelled, NULL) == 0);
        sleep_ms(30);
        CHECK(pthread_cancel(thread) == 0);
        CHECK(pthread_join(thread, &ended) == 0 && ended == PTHREAD_CANCELED);
        IS(TRUNCATED, outboard_active_execute(shared.client, &call, SOON_MS, NULL, 0, NULL));
    }
    IS(OK, outboard_active_close(shared.client));
}

static void run(void *(*body)(void *))
{
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, body, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
    static char polling[] = "polling";

    CHECK(argc == 4);
    arguments = argv;
    interrupt_all();
    run(of_its_own);
    shared = set_up(argv, SOON_MS);
    run(in_turns);
    IS(OK, outboard_active_close(shared.client));
    close_while(NULL);
    close_while(polling);
    cancel();
    CHECK(signals > 10);
    return 0;
}
