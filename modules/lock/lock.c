/* lock.c: locks with leases and fencing tokens; lock.h says how they are laid out. */
#define OB_MODULE lock
#include "lock/lock.h"

enum { MAGIC = 0, ENTRIES = 8, USED = 16 };
enum { WORD = 0, TOKEN = 8, OWNER = 16, HASH = 24, NAME_LEN = 32, NAME = 34 };

#define EXPIRY_BITS 40u
#define EXPIRY_MASK (((uint64_t)1 << EXPIRY_BITS) - 1)
#define TOKEN_MASK 0xffffffu
#define ENTRIES_MAX 16384u
#define MS 1000000u

struct name {
    const void *at;
    uint64_t len, hash;
};

/* A grant, as an entry says it. */
struct grant {
    uint64_t word, token, expiry; /* the word itself; the whole token; ms since LOCK_EPOCH_MS */
};

static struct name name_of(uint64_t root, const void *at, uint64_t len)
{
    if (ob_get64(root + MAGIC) != LOCK_MAGIC)
        OB_FAIL(LOCK_E_NO_LOCKS, "there are no locks at this offset: call lock's init first");
    if (len == 0 || len > LOCK_NAME_MAX)
        OB_FAIL(LOCK_E_NAME, "a lock's name has 1 to 94 bytes");
    uint64_t hash = ob_hash(LOCK_SEED, at, len);
    return (struct name){at, len, hash == 0 ? 1 : hash};
}

/* The entry of a name; or an unused one, or 0 if there is none. */
static uint64_t find(uint64_t root, const struct name *name, bool *is_found)
{
    uint64_t entries = ob_get64(root + ENTRIES);
    *is_found = false;
    for (uint64_t i = 0; i < entries; i++) {
        uint64_t at = (name->hash + i) & (entries - 1);
        uint64_t entry = root + LOCK_HEADER_LEN + at * LOCK_ENTRY_LEN;
        uint64_t hash = ob_get64(entry + HASH);
        if (hash == 0)
            return entry;
        if (hash != name->hash || (ob_get64(entry + NAME_LEN) & 0xffff) != name->len)
            continue;
        *is_found = ob_equals(entry + NAME, name->at, name->len);
        if (*is_found)
            return entry;
    }
    return 0;
}

/* The entry of a name, made if it is not there. WRITES. */
static uint64_t entry_of(uint64_t root, const struct name *name)
{
    bool is_found;
    uint64_t entry = find(root, name, &is_found);
    if (is_found)
        return entry;
    if (entry == 0)
        OB_FAIL(LOCK_E_FULL, "no entry is left for another name: make more by lock's init");
    unsigned char bytes[LOCK_ENTRY_LEN];
    uint16_t len = (uint16_t)name->len;
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes + HASH, &name->hash, 8);
    memcpy(bytes + NAME_LEN, &len, 2);
    memcpy(bytes + NAME, name->at, (size_t)name->len);
    ob_put(entry, bytes, sizeof bytes);
    ob_put64(root + USED, ob_get64(root + USED) + 1);
    return entry;
}

static uint64_t now_ms(void) { return ob_wall_ns() / MS - LOCK_EPOCH_MS; }

/* The latest grant of an entry. The word comes first: it is what a grant is made by. */
static struct grant grant_of(uint64_t entry)
{
    uint64_t word = ob_get64(entry + WORD), hint = ob_get64(entry + TOKEN);
    uint64_t token = hint + (((word >> EXPIRY_BITS) - hint) & TOKEN_MASK);
    return (struct grant){word, token, word & EXPIRY_MASK};
}

static bool is_held(const struct grant *grant) { return grant->expiry > now_ms(); }

static uint64_t expiry_of(uint64_t lease_ns)
{
    if (lease_ns == 0 || lease_ns > LOCK_LEASE_MAX)
        OB_FAIL(LOCK_E_LEASE, "a lease is longer than 0 and at most 24 hours");
    return now_ms() + (lease_ns + MS - 1) / MS;
}

/* Changes an entry's word; a peer that changes it first makes this execution run again. WRITES. */
static void change(uint64_t entry, struct grant *grant, uint64_t token, uint64_t expiry)
{
    ob_name64(entry + WORD, grant->word);
    ob_put64(entry + WORD, (token & TOKEN_MASK) << EXPIRY_BITS | expiry);
    ob_put64(entry + TOKEN, token);
    grant->token = token, grant->expiry = expiry;
}

