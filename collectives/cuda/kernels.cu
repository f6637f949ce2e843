// Sums over buffers in device memory (or in pinned host memory that the device reads by itself), at memory speed.
//
// Kernels are named after what they do, the element type and the operation: combine_float32_sum, gather_float16_max;
// combine_bf16_sum adds bf16 numbers to float32 ones.
// Half types are summed in float and rounded once an operation has all its operands, other types in their own.
// Elements are read 16 bytes at a time wherever all addresses allow it.

// No header of CUDA's is needed: half numbers are their bits, converted by these four functions.
#ifdef __CUDA_ARCH__
__device__ float half_bits_to_float(unsigned short bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
__device__ unsigned short float_to_half_bits(float value) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
__device__ float bfloat_bits_to_float(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }
__device__ unsigned short float_to_bfloat_bits(float value) {  // to nearest, ties to even; a NaN stays one
    unsigned bits = __float_as_uint(value);
    return value == value ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fc0;
}
#endif

typedef long long Long;
struct Half { unsigned short bits; };
struct Brain { unsigned short bits; };

template <class T> struct Wide { typedef T type; };
template <> struct Wide<Half> { typedef float type; };
template <> struct Wide<Brain> { typedef float type; };

template <class T> __device__ typename Wide<T>::type widen(T value) { return value; }
template <> __device__ float widen(Half value) { return half_bits_to_float(value.bits); }
template <> __device__ float widen(Brain value) { return bfloat_bits_to_float(value.bits); }

template <class T> __device__ T narrow(typename Wide<T>::type value) { return value; }
template <> __device__ Half narrow<Half>(float value) { return Half{float_to_half_bits(value)}; }
template <> __device__ Brain narrow<Brain>(float value) { return Brain{float_to_bfloat_bits(value)}; }

struct Sum { template <class W> static __device__ W of(W left, W right) { return left + right; } };
struct Prod { template <class W> static __device__ W of(W left, W right) { return left * right; } };
struct Max { template <class W> static __device__ W of(W left, W right) { return left >= right ? left : right; } };
struct Min { template <class W> static __device__ W of(W left, W right) { return left <= right ? left : right; } };

// `N` elements that are read and written at once.
template <class T, int N> struct alignas(N * sizeof(T)) Pack {
    T elements[N];
};
template <class T> struct Packed {
    static const int length = 16 / sizeof(T);
};

__device__ long long first_thread() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ long long all_threads() { return gridDim.x * (long long)blockDim.x; }

// How many elements come one by one before both arrays are aligned for packs of N: all where they never are together.
template <class T, class R, int N>
__device__ long long n_before_packs(unsigned long long own, unsigned long long other, long long n_elems) {
    long long n_head = (N - own / sizeof(T) % N) % N;
    bool is_aligned = (other + n_head * sizeof(R)) % (N * sizeof(R)) == 0;
    return is_aligned && n_head < n_elems ? n_head : n_elems;
}

// What becomes of an element: its operation with another one, or that one's value alone.
template <class Op> struct Combined {
    static const bool reads_own = true;
    template <class T, class R> static __device__ T of(T own, R other) {
        return narrow<T>(Op::of(widen(own), (typename Wide<T>::type)widen(other)));
    }
};
struct Converted {
    static const bool reads_own = false;
    template <class T, class R> static __device__ T of(T own, R other) { return narrow<T>(widen(other)); }
};

// own = F of own and other, elementwise.
template <class T, class R, class F> __device__ void each(T *own, const R *other, long long n_elems) {
    const int N = Packed<T>::length < Packed<R>::length ? Packed<T>::length : Packed<R>::length;
    long long n_head = n_before_packs<T, R, N>((unsigned long long)own, (unsigned long long)other, n_elems);
    long long n_packs = (n_elems - n_head) / N;
    Pack<T, N> *packs = (Pack<T, N> *)(own + n_head);
    const Pack<R, N> *other_packs = (const Pack<R, N> *)(other + n_head);
    for (long long i = first_thread(); i < n_packs; i += all_threads()) {
        Pack<T, N> left;
        if (F::reads_own) left = packs[i];
        Pack<R, N> right = other_packs[i];
        for (int k = 0; k < N; k++) left.elements[k] = F::of(left.elements[k], right.elements[k]);
        packs[i] = left;
    }
    for (long long i = first_thread(); i < n_elems - n_packs * N; i += all_threads()) {
        long long at = i < n_head ? i : i + n_packs * N;
        own[at] = F::of(own[at], other[at]);
    }
}

// Which ranks' buffers a gathering kernel reads, in this order, and which it writes.
struct Ranks {
    int first_source, n_sources, first_target, n_targets, left_out;
};

template <class T> __device__ T *buffer_of(const unsigned long long *bases, int rank, long long offset) {
    return (T *)(bases[rank] + offset);
}

template <class E, class T, class Op, int LENGTH>
__device__ void gather_one(const unsigned long long *bases, long long offset, long long at, Ranks ranks) {
    typedef typename Wide<T>::type W;
    E value = buffer_of<E>(bases, ranks.first_source, offset)[at];
    if (ranks.n_sources > 1) {
        W wide[LENGTH];
        for (int k = 0; k < LENGTH; k++) wide[k] = widen(((T *)&value)[k]);
#pragma unroll 4
        for (int rank = 1; rank < ranks.n_sources; rank++) {
            E other = buffer_of<E>(bases, ranks.first_source + rank, offset)[at];
            for (int k = 0; k < LENGTH; k++) wide[k] = Op::of(wide[k], widen(((T *)&other)[k]));
        }
        for (int k = 0; k < LENGTH; k++) ((T *)&value)[k] = narrow<T>(wide[k]);
    }
    for (int rank = ranks.first_target; rank < ranks.first_target + ranks.n_targets; rank++)
        if (rank != ranks.left_out) buffer_of<E>(bases, rank, offset)[at] = value;
}

// The reduction of the sources' elements, in the order of their ranks, to every target; one source is just copied.
// `bases`: the address of each rank's window, all aligned alike; `offset`: bytes from there to the first element.
template <class T, class Op>
__device__ void gather(const unsigned long long *bases, long long offset, long long n_elems, Ranks ranks) {
    const int N = Packed<T>::length;
    unsigned long long address = bases[ranks.first_source] + offset;
    long long n_head = n_before_packs<T, T, N>(address, address, n_elems);
    long long n_packs = (n_elems - n_head) / N;
    long long packed = offset + n_head * (long long)sizeof(T);
    for (long long i = first_thread(); i < n_packs; i += all_threads())
        gather_one<Pack<T, N>, T, Op, N>(bases, packed, i, ranks);
    for (long long i = first_thread(); i < n_elems - n_packs * N; i += all_threads())
        gather_one<T, T, Op, 1>(bases, offset, i < n_head ? i : i + n_packs * N, ranks);
}

#define COMBINE(NAME, T, R, OP)                                                                                        \
    extern "C" __global__ void NAME(T *own, const R *other, long long n_elems) {                                       \
        each<T, R, Combined<OP>>(own, other, n_elems);                                                                 \
    }

#define GATHER(NAME, T, OP)                                                                                            \
    extern "C" __global__ void NAME(const unsigned long long *bases, long long offset, long long n_elems,              \
                                    int first_source, int n_sources, int first_target, int n_targets, int left_out) {  \
        gather<T, OP>(bases, offset, n_elems, Ranks{first_source, n_sources, first_target, n_targets, left_out});      \
    }

#define CONVERT(NAME, T, R)                                                                                            \
    extern "C" __global__ void NAME(T *own, const R *other, long long n_elems) {                                       \
        each<T, R, Converted>(own, other, n_elems);                                                                    \
    }

#define KERNELS(T, TYPE, OP, NAME)                                                                                     \
    COMBINE(combine_##TYPE##_##NAME, T, T, OP)                                                                         \
    GATHER(gather_##TYPE##_##NAME, T, OP)

#define TYPE(T, NAME)                                                                                                  \
    KERNELS(T, NAME, Sum, sum) KERNELS(T, NAME, Max, max) KERNELS(T, NAME, Min, min) KERNELS(T, NAME, Prod, prod)

// float32 that travels as 16 bits a number.
#define WIRE(T, NAME)                                                                                                  \
    CONVERT(pack_##NAME, T, float)                                                                                     \
    CONVERT(unpack_##NAME, float, T)                                                                                   \
    COMBINE(combine_##NAME##_sum, float, T, Sum)                                                                       \
    COMBINE(combine_##NAME##_max, float, T, Max)                                                                       \
    COMBINE(combine_##NAME##_min, float, T, Min)                                                                       \
    COMBINE(combine_##NAME##_prod, float, T, Prod)

// One module holds the kernels of one element type or of one wire, so that it compiles quickly; all of them where
// neither is defined.
#define APPLY(MACRO, ...) MACRO(__VA_ARGS__)
#if defined(ELEMENT)
APPLY(TYPE, ELEMENT, ELEMENT_NAME)
#elif defined(WIRE_ELEMENT)
APPLY(WIRE, WIRE_ELEMENT, WIRE_NAME)
#else
TYPE(float, float32)
TYPE(double, float64)
TYPE(Half, float16)
TYPE(Brain, bfloat16)
TYPE(int, int32)
TYPE(Long, int64)
WIRE(Half, fp16)
WIRE(Brain, bf16)
#endif
