/* Every function, and every status that needs no accident. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"
#include <poll.h>

static void statuses(const struct fixture *is)
{
    outboard_active_call call = call_of(is, "refuse");
    outboard_active_outcome outcome;
    outboard_active_hash none;
    uint64_t word = 7;

    IS(FAILED, outboard_active_execute(is->client, &call, SOON_MS, NULL, 0, &outcome));
    CHECK(outcome.status == OUTBOARD_ACTIVE_FAILED && outcome.module_code == 5);
    CHECK(strstr(outboard_active_message(), "no more") != NULL);
    call.entry = "trap";
    IS(TRAP, outboard_active_execute(is->client, &call, 0, NULL, 0, NULL));
    CHECK(strstr(outboard_active_message(), "unreachable") != NULL);
    call.entry = "nothing";
    IS(NO_ENTRY, outboard_active_execute(is->client, &call, 0, NULL, 0, NULL));
    CHECK(strstr(outboard_active_message(), "nothing") != NULL);
    call.entry = "spin";
    call.limit_us = 20000;
    IS(TIME_LIMIT, outboard_active_execute(is->client, &call, 0, NULL, 0, NULL));
    call.limit_us = 0;
    IS(UNKNOWN, outboard_active_execute(is->client, &call, 100, NULL, 0, &outcome));
    memset(&none, 1, sizeof none);
    call.module = &none;
    IS(NO_MODULE, outboard_active_execute(is->client, &call, 0, NULL, 0, NULL));
    CHECK(strstr(outboard_active_message(), "01010101") != NULL);
    IS(REFUSED, outboard_active_attach(is->client, "no region", (uint32_t *)&word));
    IS(REFUSED, outboard_active_flush(is->client, is->region));
    /* Nothing of all that has changed the region. */
    IS(OK, outboard_active_read(is->client, is->region, 0, &word, sizeof word));
    CHECK(word == 0);
}

static void executions(const struct fixture *is)
{
    outboard_active_call call = call_of(is, "count");
    outboard_active_outcome outcome;
    uint64_t word = 99;
    char text[10] = "", big[100];

    for (uint64_t i = 0; i < 3; i++) {
        IS(OK, outboard_active_execute(is->client, &call, 0, &word, sizeof word, &outcome));
        CHECK(word == i && outcome.result_size == 8 && outcome.status == OUTBOARD_ACTIVE_OK);
    }
    IS(TRUNCATED, outboard_active_execute(is->client, &call, 0, text, 1, &outcome));
    CHECK(text[0] == 3 && text[1] == 0 && outcome.result_size == 8);
    IS(TRUNCATED, outboard_active_execute(is->client, &call, 0, NULL, 0, NULL));
    call.entry = "echo";
    call.args = "what is this";
    call.args_size = 9;
    IS(OK, outboard_active_execute(is->client, &call, 0, big, sizeof big, &outcome));
    CHECK(outcome.result_size == 9 && memcmp(big, "what is t", 9) == 0);
    call.args_size = OUTBOARD_ACTIVE_INLINE_MAX + 1;
    IS(ARGUMENT, outboard_active_execute(is->client, &call, 0, big, sizeof big, &outcome));
    CHECK(strstr(outboard_active_message(), "49152") != NULL);
}

static void places(const struct fixture *is)
{
    outboard_active_call call = call_of(is, "get");
    outboard_active_outcome outcome;
    uint64_t word = 99;

    call.where = OUTBOARD_ACTIVE_LOCAL;
    IS(OK, outboard_active_execute(is->client, &call, 0, &word, sizeof word, &outcome));
    CHECK(word == 5 && outcome.where == OUTBOARD_ACTIVE_LOCAL);
    call.where = OUTBOARD_ACTIVE_AUTO;
    IS(OK, outboard_active_execute(is->client, &call, 0, &word, sizeof word, &outcome));
    CHECK(word == 5);
    call.where = OUTBOARD_ACTIVE_LOCAL;
    call.entry = "count";
    IS(OK, outboard_active_execute(is->client, &call, 0, &word, sizeof word, &outcome));
    CHECK(word == 5 && outcome.where == OUTBOARD_ACTIVE_REMOTE);
    call.where = 3;
    IS(ARGUMENT, outboard_active_execute(is->client, &call, 0, &word, sizeof word, &outcome));
    call.where = OUTBOARD_ACTIVE_LOCAL;
    IS(ARGUMENT, outboard_active_submit(is->client, &call, NULL, NULL));
}

