/* common.h: what the offcodes of this directory share: text that is put together, attributes that
 * are numbers, and a message that waits for room in its channel. */
#ifndef PACKETS_COMMON_H
#define PACKETS_COMMON_H

#include "offcode.h"

/* Text in a buffer; what does not fit is left out. */
struct text {
    char *at;
    size_t len, cap;
};

OC_INLINE void put_bytes(struct text *text, const void *bytes, size_t len)
{
    if (len > text->cap - text->len)
        len = text->cap - text->len;
    memcpy(text->at + text->len, bytes, len);
    text->len += len;
}

#define PUT(text, words) put_bytes(text, "" words, sizeof(words) - 1)

static inline void put_number(struct text *text, uint64_t number)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + number % 10);
    while ((number /= 10) > 0);
    put_bytes(text, digits + at, sizeof digits - at);
}

/* A decimal number, or `otherwise` where the text is none. */
static inline uint32_t number_in(const uint8_t *at, size_t len, uint32_t otherwise)
{
    uint32_t number = 0;
    if (len == 0 || len > 9)
        return otherwise;
    for (size_t i = 0; i < len; i++) {
        if (at[i] < '0' || at[i] > '9')
            return otherwise;
        number = number * 10 + (uint32_t)(at[i] - '0');
    }
    return number;
}

static inline uint32_t number_of(const char *name, size_t name_len, uint32_t otherwise)
{
    uint8_t value[16];
    int32_t len = offcode_attribute(name, name_len, value, sizeof value);
    if (len < 0 || (size_t)len > sizeof value)
        return otherwise;
    return number_in(value, (size_t)len, otherwise);
}

/* The value of an attribute that is a number. */
#define NUMBER_OF(name, otherwise) number_of("" name, sizeof(name) - 1, otherwise)

/* A message on its way from one port to another: while its channel is full, it waits here, and no
 * others come. */
struct waiting {
    size_t len;
    uint8_t bytes[4096];
};

static inline void send_or_wait(struct waiting *waiting, int32_t from, int32_t to,
                                const void *message, size_t len)
{
    if (offcode_send(to, message, len) != OFFCODE_FULL)
        return;
    if (len > sizeof waiting->bytes)
        OFFCODE_FAIL("a message is too long to wait");
    memcpy(waiting->bytes, message, len);
    waiting->len = len;
    offcode_hold(from);
}

static inline void send_waiting(struct waiting *waiting, int32_t from, int32_t to)
{
    if (waiting->len == 0 || offcode_send(to, waiting->bytes, waiting->len) == OFFCODE_FULL)
        return;
    waiting->len = 0;
    offcode_release(from);
}

#endif
