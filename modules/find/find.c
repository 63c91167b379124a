/* find.c: walks a file system's tree; find.h says what for. It reads fs' structures by the very
 * functions that fs uses (fs/nodes.h), of which it calls none that writes. Its parts: match.h
 * (patterns), program.h (what is asked of a name). */
#define OB_MODULE find
#include "find/find.h"
#include "alloc/alloc.h"
#include "blocks/blocks.h"
#include "names/names.h"
#include "table/table.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#include "fs/nodes.h"
#pragma GCC diagnostic pop

#include "find/match.h"
#include "find/program.h"

_Static_assert(sizeof(struct find_args) == 144, "no gaps");
_Static_assert(sizeof(struct find_record) == 12, "no gaps");
_Static_assert(sizeof(struct find_attributes) == 88, "no gaps");

/* Bytes that one name may add to the result, besides paths: three records, a level. */
#define ROOM_MIN 1536u

/* A walk while it goes on. */
struct walk {
    const struct find_args *args;
    struct walker walker;
    struct program program;
    unsigned char *out;
    uint64_t len, cap;
    uint32_t levels, path_len;
    /* Levels below this come from the caller, who may name any place. */
    uint32_t unchecked;
    bool quits;
    struct find_sums sums;
    /* The innermost directory. */
    struct fs_answer dir;
    struct find_level level[FIND_LEVELS_MAX];
    unsigned char path[FIND_PATH_MAX + 1 + NAMES_MAX];
};
static struct walk walk;

/* Whether there is room for what one more name may add, and for the cursor. */
static bool has_room(void)
{
    uint64_t paths = 2 * (walk.path_len + NAMES_MAX + 1ul);
    uint64_t cursor = (walk.levels + 1ul) * sizeof *walk.level;
    return walk.cap - walk.len >= ROOM_MIN + paths + cursor;
}

/* ---- Telling ------------------------------------------------------------------------------ */

static void tell(const void *bytes, uint64_t len)
{
    if (walk.cap - walk.len < len)
        OB_FAIL(OB_E_RESULT, "the caller has no room for the result");
    memcpy(walk.out + walk.len, bytes, (size_t)len);
    walk.len += len;
}

static void tell_attributes(const struct node *node)
{
    const struct inode *record = &node->record;
    struct find_attributes attributes = {
        {node->number, record->generation}, record->mode, record->uid, record->gid, record->nlink,
        record->size, record->blocks, record->atime_ns, record->mtime_ns, record->ctime_ns,
        record->btime_ns, record->rdev,
    };
    tell(&attributes, sizeof attributes);
}

static void tell_sums(void)
{
    if (!(walk.args->flags & FIND_SUMS))
        return;
    tell(&walk.sums, sizeof walk.sums);
    memset(&walk.sums, 0, sizeof walk.sums);
}

/* Tells of a name. */
static void tell_node(struct node *node, uint32_t what, uint32_t actions)
{
    struct find_record record = {(uint16_t)node->depth, (uint16_t)node->name.len,
                                 (uint8_t)node->kind, (uint8_t)what, 0, 0, actions};
    tell(&record, sizeof record);
    tell(node->name.at, node->name.len);
    tell_sums();
    if (!(walk.args->flags & FIND_ATTRIBUTES) && !(what & FIND_IS_APART))
        return;
    if (!has_record(&walk.walker, node))
        memset(&node->record, 0, sizeof node->record);
    tell_attributes(node);
}

static void tell_left(uint32_t depth)
{
    struct find_record record = {(uint16_t)depth, 0, DIRECTORY, FIND_IS_LEFT, 0, 0, 0};
    tell(&record, sizeof record);
    tell_sums();
}

static void tell_error(const struct node *node, uint32_t error)
{
    struct find_record record = {(uint16_t)node->depth, (uint16_t)node->path.len,
                                 (uint8_t)node->kind, FIND_IS_ERROR, (uint8_t)error, 0, 0};
    tell(&record, sizeof record);
    tell(node->path.at, node->path.len);
    tell_sums();
}

/* ---- Paths -------------------------------------------------------------------------------- */

/* The path of a name in the innermost directory; the path of that one is what it begins with. */
static struct name path_to(struct name name)
{
    uint32_t len = walk.path_len;
    if (len > 0 && walk.path[len - 1] != '/')
        walk.path[len++] = '/';
    memcpy(walk.path + len, name.at, (size_t)name.len);
    return (struct name){walk.path, len + name.len};
}