static void one_sided(const struct fixture *is)
{
    uint64_t size = 0, word = 0;
    int may_write = 0;
    char text[6] = "";

    IS(OK, outboard_active_region(is->client, is->region, &size, &may_write));
    IS(OK, outboard_active_region(is->client, is->region, NULL, NULL));
    CHECK(size == 1 << 20 && may_write == 1);
    IS(OK, outboard_active_write(is->client, is->region, 4096, "hello", 6));
    IS(OK, outboard_active_read(is->client, is->region, 4096, text, 6));
    CHECK(strcmp(text, "hello") == 0);
    IS(OK, outboard_active_compare_swap(is->client, is->region, 64, 0, 41, &word));
    CHECK(word == 0);
    IS(OK, outboard_active_compare_swap(is->client, is->region, 64, 0, 42, &word));
    CHECK(word == 41);
    IS(OK, outboard_active_fetch_add(is->client, is->region, 64, 1, NULL));
    IS(OK, outboard_active_fetch_add(is->client, is->region, 64, 0, &word));
    CHECK(word == 42);
    IS(OUTSIDE, outboard_active_read(is->client, is->region, size - 5, text, 6));
    IS(OUTSIDE, outboard_active_read(is->client, is->region, UINT64_MAX, text, 6));
    IS(OUTSIDE, outboard_active_write(is->client, is->region, size, text, 1));
    IS(ARGUMENT, outboard_active_fetch_add(is->client, is->region, 4, 1, NULL));
    IS(ARGUMENT, outboard_active_compare_swap(is->client, is->region, 63, 1, 1, NULL));
    IS(OK, outboard_active_read(is->client, is->region, 0, NULL, 0));
    IS(OK, outboard_active_write(is->client, is->region, 0, NULL, 0));
}

static void buffers(const struct fixture *is)
{
    static char memory[40000], args[30000];
    outboard_active_call call = call_of(is, "echo");
    outboard_active_outcome outcome;
    uint32_t buffer;

    memset(args, 'a', sizeof args);
    IS(OK, outboard_active_expose(is->client, memory, sizeof memory, &buffer));
    call.args = args;
    call.args_size = sizeof args;
    call.buffer = buffer;
    call.buffer_offset = 1000;
    call.buffer_size = 30000;
    IS(OK, outboard_active_execute(is->client, &call, 0, NULL, 0, &outcome));
    CHECK(outcome.result_size == 30000 && memory[999] == 0 && memory[31000] == 0);
    CHECK(memcmp(memory + 1000, args, sizeof args) == 0);
    call.buffer_offset = 10001;
    IS(OUTSIDE, outboard_active_execute(is->client, &call, 0, NULL, 0, &outcome));
    call.buffer_size = SIZE_MAX;
    IS(OUTSIDE, outboard_active_submit(is->client, &call, NULL, NULL));
    IS(OK, outboard_active_withdraw(is->client, buffer));
    IS(ARGUMENT, outboard_active_withdraw(is->client, buffer));
    call.buffer_size = 1;
    IS(ARGUMENT, outboard_active_submit(is->client, &call, NULL, NULL));
}

static void pipelined(const struct fixture *is)
{
    outboard_active_call call = call_of(is, "echo");
    outboard_active_outcome outcome;
    struct pollfd waits;
    int seen[500] = { 0 }, *user, again;
    uint64_t ticket, word;

    IS(AGAIN, outboard_active_poll(is->client, -1, NULL, 0, &outcome));
    IS(OK, outboard_active_descriptor(is->client, &waits.fd));
    IS(OK, outboard_active_descriptor(is->client, &again));
    CHECK(waits.fd == again);
    waits.events = POLLIN;
    IS(AGAIN, outboard_active_poll(is->client, 0, NULL, 0, &outcome));
    CHECK(poll(&waits, 1, 20) == 0);
    for (uint64_t i = 0; i < 500; i++) {
        call.args = &i;
        call.args_size = sizeof i;
        IS(OK, outboard_active_submit(is->client, &call, &seen[i], &ticket));
    }
    for (int i = 0; i < 500; i++) {
        IS(OK, outboard_active_poll(is->client, SOON_MS, &word, sizeof word, &outcome));
        CHECK(outcome.status == OUTBOARD_ACTIVE_OK && outcome.result_size == 8);
        user = (int *)outcome.user;
        CHECK(user == &seen[word] && *user == 0);
        *user = 1;
    }
    IS(AGAIN, outboard_active_poll(is->client, 10, NULL, 0, &outcome));

    call = call_of(is, "spin");
    IS(OK, outboard_active_submit(is->client, &call, NULL, &ticket));
    IS(AGAIN, outboard_active_poll(is->client, 50, NULL, 0, &outcome));
    IS(OK, outboard_active_kill(is->client, ticket));
    IS(OK, outboard_active_poll(is->client, SOON_MS, NULL, 0, &outcome));
    CHECK(outcome.status == OUTBOARD_ACTIVE_KILLED && outcome.ticket == ticket);
    IS(REFUSED, outboard_active_kill(is->client, ticket));
}

