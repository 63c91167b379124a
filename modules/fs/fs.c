/* fs.c: a file system's tree; fs.h says how it is laid out and what each entry does. */
#define OB_MODULE fs
#define FS_OWN
#include "fs/fs.h"
#include "alloc/alloc.h"
#include "blocks/blocks.h"
#include "names/names.h"
#include "table/table.h"

enum { MAGIC = 0, FLAGS = 8, BLOCKS = 16, INODES = 24, TABLE = 32, ROOT = 40, DYING = 48 };
enum { TABLE_HEAP = 8 };

/* Of Linux; FS_ERRNO is added. */
enum {
    E_PERM = 1, E_NOENT = 2, E_ACCES = 13, E_EXIST = 17, E_NOTDIR = 20, E_ISDIR = 21, E_INVAL = 22,
    E_MLINK = 31, E_NAMETOOLONG = 36, E_NOTEMPTY = 39, E_STALE = 116,
};
#define FAIL(number, text) OB_FAIL(FS_ERRNO + (number), text)

/* Kinds of inodes: a mode's upper four bits. */
enum {
    FIFO = 1, CHARACTERS = 2, DIRECTORY = 4, BLOCK_DEVICE = 6, FILE = 8, LINK = 10, SOCKET = 12,
};
enum { MAY_EXECUTE = 1, MAY_WRITE = 2, MAY_READ = 4 };
#define SETUID 04000u
#define SETGID 02000u
#define STICKY 01000u
#define RIGHTS 07777u
/* Extents that one execution gives back of a file that is gone, so that its writes stay few. */
#define REAP_MAX 1024u

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

/* ---- Inodes ------------------------------------------------------------------------------- */

static uint32_t kind_of(const struct inode *record) { return record->mode >> 12 & 15; }
static bool is_directory(const struct inode *record) { return kind_of(record) == DIRECTORY; }

