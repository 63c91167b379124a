/* NAME.c: counters in a region, to begin with; replace them by what you need.
 *
 * outboard.h says how a module works. Offset, delta and limit come from the caller: here, a counter
 * is any aligned word of the region.
 */
#define OB_MODULE NAME
#include "outboard.h"

enum { E_LIMIT = 100 };

struct add_args {
    uint64_t offset, delta, limit;
};

/* Adds to a counter, unless it would exceed a limit. Result: uint64_t, the sum. */
OB_ENTRY(add)
{
    const struct add_args *args = OB_ARGS(struct add_args);
    uint64_t sum = ob_get64(args->offset) + args->delta;
    if (sum > args->limit)
        OB_FAIL(E_LIMIT, "the counter's limit is reached");
    ob_put64(args->offset, sum);
    return ob_result(&sum, sizeof sum);
}

/* Reads a counter. It writes nothing, and so can be executed at the client, too. */
OB_ENTRY(get)
{
    uint64_t value = ob_get64(*OB_ARGS(uint64_t));
    return ob_result(&value, sizeof value);
}
