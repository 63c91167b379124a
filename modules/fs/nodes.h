/* nodes.h: a part of fs.c, which includes it once: where everything is, inodes, who may what, and
 * directories. No entries. */

enum {
    MAGIC = 0, FLAGS = 8, BLOCKS = 16, INODES = 24, TABLE = 32, ROOT = 40, DYING = 48, ORPHANS = 56,
};
enum { TABLE_HEAP = 8 };

/* Of Linux; FS_ERRNO is added. */
enum {
    E_PERM = 1, E_NOENT = 2, E_NXIO = 6, E_2BIG = 7, E_AGAIN = 11, E_ACCES = 13, E_EXIST = 17,
    E_NOTDIR = 20, E_ISDIR = 21, E_INVAL = 22, E_FBIG = 27, E_NOSPC = 28, E_MLINK = 31,
    E_RANGE = 34, E_NAMETOOLONG = 36, E_NOTEMPTY = 39, E_LOOP = 40, E_NODATA = 61,
    E_OPNOTSUPP = 95, E_STALE = 116, E_DQUOT = 122,
};
#define FAIL(number, text) OB_FAIL(FS_ERRNO + (number), text)

/* Kinds of inodes: a mode's upper four bits. */
enum {
    FIFO = 1, CHARACTERS = 2, DIRECTORY = 4, BLOCK_DEVICE = 6, FILE = 8, LINK = 10, SOCKET = 12,
};
enum { MAY_EXECUTE = FS_MAY_EXECUTE, MAY_WRITE = FS_MAY_WRITE, MAY_READ = FS_MAY_READ };
#define SETUID 04000u
#define SETGID 02000u
#define STICKY 01000u
#define RIGHTS 07777u
/* Lines that one execution writes to give back what is gone; the rest waits for `reap`. */
#define REAP_LINES 8192u

/* Where everything is. */
struct tree {
    uint64_t flags, blocks, inodes, table;
};

static struct tree the_tree(void)
{
    if (ob_get64(FS_ROOT + MAGIC) != FS_MAGIC)
        FAIL(E_INVAL, "there is no file system in this region: call fs' init first");
    return (struct tree){ob_get64(FS_ROOT + FLAGS), ob_get64(FS_ROOT + BLOCKS),
                         ob_get64(FS_ROOT + INODES), ob_get64(FS_ROOT + TABLE)};
}

static uint64_t heap_of(const struct tree *tree) { return ob_get64(tree->table + TABLE_HEAP); }

static uint64_t take_memory(const struct tree *tree, uint64_t len)
{
    uint64_t block = alloc_take(heap_of(tree), len);
    if (block == 0)
        FAIL(E_NOSPC, "the region has no room for it");
    return block;
}

/* ---- Inodes ------------------------------------------------------------------------------- */

static uint32_t kind_of(const struct inode *record) { return record->mode >> 12 & 15; }
static bool is_directory(const struct inode *record) { return kind_of(record) == DIRECTORY; }

static bool is_there(const struct tree *tree, struct fs_inode inode, struct fs_answer *node)
{
    const struct inode *record = &node->record;
    node->inode = inode;
    return inode_find(tree->inodes, inode.number, &node->record)
        && record->generation == inode.generation
        /* Else some of its blocks have still to be given back. */
        && (record->nlink != 0 || record->holds != 0);
}

static void load(const struct tree *tree, struct fs_inode inode, struct fs_answer *node)
{
    if (!is_there(tree, inode, node))
        FAIL(E_STALE, "this inode is gone");
}

static void load_file(const struct tree *tree, struct fs_inode inode, struct fs_answer *node)
{
    load(tree, inode, node);
    if (is_directory(&node->record))
        FAIL(E_ISDIR, "this is a directory");
    if (kind_of(&node->record) != FILE)
        FAIL(E_INVAL, "this is no file");
}

static void put(const struct tree *tree, struct fs_answer *node)
{
    inode_put(tree->inodes, node->inode.number, &node->record);
}

/* What an entry of a directory stands for. */
static void load_entry(const struct tree *tree, uint64_t number, struct fs_answer *node)
{
    inode_get(tree->inodes, number, &node->record);
    node->inode = (struct fs_inode){number, node->record.generation};
}

static void changed(struct fs_answer *node) { node->record.ctime_ns = (int64_t)ob_wall_ns(); }

static void names_changed(struct fs_answer *dir, const struct names_dir *names)
{
    dir->record.mtime_ns = dir->record.ctime_ns = (int64_t)ob_wall_ns();
    dir->record.size = names_count(names);
}

/* Gives back an inode that has nothing but blocks; of many it only begins to, and puts the record,
 * which says the next one that is dying. Whether that is all. */
static bool bury(const struct tree *tree, uint64_t number, struct inode *record)
{
    uint64_t lines = REAP_LINES;
    bool is_all = inode_cut(tree->inodes, record, 0, UINT64_MAX, &lines);
    if (is_all)
        inode_drop(tree->inodes, number, record);
    else
        inode_put(tree->inodes, number, record);
    return is_all;
}