static int64_t answer(uint64_t status, uint64_t owner, const struct grant *grant)
{
    uint64_t expiry_ms = grant->expiry == 0 ? 0 : grant->expiry + LOCK_EPOCH_MS;
    struct lock_result result = {status, grant->token, owner, expiry_ms};
    return ob_result(&result, sizeof result);
}

#define NAME_BEHIND(args) name_of((args)->root, (args) + 1, ob_args_len() - sizeof *(args))

OB_ENTRY(init)
{
    const struct lock_init_args *args = OB_ARGS(struct lock_init_args);
    uint64_t entries = args->entries, len = LOCK_HEADER_LEN + entries * LOCK_ENTRY_LEN;
    if (args->root % 128 != 0 || entries == 0 || entries > ENTRIES_MAX
        || (entries & (entries - 1)) != 0 || !ob_is_inside(args->root, len))
        OB_FAIL(LOCK_E_RANGE, "the place of locks must be a multiple of 128, inside the region; "
                              "their number a power of two up to 16384");
    unsigned char empty[LOCK_ENTRY_LEN];
    uint64_t header[3] = {LOCK_MAGIC, entries, 0};
    memset(empty, 0, sizeof empty);
    ob_put(args->root, header, sizeof header);
    for (uint64_t i = 0; i < entries; i++)
        ob_put(args->root + LOCK_HEADER_LEN + i * LOCK_ENTRY_LEN, empty, sizeof empty);
    return 0;
}

OB_ENTRY(acquire)
{
    const struct lock_acquire_args *args = OB_ARGS(struct lock_acquire_args);
    struct name name = NAME_BEHIND(args);
    uint64_t expiry = expiry_of(args->lease_ns), entry = entry_of(args->root, &name);
    struct grant grant = grant_of(entry);
    if (is_held(&grant))
        return answer(LOCK_HELD, ob_get64(entry + OWNER), &grant);
    change(entry, &grant, grant.token + 1, expiry);
    ob_put64(entry + OWNER, args->owner);
    return answer(LOCK_GRANTED, args->owner, &grant);
}

/* Gives the grant with this token, if it is still held, a new expiry. WRITES. */
static int64_t adjust(uint64_t root, const struct name *name, uint64_t token, uint64_t expiry)
{
    bool is_found;
    struct grant grant = {0, 0, 0};
    uint64_t entry = find(root, name, &is_found);
    if (!is_found)
        return answer(LOCK_LOST, 0, &grant);
    grant = grant_of(entry);
    uint64_t owner = ob_get64(entry + OWNER);
    if (!is_held(&grant) || grant.token != token)
        return answer(LOCK_LOST, owner, &grant);
    change(entry, &grant, token, expiry);
    return answer(LOCK_GRANTED, owner, &grant);
}

OB_ENTRY(renew)
{
    const struct lock_renew_args *args = OB_ARGS(struct lock_renew_args);
    struct name name = NAME_BEHIND(args);
    return adjust(args->root, &name, args->token, expiry_of(args->lease_ns));
}

OB_ENTRY(release)
{
    const struct lock_release_args *args = OB_ARGS(struct lock_release_args);
    struct name name = NAME_BEHIND(args);
    return adjust(args->root, &name, args->token, 0);
}

OB_ENTRY(look)
{
    const struct lock_look_args *args = OB_ARGS(struct lock_look_args);
    struct name name = NAME_BEHIND(args);
    bool is_found;
    struct grant grant = {0, 0, 0};
    uint64_t entry = find(args->root, &name, &is_found);
    if (!is_found)
        return answer(LOCK_FREE, 0, &grant);
    grant = grant_of(entry);
    return answer(is_held(&grant) ? LOCK_HELD : LOCK_FREE, ob_get64(entry + OWNER), &grant);
}

OB_ENTRY(locate)
{
    const struct lock_locate_args *args = OB_ARGS(struct lock_locate_args);
    struct name name = NAME_BEHIND(args);
    uint64_t entry = entry_of(args->root, &name);
    return ob_result(&entry, sizeof entry);
}
