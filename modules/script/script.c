/* script.c: expiry, counters, limits, compare-and-set; script.h says what each entry does. */
#define OB_MODULE script
#include "script/script.h"
#include "table/table.h"

/* Bytes of a value's expiry, in front of it. */
#define EXPIRY_LEN 8u

struct key {
    const void *at;
    uint64_t len;
};

/* A value as it was found, in the memory for results. */
struct found {
    uint64_t expiry_ns, len; /* bytes without the expiry */
    const unsigned char *at;
    bool is_there; /* and has not expired */
};

/* A place in the memory for results where values can be read to and put together: behind the
 * result itself. */
static unsigned char *buffer(void) { return (unsigned char *)ob_out() + 64; }
static uint64_t buffer_len(void) { return ob_out_cap() < 64 ? 0 : ob_out_cap() - 64; }

/* What was read of a key: `len` bytes in the buffer, or TABLE_NONE. */
static struct found found_of(uint64_t len)
{
    struct found found = {0, 0, buffer() + EXPIRY_LEN, false};
    if (len == TABLE_NONE || len < EXPIRY_LEN)
        return found;
    memcpy(&found.expiry_ns, buffer(), EXPIRY_LEN);
    found.len = len - EXPIRY_LEN;
    found.is_there = found.expiry_ns == 0 || found.expiry_ns > ob_wall_ns();
    return found;
}

/* Reads a value in an entry that writes. */
static struct found read(uint64_t root, struct key key)
{
    return found_of(table_get_named(root, key.at, key.len, buffer(), buffer_len()));
}

static uint64_t expiry_of(uint64_t ttl_ns)
{
    uint64_t expiry = ob_wall_ns() + ttl_ns;
    return ttl_ns == 0 ? 0 : expiry < ttl_ns ? UINT64_MAX : expiry;
}

/* Stores a value; it may lie in the buffer, behind the place of its expiry. WRITES. */
static void store(uint64_t root, struct key key, uint64_t expiry_ns, const void *value,
                  uint64_t len)
{
    if (len > SCRIPT_VALUE_MAX)
        OB_FAIL(SCRIPT_E_VALUE, "a value has at most 65528 bytes");
    unsigned char *bytes = buffer();
    if (buffer_len() < EXPIRY_LEN + len)
        OB_FAIL(OB_E_RESULT, "the execution has no room for the value");
    memcpy(bytes, &expiry_ns, EXPIRY_LEN);
    if (value != bytes + EXPIRY_LEN)
        memcpy(bytes + EXPIRY_LEN, value, (size_t)len);
    table_put(root, key.at, key.len, bytes, EXPIRY_LEN + len);
}

static int64_t number(uint64_t value) { return ob_result(&value, sizeof value); }

#define KEY_BEHIND(args) ((struct key){(args) + 1, ob_args_len() - sizeof *(args)})

OB_ENTRY(init)
{
    const struct script_init_args *args = OB_ARGS(struct script_init_args);
    table_init(args->root, args->len, args->first);
    return 0;
}

OB_ENTRY(set)
{
    const struct script_set_args *args = OB_ARGS(struct script_set_args);
    ob_args_of(sizeof *args + (uint64_t)args->key_len + args->value_len);
    struct key key = {args + 1, args->key_len};
    bool is_there = read(args->root, key).is_there;
    const unsigned char *value = (const unsigned char *)(args + 1) + args->key_len;
    store(args->root, key, expiry_of(args->ttl_ns), value, args->value_len);
    return number(is_there);
}

OB_ENTRY(get)
{
    const struct script_get_args *args = OB_ARGS(struct script_get_args);
    struct script_get_result *result = ob_out_of(sizeof *result);
    struct key key = KEY_BEHIND(args);
    /* The value's expiry comes to lie at `expiry_ns`, the value behind it. */
    uint64_t len = table_get(args->root, key.at, key.len, &result->expiry_ns,
                             ob_out_cap() - EXPIRY_LEN);
    bool is_there = len != TABLE_NONE && len >= EXPIRY_LEN
                    && (result->expiry_ns == 0 || result->expiry_ns > ob_wall_ns());
    result->found = is_there;
    if (is_there)
        return (int64_t)(EXPIRY_LEN + len);
    result->expiry_ns = 0;
    return sizeof *result;
}

OB_ENTRY(delete)
{
    const struct script_delete_args *args = OB_ARGS(struct script_delete_args);
    struct key key = KEY_BEHIND(args);
    bool is_there = read(args->root, key).is_there;
    table_delete(args->root, key.at, key.len);
    return number(is_there);
}

OB_ENTRY(incr)
{
    const struct script_incr_args *args = OB_ARGS(struct script_incr_args);
    struct key key = KEY_BEHIND(args);
    struct found found = read(args->root, key);
    uint64_t sum = 0;
    if (found.is_there && found.len != sizeof sum)
        OB_FAIL(SCRIPT_E_NUMBER, "the value is no number of 8 bytes");
    if (found.is_there)
        memcpy(&sum, found.at, sizeof sum);
    sum += args->delta;
    store(args->root, key, found.is_there ? found.expiry_ns : 0, &sum, sizeof sum);
    return number(sum);
}

