/* quotas.h: a part of nodes.h: who pays for inodes and blocks. No entries: those are in fs.c. */

enum { TENANTS_ROOM = 0, TENANTS_COUNT = 8, TENANTS_HEAD = 16 };
enum { FLAG_BITS = 16, TENANT_BLOCKS = 16, TENANT_INODES = 24, TENANT_MAX = 16 };

/* Where tenants are; 0 if there are none. */
static uint64_t tenants(void) { return (ob_get64(FS_ROOT + FLAGS) >> FLAG_BITS) * 16; }
static uint64_t tenants_count(void)
{
    return tenants() == 0 ? 0 : ob_get64(tenants() + TENANTS_COUNT);
}

static uint64_t tenant_at(uint64_t number)
{
    return tenants() + TENANTS_HEAD + (number - 1) * sizeof(struct fs_tenant);
}

/* Adds to what a tenant has; less is always possible. */
static void charge_one(uint64_t at, int64_t more)
{
    uint64_t sum = ob_get64(at) + (uint64_t)more;
    if (more > 0 && sum > ob_get64(at + TENANT_MAX))
        FAIL(E_DQUOT, "this identity has as much as it may");
    if (more != 0)
        ob_put64(at, sum);
}

/* A tenant, 0 for nobody, has more or less from now on. */
static void charge(uint32_t tenant, int64_t blocks, int64_t inodes)
{
    if (tenant == 0)
        return;
    if (tenant > tenants_count())
        FAIL(E_INVAL, "there is no such tenant");
    charge_one(tenant_at(tenant) + TENANT_BLOCKS, blocks);
    charge_one(tenant_at(tenant) + TENANT_INODES, inodes);
}

/* The number of the tenant of an id, 0 if there is none. */
static uint64_t find_tenant(const uint64_t id[2])
{
    for (uint64_t number = 1; number <= tenants_count(); number++)
        if (ob_equals(tenant_at(number), id, 16))
            return number;
    return 0;
}

/* Makes room for one tenant more. */
static void grow_tenants(const struct tree *tree)
{
    uint64_t before = tenants(), count = tenants_count();
    if (before != 0 && count < ob_get64(before + TENANTS_ROOM))
        return;
    if (count == FS_TENANTS_MAX)
        FAIL(E_NOSPC, "there are as many tenants as there can be");
    uint64_t room = count == 0 ? 4 : 2 * count;
    uint64_t fresh = take_memory(tree, TENANTS_HEAD + room * sizeof(struct fs_tenant));
    ob_put64(fresh + TENANTS_ROOM, room);
    ob_put64(fresh + TENANTS_COUNT, count);
    for (uint64_t number = 1; number <= count; number++) {
        struct fs_tenant tenant;
        uint64_t at = tenant_at(number);
        ob_get(at, &tenant, sizeof tenant);
        ob_put(fresh + (at - before), &tenant, sizeof tenant);
    }
    if (before != 0)
        alloc_give(heap_of(tree), before);
    uint64_t flags = ob_get64(FS_ROOT + FLAGS) & (((uint64_t)1 << FLAG_BITS) - 1);
    ob_put64(FS_ROOT + FLAGS, flags | fresh / 16 << FLAG_BITS);
}