static void load(const struct tree *tree, struct fs_inode inode, struct fs_answer *node)
{
    const struct inode *record = &node->record;
    if (!inode_find(tree->inodes, inode.number, &node->record)
        || record->generation != inode.generation
        /* Some of its blocks have still to be given back. */
        || (record->nlink == 0 && record->holds == 0))
        FAIL(E_STALE, "this inode is gone");
    node->inode = inode;
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

/* Gives back an inode that has neither names nor holders; a large file only begins to. */
static void give_inode(const struct tree *tree, struct fs_answer *node)
{
    if (kind_of(&node->record) == LINK)
        alloc_give(heap_of(tree), node->record.body);
    if (inode_cut(tree->inodes, &node->record, 0, UINT64_MAX, REAP_MAX)) {
        inode_drop(tree->inodes, node->inode.number, &node->record);
    } else {
        node->record.parent = ob_get64(FS_ROOT + DYING);
        put(tree, node);
        ob_put64(FS_ROOT + DYING, node->inode.number);
    }
    node->record.mode = 0;
}

/* Puts a record that may have lost its last name. */
static void put_or_give(const struct tree *tree, struct fs_answer *node)
{
    if (node->record.nlink == 0 && node->record.holds == 0)
        give_inode(tree, node);
    else
        put(tree, node);
}

/* ---- Rights ------------------------------------------------------------------------------- */

static struct fs_who who_of(const struct tree *tree, struct fs_who who)
{
    if (who.uid == 0 && (tree->flags & FS_SQUASH_ROOT))
        return (struct fs_who){FS_NOBODY, FS_NOBODY};
    return who;
}

static bool may(struct fs_who who, const struct inode *record, uint32_t want)
{
    if (who.uid == 0)
        return !(want & MAY_EXECUTE) || is_directory(record) || (record->mode & 0111);
    uint32_t shift = who.uid == record->uid ? 6 : who.gid == record->gid ? 3 : 0;
    return (record->mode >> shift & want) == want;
}

static void must(struct fs_who who, const struct inode *record, uint32_t want)
{
    if (!may(who, record, want))
        FAIL(E_ACCES, "this user may not");
}

static bool owns(struct fs_who who, const struct inode *record)
{
    return who.uid == 0 || who.uid == record->uid;
}

/* In a sticky directory only owners remove names. */
static void must_remove(struct fs_who who, const struct inode *dir, const struct inode *record)
{
    if ((dir->mode & STICKY) && !owns(who, record) && !owns(who, dir))
        FAIL(E_PERM, "in this directory only the owner may");
}

/* ---- Directories -------------------------------------------------------------------------- */

/* A name among the arguments. */
struct name {
    const unsigned char *at;
    uint64_t len;
};

static struct name name_of(const void *at, uint64_t len)
{
    struct name name = {at, len};
    if (len > NAMES_MAX)
        FAIL(E_NAMETOOLONG, "a name has at most 255 bytes");
    if (len == 0)
        FAIL(E_NOENT, "a name has at least one byte");
    for (uint64_t index = 0; index < len; index++)
        if (name.at[index] == 0 || name.at[index] == '/')
            FAIL(E_INVAL, "a name has neither a slash nor a byte of 0");
    if (name.at[0] == '.' && (len == 1 || (len == 2 && name.at[1] == '.')))
        FAIL(E_INVAL, "these two names are no entries of a directory");
    return name;
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

/* A directory in which somebody may look up names, and more. */
static struct names_dir open_dir(const struct tree *tree, struct fs_who who, struct fs_inode inode,
                                 uint32_t want, struct fs_answer *dir)
{
    load(tree, inode, dir);
    if (!is_directory(&dir->record))
        FAIL(E_NOTDIR, "this is no directory");
    must(who, &dir->record, want);
    if (dir->record.nlink == 0)
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

static void must_be_free(const struct names_dir *names, struct name name)
{
    struct names_entry entry;
    if (names_find(names, name.at, name.len, &entry))
        FAIL(E_EXIST, "the directory has this name already");
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

/* Takes the last name from what was found: `parent` is where it was. */
static void unname(const struct tree *tree, struct fs_answer *parent, struct fs_answer *node)
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
    put_or_give(tree, node);
}

static int64_t answer(const struct fs_answer *node) { return ob_result(node, sizeof *node); }

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
                                          root.inode.number};
    ob_put(FS_ROOT, header, sizeof header);
    return 0;
}

/* The record of something new in a directory. */
static void begin(const struct tree *tree, struct fs_who who, const struct fs_answer *dir,
                  const struct fs_make_args *args, struct fs_answer *node)
{
    uint32_t mode = args->mode & (15u << 12 | RIGHTS);
    uint32_t gid = dir->record.mode & SETGID ? dir->record.gid : who.gid;
    bool is_dir = mode >> 12 == DIRECTORY;
    if (is_dir)
        mode |= dir->record.mode & SETGID;
    else if (who.uid != 0 && gid != who.gid && (mode & 0010))
        mode &= ~SETGID;
    node->inode.number = inode_new(tree->inodes, mode, &node->record);
    node->inode.generation = node->record.generation;
    struct inode *record = &node->record;
    record->uid = who.uid;
    record->gid = gid;
    record->nlink = is_dir ? 2 : 1;
    record->rdev = args->rdev;
    record->atime_ns = record->btime_ns = (int64_t)ob_wall_ns();
    record->mtime_ns = record->ctime_ns = record->atime_ns;
}

static void check_kind(struct fs_who who, const struct fs_make_args *args)
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
    uint64_t block = alloc_take(heap_of(tree), len);
    if (block == 0)
        OB_FAIL(INODE_E_FULL, "the region has no room for the link");
    ob_put(block, target, len);
    node->record.body = block;
    node->record.size = len;
}

