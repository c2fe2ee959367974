// Stand-in for miniaudio.h, which upstream keeps in a vendor/ folder that Go module archives leave out.
//
// It declares the five calls that upstream's multimodal helper makes, and every one of them fails:
// audio input is refused, and nothing else of the build changes.
#pragma once

#include <cstddef>
#include <cstdint>

typedef uint64_t ma_uint64;

typedef enum { MA_SUCCESS = 0, MA_NOT_IMPLEMENTED = -29 } ma_result;
typedef enum { ma_format_f32 = 5 } ma_format;

typedef struct { ma_format format; uint32_t channels, sample_rate; } ma_decoder_config;
typedef struct { int unused; } ma_decoder;

static inline ma_decoder_config ma_decoder_config_init(ma_format format, uint32_t channels, uint32_t sample_rate) {
    return ma_decoder_config{format, channels, sample_rate};
}

static inline ma_result ma_decoder_init_memory(const void *, size_t, const ma_decoder_config *, ma_decoder *) {
    return MA_NOT_IMPLEMENTED;
}

static inline ma_result ma_decoder_get_length_in_pcm_frames(ma_decoder *, ma_uint64 *) {
    return MA_NOT_IMPLEMENTED;
}

static inline ma_result ma_decoder_read_pcm_frames(ma_decoder *, void *, ma_uint64, ma_uint64 *) {
    return MA_NOT_IMPLEMENTED;
}

static inline ma_result ma_decoder_uninit(ma_decoder *) {
    return MA_SUCCESS;
}