/* Gives back more of what is dying; whether there is still more. */
static bool reap(const struct tree *tree)
{
    uint64_t number = ob_get64(FS_ROOT + DYING);
    struct inode record;
    if (number == 0)
        return false;
    inode_get(tree->inodes, number, &record);
    uint64_t next = record.parent;
    if (!bury(tree, number, &record))
        return true;
    ob_put64(FS_ROOT + DYING, next);
    return next != 0;
}

#include "fs/quotas.h"

/* Gives back an inode that has neither names nor holders. */
static void give_inode(const struct tree *tree, struct fs_answer *node)
{
    struct inode *record = &node->record;
    uint64_t next = ob_get64(FS_ROOT + DYING);
    if (kind_of(record) == LINK)
        alloc_give(heap_of(tree), record->body);
    if (record->xattrs != 0)
        alloc_give(heap_of(tree), record->xattrs);
    charge(record->tenant, -(int64_t)record->blocks, -1);
    record->tenant = 0;
    record->body = record->xattrs = 0;
    record->parent = next;
    if (!bury(tree, node->inode.number, record))
        ob_put64(FS_ROOT + DYING, node->inode.number);
    record->mode = 0;
}

/* The directory of inodes that have holders only. */
static struct names_dir orphans_of(const struct tree *tree)
{
    return (struct names_dir){tree->table, 0, ob_get64(FS_ROOT + ORPHANS)};
}

static void add_orphan(const struct tree *tree, const struct fs_answer *node)
{
    struct names_dir orphans = orphans_of(tree);
    uint64_t number = node->inode.number;
    struct names_entry entry = {.number = number, .kind = kind_of(&node->record)};
    names_add(&orphans, &number, sizeof number, &entry);
}

static void remove_orphan(const struct tree *tree, uint64_t number)
{
    struct names_dir orphans = orphans_of(tree);
    struct names_entry entry;
    names_remove(&orphans, &number, sizeof number, &entry);
}

static void one_more_holder(struct inode *record)
{
    if (++record->holds == 0)
        FAIL(E_MLINK, "as many have it open as can");
}

/* Puts a record that has lost a name. */
static void put_or_give(const struct tree *tree, struct fs_answer *node, uint32_t flags)
{
    struct inode *record = &node->record;
    if (record->nlink == 0 && (flags & FS_HOLD))
        one_more_holder(record);
    if (record->nlink == 0 && record->holds == 0) {
        give_inode(tree, node);
        return;
    }
    put(tree, node);
    if (record->nlink == 0)
        add_orphan(tree, node);
}

/* ---- Rights ------------------------------------------------------------------------------- */

/* Who asks, in this file system, and what the opening was granted that is used. */
struct user {
    uint32_t uid, gid, groups_len, tenant, granted;
    const uint32_t *groups;
};

static struct user user_of(const struct tree *tree, const struct fs_who *who)
{
    if (who->groups_len > FS_GROUPS_MAX)
        FAIL(E_INVAL, "a user is said to be in up to 13 groups beside the first one");
    struct user user = {who->uid,    who->gid,          who->groups_len,
                        who->tenant, who->grant.rights, who->groups};
    if (who->uid == 0 && who->tenant != FS_SERVICE && (tree->flags & FS_SQUASH_ROOT))
        user.uid = user.gid = FS_NOBODY, user.groups_len = 0;
    return user;
}

static bool is_in(struct user who, uint32_t gid)
{
    bool is_one = who.gid == gid;
    for (uint32_t at = 0; at < who.groups_len; at++)
        is_one |= who.groups[at] == gid;
    return is_one;
}

static bool may(struct user who, const struct inode *record, uint32_t want)
{
    if (who.uid == 0)
        return !(want & MAY_EXECUTE) || is_directory(record) || (record->mode & 0111);
    uint32_t shift = who.uid == record->uid ? 6 : is_in(who, record->gid) ? 3 : 0;
    return (record->mode >> shift & want) == want;
}

static void must(struct user who, const struct inode *record, uint32_t want)
{
    if (!may(who, record, want))
        FAIL(E_ACCES, "this user may not");
}

static bool owns(struct user who, const struct inode *record)
{
    return who.uid == 0 || who.uid == record->uid;
}

/* A program that is executed is read. */
static void must_read(struct user who, const struct inode *record)
{
    if (!(who.granted & MAY_READ) && !owns(who, record) && !may(who, record, MAY_READ))
        must(who, record, MAY_EXECUTE);
}

static void must_write(struct user who, const struct inode *record)
{
    if (!(who.granted & MAY_WRITE) && !owns(who, record))
        must(who, record, MAY_WRITE);
}

/* Opening: the mode counts for the owner, too. */
static void must_open(struct user who, const struct inode *record, uint32_t want)
{
    if (want & ~(uint32_t)(MAY_READ | MAY_WRITE))
        FAIL(E_INVAL, "a file is opened to be read or written");
    if (want & MAY_READ && !may(who, record, MAY_READ))
        must(who, record, MAY_EXECUTE);
    if (want & MAY_WRITE)
        must(who, record, MAY_WRITE);
}