OB_ENTRY(make)
{
    const struct fs_make_args *args = OB_ARGS(struct fs_make_args);
    struct tree tree = the_tree();
    struct fs_who who = who_of(&tree, args->who);
    struct fs_answer dir, node;
    uint64_t rest = ob_args_len() - sizeof *args;
    if (args->target_len > rest)
        FAIL(E_INVAL, "the arguments are shorter than they say");
    uint64_t name_len = rest - args->target_len;
    struct name name = name_of(args + 1, name_len);
    struct names_dir names = open_dir(&tree, who, args->dir, MAY_WRITE | MAY_EXECUTE, &dir);
    must_be_free(&names, name);
    check_kind(who, args);
    begin(&tree, who, &dir, args, &node);
    if (kind_of(&node.record) == LINK)
        put_target(&tree, &node, name.at + name.len, args->target_len);
    if (is_directory(&node.record)) {
        one_more_directory(&dir);
        node.record.body = names_new(tree.table);
        node.record.parent = dir.inode.number;
    }
    add(&names, name, &node);
    names_changed(&dir, &names);
    put(&tree, &dir);
    put(&tree, &node);
    return answer(&node);
}

/* Removes a name; `is_dir` says what it must stand for. */
static int64_t remove_name(bool is_dir)
{
    const struct fs_name_args *args = OB_ARGS(struct fs_name_args);
    struct tree tree = the_tree();
    struct fs_who who = who_of(&tree, args->who);
    struct fs_answer dir, node;
    struct names_entry entry;
    struct name name = name_behind(sizeof *args);
    struct names_dir names = open_dir(&tree, who, args->dir, MAY_WRITE | MAY_EXECUTE, &dir);
    must_find(&tree, &names, name, &node);
    must_remove(who, &dir.record, &node.record);
    if (is_dir && !is_directory(&node.record))
        FAIL(E_NOTDIR, "this is no directory");
    if (!is_dir && is_directory(&node.record))
        FAIL(E_ISDIR, "this is a directory");
    if (is_dir)
        must_be_empty(&tree, &node);
    names_remove(&names, name.at, name.len, &entry);
    unname(&tree, &dir, &node);
    names_changed(&dir, &names);
    put(&tree, &dir);
    return answer(&node);
}

OB_ENTRY(unlink) { return remove_name(false); }
OB_ENTRY(rmdir) { return remove_name(true); }

OB_ENTRY(link)
{
    const struct fs_link_args *args = OB_ARGS(struct fs_link_args);
    struct tree tree = the_tree();
    struct fs_who who = who_of(&tree, args->who);
    struct fs_answer dir, node;
    struct name name = name_behind(sizeof *args);
    struct names_dir names = open_dir(&tree, who, args->dir, MAY_WRITE | MAY_EXECUTE, &dir);
    load(&tree, args->inode, &node);
    if (is_directory(&node.record))
        FAIL(E_PERM, "a directory has one name");
    must_be_free(&names, name);
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
    return answer(&node);
}

/* ---- Renaming ----------------------------------------------------------------------------- */

/* One side of a renaming: a directory, a name, and what it stands for. */
struct side {
    struct fs_answer *dir;
    struct names_dir names;
    struct name name;
    struct fs_answer node;
    bool is_there;
};

/* A directory must not come to be below itself. */
static void must_not_be_above(const struct tree *tree, const struct fs_answer *node,
                              const struct fs_answer *dir)
{
    uint64_t number = dir->inode.number, root = ob_get64(FS_ROOT + ROOT);
    for (uint32_t depth = 0; number != root; depth++) {
        struct inode record;
        if (number == node->inode.number || depth == FS_DEPTH_MAX)
            FAIL(E_INVAL, "a directory cannot be moved below itself");
        inode_get(tree->inodes, number, &record);
        number = record.parent;
    }
}

/* Has a directory another directory above it. */
static void move_directory(struct fs_answer *node, struct fs_answer *from, struct fs_answer *to)
{
    if (!is_directory(&node->record) || from->inode.number == to->inode.number)
        return;
    node->record.parent = to->inode.number;
    from->record.nlink--;
    one_more_directory(to);
}

static void set_name(const struct side *side, const struct fs_answer *node)
{
    names_set(&side->names, side->name.at, side->name.len, node->inode.number,
              kind_of(&node->record));
}