static void leave_path(void)
{
    if (walk.levels <= 1) {
        walk.path_len = walk.args->root_len;
        return;
    }
    while (walk.path_len > walk.args->root_len && walk.path[walk.path_len - 1] != '/')
        walk.path_len--;
    if (walk.path_len > walk.args->root_len)
        walk.path_len--;
}

/* ---- Directories -------------------------------------------------------------------------- */

/* Loads the innermost directory; false if the user may not look into it (any more). */
static bool load_level(void)
{
    const struct find_level *level = &walk.level[walk.levels - 1];
    struct fs_answer *dir = &walk.dir;
    dir->inode = (struct fs_inode){level->number, level->generation};
    return inode_find(walk.walker.tree.inodes, level->number, &dir->record)
        && dir->record.generation == level->generation && is_directory(&dir->record)
        && dir->record.nlink > 0 && may(walk.walker.who, &dir->record, MAY_READ | MAY_EXECUTE);
}

static bool has_sums(uint32_t depth)
{
    return (walk.args->flags & FIND_SUMS) && depth <= walk.args->sum_depth;
}

static void enter(const struct node *node)
{
    walk.path_len = (uint32_t)node->path.len;
    walk.level[walk.levels++] = (struct find_level){node->number, node->record.generation, 0};
    walk.dir.inode = (struct fs_inode){node->number, node->record.generation};
    walk.dir.record = node->record;
}

/* Goes back to the directory above. What cannot be looked into any more is left as well. */
static void leave(void)
{
    do {
        uint32_t depth = --walk.levels;
        if (has_sums(depth))
            tell_left(depth);
        leave_path();
        if (walk.unchecked > walk.levels)
            walk.unchecked = walk.levels;
    } while (walk.levels > 0 && !load_level() && has_room());
}

/* Why a directory is not entered: an error number, 0 if it can be. */
static uint32_t why_not(struct node *node)
{
    if (!may(walk.walker.who, &node->record, MAY_READ | MAY_EXECUTE))
        return E_ACCES;
    return walk.levels == FIND_LEVELS_MAX || node->path.len > FIND_PATH_MAX ? E_NAMETOOLONG : 0;
}

/* ---- Names -------------------------------------------------------------------------------- */

static void add_to_sums(const struct node *node)
{
    struct find_sums *sums = &walk.sums;
    sums->files += node->kind == FILE;
    sums->directories += node->kind == DIRECTORY;
    sums->links += node->kind == LINK;
    sums->others += node->kind != FILE && node->kind != DIRECTORY && node->kind != LINK;
    sums->size += node->record.size;
    sums->blocks += node->record.blocks;
}

/* Tells of a name that is not gone into, or counts it. */
static void take(struct node *node, uint32_t actions)
{
    if (!(walk.args->flags & FIND_SUMS)) {
        tell_node(node, FIND_IS_MATCH, actions);
        return;
    }
    if (!has_record(&walk.walker, node))
        return;
    if ((walk.args->flags & FIND_APART) && node->kind != DIRECTORY && node->record.nlink > 1)
        tell_node(node, FIND_IS_APART, actions);
    else
        add_to_sums(node);
}

/* A directory that the walk goes into, if it can. */
static void take_directory(struct node *node, uint32_t actions)
{
    uint32_t error = has_record(&walk.walker, node) ? why_not(node) : E_NOENT;
    bool is_apart = has_sums(node->depth), is_counted = walk.args->flags & FIND_SUMS;
    bool is_entered = error == 0 && (is_apart || node->record.size > 0);
    uint32_t matched = actions != 0 && !is_counted ? FIND_IS_MATCH : 0;
    uint32_t entered = is_apart || (is_entered && !is_counted) ? FIND_IS_ENTERED : 0;
    if ((matched | entered) != 0)
        tell_node(node, matched | entered, actions);
    if (actions != 0 && is_counted)
        add_to_sums(node);
    if (error != 0)
        tell_error(node, error);
    if (is_entered)
        enter(node);
    else if (is_apart)
        tell_left(node->depth);
}

static void visit(struct node *node)
{
    struct verdict verdict = {0, false, false};
    if (node->depth >= walk.args->min_depth)
        verdict = judge(&walk.walker, walk.program, node);
    bool goes_in = node->kind == DIRECTORY && !verdict.is_pruned && !verdict.quits
                && node->depth < walk.args->max_depth;
    if (goes_in)
        take_directory(node, verdict.actions);
    else if (verdict.actions != 0)
        take(node, verdict.actions);
    walk.quits = verdict.quits;
}