static void limits(const struct fixture *is)
{
    outboard_active_options options = OUTBOARD_ACTIVE_OPTIONS_INIT;
    outboard_active_call call = call_of(is, "empty");
    outboard_active_outcome outcome;
    outboard_active *client;

    options.timeout_ms = SOON_MS;
    options.in_flight = 3;
    options.wait = OUTBOARD_ACTIVE_BLOCK;
    IS(OK, open_soon(is->node, &options, &client));
    IS(ARGUMENT, outboard_active_submit(client, &call, NULL, NULL));
    IS(OK, outboard_active_attach(client, "kv", &call.region));
    for (int i = 0; i < 3; i++)
        IS(OK, outboard_active_submit(client, &call, NULL, NULL));
    IS(FULL, outboard_active_submit(client, &call, NULL, NULL));
    IS(OK, outboard_active_poll(client, SOON_MS, NULL, 0, &outcome));
    IS(OK, outboard_active_submit(client, &call, NULL, NULL));
    /* With calls under way. */
    IS(OK, outboard_active_close(client));
}

static void modules(const struct fixture *is)
{
    static const char wrong[] = "no module";
    char text[OUTBOARD_ACTIVE_HASH_TEXT];
    outboard_active_hash parsed, bad;
    outboard_active_call call = call_of(is, "empty");

    IS(OK, outboard_active_load(is->client, &is->module));
    IS(OK, outboard_active_hash_format(&is->module, text));
    CHECK(strlen(text) == 64);
    IS(OK, outboard_active_hash_parse(text, &parsed));
    CHECK(memcmp(&parsed, &is->module, sizeof parsed) == 0);
    text[0] = 'x';
    IS(ARGUMENT, outboard_active_hash_parse(text, &parsed));
    IS(OK, outboard_active_know(is->client, "wrong", wrong, sizeof wrong, &bad));
    IS(NOT_LOADED, outboard_active_load(is->client, &bad));
    CHECK(strstr(outboard_active_message(), "wrong") != NULL);
    IS(FILE, outboard_active_know_file(is->client, "/no/such/file", &bad));
    CHECK(strstr(outboard_active_message(), "/no/such/file") != NULL);
    IS(OK, outboard_active_drop(is->client, &is->module));
    IS(NO_MODULE, outboard_active_execute(is->client, &call, 0, NULL, 0, NULL));
    IS(ARGUMENT, outboard_active_load(is->client, &is->module));
}

static void names(void)
{
    CHECK(strcmp(outboard_active_status_name(OUTBOARD_ACTIVE_TRAP), "TRAP") == 0);
    CHECK(strcmp(outboard_active_status_name(OUTBOARD_ACTIVE_BUG), "BUG") == 0);
    CHECK(strcmp(outboard_active_status_name(-1), "?") == 0);
    CHECK(strcmp(outboard_active_message(), "") == 0);
}

int main(int argc, char **argv)
{
    struct fixture is;

    CHECK(argc == 4);
    names();
    is = set_up(argv, SOON_MS);
    statuses(&is);
    executions(&is);
    places(&is);
    one_sided(&is);
    buffers(&is);
    pipelined(&is);
    limits(&is);
    modules(&is);
    IS(OK, outboard_active_detach(is.client, is.region));
    IS(ARGUMENT, outboard_active_detach(is.client, is.region));
    IS(OK, outboard_active_close(is.client));
    return 0;
}
