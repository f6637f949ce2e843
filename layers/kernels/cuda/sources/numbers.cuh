// What all kernels share. T is the type that arrays hold: -DElement=float, double, half_t or bfloat_t; sums and formulas
// are in A: double for double, else float. S is a second type, where a kernel has one: -DOther=.... Needs no header of
// CUDA's, so that NVRTC alone compiles it.

struct half_t { unsigned short bits; };
struct bfloat_t { unsigned short bits; };
typedef Element T;
#ifdef Other
typedef Other S;
#endif
#ifdef CUDA_EMULATOR
#define __grid_constant__
#endif

#ifdef __CUDA_ARCH__
__device__ inline float half_bits_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
__device__ inline unsigned short float_to_half_bits(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
__device__ inline float bfloat_bits_to_float(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
__device__ inline unsigned short float_to_bfloat_bits(float value) {
#if __CUDA_ARCH__ >= 800
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
#else
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
#endif
}
#endif

__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }
__device__ inline float widen(half_t x) { return half_bits_to_float(x.bits); }
__device__ inline float widen(bfloat_t x) { return bfloat_bits_to_float(x.bits); }

template <class S> struct Narrowed;
template <> struct Narrowed<float> { static __device__ float of(float x) { return x; } };
template <> struct Narrowed<double> { static __device__ double of(double x) { return x; } };
template <> struct Narrowed<half_t> { static __device__ half_t of(float x) { return {float_to_half_bits(x)}; } };
template <> struct Narrowed<bfloat_t> { static __device__ bfloat_t of(float x) { return {float_to_bfloat_bits(x)}; } };

typedef decltype(widen(T())) A;
__device__ inline T narrow(A x) { return Narrowed<T>::of(x); }

// -- several elements at once: 16 bytes of T a thread ------------------------------------------------------------------
const int PACK = 16 / sizeof(T);

template <class S, int N> struct alignas(N * sizeof(S) < 16 ? N * sizeof(S) : 16) Pack { S at[N]; };
template <int N> struct Width { static const int value = N; };

template <int N, class S> __device__ inline Pack<S, N> load(const S* from) { return *(const Pack<S, N>*)from; }
template <int N, class S> __device__ inline void store(S* to, const Pack<S, N>& pack) { *(Pack<S, N>*)to = pack; }

__device__ inline bool lie_whole() { return true; }
template <class... P> __device__ inline bool lie_whole(const void* first, P... others) {
    return (unsigned long long)first % 16 == 0 && lie_whole(others...);
}

// body(width, place of the first element) for all of n_elems; packs where all pointers allow it, then what is left.
template <class F> __device__ inline void for_elements(long long n_elems, bool packed, F body) {
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
    long long n_packs = packed ? n_elems / PACK : 0;
    for (long long i = first; i < n_packs; i += step) body(Width<PACK>(), i * PACK);
    for (long long i = n_packs * PACK + first; i < n_elems; i += step) body(Width<1>(), i);
}

// body(width, first channel) for the channels of this thread's column of a block. Indices go in steps of the grid: an array
// has up to 2^31 - 1 elements, and an int would overflow in the step beyond them.
template <class F> __device__ inline void for_channels(int n_channels, bool packed, F body) {
    unsigned first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x, end = n_channels;
    if (packed && n_channels % PACK == 0)
        for (unsigned c = first * PACK; c < end; c += step * PACK) body(Width<PACK>(), int(c));
    else
        for (unsigned c = first; c < end; c += step) body(Width<1>(), int(c));
}

// -- sums over threads -------------------------------------------------------------------------------------------------
const unsigned ALL_LANES = 0xffffffffu;

template <class V> __device__ inline V warp_sum(V value) {
    for (int d = 16; d; d /= 2) value += __shfl_xor_sync(ALL_LANES, value, d);
    return value;
}
template <class V> __device__ inline V warp_max(V value) {
    for (int d = 16; d; d /= 2) {
        V other = __shfl_xor_sync(ALL_LANES, value, d);
        value = other > value ? other : value;
    }
    return value;
}

// The sum over a block of whole warps, in every thread; always in the same order. All threads come here.
template <class V> __device__ inline V block_sum(V value) {
    __shared__ V parts[32];
    int thread = threadIdx.x + blockDim.x * threadIdx.y, n_warps = (blockDim.x * blockDim.y + 31) / 32;
    value = warp_sum(value);
    __syncthreads();  // parts may still be read from the last time
    if (thread % 32 == 0) parts[thread / 32] = value;
    __syncthreads();
    value = 0;
    for (int w = 0; w < n_warps; w++) value += parts[w];
    return value;
}