/* Whether a place that the caller has named is one: the innermost directory may have lost all its
 * names since, and got others. */
static bool is_place(const struct names_dir *names, const struct names_entry *entry,
                     const void *name)
{
    struct names_entry found;
    if (walk.unchecked < walk.levels)
        return true;
    walk.unchecked = walk.levels - 1;
    return entry->name_len > 0 && names_find(names, name, entry->name_len, &found)
        && found.at == entry->at;
}

/* The next name of the innermost directory, or the end of it. */
static void step(void)
{
    struct find_level *level = &walk.level[walk.levels - 1];
    struct names_dir names = names_of(&walk.walker.tree, &walk.dir);
    struct names_entry entry;
    unsigned char bytes[NAMES_MAX + 1];
    uint64_t next = names_next(&names, level->at, &entry, bytes);
    if (next == 0 || !is_place(&names, &entry, bytes)) {
        leave();
        return;
    }
    struct node node;
    level->at = (uint32_t)next;
    node.number = entry.number, node.kind = entry.kind, node.depth = walk.levels;
    node.name = (struct name){bytes, entry.name_len};
    node.path = path_to(node.name);
    node.loaded = 0;
    visit(&node);
}

/* ---- The entry ---------------------------------------------------------------------------- */

static void begin_at_root(void)
{
    const struct find_args *args = walk.args;
    struct node node;
    struct fs_answer root;
    load(&walk.walker.tree, args->root, &root);
    node.number = root.inode.number, node.kind = kind_of(&root.record), node.depth = 0;
    node.path = (struct name){walk.path, walk.path_len};
    node.name = (struct name){walk.path + args->name_at, args->name_len};
    node.loaded = 1;
    node.record = root.record;
    visit(&node);
}

static void check_args(const struct find_args *args)
{
    uint64_t levels = args->levels * (uint64_t)sizeof(struct find_level);
    uint64_t rest = ob_args_len() - sizeof *args;
    if (args->levels > FIND_LEVELS_MAX || args->program_len > FIND_PROGRAM_MAX
        || rest < levels + args->program_len)
        FAIL(E_INVAL, "the walk's cursor or its program is too long");
    rest -= levels + args->program_len;
    if (rest > FIND_PATH_MAX || args->root_len > rest || args->name_at > args->root_len
        || args->name_len > args->root_len - args->name_at || args->most == 0)
        FAIL(E_INVAL, "the walk's path is too long, or not where it is said to be");
}

static void begin(const struct find_args *args)
{
    const struct find_level *levels = (const struct find_level *)(args + 1);
    const unsigned char *program = (const unsigned char *)(levels + args->levels);
    const unsigned char *path = program + args->program_len;
    uint64_t path_len = (uint64_t)((const unsigned char *)ob_args() + ob_args_len() - path);
    walk.args = args;
    walk.walker.tree = the_tree();
    walk.walker.who = user_of(&walk.walker.tree, &args->who);
    walk.program = (struct program){program, path};
    walk.out = ob_out_of(sizeof(struct find_result));
    walk.len = sizeof(struct find_result);
    walk.cap = ob_out_cap();
    walk.levels = walk.unchecked = args->levels;
    walk.path_len = (uint32_t)path_len;
    walk.quits = false;
    memset(&walk.sums, 0, sizeof walk.sums);
    memcpy(walk.level, levels, args->levels * sizeof *levels);
    memcpy(walk.path, path, (size_t)path_len);
}

/* Puts the head and the cursor. */
static int64_t end(void)
{
    if (walk.quits)
        walk.levels = 0;
    struct find_result result = {
        .records_len = (uint32_t)(walk.len - sizeof result),
        .levels = walk.levels,
        .path_len = walk.levels > 0 ? walk.path_len : 0,
        .is_over = walk.levels == 0,
        .rest = walk.sums,
    };
    memcpy(walk.out, &result, sizeof result);
    tell(walk.level, walk.levels * sizeof *walk.level);
    tell(walk.path, result.path_len);
    return (int64_t)walk.len;
}

OB_ENTRY(walk)
{
    const struct find_args *args = OB_ARGS(struct find_args);
    check_args(args);
    begin(args);
    if (!has_room())
        OB_FAIL(OB_E_RESULT, "the caller has no room for the result");
    if (walk.levels == 0)
        begin_at_root();
    else if (!load_level())
        leave();
    for (uint32_t looked = 0; walk.levels > 0 && !walk.quits && looked < args->most; looked++) {
        if (!has_room())
            break;
        step();
    }
    return end();
}
