/* moves.h: a part of fs.c, which includes it once: renaming. */

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

/* Has a directory another directory above it, which counts it, or will. */
static bool move_directory(struct fs_answer *node, struct fs_answer *from, struct fs_answer *to)
{
    if (!is_directory(&node->record) || from->inode.number == to->inode.number)
        return false;
    node->record.parent = to->inode.number;
    from->record.nlink--;
    return true;
}

static void set_name(const struct side *side, const struct fs_answer *node)
{
    names_set(&side->names, side->name.at, side->name.len, node->inode.number,
              kind_of(&node->record));
}

static void check_move(const struct tree *tree, struct user who, const struct side *from,
                       const struct side *to)
{
    must_remove(who, &from->dir->record, &from->node.record);
    if (!is_directory(&from->node.record) || from->dir->inode.number == to->dir->inode.number)
        return;
    must_not_be_above(tree, &from->node, to->dir);
    /* Its entry for the directory above changes. */
    must(who, &from->node.record, MAY_WRITE);
}

static void exchange(const struct tree *tree, struct user who, struct side *from, struct side *to)
{
    check_move(tree, who, to, from);
    bool is_moved = move_directory(&from->node, from->dir, to->dir);
    if (move_directory(&to->node, to->dir, from->dir))
        one_more_directory(from->dir);
    if (is_moved)
        one_more_directory(to->dir);
    set_name(to, &from->node);
    set_name(from, &to->node);
    changed(&to->node);
    put(tree, &to->node);
}

/* Takes the name away that is replaced. */
static void replace(const struct tree *tree, struct user who, const struct side *from,
                    struct side *to, uint32_t flags)
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
    unname(tree, to->dir, &to->node, flags);
}

static void move(const struct tree *tree, struct user who, struct side *from, struct side *to,
                 uint32_t flags)
{
    struct names_entry entry;
    if (to->is_there)
        replace(tree, who, from, to, flags);
    else
        add(&to->names, to->name, &from->node);
    if (move_directory(&from->node, from->dir, to->dir))
        one_more_directory(to->dir);
    names_remove(&from->names, from->name.at, from->name.len, &entry);
}

static void check_flags(const struct fs_rename_args *args, uint64_t rest)
{
    uint32_t both = FS_NOREPLACE | FS_EXCHANGE;
    if (args->from_len > rest || (args->flags & ~(both | FS_HOLD)) || (args->flags & both) == both)
        FAIL(E_INVAL, "these are no two names, or flags that are none or exclude each other");
}

/* Finds what both names stand for, and checks that they may be changed. */
static void open_sides(const struct tree *tree, struct user who, const struct fs_rename_args *args,
                       struct side *from, struct side *to)
{
    from->names = open_dir(tree, who, args->from, MAY_EXECUTE, from->dir);
    to->names = open_dir(tree, who, args->to, MAY_EXECUTE, to->dir);
    must_find(tree, &from->names, from->name, &from->node);
    to->is_there = find(tree, &to->names, to->name, &to->node);
    if (to->is_there && (args->flags & FS_NOREPLACE))
        FAIL(E_EXIST, "the directory has this name already");
    if (!to->is_there && (args->flags & FS_EXCHANGE))
        FAIL(E_NOENT, "there is nothing to exchange it with");
    must(who, &from->dir->record, MAY_WRITE);
    must(who, &to->dir->record, MAY_WRITE);
}

OB_ENTRY(rename)
{
    const struct fs_rename_args *args = OB_ARGS(struct fs_rename_args);
    struct tree tree = the_tree();
    struct user who = user_of(&tree, &args->who);
    struct fs_answer dirs[2], nothing;
    struct side from = {.dir = &dirs[0]}, to = {.dir = &dirs[args->from.number != args->to.number]};
    uint64_t rest = ob_args_len() - sizeof *args;
    check_flags(args, rest);
    from.name = name_of(args + 1, args->from_len);
    to.name = name_of(from.name.at + from.name.len, rest - args->from_len);
    open_sides(&tree, who, args, &from, &to);
    memset(&nothing, 0, sizeof nothing);
    if (to.is_there && from.node.inode.number == to.node.inode.number)
        return answer_both(&nothing, &nothing);
    check_move(&tree, who, &from, &to);
    if (args->flags & FS_EXCHANGE)
        exchange(&tree, who, &from, &to);
    else
        move(&tree, who, &from, &to, args->flags);
    changed(&from.node);
    put(&tree, &from.node);
    names_changed(from.dir, &from.names);
    names_changed(to.dir, &to.names);
    put(&tree, from.dir);
    if (to.dir != from.dir)
        put(&tree, to.dir);
    return answer_both(to.is_there ? &to.node : &nothing, &from.node);
}
