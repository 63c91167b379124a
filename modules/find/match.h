/* match.h: a part of find.c, which includes it once: patterns as of fnmatch(3), without flags or with
 * FNM_CASEFOLD, in the C locale and, for characters of UTF-8, in those with that name.
 *
 * Of letters' cases it knows those of ASCII, Latin-1, Greek and Cyrillic; of classes of characters
 * what they have in ASCII. */

/* A place in a text. */
struct text {
    const unsigned char *at, *end;
};

struct pattern {
    struct text text;
    bool folds, is_utf8;
};

/* Bytes of the character at a place, of 1 to 4; 0 if there is none in UTF-8. */
static uint32_t utf8_len(struct text text)
{
    uint32_t first = *text.at;
    uint32_t len = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3
                 : first < 0xf5 ? 4 : 0;
    if (len > (uint64_t)(text.end - text.at))
        return 0;
    for (uint32_t index = 1; index < len; index++)
        if ((text.at[index] & 0xc0) != 0x80)
            return 0;
    if (len < 3)
        return len;
    uint32_t second = text.at[1];
    bool is_long = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    bool is_none = (first == 0xed && second > 0x9f) || (first == 0xf4 && second > 0x8f);
    return is_long || is_none ? 0 : len;
}

static bool is_all_utf8(struct text text)
{
    while (text.at < text.end) {
        uint32_t len = utf8_len(text);
        if (len == 0)
            return false;
        text.at += len;
    }
    return true;
}

/* Takes a character. */
static uint32_t next(const struct pattern *pattern, struct text *text)
{
    uint32_t first = *text->at++;
    if (!pattern->is_utf8 || first < 0x80)
        return first;
    uint32_t more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3, found = first & (0x3f >> more);
    for (; more > 0; more--)
        found = found << 6 | (*text->at++ & 0x3f);
    return found;
}

static uint32_t folded(const struct pattern *pattern, uint32_t c)
{
    if (!pattern->folds)
        return c;
    if (c >= 'A' && c <= 'Z')
        return c + 32;
    if (!pattern->is_utf8)
        return c;
    bool is_wide = (c >= 0xc0 && c <= 0xde && c != 0xd7) || (c >= 0x391 && c <= 0x3a9 && c != 0x3a2)
                || (c >= 0x410 && c <= 0x42f);
    return is_wide ? c + 32 : c >= 0x400 && c <= 0x40f ? c + 80 : c;
}

static bool is_within(uint32_t c, uint32_t first, uint32_t last) { return c - first <= last - first; }
static bool is_lower(uint32_t c) { return is_within(c, 'a', 'z'); }
static bool is_upper(uint32_t c) { return is_within(c, 'A', 'Z'); }
static bool is_letter(uint32_t c) { return is_lower(c | 32) && c < 128; }
static bool is_digit(uint32_t c) { return is_within(c, '0', '9'); }

/* Classes of characters by their names; each is told by one letter below. */
static const struct class {
    char name[8], which;
} CLASSES[] = {
    {"alnum", 'n'}, {"alpha", 'a'}, {"blank", 'b'}, {"cntrl", 'c'}, {"digit", 'd'}, {"graph", 'g'},
    {"lower", 'l'}, {"print", 'p'}, {"punct", 'u'}, {"space", 's'}, {"upper", 'U'}, {"xdigit", 'x'},
};

static bool is_of(char which, uint32_t c)
{
    switch (which) {
    case 'n':
        return is_letter(c) || is_digit(c);
    case 'a':
        return is_letter(c);
    case 'b':
        return c == ' ' || c == '\t';
    case 'c':
        return c < 32 || c == 127;
    case 'd':
        return is_digit(c);
    case 'g':
        return is_within(c, 33, 126);
    case 'l':
        return is_lower(c);
    case 'p':
        return is_within(c, 32, 126);
    case 'u':
        return is_within(c, 33, 126) && !is_letter(c) && !is_digit(c);
    case 's':
        return c == ' ' || is_within(c, '\t', '\r');
    case 'U':
        return is_upper(c);
    default:
        return is_digit(c) || is_within(c | 32, 'a', 'f');
    }
}

/* What became of a part of a bracket's expression. */
enum part { PART_NO, PART_YES, PART_NONE };

