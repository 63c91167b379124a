/* counter: counts packets by their source, and sends a summary behind every so many.
 *
 * A message is an Ethernet frame with a packet of IPv4 or IPv6. A summary is text: a line with the
 * number of packets so far, then the sources of most packets, each with how many it has sent. */
#include "offcode.h"
#include "counter.h"
#include "../common.h"

/* Places in offcode.toml. */
enum { PORT_IN, PORT_OUT };

enum { IPV4 = 0x0800, IPV6 = 0x86dd, VLAN = 0x8100 };
/* Sources that are told apart; the packets of further ones count in the total alone. */
enum { SOURCES_MAX = 1024, TOP_MAX = 64, SUMMARY_SOURCES = 5 };
/* An address's text at most: eight groups of four digits. */
enum { ADDRESS_TEXT = 40 };

struct source {
    uint8_t address[16]; /* of IPv4: the first four bytes */
    uint32_t family;     /* 4 or 6; 0: nothing here */
    uint64_t packets;
};

/* All that an update to other code takes along. */
static struct {
    uint64_t total;
    struct source sources[SOURCES_MAX];
    struct waiting waiting;
} state;
static uint32_t every;

/* A frame's source: its address's family, or 0. */
static uint32_t source_of(const uint8_t *frame, size_t len, uint8_t address[16])
{
    size_t ip = 14;
    if (len < 14 + 4)
        return 0;
    uint16_t type = offcode_be16(frame + 12);
    if (type == VLAN) {
        type = offcode_be16(frame + 16);
        ip = 18;
    }
    memset(address, 0, 16);
    if (type == IPV4 && len >= ip + 20) {
        memcpy(address, frame + ip + 12, 4);
        return 4;
    }
    if (type == IPV6 && len >= ip + 40) {
        memcpy(address, frame + ip + 8, 16);
        return 6;
    }
    return 0;
}

/* The place of a source, perhaps a new one; NULL: there is no room. */
static struct source *place_of(uint32_t family, const uint8_t address[16])
{
    uint32_t hash = 2166136261u ^ family;
    for (size_t i = 0; i < 16; i++)
        hash = (hash ^ address[i]) * 16777619u;
    for (size_t i = 0; i < SOURCES_MAX; i++) {
        struct source *place = &state.sources[(hash + i) % SOURCES_MAX];
        if (place->family == 0) {
            place->family = family;
            memcpy(place->address, address, 16);
            return place;
        }
        if (place->family == family && memcmp(place->address, address, 16) == 0)
            return place;
    }
    return NULL;
}

/* The sources of most packets, most first; returns how many. */
static size_t top_sources(const struct source **top, size_t max)
{
    size_t len = 0;
    for (size_t i = 0; i < SOURCES_MAX; i++) {
        const struct source *source = &state.sources[i];
        size_t at = len;
        if (source->family == 0)
            continue;
        while (at > 0 && top[at - 1]->packets < source->packets)
            at--;
        if (at == max)
            continue;
        if (len < max)
            len++;
        memmove(&top[at + 1], &top[at], (len - 1 - at) * sizeof *top);
        top[at] = source;
    }
    return len;
}

static void put_address(struct text *text, const struct source *source)
{
    static const char digits[] = "0123456789abcdef";
    if (source->family == 4) {
        for (size_t i = 0; i < 4; i++) {
            if (i > 0)
                PUT(text, ".");
            put_number(text, source->address[i]);
        }
        return;
    }
    for (size_t i = 0; i < 16; i++) {
        if (i > 0 && i % 2 == 0)
            PUT(text, ":");
        put_bytes(text, &digits[source->address[i] >> 4], 1);
        put_bytes(text, &digits[source->address[i] & 15], 1);
    }
}

static void send_summary(void)
{
    static char bytes[1024];
    const struct source *top[SUMMARY_SOURCES];
    struct text text = { bytes, 0, sizeof bytes };
    size_t len = top_sources(top, SUMMARY_SOURCES);
    put_number(&text, state.total);
    for (size_t i = 0; i < len; i++) {
        PUT(&text, "\n");
        put_address(&text, top[i]);
        PUT(&text, " ");
        put_number(&text, top[i]->packets);
    }
    send_or_wait(&state.waiting, PORT_IN, PORT_OUT, text.at, text.len);
}

static void read_attributes(void)
{
    every = NUMBER_OF("every", 100);
    if (every == 0)
        every = 1;
}

int32_t oc_start(void)
{
    read_attributes();
    OFFCODE_LOG(OFFCODE_INFO, "the counter has started");
    return 0;
}

void oc_event(int32_t kind, const uint8_t *ptr, size_t len)
{
    (void)ptr, (void)len;
    if (kind == OFFCODE_ATTRIBUTE)
        read_attributes();
}

void oc_message(int32_t port, const uint8_t *ptr, size_t len)
{
    uint8_t address[16];
    uint32_t family = source_of(ptr, len, address);
    if (port != PORT_IN || family == 0)
        return;
    struct source *source = place_of(family, address);
    if (source != NULL)
        source->packets++;
    if (++state.total % every == 0)
        send_summary();
}

void oc_writable(int32_t port)
{
    if (port == PORT_OUT)
        send_waiting(&state.waiting, PORT_IN, PORT_OUT);
}

void oc_on_sources_total(int64_t call)
{
    uint8_t results[16];
    oc_writer scratch = { results, results + sizeof results, false };
    oc_answer_sources_total(call, scratch, state.total);
}

void oc_on_sources_top(int64_t call, uint32_t n)
{
    static char texts[TOP_MAX][ADDRESS_TEXT];
    static sources_tuple_string_u64_t items[TOP_MAX];
    static uint8_t results[TOP_MAX * (ADDRESS_TEXT + 16)];
    const struct source *top[TOP_MAX];
    size_t len = top_sources(top, n < TOP_MAX ? n : TOP_MAX);
    for (size_t i = 0; i < len; i++) {
        struct text text = { texts[i], 0, sizeof texts[i] };
        put_address(&text, top[i]);
        items[i].f0 = (oc_string){ text.at, text.len };
        items[i].f1 = top[i]->packets;
    }
    sources_list_tuple_string_u64_t list = { items, len };
    oc_writer scratch = { results, results + sizeof results, false };
    oc_answer_sources_top(call, scratch, &list);
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
    read_attributes();
    return 0;
}