static void check_move(const struct tree *tree, struct fs_who who, const struct side *from,
                       const struct side *to)
{
    must_remove(who, &from->dir->record, &from->node.record);
    if (!is_directory(&from->node.record) || from->dir->inode.number == to->dir->inode.number)
        return;
    must_not_be_above(tree, &from->node, to->dir);
    /* Its entry for the directory above changes. */
    must(who, &from->node.record, MAY_WRITE);
}

static void exchange(const struct tree *tree, struct fs_who who, struct side *from, struct side *to)
{
    if (!to->is_there)
        FAIL(E_NOENT, "there is nothing to exchange it with");
    check_move(tree, who, to, from);
    move_directory(&from->node, from->dir, to->dir);
    move_directory(&to->node, to->dir, from->dir);
    set_name(to, &from->node);
    set_name(from, &to->node);
    changed(&to->node);
    put(tree, &to->node);
}

/* Takes the name away that is replaced. */
static void replace(const struct tree *tree, struct fs_who who, struct side *from, struct side *to)
{
    bool is_dir = is_directory(&from->node.record);
    must_remove(who, &to->dir->record, &to->node.record);
    if (is_dir && !is_directory(&to->node.record))
        FAIL(E_NOTDIR, "a directory replaces directories only");
    if (!is_dir && is_directory(&to->node.record))
        FAIL(E_ISDIR, "only a directory replaces a directory");
    if (is_dir)
        must_be_empty(tree, &to->node);
    set_name(to, &from->node);
    unname(tree, to->dir, &to->node);
}

static void move(const struct tree *tree, struct fs_who who, struct side *from, struct side *to)
{
    struct names_entry entry;
    if (to->is_there)
        replace(tree, who, from, to);
    else
        add(&to->names, to->name, &from->node);
    move_directory(&from->node, from->dir, to->dir);
    names_remove(&from->names, from->name.at, from->name.len, &entry);
}

OB_ENTRY(rename)
{
    const struct fs_rename_args *args = OB_ARGS(struct fs_rename_args);
    struct tree tree = the_tree();
    struct fs_who who = who_of(&tree, args->who);
    struct fs_answer dirs[2], nothing;
    struct side from = {.dir = &dirs[0]}, to = {.dir = &dirs[args->from.number != args->to.number]};
    uint64_t rest = ob_args_len() - sizeof *args;
    if (args->from_len > rest || (args->flags & FS_NOREPLACE && args->flags & FS_EXCHANGE))
        FAIL(E_INVAL, "these are no two names, or flags that exclude each other");
    from.name = name_of(args + 1, args->from_len);
    to.name = name_of(from.name.at + from.name.len, rest - args->from_len);
    from.names = open_dir(&tree, who, args->from, MAY_WRITE | MAY_EXECUTE, from.dir);
    to.names = open_dir(&tree, who, args->to, MAY_WRITE | MAY_EXECUTE, to.dir);
    must_find(&tree, &from.names, from.name, &from.node);
    to.is_there = find(&tree, &to.names, to.name, &to.node);
    memset(&nothing, 0, sizeof nothing);
    if (to.is_there && (args->flags & FS_NOREPLACE))
        FAIL(E_EXIST, "the directory has this name already");
    if (to.is_there && from.node.inode.number == to.node.inode.number)
        return answer(&nothing);
    check_move(&tree, who, &from, &to);
    if (args->flags & FS_EXCHANGE)
        exchange(&tree, who, &from, &to);
    else
        move(&tree, who, &from, &to);
    changed(&from.node);
    put(&tree, &from.node);
    names_changed(from.dir, &from.names);
    names_changed(to.dir, &to.names);
    put(&tree, from.dir);
    if (to.dir != from.dir)
        put(&tree, to.dir);
    return answer(to.is_there ? &to.node : &nothing);
}

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
    struct fs_who who = who_of(&tree, args->who);
    struct names_dir names = open_dir(&tree, who, args->dir, MAY_EXECUTE, &dir);
    must_find(&tree, &names, name, &node);
    return answer(&node);
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
    struct fs_who who = who_of(&tree, args->who);
    load(&tree, args->dir, &dir);
    if (dir.record.nlink == 0)
        return 0;
    struct names_dir names = open_dir(&tree, who, args->dir, MAY_READ, &dir);
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

