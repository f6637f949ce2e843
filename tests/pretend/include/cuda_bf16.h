// The bfloat16 type of CUDA's header, as far as our kernels use it.
#pragma once

struct __nv_bfloat16 {
    unsigned short bits;
};
static inline float __bfloat162float(__nv_bfloat16 x) { return bfloat_bits_to_float(x.bits); }
static inline __nv_bfloat16 __float2bfloat16(float x) { return {float_to_bfloat_bits(x)}; }
static inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {float_to_bfloat_bits(x)}; }