/* `[:name:]`, behind its first two bytes. PART_NONE: there is no such class. */
static enum part class_at(struct text *text, uint32_t c)
{
    const unsigned char *name = text->at;
    while (text->end - text->at >= 2 && !(text->at[0] == ':' && text->at[1] == ']'))
        text->at++;
    if (text->end - text->at < 2)
        return PART_NONE;
    uint64_t len = (uint64_t)(text->at - name);
    text->at += 2;
    for (uint32_t index = 0; index < sizeof CLASSES / sizeof *CLASSES; index++) {
        const struct class *class = &CLASSES[index];
        if (len > 6 || class->name[len] != 0 || memcmp(class->name, name, (size_t)len) != 0)
            continue;
        return is_of(class->which, c) ? PART_YES : PART_NO;
    }
    return PART_NONE;
}

/* `[=c=]` and `[.c.]`, behind its first two bytes: the character; PART_NONE as 0. */
static uint32_t symbol_at(const struct pattern *pattern, struct text *text, unsigned char sign)
{
    if (text->at == text->end)
        return 0;
    uint32_t c = next(pattern, text);
    if (text->end - text->at < 2 || text->at[0] != sign || text->at[1] != ']')
        return 0;
    text->at += 2;
    return c;
}

/* One character of a bracket's expression; 0: there is none. */
static uint32_t member_at(const struct pattern *pattern, struct text *text)
{
    uint32_t c = next(pattern, text);
    if (c == '[' && text->at < text->end && (*text->at == '.' || *text->at == '='))
        return symbol_at(pattern, text, *text->at++);
    if (c != '\\')
        return c;
    return text->at < text->end ? next(pattern, text) : 0;
}

/* A member or a range: whether the character is in it. */
static enum part range_at(const struct pattern *pattern, struct text *text, uint32_t c)
{
    uint32_t first = member_at(pattern, text), last = first;
    if (text->end - text->at >= 2 && text->at[0] == '-' && text->at[1] != ']') {
        text->at++;
        last = member_at(pattern, text);
    } else {
        c = folded(pattern, c);
        first = last = folded(pattern, first);
    }
    if (first == 0 || last == 0)
        return PART_NONE;
    uint32_t other = pattern->folds ? folded(pattern, c) : c;
    bool is_in = (first <= c && c <= last) || (first <= other && other <= last);
    if (pattern->folds && is_letter(c))
        is_in |= first <= (c ^ 32) && (c ^ 32) <= last;
    return is_in ? PART_YES : PART_NO;
}

/* A bracket's expression, behind its bracket, which is of another meaning than itself if the
 * expression ends. PART_NONE: the pattern matches nothing. */
static enum part bracket_at(const struct pattern *pattern, struct text *text, uint32_t c)
{
    bool is_not = text->at < text->end && (*text->at == '!' || *text->at == '^');
    bool is_in = false;
    text->at += is_not;
    for (bool is_first = true; text->at < text->end; is_first = false) {
        enum part part;
        if (*text->at == ']' && !is_first) {
            text->at++;
            return is_in != is_not ? PART_YES : PART_NO;
        }
        if (text->end - text->at >= 2 && text->at[0] == '[' && text->at[1] == ':') {
            text->at += 2;
            part = class_at(text, c);
        } else {
            part = range_at(pattern, text, c);
        }
        if (part == PART_NONE)
            return PART_NONE;
        is_in |= part == PART_YES;
    }
    return PART_NONE;
}

static bool has_end(struct text text)
{
    text.at += text.at < text.end && (*text.at == '!' || *text.at == '^');
    text.at += text.at < text.end;
    while (text.at < text.end && *text.at != ']')
        text.at++;
    return text.at < text.end;
}

/* One step of a pattern that is no star: whether it takes the character. */
static bool takes(const struct pattern *pattern, struct text *at, uint32_t c)
{
    uint32_t want = next(pattern, at);
    if (want == '?')
        return true;
    if (want == '[' && has_end(*at))
        return bracket_at(pattern, at, c) == PART_YES;
    if (want == '\\') {
        if (at->at == at->end)
            return false;
        want = next(pattern, at);
    }
    return folded(pattern, want) == folded(pattern, c);
}

/* Whether all of a text is as a pattern says. The last star is where it goes back to. */
static bool matches(struct pattern *pattern, struct text text)
{
    struct text at = pattern->text, star = {NULL, NULL}, from = text;
    pattern->is_utf8 = pattern->is_utf8 && is_all_utf8(at) && is_all_utf8(text);
    for (;;) {
        if (at.at < at.end && *at.at == '*') {
            at.at++;
            star = at, from = text;
            continue;
        }
        if (text.at == text.end && at.at == at.end)
            return true;
        if (text.at < text.end && at.at < at.end && takes(pattern, &at, next(pattern, &text)))
            continue;
        if (star.at == NULL || from.at == from.end)
            return false;
        next(pattern, &from);
        text = from, at = star;
    }
}
