/* fs.c: a file system's tree; fs.h says how it is laid out and what each entry does. Its parts:
 * nodes.h (inodes, rights, directories), moves.h (renaming), bytes.h (where bytes are), xattrs.h
 * (extended attributes). */
#define OB_MODULE fs
#define FS_OWN
#include "fs/fs.h"
#include "alloc/alloc.h"
#include "blocks/blocks.h"
#include "names/names.h"
#include "table/table.h"

#include "fs/nodes.h"

/* ---- Making and removing ------------------------------------------------------------------ */

/* Where everything goes: blocks, then inodes, then the table with the heap. */
OB_ENTRY(init)
{
    const struct fs_init_args *args = OB_ARGS(struct fs_init_args);
    uint64_t blocks = FS_ROOT + FS_HEADER_LEN;
    if (args->blocks == 0 || args->blocks > BLOCKS_MAX)
        FAIL(E_INVAL, "a file system has from 1 to 2^36 blocks");
    uint64_t inodes = (blocks + blocks_len(args->blocks) + 63) & ~(uint64_t)63;
    uint64_t table = inodes + (INODE_HEADER_LEN + 63) / 64 * 64;
    if (!ob_is_inside(table, TABLE_HEADER_LEN))
        FAIL(E_INVAL, "the region is too small for so many blocks");
    blocks_init(blocks, args->blocks);
    table_init(table, ob_region_len() - table, args->first);
    struct tree tree = {args->flags, blocks, inodes, table};
    inode_init(inodes, heap_of(&tree), blocks);
    struct fs_answer root;
    uint32_t mode = (uint32_t)DIRECTORY << 12 | (args->mode & RIGHTS);
    root.inode.number = inode_new(inodes, mode, &root.record);
    root.record.uid = args->uid;
    root.record.gid = args->gid;
    root.record.nlink = 2;
    root.record.parent = root.inode.number;
    root.record.body = names_new(table);
    root.record.atime_ns = root.record.btime_ns = (int64_t)ob_wall_ns();
    struct names_dir names = names_of(&tree, &root);
    names_changed(&root, &names);
    put(&tree, &root);
    uint64_t header[FS_HEADER_LEN / 8] = {FS_MAGIC, args->flags, blocks, inodes, table,
                                          root.inode.number, 0, names_new(table)};
    ob_put(FS_ROOT, header, sizeof header);
    return 0;
}

/* Which use of a number this is. A store that has lost what was not synced, or a replica that takes
 * its server's place, uses a number again that somebody may still have open: counting would come to
 * the same generation, the time does not. */
static uint32_t generation_of(uint32_t counted)
{
    uint32_t now = (uint32_t)(ob_wall_ns() >> 20);
    return now == 0 || now == counted - 1 ? counted : now;
}

/* The record of something new in a directory. */
static void begin(const struct tree *tree, struct user who, const struct fs_answer *dir,
                  uint32_t mode, struct fs_answer *node)
{
    mode &= 15u << 12 | RIGHTS;
    uint32_t gid = dir->record.mode & SETGID ? dir->record.gid : who.gid;
    bool is_dir = mode >> 12 == DIRECTORY;
    if (is_dir)
        mode |= dir->record.mode & SETGID;
    else if (mode >> 12 == LINK)
        mode |= 0777;
    else if (who.uid != 0 && !is_in(who, gid) && (mode & 0010))
        mode &= ~SETGID;
    node->inode.number = inode_new(tree->inodes, mode, &node->record);
    node->record.generation = generation_of(node->record.generation);
    node->inode.generation = node->record.generation;
    struct inode *record = &node->record;
    record->tenant = (uint16_t)who.tenant;
    charge(who.tenant, 0, 1);
    record->uid = who.uid;
    record->gid = gid;
    record->nlink = is_dir ? 2 : 1;
    record->atime_ns = record->btime_ns = (int64_t)ob_wall_ns();
    record->mtime_ns = record->ctime_ns = record->atime_ns;
}

