/* program.h: a part of find.c, which includes it once: what is asked of a name. Reads the inode's
 * record only when something is asked that the name does not say. */

/* A name that the walk has come to. */
struct node {
    uint64_t number;
    uint32_t kind, depth;
    struct name name, path;
    /* 0: not read; 1: read; 2: there is no such inode. */
    uint32_t loaded;
    struct inode record;
};

/* Who walks, and where everything is. */
struct walker {
    struct tree tree;
    struct user who;
};

/* Whether the name stands for an inode; reads its record. */
static bool has_record(const struct walker *walker, struct node *node)
{
    if (node->loaded == 0) {
        bool is_there = inode_find(walker->tree.inodes, node->number, &node->record);
        node->loaded = is_there ? 1 : 2;
    }
    return node->loaded == 1;
}

/* What a program says of a name. */
struct verdict {
    uint32_t actions;
    bool is_pruned, quits;
};

/* A program while it runs. */
struct program {
    const unsigned char *at, *end;
};

static uint64_t operand(struct program *program, uint64_t len)
{
    if ((uint64_t)(program->end - program->at) < len)
        FAIL(E_INVAL, "the program ends within an instruction");
    uint64_t word = ob_tail(program->at, len);
    program->at += len;
    return word;
}

static void jump(struct program *program, bool is_taken)
{
    uint64_t len = operand(program, 2);
    if (!is_taken)
        return;
    if ((uint64_t)(program->end - program->at) < len)
        FAIL(E_INVAL, "the program jumps behind its end");
    program->at += len;
}

/* A pattern, and whether a text is as it says; no text is as none says. */
static bool pattern_says(struct program *program, struct name text)
{
    uint64_t flags = operand(program, 1), len = operand(program, 2);
    const unsigned char *at = program->at;
    if ((uint64_t)(program->end - program->at) < len)
        FAIL(E_INVAL, "the program ends within a pattern");
    program->at += len;
    struct pattern pattern = {{at, at + len}, flags & FIND_FOLD, flags & FIND_UTF8};
    return text.at != NULL && matches(&pattern, (struct text){text.at, text.at + text.len});
}

/* A symbolic link's target; nothing for others. */
static struct name target_of(const struct walker *walker, struct node *node)
{
    static unsigned char target[FS_TARGET_MAX];
    if (node->kind != LINK || !has_record(walker, node) || node->record.size > sizeof target)
        return (struct name){NULL, 0};
    ob_get(node->record.body, target, node->record.size);
    return (struct name){target, node->record.size};
}

static uint64_t field_of(const struct inode *record, uint64_t field, uint64_t number)
{
    switch (field) {
    case FIND_SIZE:
        return record->size;
    case FIND_LINKS:
        return record->nlink;
    case FIND_INODE:
        return number;
    case FIND_UID:
        return record->uid;
    case FIND_GID:
        return record->gid;
    case FIND_BLOCKS:
        return record->blocks;
    default:
        FAIL(E_INVAL, "there is no such field");
    }
}

static bool number_says(struct program *program, const struct node *node)
{
    uint64_t field = operand(program, 1), how = operand(program, 1);
    uint64_t unit = operand(program, 8), number = operand(program, 8);
    uint64_t value = field_of(&node->record, field, node->number);
    if (unit == 0 || how > FIND_MORE)
        FAIL(E_INVAL, "there is no such comparison");
    value = value / unit + (value % unit != 0);
    return how == FIND_LESS ? value < number : how == FIND_EQUAL ? value == number : value > number;
}

static bool time_says(struct program *program, const struct inode *record)
{
    uint64_t field = operand(program, 1);
    int64_t from = (int64_t)operand(program, 8), to = (int64_t)operand(program, 8);
    int64_t time = field == FIND_ATIME ? record->atime_ns : field == FIND_MTIME ? record->mtime_ns
                 : field == FIND_CTIME ? record->ctime_ns : record->btime_ns;
    if (field > FIND_BTIME)
        FAIL(E_INVAL, "there is no such time");
    /* Later than any that the program can name. */
    if (time < FS_TIME_FIRST)
        time = INT64_MAX;
    return time > from && time <= to;
}

static bool rights_say(struct program *program, const struct inode *record)
{
    uint64_t how = operand(program, 1), bits = operand(program, 4), has = record->mode & RIGHTS;
    switch (how) {
    case FIND_EXACTLY:
        return has == bits;
    case FIND_ALL_OF:
        return (has & bits) == bits;
    case FIND_ANY_OF:
        return bits == 0 || (has & bits) != 0;
    default:
        FAIL(E_INVAL, "there is no such comparison of rights");
    }
}

/* Tests that need the record. */
static bool record_says(const struct walker *walker, uint64_t op, struct program *program,
                        struct node *node)
{
    if (!has_record(walker, node))
        memset(&node->record, 0, sizeof node->record);
    switch (op) {
    case FIND_NUMBER:
        return number_says(program, node);
    case FIND_TIME:
        return time_says(program, &node->record);
    case FIND_RIGHTS:
        return rights_say(program, &node->record);
    case FIND_EMPTY:
        return (node->kind == FILE || node->kind == DIRECTORY) && node->record.size == 0;
    case FIND_MAY:
        return may(walker->who, &node->record, (uint32_t)operand(program, 4));
    default:
        FAIL(E_INVAL, "there is no such instruction");
    }
}

static bool act(struct program *program, struct verdict *verdict)
{
    uint64_t action = operand(program, 1);
    if (action > 31)
        FAIL(E_INVAL, "there are 32 actions");
    verdict->actions |= 1u << action;
    return true;
}

/* One instruction that is no jump: the truth behind it. */
static bool obey(const struct walker *walker, uint64_t op, bool is_true,
                 struct program *program, struct node *node, struct verdict *verdict)
{
    switch (op) {
    case FIND_TRUE:
        return true;
    case FIND_FALSE:
        return false;
    case FIND_NOT:
        return !is_true;
    case FIND_NAME:
        return pattern_says(program, node->name);
    case FIND_PATH:
        return pattern_says(program, node->path);
    case FIND_TARGET:
        return pattern_says(program, target_of(walker, node));
    case FIND_KIND:
        return operand(program, 2) >> node->kind & 1;
    case FIND_ACTION:
        return act(program, verdict);
    case FIND_PRUNE:
        return verdict->is_pruned = true;
    default:
        return record_says(walker, op, program, node);
    }
}

static struct verdict judge(const struct walker *walker, struct program program, struct node *node)
{
    struct verdict verdict = {0, false, false};
    bool is_true = true;
    while (!verdict.quits) {
        uint64_t op = operand(&program, 1);
        switch (op) {
        case FIND_END:
            return verdict;
        case FIND_JUMP_FALSE:
            jump(&program, !is_true);
            break;
        case FIND_JUMP_TRUE:
            jump(&program, is_true);
            break;
        case FIND_QUIT:
            verdict.quits = true;
            break;
        default:
            is_true = obey(walker, op, is_true, &program, node, &verdict);
        }
    }
    return verdict;
}
