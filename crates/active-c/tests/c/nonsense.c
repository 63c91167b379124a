/* Wrong arguments of every function are answered: no call ends the process or is obeyed. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

static outboard_active *client;
static outboard_active_hash hash;
static outboard_active_outcome outcome;
static char text[OUTBOARD_ACTIVE_HASH_TEXT];
static uint64_t word;
static uint32_t number;
static int descriptor;

/* No client at all, each with arguments that are good otherwise. */
static void no_client(outboard_active *bad, int status)
{
    outboard_active_call call = OUTBOARD_ACTIVE_CALL_INIT;

    call.module = &hash;
    call.entry = "get";
    CHECK(outboard_active_close(bad) == status);
    CHECK(outboard_active_descriptor(bad, &descriptor) == status);
    CHECK(outboard_active_attach(bad, "kv", &number) == status);
    CHECK(outboard_active_detach(bad, 1) == status);
    CHECK(outboard_active_region(bad, 1, &word, NULL) == status);
    CHECK(outboard_active_read(bad, 1, 0, &word, 8) == status);
    CHECK(outboard_active_write(bad, 1, 0, &word, 8) == status);
    CHECK(outboard_active_compare_swap(bad, 1, 0, 0, 0, &word) == status);
    CHECK(outboard_active_fetch_add(bad, 1, 0, 0, &word) == status);
    CHECK(outboard_active_flush(bad, 1) == status);
    CHECK(outboard_active_know(bad, "name", text, 1, &hash) == status);
    CHECK(outboard_active_know_file(bad, "/dev/null", &hash) == status);
    CHECK(outboard_active_load(bad, &hash) == status);
    CHECK(outboard_active_drop(bad, &hash) == status);
    CHECK(outboard_active_execute(bad, &call, 0, NULL, 0, &outcome) == status);
    CHECK(outboard_active_submit(bad, &call, NULL, &word) == status);
    CHECK(outboard_active_poll(bad, 0, NULL, 0, &outcome) == status);
    CHECK(outboard_active_kill(bad, 1) == status);
    CHECK(outboard_active_expose(bad, text, sizeof text, &number) == status);
    CHECK(outboard_active_withdraw(bad, 1) == status);
}

static void null_arguments(void)
{
    outboard_active_call call = OUTBOARD_ACTIVE_CALL_INIT;

    IS(ARGUMENT, outboard_active_descriptor(client, NULL));
    IS(ARGUMENT, outboard_active_attach(client, NULL, &number));
    IS(ARGUMENT, outboard_active_attach(client, "kv", NULL));
    IS(ARGUMENT, outboard_active_read(client, 1, 0, NULL, 8));
    IS(ARGUMENT, outboard_active_write(client, 1, 0, NULL, 8));
    IS(ARGUMENT, outboard_active_know(client, NULL, text, 1, &hash));
    IS(ARGUMENT, outboard_active_know(client, "name", NULL, 1, &hash));
    IS(ARGUMENT, outboard_active_know(client, "name", text, 1, NULL));
    IS(ARGUMENT, outboard_active_know_file(client, NULL, &hash));
    IS(ARGUMENT, outboard_active_know_file(client, "/dev/null", NULL));
    IS(ARGUMENT, outboard_active_load(client, NULL));
    IS(ARGUMENT, outboard_active_drop(client, NULL));
    IS(ARGUMENT, outboard_active_hash_parse(NULL, &hash));
    IS(ARGUMENT, outboard_active_hash_parse(text, NULL));
    IS(ARGUMENT, outboard_active_hash_format(NULL, text));
    IS(ARGUMENT, outboard_active_hash_format(&hash, NULL));
    IS(ARGUMENT, outboard_active_execute(client, NULL, 0, NULL, 0, NULL));
    IS(ARGUMENT, outboard_active_execute(client, &call, 0, NULL, 0, NULL));
    CHECK(strcmp(outboard_active_message(), "module is NULL") == 0);
    call.module = &hash;
    IS(ARGUMENT, outboard_active_submit(client, &call, NULL, NULL));
    CHECK(strcmp(outboard_active_message(), "call->entry is NULL") == 0);
    call.entry = "get";
    call.args_size = 1;
    IS(ARGUMENT, outboard_active_submit(client, &call, NULL, NULL));
    call.args_size = 0;
    IS(ARGUMENT, outboard_active_execute(client, &call, 0, NULL, 8, NULL));
    IS(ARGUMENT, outboard_active_poll(client, 0, NULL, 0, NULL));
    IS(ARGUMENT, outboard_active_poll(client, 0, NULL, 1, &outcome));
    IS(ARGUMENT, outboard_active_expose(client, NULL, 1, &number));
    IS(ARGUMENT, outboard_active_expose(client, text, 1, NULL));
}

static void wrong_values(const char *node)
{
    outboard_active_call call = OUTBOARD_ACTIVE_CALL_INIT;
    outboard_active_options options = OUTBOARD_ACTIVE_OPTIONS_INIT;
    outboard_active *other = client;
    char name[400];

    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = 0;
    IS(ARGUMENT, outboard_active_open(NULL, NULL, &other));
    CHECK(other == NULL);
    IS(ARGUMENT, outboard_active_open("two,hosts", NULL, &other));
    IS(ARGUMENT, outboard_active_open("n[", NULL, &other));
    IS(ARGUMENT, outboard_active_open("\xff", NULL, &other));
    options.wait = 9;
    IS(ARGUMENT, outboard_active_open(node, &options, &other));
    options.wait = 0;
    options.size = 3;
    IS(ARGUMENT, outboard_active_open(node, &options, &other));
    options.size = sizeof options;
    options.key = "/no/key";
    IS(KEY, outboard_active_open(node, &options, &other));
    CHECK(strstr(outboard_active_message(), "/no/key") != NULL);
    options.key = NULL;
    options.timeout_ms = 500;
    IS(UNREACHABLE, outboard_active_open("127.0.0.1:1", &options, &other));
    CHECK(strstr(outboard_active_message(), "127.0.0.1") != NULL);
    IS(ARGUMENT, outboard_active_attach(client, name, &number));
    IS(ARGUMENT, outboard_active_attach(client, "\xff", &number));
    IS(ARGUMENT, outboard_active_know(client, name, text, 1, &hash));
    IS(ARGUMENT, outboard_active_know(client, "name", text, SIZE_MAX, &hash));
    IS(ARGUMENT, outboard_active_read(client, 77, 0, &word, 8));
    IS(REFUSED, outboard_active_kill(client, 12345));
    call.module = &hash;
    call.entry = "get";
    IS(ARGUMENT, outboard_active_submit(client, &call, NULL, NULL));
    call.size = 1;
    IS(ARGUMENT, outboard_active_submit(client, &call, NULL, NULL));
    CHECK(strstr(outboard_active_message(), "INIT") != NULL);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    IS(ARGUMENT, outboard_active_open(argv[1], NULL, NULL));
    client = open_client(argv[1], SOON_MS);
    no_client(NULL, OUTBOARD_ACTIVE_ARGUMENT);
    no_client((outboard_active *)(void *)text, OUTBOARD_ACTIVE_CLOSED);
    null_arguments();
    wrong_values(argv[1]);
    IS(OK, outboard_active_close(client));
    no_client(client, OUTBOARD_ACTIVE_CLOSED);
    return 0;
}