static void check_kind(struct user who, const struct fs_make_args *args)
{
    switch (args->mode >> 12) {
    case CHARACTERS:
    case BLOCK_DEVICE:
        if (who.uid != 0)
            FAIL(E_PERM, "only user 0 makes devices");
        return;
    case FIFO:
    case DIRECTORY:
    case FILE:
    case LINK:
    case SOCKET:
        return;
    default:
        FAIL(E_INVAL, "the mode names no kind of inode");
    }
}

static void put_target(const struct tree *tree, struct fs_answer *node, const void *target,
                       uint64_t len)
{
    if (len == 0)
        FAIL(E_NOENT, "a symbolic link has a target");
    if (len > FS_TARGET_MAX)
        FAIL(E_NAMETOOLONG, "a symbolic link's target has at most 4095 bytes");
    uint64_t block = take_memory(tree, len);
    ob_put(block, target, len);
    node->record.body = block;
    node->record.size = len;
}

/* Gives something new its name. */
static void add_new(const struct tree *tree, const struct names_dir *names, struct name name,
                    struct fs_answer *node, struct fs_answer *dir)
{
    add(names, name, node);
    names_changed(dir, names);
    put(tree, dir);
    put(tree, node);
}

OB_ENTRY(make)
{
    const struct fs_make_args *args = OB_ARGS(struct fs_make_args);
    struct tree tree = the_tree();
    struct user who = user_of(&tree, &args->who);
    struct fs_answer dir, node;
    uint64_t rest = ob_args_len() - sizeof *args;
    if (args->target_len > rest)
        FAIL(E_INVAL, "the arguments are shorter than they say");
    uint64_t name_len = rest - args->target_len;
    struct name name = name_of(args + 1, name_len);
    struct names_dir names = open_for(&tree, who, args->dir, name, &dir);
    check_kind(who, args);
    begin(&tree, who, &dir, args->mode, &node);
    node.record.rdev = args->rdev;
    if (kind_of(&node.record) == LINK)
        put_target(&tree, &node, name.at + name.len, args->target_len);
    if (is_directory(&node.record)) {
        one_more_directory(&dir);
        node.record.body = names_new(tree.table);
        node.record.parent = dir.inode.number;
    }
    add_new(&tree, &names, name, &node, &dir);
    return answer_both(&node, &dir);
}

/* Opens what has a name already. */
static void open_found(struct user who, const struct fs_answer *node, uint32_t want)
{
    if (want & FS_EXCL || kind_of(&node->record) != FILE)
        FAIL(E_EXIST, "the directory has this name already");
    must_open(who, &node->record, want);
}

OB_ENTRY(create)
{
    const struct fs_create_args *args = OB_ARGS(struct fs_create_args);
    struct tree tree = the_tree();
    struct user who = user_of(&tree, &args->who);
    struct fs_answer dir, node;
    struct name name = name_behind(sizeof *args);
    struct names_dir names = open_dir(&tree, who, args->dir, MAY_EXECUTE, &dir);
    if (find(&tree, &names, name, &node)) {
        open_found(who, &node, args->want);
        return answer_both(&node, &dir);
    }
    must(who, &dir.record, MAY_WRITE);
    begin(&tree, who, &dir, (uint32_t)FILE << 12 | (args->mode & RIGHTS), &node);
    add_new(&tree, &names, name, &node, &dir);
    return answer_both(&node, &dir);
}

/* Removes a name; `is_dir` says what it must stand for. */
static int64_t remove_name(bool is_dir)
{
    const struct fs_name_args *args = OB_ARGS(struct fs_name_args);
    struct tree tree = the_tree();
    struct user who = user_of(&tree, &args->who);
    struct fs_answer dir, node;
    struct names_entry entry;
    struct name name = name_behind(sizeof *args);
    if (args->flags & ~FS_HOLD)
        FAIL(E_INVAL, "there is no such flag");
    struct names_dir names = open_dir(&tree, who, args->dir, MAY_EXECUTE, &dir);
    must_find(&tree, &names, name, &node);
    must(who, &dir.record, MAY_WRITE);
    must_remove(who, &dir.record, &node.record);
    if (is_dir && !is_directory(&node.record))
        FAIL(E_NOTDIR, "this is no directory");
    if (!is_dir && is_directory(&node.record))
        FAIL(E_ISDIR, "this is a directory");
    if (is_dir)
        must_be_empty(&tree, &node);
    names_remove(&names, name.at, name.len, &entry);
    unname(&tree, &dir, &node, args->flags);
    names_changed(&dir, &names);
    put(&tree, &dir);
    return answer_both(&node, &dir);
}

