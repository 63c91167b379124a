/* page: makes a page in HTML of each summary that comes, keeps the latest and sends it on.
 *
 * A summary is what the counter sends: a line with a number of packets, then lines with a source
 * and its number. */
#include "offcode.h"
#include "page.h"
#include "../common.h"

/* Places in offcode.toml. */
enum { PORT_IN, PORT_OUT };

enum { PAGE_MAX = 3072 };

/* All that an update to other code takes along. */
static struct {
    uint32_t len;
    char html[PAGE_MAX];
    struct waiting waiting;
} state;

/* Bytes that stand for something in HTML become text. */
static void put_escaped(struct text *text, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] == '<')
            PUT(text, "&lt;");
        else if (bytes[i] == '&')
            PUT(text, "&amp;");
        else if (bytes[i] >= ' ' && bytes[i] < 0x7f)
            put_bytes(text, &bytes[i], 1);
    }
}

static void put_title(struct text *text)
{
    uint8_t title[64];
    int32_t len = OFFCODE_ATTRIBUTE_OF("title", title, sizeof title);
    if (len > 0)
        put_escaped(text, title, (size_t)len < sizeof title ? (size_t)len : sizeof title);
}

/* A line's end. */
static size_t line_end(const uint8_t *at, size_t len, size_t from)
{
    while (from < len && at[from] != '\n')
        from++;
    return from;
}

static void make_page(const uint8_t *summary, size_t len)
{
    struct text text = { state.html, 0, sizeof state.html };
    size_t from = line_end(summary, len, 0);
    PUT(&text, "<!doctype html><title>");
    put_title(&text);
    PUT(&text, "</title><h1>");
    put_title(&text);
    PUT(&text, ": ");
    put_escaped(&text, summary, from);
    PUT(&text, "</h1><table>");
    while (from < len) {
        size_t begin = from + 1, middle = begin;
        from = line_end(summary, len, begin);
        while (middle < from && summary[middle] != ' ')
            middle++;
        PUT(&text, "<tr><td>");
        put_escaped(&text, summary + begin, middle - begin);
        PUT(&text, "<td>");
        if (middle < from)
            put_escaped(&text, summary + middle + 1, from - middle - 1);
    }
    PUT(&text, "</table>");
    state.len = (uint32_t)text.len;
}

int32_t oc_start(void)
{
    OFFCODE_LOG(OFFCODE_INFO, "the page has started");
    return 0;
}

void oc_message(int32_t port, const uint8_t *ptr, size_t len)
{
    if (port != PORT_IN)
        return;
    make_page(ptr, len);
    send_or_wait(&state.waiting, PORT_IN, PORT_OUT, state.html, state.len);
}

void oc_writable(int32_t port)
{
    if (port == PORT_OUT)
        send_waiting(&state.waiting, PORT_IN, PORT_OUT);
}

void oc_on_text_html(int64_t call)
{
    static uint8_t results[PAGE_MAX + 16];
    oc_writer scratch = { results, results + sizeof results, false };
    oc_answer_text_html(call, scratch, (oc_string){ state.html, state.len });
}

void oc_call(int32_t interface, int32_t method, int64_t call, const uint8_t *ptr, size_t len)
{
    oc_arena none = { NULL, 0 };
    oc_dispatch(interface, method, call, ptr, len, &none);
}

int64_t oc_save(void)
{
    return offcode_state(&state, sizeof state);
}

int32_t oc_restore(const uint8_t *ptr, size_t len)
{
    if (len != sizeof state)
        return 1;
    memcpy(&state, ptr, len);
    return 0;
}