/* In a sticky directory only owners remove names. */
static bool may_remove(struct user who, const struct inode *dir, const struct inode *record)
{
    return !(dir->mode & STICKY) || owns(who, record) || owns(who, dir);
}

static void must_remove(struct user who, const struct inode *dir, const struct inode *record)
{
    if (!may_remove(who, dir, record))
        FAIL(E_PERM, "in this directory only the owner may");
}

/* ---- Directories -------------------------------------------------------------------------- */

/* A name among the arguments. */
struct name {
    const unsigned char *at;
    uint64_t len;
};

/* Why this is no name: an error number, 0 if it is one. */
static uint32_t name_error(struct name name)
{
    if (name.len > NAMES_MAX)
        return E_NAMETOOLONG;
    if (name.len == 0)
        return E_NOENT;
    for (uint64_t index = 0; index < name.len; index++)
        if (name.at[index] == 0 || name.at[index] == '/')
            return E_INVAL;
    bool is_dots = name.at[0] == '.' && (name.len == 1 || (name.len == 2 && name.at[1] == '.'));
    return is_dots ? E_INVAL : 0;
}

static struct name name_of(const void *at, uint64_t len)
{
    struct name name = {at, len};
    switch (name_error(name)) {
    case E_NAMETOOLONG:
        FAIL(E_NAMETOOLONG, "a name has at most 255 bytes");
    case E_NOENT:
        FAIL(E_NOENT, "a name has at least one byte");
    case E_INVAL:
        FAIL(E_INVAL, "a name has neither slash nor byte of 0, and is neither of both dots");
    default:
        return name;
    }
}

/* The name behind the arguments of that length. */
static struct name name_behind(uint64_t args_len)
{
    return name_of((const char *)ob_args() + args_len, ob_args_len() - args_len);
}

static struct names_dir names_of(const struct tree *tree, const struct fs_answer *dir)
{
    return (struct names_dir){tree->table, dir->inode.number, dir->record.body};
}

/* A directory of which somebody may do what it says. */
static struct names_dir open_dir(const struct tree *tree, struct user who, struct fs_inode inode,
                                 uint32_t want, struct fs_answer *dir)
{
    bool is_left = is_there(tree, inode, dir);
    if (is_left && !is_directory(&dir->record))
        FAIL(E_NOTDIR, "this is no directory");
    if (is_left)
        must(who, &dir->record, want);
    if (!is_left || dir->record.nlink == 0)
        FAIL(E_NOENT, "the directory has been removed");
    return names_of(tree, dir);
}

static bool find(const struct tree *tree, const struct names_dir *names, struct name name,
                 struct fs_answer *node)
{
    struct names_entry entry;
    if (!names_find(names, name.at, name.len, &entry))
        return false;
    load_entry(tree, entry.number, node);
    return true;
}

static void must_find(const struct tree *tree, const struct names_dir *names, struct name name,
                      struct fs_answer *node)
{
    if (!find(tree, names, name, node))
        FAIL(E_NOENT, "the directory has no such name");
}

static void add(const struct names_dir *names, struct name name, const struct fs_answer *node)
{
    struct names_entry entry = {.number = node->inode.number, .kind = kind_of(&node->record)};
    names_add(names, name.at, name.len, &entry);
}

/* A directory that is to have a new name. */
static struct names_dir open_for(const struct tree *tree, struct user who, struct fs_inode inode,
                                 struct name name, struct fs_answer *dir)
{
    struct names_dir names = open_dir(tree, who, inode, MAY_EXECUTE, dir);
    struct names_entry entry;
    if (names_find(&names, name.at, name.len, &entry))
        FAIL(E_EXIST, "the directory has this name already");
    must(who, &dir->record, MAY_WRITE);
    return names;
}

static void one_more_directory(struct fs_answer *dir)
{
    if (dir->record.nlink >= FS_LINKS_MAX)
        FAIL(E_MLINK, "the directory has as many directories as it can");
    dir->record.nlink++;
}

/* A directory must have no names to go. */
static void must_be_empty(const struct tree *tree, const struct fs_answer *dir)
{
    struct names_dir names = names_of(tree, dir);
    if (names_count(&names) != 0)
        FAIL(E_NOTEMPTY, "the directory has names");
}

/* Takes a name from what was found: `parent` is where it was. */
static void unname(const struct tree *tree, struct fs_answer *parent, struct fs_answer *node,
                   uint32_t flags)
{
    if (is_directory(&node->record)) {
        struct names_dir names = names_of(tree, node);
        names_drop(&names);
        node->record.body = 0;
        node->record.nlink = 0;
        parent->record.nlink--;
    } else {
        node->record.nlink--;
    }
    changed(node);
    put_or_give(tree, node, flags);
}

static int64_t answer(const struct fs_answer *node) { return ob_result(node, sizeof *node); }

/* An inode, and the directory that has, or had, its name. */
static int64_t answer_both(const struct fs_answer *node, const struct fs_answer *dir)
{
    struct fs_answer both[2] = {*node, *dir};
    return ob_result(both, sizeof both);
}