OB_ENTRY(unlink) { return remove_name(false); }
OB_ENTRY(rmdir) { return remove_name(true); }

OB_ENTRY(link)
{
    const struct fs_link_args *args = OB_ARGS(struct fs_link_args);
    struct tree tree = the_tree();
    struct user who = user_of(&tree, &args->who);
    struct fs_answer dir, node;
    struct name name = name_behind(sizeof *args);
    struct names_dir names = open_for(&tree, who, args->dir, name, &dir);
    load(&tree, args->inode, &node);
    if (is_directory(&node.record))
        FAIL(E_PERM, "a directory has one name");
    if (node.record.nlink == 0)
        FAIL(E_NOENT, "the inode has lost its last name");
    if (node.record.nlink >= FS_LINKS_MAX)
        FAIL(E_MLINK, "the inode has as many names as it can");
    node.record.nlink++;
    changed(&node);
    add(&names, name, &node);
    names_changed(&dir, &names);
    put(&tree, &dir);
    put(&tree, &node);
    return answer_both(&node, &dir);
}

#include "fs/moves.h"

/* ---- Looking ------------------------------------------------------------------------------ */

OB_ENTRY(get)
{
    struct tree tree = the_tree();
    struct fs_answer node;
    load(&tree, OB_ARGS(struct fs_inode_args)->inode, &node);
    return answer(&node);
}

OB_ENTRY(find)
{
    const struct fs_name_args *args = OB_ARGS(struct fs_name_args);
    struct tree tree = the_tree();
    struct fs_answer dir, node;
    struct name name = name_behind(sizeof *args);
    struct user who = user_of(&tree, &args->who);
    struct names_dir names = open_dir(&tree, who, args->dir, MAY_EXECUTE, &dir);
    must_find(&tree, &names, name, &node);
    return answer(&node);
}

OB_ENTRY(access)
{
    const struct fs_access_args *args = OB_ARGS(struct fs_access_args);
    struct tree tree = the_tree();
    struct fs_answer node;
    load(&tree, args->inode, &node);
    if (args->want & ~(uint32_t)(MAY_READ | MAY_WRITE | MAY_EXECUTE))
        FAIL(E_INVAL, "there is no such right");
    must(user_of(&tree, &args->who), &node.record, args->want);
    return answer(&node);
}

/* The next one of names that follow each other, each behind its length. */
static bool next_name(const unsigned char **at, const unsigned char *end, struct name *name)
{
    if (end - *at < 2)
        return false;
    name->len = ob_tail(*at, 2);
    name->at = *at + 2;
    *at = name->at + name->len;
    return name->len <= (uint64_t)(end - name->at);
}

/* One step: what a name in `node` stands for. Why there is none: an error number, or 0. */
static uint32_t step(const struct tree *tree, struct user who, struct name name,
                     struct fs_answer *node)
{
    uint32_t error = name_error(name);
    if (kind_of(&node->record) == LINK)
        return E_LOOP;
    if (!is_directory(&node->record))
        return E_NOTDIR;
    if (!may(who, &node->record, MAY_EXECUTE))
        return E_ACCES;
    struct names_dir names = names_of(tree, node);
    if (error == 0 && !find(tree, &names, name, node))
        error = E_NOENT;
    return error;
}

OB_ENTRY(walk)
{
    const struct fs_walk_args *args = OB_ARGS(struct fs_walk_args);
    const unsigned char *at = (const unsigned char *)(args + 1);
    const unsigned char *end = (const unsigned char *)ob_args() + ob_args_len();
    struct tree tree = the_tree();
    struct user who = user_of(&tree, &args->who);
    struct fs_answer node;
    struct fs_walked walked = {0, 0};
    if (args->count > FS_WALK_MAX)
        FAIL(E_INVAL, "one walks along up to 256 names");
    open_dir(&tree, who, args->dir, MAY_EXECUTE, &node);
    unsigned char *out = ob_out_of(sizeof walked + args->count * sizeof node);
    while (walked.count < args->count) {
        struct name name;
        if (!next_name(&at, end, &name))
            FAIL(E_INVAL, "there are fewer names than it says");
        walked.error = step(&tree, who, name, &node);
        if (walked.error != 0)
            break;
        memcpy(out + sizeof walked + walked.count++ * sizeof node, &node, sizeof node);
    }
    memcpy(out, &walked, sizeof walked);
    return (int64_t)(sizeof walked + walked.count * sizeof node);
}

