// The half type of CUDA's header, as far as our kernels use it.
#pragma once

struct __half {
    unsigned short bits;
};
using half = __half;
static inline float __half2float(__half x) { return half_bits_to_float(x.bits); }
static inline __half __float2half(float x) { return {float_to_half_bits(x)}; }
static inline __half __float2half_rn(float x) { return {float_to_half_bits(x)}; }