OB_ENTRY(limit)
{
    const struct script_limit_args *args = OB_ARGS(struct script_limit_args);
    struct key key = KEY_BEHIND(args);
    struct found found = read(args->root, key);
    uint64_t used = 0, expiry = found.expiry_ns;
    if (found.is_there && (found.len != sizeof used || expiry == 0))
        OB_FAIL(SCRIPT_E_NUMBER, "the value is no limiter's");
    if (found.is_there)
        memcpy(&used, found.at, sizeof used);
    else
        expiry = expiry_of(args->window_ns == 0 ? 1 : args->window_ns);
    uint64_t left = used < args->limit ? args->limit - used : 0;
    struct script_limit_result result = {args->cost <= left, left, expiry - ob_wall_ns()};
    if (result.allowed) {
        used += args->cost, result.left -= args->cost;
        store(args->root, key, expiry, &used, sizeof used);
    }
    return ob_result(&result, sizeof result);
}

/* One key of a cas, with its three pieces. */
struct change {
    struct key key;
    const struct script_cas_key *lengths;
    const unsigned char *expected, *value;
};

static uint64_t present(uint32_t len) { return len == SCRIPT_ABSENT ? 0 : len; }

/* The change whose bytes begin at `at`; moves `at` behind it. */
static struct change next_change(const struct script_cas_key *lengths, const unsigned char **at,
                                 const unsigned char *end)
{
    uint64_t key = lengths->key_len, expected = present(lengths->expected_len);
    uint64_t value = present(lengths->value_len);
    if (key + expected + value > (uint64_t)(end - *at))
        OB_FAIL(SCRIPT_E_ARGS, "the lengths of keys and values are longer than the arguments");
    struct change change = {{*at, key}, lengths, *at + key, *at + key + expected};
    *at += key + expected + value;
    return change;
}

static bool is_as_expected(uint64_t root, const struct change *change)
{
    struct found found = read(root, change->key);
    uint32_t expected = change->lengths->expected_len;
    if (!found.is_there || expected == SCRIPT_ABSENT)
        return !found.is_there && expected == SCRIPT_ABSENT;
    return found.len == expected && memcmp(found.at, change->expected, expected) == 0;
}

static void apply(uint64_t root, const struct change *change)
{
    const struct script_cas_key *lengths = change->lengths;
    if (lengths->value_len == SCRIPT_ABSENT)
        table_delete(root, change->key.at, change->key.len);
    else
        store(root, change->key, expiry_of(lengths->ttl_ns), change->value, lengths->value_len);
}

OB_ENTRY(cas)
{
    const struct script_cas_args *args = OB_ARGS(struct script_cas_args);
    uint64_t number = args->number;
    if (number == 0 || number > SCRIPT_KEYS_MAX)
        OB_FAIL(SCRIPT_E_ARGS, "1 to 64 keys");
    ob_args_of(sizeof *args + number * sizeof(struct script_cas_key));
    const struct script_cas_key *keys = (const struct script_cas_key *)(args + 1);
    const unsigned char *start = (const unsigned char *)(keys + number), *at = start;
    const unsigned char *end = (const unsigned char *)args + ob_args_len();
    struct script_cas_result result = {0, 0};
    for (; result.failed < number; result.failed++) {
        struct change change = next_change(&keys[result.failed], &at, end);
        if (!is_as_expected(args->root, &change))
            return ob_result(&result, sizeof result);
    }
    at = start;
    for (uint64_t i = 0; i < number; i++) {
        struct change change = next_change(&keys[i], &at, end);
        apply(args->root, &change);
    }
    result.stored = 1;
    return ob_result(&result, sizeof result);
}

OB_ENTRY(sweep)
{
    const struct script_sweep_args *args = OB_ARGS(struct script_sweep_args);
    struct script_sweep_result result = {0, 0};
    uint64_t items = args->items < 1000 ? args->items : 1000;
    table_scan(args->root, args->cursor, items, buffer(), buffer_len());
    const struct table_scan_result *scan = (const struct table_scan_result *)buffer();
    const unsigned char *at = (const unsigned char *)(scan + 1);
    result.next = scan->next;
    for (uint64_t i = 0; i < scan->count; i++) {
        uint32_t lengths[2];
        uint64_t expiry = 0;
        memcpy(lengths, at, sizeof lengths);
        if (lengths[1] >= EXPIRY_LEN)
            memcpy(&expiry, at + sizeof lengths + lengths[0], EXPIRY_LEN);
        if (expiry != 0 && expiry <= ob_wall_ns())
            result.deleted += table_delete(args->root, at + sizeof lengths, lengths[0]);
        at += sizeof lengths + lengths[0] + lengths[1];
    }
    return ob_result(&result, sizeof result);
}
