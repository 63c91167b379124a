/* Drives the generated header from the outside: it makes the first call by hand, then reads lines
 * "METHOD BYTES" and writes the bytes that it makes of what it has decoded, or "refused". */
#include "guest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t buffer[1 << 16];
static unsigned char memory[1 << 20];

static oc_writer scratch(void) {
    oc_writer out = { buffer, buffer + sizeof buffer, false };
    return out;
}

static void print(const char *word, const void *ptr, size_t len) {
    size_t i;
    printf("%s", word);
    for (i = 0; i < len; i++) {
        printf("%02x", ((const uint8_t *)ptr)[i]);
    }
    printf("\n");
}

int64_t offcode_call(int32_t import, int32_t method, const void *ptr, size_t len,
                     int32_t deadline_ms) {
    (void)import;
    (void)method;
    (void)deadline_ms;
    print("=", ptr, len);
    return 1;
}

int32_t offcode_answer(int64_t call, const void *ptr, size_t len) {
    (void)call;
    print("answer ", ptr, len);
    return 0;
}

int32_t offcode_refuse(int64_t call, const void *ptr, size_t len) {
    (void)call;
    (void)ptr;
    (void)len;
    printf("refused\n");
    return 0;
}

void oc_on_sample_scalars(int64_t call, const sample_scalar_set_t *value, const sample_point_t *point) {
    (void)call;
    oc_call_sample_scalars(scratch(), 0, value, point);
}

void oc_on_sample_shapes(int64_t call, const sample_list_shape_t *shapes, sample_color_t color,
                         sample_rights_t rights) {
    (void)call;
    oc_call_sample_shapes(scratch(), 0, shapes, color, rights);
}

void oc_on_sample_bytes(int64_t call, oc_bytes data, oc_string text,
                        const sample_list_string_t *texts) {
    (void)call;
    oc_call_sample_bytes(scratch(), 0, data, text, texts);
}

void oc_on_sample_optional(int64_t call, const sample_option_option_u32_t *nested,
                           const sample_result_point_string_t *outcome,
                           const sample_result_t *plain, const sample_empty_t *nothing,
                           const sample_tuple_u8_char_t *pair) {
    (void)call;
    oc_call_sample_optional(scratch(), 0, nested, outcome, plain, nothing, pair);
}

void oc_on_sample_call(int64_t call) {
    (void)call;
    oc_call_sample_call(scratch(), 0);
}

static void by_hand(void) {
    sample_scalar_set_t scalars = { true, 200, 300, 70000, UINT64_C(1) << 40, 1.5f, -0.25, 0xdf,
                                 { "text", 4 } };
    sample_point_t point = { -3, -300, 70000, -(INT64_C(1) << 40) };
    sample_point_t corner = { 1, 2, 3, 4 };
    sample_shape_t shapes[4];
    sample_list_shape_t list = { shapes, 4 };
    memset(shapes, 0, sizeof shapes);
    shapes[0].tag = SAMPLE_SHAPE_NONE;
    shapes[1].tag = SAMPLE_SHAPE_CIRCLE;
    shapes[1].value.circle = 2.5f;
    shapes[2].tag = SAMPLE_SHAPE_POLYGON;
    shapes[2].value.polygon.items = &corner;
    shapes[2].value.polygon.len = 1;
    shapes[3].tag = SAMPLE_SHAPE_NAMED;
    shapes[3].value.named.f0.ptr = "\xc3\xa4";
    shapes[3].value.named.f0.len = 2;
    shapes[3].value.named.f1 = SAMPLE_COLOR_DARK_BLUE;
    oc_call_sample_scalars(scratch(), 0, &scalars, &point);
    oc_call_sample_shapes(scratch(), 0, &list, SAMPLE_COLOR_GREEN,
                          SAMPLE_RIGHTS_READ | SAMPLE_RIGHTS_USE);
}

static void results(void) {
    oc_arena arena = { memory, sizeof memory };
    const uint8_t bytes[] = { 1, 2 };
    sample_result_color_t result;
    if (!oc_results_sample_optional(bytes, 2, &arena, &result) || result.is_ok ||
        result.value.err != SAMPLE_COLOR_DARK_BLUE) {
        printf("the results are wrong\n");
    }
    oc_answer_sample_optional(1, scratch(), &result);
}

int main(void) {
    static char line[1 << 16];
    by_hand();
    results();
    while (fgets(line, sizeof line, stdin) != NULL) {
        oc_arena arena = { memory, sizeof memory };
        char *digits = strchr(line, ' ') + 1;
        size_t len = strcspn(digits, "\n") / 2, i;
        /* Exactly as long as the input, so that a sanitizer sees what is read behind it. */
        uint8_t *input = malloc(len + 1);
        for (i = 0; i < len; i++) {
            char pair[3] = { digits[2 * i], digits[2 * i + 1], 0 };
            input[i] = (uint8_t)strtoul(pair, NULL, 16);
        }
        oc_dispatch(0, atoi(line), 7, input, len, &arena);
        free(input);
    }
    return 0;
}