/* Removes a name that stands for no directory, if that can be. */
static bool remove_file(const struct tree *tree, struct user who, struct fs_answer *dir,
                        struct names_dir *names, struct name name, struct fs_removed *out)
{
    const struct fs_unlink_args *args = ob_args();
    struct fs_answer node;
    struct names_entry entry;
    if (name_error(name) != 0 || !find(tree, names, name, &node) || is_directory(&node.record)
        || !may_remove(who, &dir->record, &node.record))
        return false;
    names_remove(names, name.at, name.len, &entry);
    unname(tree, dir, &node, args->flags);
    const struct inode *record = &node.record;
    *out = (struct fs_removed){node.inode, record->blocks, record->mode, record->nlink,
                               record->holds, 0};
    return true;
}

OB_ENTRY(unlink_many)
{
    const struct fs_unlink_args *args = OB_ARGS(struct fs_unlink_args);
    const unsigned char *at = (const unsigned char *)(args + 1);
    const unsigned char *end = (const unsigned char *)ob_args() + ob_args_len();
    struct tree tree = the_tree();
    struct user who = user_of(&tree, &args->who);
    struct fs_answer dir, *out;
    uint32_t count = 0;
    if (args->flags & ~FS_HOLD || args->count > FS_UNLINK_MAX)
        FAIL(E_INVAL, "there is no such flag, or these are more than 8 names");
    struct names_dir names = open_dir(&tree, who, args->dir, MAY_EXECUTE, &dir);
    must(who, &dir.record, MAY_WRITE);
    out = ob_out_of(sizeof dir + args->count * sizeof(struct fs_removed));
    struct fs_removed *removed = (struct fs_removed *)(out + 1);
    for (; count < args->count; count++) {
        struct name name;
        if (!next_name(&at, end, &name))
            FAIL(E_INVAL, "there are fewer names than it says");
        if (!remove_file(&tree, who, &dir, &names, name, &removed[count]))
            break;
    }
    if (count > 0) {
        names_changed(&dir, &names);
        put(&tree, &dir);
    }
    *out = dir;
    return (int64_t)(sizeof dir + count * sizeof *removed);
}

OB_ENTRY(target)
{
    struct tree tree = the_tree();
    struct fs_answer node;
    load(&tree, OB_ARGS(struct fs_inode_args)->inode, &node);
    if (kind_of(&node.record) != LINK)
        FAIL(E_INVAL, "this is no symbolic link");
    ob_get(node.record.body, ob_out_of(node.record.size), node.record.size);
    return (int64_t)node.record.size;
}

/* Whether a place is where a name is: a client may ask for any. */
static bool is_place(const struct names_dir *names, const struct names_entry *entry,
                     const void *name)
{
    struct names_entry found;
    return names_find(names, name, entry->name_len, &found) && found.at == entry->at;
}

OB_ENTRY(list)
{
    const struct fs_list_args *args = OB_ARGS(struct fs_list_args);
    struct tree tree = the_tree();
    struct fs_answer dir, node;
    struct user who = user_of(&tree, &args->who);
    if (!is_there(&tree, args->dir, &dir) || dir.record.nlink == 0)
        return 0;
    uint32_t want = who.granted & MAY_READ ? 0 : MAY_READ;
    struct names_dir names = open_dir(&tree, who, args->dir, want, &dir);
    unsigned char *out = ob_out();
    uint64_t cap = ob_out_cap(), len = 0, at = args->at;
    struct {
        struct fs_listed head;
        unsigned char name[NAMES_MAX + 9];
    } one;
    for (;;) {
        struct names_entry entry;
        memset(&one, 0, sizeof one);
        uint64_t next = names_next(&names, at, &entry, one.name);
        if (next == 0 || (len == 0 && !is_place(&names, &entry, one.name)))
            return (int64_t)len;
        uint64_t one_len = sizeof one.head + (entry.name_len + 7) / 8 * 8;
        if (one_len > cap - len)
            return (int64_t)len;
        load_entry(&tree, entry.number, &node);
        one.head = (struct fs_listed){next, entry.name_len, 0, node.inode, node.record};
        memcpy(out + len, &one, (size_t)one_len);
        len += one_len, at = next;
    }
}