OB_ENTRY(stats)
{
    struct tree tree = the_tree();
    uint64_t heap = heap_of(&tree);
    struct fs_stats stats = {
        .blocks = ob_get64(tree.blocks + 8),
        .blocks_free = blocks_free(tree.blocks),
        .inodes = ob_get64(tree.inodes + 40),
        .heap_bytes = ob_get64(heap + 32),
        .heap_free_bytes = ob_get64(heap + 8) - ob_get64(heap + 16),
    };
    return ob_result(&stats, sizeof stats);
}

/* ---- Attributes and holders --------------------------------------------------------------- */

static void set_owner(struct fs_who who, const struct fs_attr_args *args, struct inode *record)
{
    bool to_own_group = who.uid == record->uid && args->gid == who.gid;
    if (args->which & FS_UID && who.uid != 0 && !(owns(who, record) && args->uid == record->uid))
        FAIL(E_PERM, "only user 0 gives inodes to others");
    if (args->which & FS_GID && who.uid != 0 && !to_own_group)
        FAIL(E_PERM, "an owner gives an inode to a group of its own only");
    if (args->which & FS_UID)
        record->uid = args->uid;
    if (args->which & FS_GID)
        record->gid = args->gid;
    if (!is_directory(record) && (record->mode & 0111))
        record->mode &= ~(SETUID | (record->mode & 0010 ? SETGID : 0));
}

static void set_mode(struct fs_who who, const struct fs_attr_args *args, struct inode *record)
{
    if (!owns(who, record))
        FAIL(E_PERM, "only the owner sets rights");
    uint32_t rights = args->mode & RIGHTS;
    if (who.uid != 0 && who.gid != record->gid && !is_directory(record))
        rights &= ~SETGID;
    record->mode = (record->mode & ~RIGHTS) | rights;
}

static void set_times(struct fs_who who, const struct fs_attr_args *args, struct inode *record)
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

OB_ENTRY(set)
{
    const struct fs_attr_args *args = OB_ARGS(struct fs_attr_args);
    struct tree tree = the_tree();
    struct fs_who who = who_of(&tree, args->who);
    struct fs_answer node;
    load(&tree, args->inode, &node);
    if (args->which & (FS_UID | FS_GID))
        set_owner(who, args, &node.record);
    if (args->which & FS_MODE)
        set_mode(who, args, &node.record);
    if (args->which & (FS_ATIME | FS_MTIME | FS_ATIME_NOW | FS_MTIME_NOW))
        set_times(who, args, &node.record);
    changed(&node);
    put(&tree, &node);
    return answer(&node);
}

OB_ENTRY(hold)
{
    struct tree tree = the_tree();
    struct fs_answer node;
    load(&tree, OB_ARGS(struct fs_inode_args)->inode, &node);
    if (++node.record.holds == 0)
        FAIL(E_MLINK, "as many have it open as can");
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
    node.record.holds--;
    put_or_give(&tree, &node);
    return 0;
}

OB_ENTRY(reap)
{
    struct tree tree = the_tree();
    struct fs_answer node;
    uint64_t number = ob_get64(FS_ROOT + DYING);
    if (number != 0) {
        load_entry(&tree, number, &node);
        uint64_t next = node.record.parent;
        if (inode_cut(tree.inodes, &node.record, 0, UINT64_MAX, REAP_MAX)) {
            ob_put64(FS_ROOT + DYING, next);
            inode_drop(tree.inodes, number, &node.record);
            number = next;
        } else {
            put(&tree, &node);
        }
    }
    uint64_t is_more = number != 0;
    return ob_result(&is_more, sizeof is_more);
}
