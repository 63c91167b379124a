/* A whole guest in C: what a skeleton adds to the generated header. */
#include "guest.h"

static uint8_t input[4096];
static uint8_t output[4096];
static unsigned char memory[4096];

static oc_writer scratch(void) {
    oc_writer out = { output, output + sizeof output, false };
    return out;
}

void oc_on_sample_scalars(int64_t call, const sample_scalar_set_t *value,
                          const sample_point_t *point) {
    (void)point;
    oc_answer_sample_scalars(call, scratch(), value);
}

void oc_on_sample_shapes(int64_t call, const sample_list_shape_t *shapes, sample_color_t color,
                         sample_rights_t rights) {
    (void)color;
    (void)rights;
    oc_answer_sample_shapes(call, scratch(), shapes);
}

void oc_on_sample_bytes(int64_t call, oc_bytes data, oc_string text,
                        const sample_list_string_t *texts) {
    (void)text;
    (void)texts;
    oc_answer_sample_bytes(call, scratch(), (uint32_t)data.len);
}

void oc_on_sample_optional(int64_t call, const sample_option_option_u32_t *nested,
                           const sample_result_point_string_t *outcome,
                           const sample_result_t *plain, const sample_empty_t *nothing,
                           const sample_tuple_u8_char_t *pair) {
    sample_result_color_t result;
    (void)nested;
    (void)plain;
    (void)nothing;
    (void)pair;
    result.is_ok = outcome->is_ok;
    result.value.err = SAMPLE_COLOR_RED;
    oc_answer_sample_optional(call, scratch(), &result);
}

void oc_on_sample_call(int64_t call) { oc_refuse(call, "not today"); }

__attribute__((export_name("oc_buffer"))) void *oc_buffer(size_t len) {
    return len <= sizeof input ? input : NULL;
}

__attribute__((export_name("oc_call"))) void oc_call(int32_t interface, int32_t method,
                                                     int64_t call, const uint8_t *ptr,
                                                     size_t len) {
    oc_arena arena = { memory, sizeof memory };
    oc_dispatch(interface, method, call, ptr, len, &arena);
}