OB_ENTRY(orphans)
{
    const struct fs_orphans_args *args = OB_ARGS(struct fs_orphans_args);
    struct tree tree = the_tree();
    struct names_dir orphans = orphans_of(&tree);
    struct fs_orphan *out = ob_out();
    uint64_t room = ob_out_cap() / sizeof *out, count = 0, next = args->at;
    while (count < room) {
        struct names_entry entry;
        struct fs_answer node;
        unsigned char name[NAMES_MAX];
        next = names_next(&orphans, next, &entry, name);
        if (next == 0 || (count == 0 && !is_place(&orphans, &entry, name)))
            break;
        load_entry(&tree, entry.number, &node);
        out[count++] = (struct fs_orphan){next, node.inode, node.record.holds, node.record.mode};
    }
    return (int64_t)(count * sizeof *out);
}

/* Bytes that an inode needs with its name, at least and about. */
#define NAME_LEN 128u
#define INODE_LEN 384u

OB_ENTRY(stats)
{
    struct tree tree = the_tree();
    uint64_t heap = heap_of(&tree), count = ob_get64(tree.inodes + 40);
    uint64_t bytes = ob_get64(heap + 8) - (heap + ALLOC_STATE_LEN), taken = ob_get64(heap + 32);
    uint64_t free = bytes > taken ? bytes - taken : 0, named = free / NAME_LEN;
    /* Numbers that have memory for their records already. */
    uint64_t ready = inode_room(tree.inodes) + free / INODE_LEN;
    struct names_dir orphans = orphans_of(&tree);
    struct fs_stats stats = {
        .blocks = ob_get64(tree.blocks + 8),
        .blocks_free = blocks_free(tree.blocks),
        .inodes = count,
        .heap_bytes = taken,
        .heap_free_bytes = free,
        .inodes_free = named < ready ? named : ready,
        .orphans = names_count(&orphans),
        .dying = ob_get64(FS_ROOT + DYING) != 0,
        .quota_blocks_max = FS_NO_LIMIT,
        .quota_inodes_max = FS_NO_LIMIT,
    };
    return ob_result(&stats, sizeof stats);
}

/* ---- Who pays ----------------------------------------------------------------------------- */

OB_ENTRY(set_quota)
{
    const struct fs_quota_args *args = OB_ARGS(struct fs_quota_args);
    struct tree tree = the_tree();
    struct fs_tenant tenant = {{args->id[0], args->id[1]}, 0, 0, 0, 0};
    uint64_t number = find_tenant(args->id);
    if (number == 0) {
        grow_tenants(&tree);
        number = tenants_count() + 1;
        ob_put64(tenants() + TENANTS_COUNT, number);
    } else {
        ob_get(tenant_at(number), &tenant, sizeof tenant);
    }
    tenant.blocks_max = args->blocks_max;
    tenant.inodes_max = args->inodes_max;
    ob_put(tenant_at(number), &tenant, sizeof tenant);
    return ob_result(&number, sizeof number);
}

OB_ENTRY(tenants)
{
    uint64_t number = OB_ARGS(struct fs_tenants_args)->first, count = 0;
    the_tree();
    struct fs_tenant *out = ob_out();
    uint64_t room = ob_out_cap() / sizeof *out, last = tenants_count();
    for (; number != 0 && number <= last && count < room; number++)
        ob_get(tenant_at(number), &out[count++], sizeof *out);
    return (int64_t)(count * sizeof *out);
}

/* ---- Attributes and holders --------------------------------------------------------------- */

