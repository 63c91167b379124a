/* filter: of the packets that come, those to one UDP port go on; all others end here.
 *
 * A message is an Ethernet frame, as bytes or as a line of hexadecimal digits (spaces and colons
 * between them do not count). What goes on is the frame as bytes. */
#include "offcode.h"
#include "filter.h"
#include "../common.h"

/* Places in offcode.toml. */
enum { PORT_IN, PORT_OUT };

enum { IPV4 = 0x0800, IPV6 = 0x86dd, VLAN = 0x8100, UDP = 17 };

/* All that an update to other code takes along. */
static struct {
    uint64_t passed, dropped;
    struct waiting waiting;
} state;
static uint32_t udp_port;

static int digit(uint8_t letter)
{
    if (letter >= '0' && letter <= '9')
        return letter - '0';
    letter |= 0x20;
    return letter >= 'a' && letter <= 'f' ? letter - 'a' + 10 : -1;
}

/* The bytes that a line of digits stands for, or 0 where it is none. A frame in bytes is none: the
 * type of its packet has bytes that are neither digits nor spaces. */
static size_t from_hex(const uint8_t *line, size_t len, uint8_t *frame, size_t cap)
{
    size_t digits = 0;
    for (size_t i = 0; i < len; i++) {
        int value = digit(line[i]);
        if (value < 0 && (line[i] == ' ' || line[i] == ':' || line[i] == '\r'))
            continue;
        if (value < 0 || digits / 2 == cap)
            return 0;
        frame[digits / 2] = digits % 2 ? (uint8_t)(frame[digits / 2] | value)
                                       : (uint8_t)(value << 4);
        digits++;
    }
    return digits % 2 ? 0 : digits / 2;
}

/* Where the packet's UDP header is, or 0. */
static size_t udp_header(const uint8_t *frame, size_t len)
{
    size_t ip = 14;
    if (len < 14 + 4)
        return 0;
    uint16_t type = offcode_be16(frame + 12);
    if (type == VLAN) {
        type = offcode_be16(frame + 16);
        ip = 18;
    }
    if (type == IPV4 && len >= ip + 20 && frame[ip] >> 4 == 4 && frame[ip + 9] == UDP) {
        size_t header = (size_t)(frame[ip] & 15) * 4;
        uint16_t fragment = offcode_be16(frame + ip + 6) & 0x1fff;
        return header >= 20 && fragment == 0 ? ip + header : 0;
    }
    if (type == IPV6 && len >= ip + 40 && frame[ip + 6] == UDP)
        return ip + 40;
    return 0;
}

static bool passes(const uint8_t *frame, size_t len)
{
    size_t udp = udp_header(frame, len);
    return udp != 0 && len >= udp + 8 && offcode_be16(frame + udp + 2) == udp_port;
}

static void read_attributes(void)
{
    udp_port = NUMBER_OF("port", 53);
}

int32_t oc_start(void)
{
    read_attributes();
    OFFCODE_LOG(OFFCODE_INFO, "the filter has started");
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
    static uint8_t frame[sizeof state.waiting.bytes];
    size_t decoded = from_hex(ptr, len, frame, sizeof frame);
    if (port != PORT_IN)
        return;
    if (decoded > 0) {
        ptr = frame;
        len = decoded;
    }
    if (!passes(ptr, len)) {
        state.dropped++;
        return;
    }
    state.passed++;
    send_or_wait(&state.waiting, PORT_IN, PORT_OUT, ptr, len);
}

void oc_writable(int32_t port)
{
    if (port == PORT_OUT)
        send_waiting(&state.waiting, PORT_IN, PORT_OUT);
}

void oc_on_packets_passed(int64_t call)
{
    uint8_t results[24];
    oc_writer scratch = { results, results + sizeof results, false };
    packets_tuple_u64_u64_t both = { state.passed, state.dropped };
    oc_answer_packets_passed(call, scratch, &both);
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
