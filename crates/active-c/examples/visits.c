/* Counts visits in a table in a node's memory: a thousand calls under way at once, each executed
 * next to the table; then reads the count without any code at the node.
 *
 *   cc visits.c $(pkg-config --cflags --libs outboard-active) -o visits
 *   ./visits 127.0.0.1 kv modules/built/script.wasm
 */
#include <outboard_active.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISITS 1000

/* Arguments of two of script's entries, as modules/script/script.h has them. */
struct init_args { uint64_t root, len, first; };
struct incr_args { uint64_t root, delta; char key[6]; };

static void check(int status, const char *what)
{
    if (status != OUTBOARD_ACTIVE_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, outboard_active_status_name(status),
                outboard_active_message());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    outboard_active_call call = OUTBOARD_ACTIVE_CALL_INIT;
    outboard_active_outcome outcome;
    outboard_active_hash script;
    outboard_active *client;
    struct init_args init = { 0, 0, 4 };
    struct incr_args incr = { 0, 1, "visit" };
    uint64_t sum = 0, most = 0;
    int status;

    if (argc != 4) {
        fprintf(stderr, "usage: visits NODE REGION SCRIPT.wasm\n");
        return 2;
    }
    check(outboard_active_open(argv[1], NULL, &client), "open");
    check(outboard_active_attach(client, argv[2], &call.region), "attach");
    check(outboard_active_region(client, call.region, &init.len, NULL), "region");
    check(outboard_active_know_file(client, argv[3], &script), "module");

    call.module = &script;
    call.entry = "init";
    call.args = &init;
    call.args_size = sizeof init;
    check(outboard_active_execute(client, &call, 0, NULL, 0, NULL), "init");

    call.entry = "incr";
    call.args = &incr;
    call.args_size = offsetof(struct incr_args, key) + strlen(incr.key);
    for (int i = 0; i < VISITS; i++)
        check(outboard_active_submit(client, &call, NULL, NULL), "submit");
    for (int i = 0; i < VISITS; i++) {
        status = outboard_active_poll(client, -1, &sum, sizeof sum, &outcome);
        check(status, "poll");
        check(outcome.status, "incr");
        most = sum > most ? sum : most;
    }
    printf("%d calls, the last found %llu\n", VISITS, (unsigned long long)most);

    /* Only to show what an error looks like. */
    call.entry = "incrr";
    status = outboard_active_execute(client, &call, 0, NULL, 0, NULL);
    printf("%s: %s\n", outboard_active_status_name(status), outboard_active_message());
    return outboard_active_close(client) == OUTBOARD_ACTIVE_OK ? 0 : 1;
}