static void set_owner(struct user who, const struct fs_attr_args *args, struct inode *record)
{
    bool is_own = who.uid == record->uid;
    bool is_own_group = args->gid == record->gid || is_in(who, args->gid);
    if (args->which & FS_UID && who.uid != 0 && !(is_own && args->uid == record->uid))
        FAIL(E_PERM, "only user 0 gives inodes to others");
    if (args->which & FS_GID && who.uid != 0 && !(is_own && is_own_group))
        FAIL(E_PERM, "an owner gives an inode to a group of its own only");
    if (args->which & FS_UID)
        record->uid = args->uid;
    if (args->which & FS_GID)
        record->gid = args->gid;
    if (!is_directory(record))
        record->mode &= ~(SETUID | (record->mode & 0010 ? SETGID : 0));
}

static void set_mode(struct user who, const struct fs_attr_args *args, struct inode *record)
{
    if (!owns(who, record))
        FAIL(E_PERM, "only the owner sets rights");
    uint32_t rights = args->mode & RIGHTS;
    bool is_kept = is_directory(record) && record->mode & SETGID;
    /* The client's system takes it off where it does not count this user to the group. */
    if (rights & SETGID && !is_kept && who.uid != 0 && !is_in(who, record->gid))
        FAIL(E_PERM, "only a member of its group, as the server counts, makes it set-gid");
    record->mode = (record->mode & ~RIGHTS) | rights;
}

static void set_times(struct user who, const struct fs_attr_args *args, struct inode *record)
{
    bool to_now = (args->which & (FS_ATIME | FS_MTIME)) == 0;
    if (!owns(who, record) && !(to_now && may(who, record, MAY_WRITE))) {
        if (to_now)
            FAIL(E_ACCES, "this user may not");
        FAIL(E_PERM, "only the owner sets times");
    }
    int64_t now = (int64_t)ob_wall_ns();
    if (args->which & (FS_ATIME | FS_ATIME_NOW))
        record->atime_ns = args->which & FS_ATIME_NOW ? now : args->atime_ns;
    if (args->which & (FS_MTIME | FS_MTIME_NOW))
        record->mtime_ns = args->which & FS_MTIME_NOW ? now : args->mtime_ns;
}

#define TIMES (FS_ATIME | FS_MTIME | FS_ATIME_NOW | FS_MTIME_NOW)
#define ATTRIBUTES (FS_MODE | FS_UID | FS_GID | TIMES)

static void set_attributes(struct user who, const struct fs_attr_args *args, struct inode *record)
{
    if (args->which & ~ATTRIBUTES)
        FAIL(E_INVAL, "there is no such attribute");
    if (args->which & (FS_UID | FS_GID))
        set_owner(who, args, record);
    if (args->which & FS_MODE)
        set_mode(who, args, record);
    if (args->which & TIMES)
        set_times(who, args, record);
}

OB_ENTRY(set)
{
    const struct fs_attr_args *args = OB_ARGS(struct fs_attr_args);
    struct tree tree = the_tree();
    struct user who = user_of(&tree, &args->who);
    struct fs_answer node;
    load(&tree, args->inode, &node);
    if (args->which == 0)
        return answer(&node);
    set_attributes(who, args, &node.record);
    changed(&node);
    put(&tree, &node);
    return answer(&node);
}

OB_ENTRY(hold)
{
    struct tree tree = the_tree();
    struct fs_answer node;
    load(&tree, OB_ARGS(struct fs_inode_args)->inode, &node);
    one_more_holder(&node.record);
    put(&tree, &node);
    return 0;
}

OB_ENTRY(release)
{
    struct tree tree = the_tree();
    struct fs_answer node;
    load(&tree, OB_ARGS(struct fs_inode_args)->inode, &node);
    if (node.record.holds == 0)
        FAIL(E_INVAL, "nobody has it open");
    if (--node.record.holds == 0 && node.record.nlink == 0) {
        remove_orphan(&tree, node.inode.number);
        give_inode(&tree, &node);
    } else {
        put(&tree, &node);
    }
    return 0;
}

OB_ENTRY(reap)
{
    struct tree tree = the_tree();
    uint64_t is_more = reap(&tree);
    return ob_result(&is_more, sizeof is_more);
}

#include "fs/bytes.h"
#include "fs/xattrs.h"
