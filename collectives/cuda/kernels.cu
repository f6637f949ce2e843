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

#ifdef CUDA_EMULATOR
#define __grid_constant__
#endif
#define MOST_RANKS 64  // of one node
#define THREADS 256    // of a block, at most
#define BLOCKS 6       // of a multiprocessor: as many as the grid gives each (kernels.py), so that none waits for its turn
#define LOADS 4        // of 16 bytes, on their way at once for each thread

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

// CuPy compiles with -ftz=true, which makes small float32 sums zero; the host keeps them, and so do these.
#ifdef __CUDA_ARCH__
__device__ float exact_sum(float left, float right) {
    float value;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(value) : "f"(left), "f"(right));
    return value;
}
__device__ float exact_product(float left, float right) {
    float value;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(value) : "f"(left), "f"(right));
    return value;
}
__device__ bool at_least(float left, float right) {
    int answer;
    asm("{ .reg .pred p; setp.ge.f32 p, %1, %2; selp.s32 %0, 1, 0, p; }" : "=r"(answer) : "f"(left), "f"(right));
    return answer;
}
#endif
template <class W> __device__ W exact_sum(W left, W right) { return left + right; }
template <class W> __device__ W exact_product(W left, W right) { return left * right; }
template <class W> __device__ bool at_least(W left, W right) { return left >= right; }

struct Sum { template <class W> static __device__ W of(W left, W right) { return exact_sum(left, right); } };
struct Prod { template <class W> static __device__ W of(W left, W right) { return exact_product(left, right); } };
struct Max { template <class W> static __device__ W of(W left, W right) { return at_least(left, right) ? left : right; } };
struct Min { template <class W> static __device__ W of(W left, W right) { return at_least(right, left) ? left : right; } };

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
#pragma unroll 1
    for (long long i = first_thread(); i < n_packs; i += all_threads()) {
        Pack<T, N> left;
        if (F::reads_own) left = packs[i];
        Pack<R, N> right = other_packs[i];
        for (int k = 0; k < N; k++) left.elements[k] = F::of(left.elements[k], right.elements[k]);
        packs[i] = left;
    }
#pragma unroll 1
    for (long long i = first_thread(); i < n_elems - n_packs * N; i += all_threads()) {
        long long at = i < n_head ? i : i + n_packs * N;
        own[at] = F::of(own[at], other[at]);
    }
}

// Whose buffers a gathering kernel reads, in the order of their ranks, and whose it writes. It comes by value: addresses
// are there when the kernel starts, and no load from memory comes before those of the elements.
struct Gathered {
    unsigned long long bases[MOST_RANKS];  // where each rank's window begins; all are aligned alike
    long long offset, n_elems;             // bytes from there to the first element
    int first_source, n_sources, first_target, n_targets, left_out;
};

template <class E> __device__ E *buffer_of(const Gathered &work, int rank, long long offset) {
    return (E *)(work.bases[rank] + offset);
}

template <class E> __device__ void spread(const Gathered &work, long long offset, long long at, E value) {
    for (int rank = work.first_target; rank < work.first_target + work.n_targets; rank++)
        if (rank != work.left_out) buffer_of<E>(work, rank, offset)[at] = value;
}

// The sources' values at one place, reduced in the order of their ranks. Up to LOADS of them are on their way at once.
template <class E, class T, class Op, int LENGTH>
__device__ E reduced(const Gathered &work, long long offset, long long at) {
    typename Wide<T>::type wide[LENGTH];
    for (int first = 0; first < work.n_sources; first += LOADS) {
        E values[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (first + k < work.n_sources)
                values[k] = buffer_of<E>(work, work.first_source + first + k, offset)[at];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (first + k < work.n_sources)
                for (int i = 0; i < LENGTH; i++) {
                    typename Wide<T>::type value = widen(((T *)&values[k])[i]);
                    wide[i] = first + k == 0 ? value : Op::of(wide[i], value);
                }
    }
    E result;
    for (int i = 0; i < LENGTH; i++) ((T *)&result)[i] = narrow<T>(wide[i]);
    return result;
}

// `n` packs from `offset` on: each is read from the one source, or reduced, and written to every target.
template <class E, class T, class Op, int LENGTH>
__device__ void gather_packs(const Gathered &work, long long offset, long long n) {
    if (work.n_sources > 1) {
#pragma unroll 1
        for (long long at = first_thread(); at < n; at += all_threads())
            spread(work, offset, at, reduced<E, T, Op, LENGTH>(work, offset, at));
        return;
    }
    const E *source = buffer_of<E>(work, work.first_source, offset);
#pragma unroll 1
    for (long long first = first_thread(); first < n; first += LOADS * all_threads()) {
        E values[LOADS];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (first + k * all_threads() < n) values[k] = source[first + k * all_threads()];
#pragma unroll
        for (int k = 0; k < LOADS; k++)
            if (first + k * all_threads() < n) spread(work, offset, first + k * all_threads(), values[k]);
    }
}

template <class T, class Op> __device__ void gather(const Gathered &work) {
    const int N = Packed<T>::length;
    unsigned long long address = work.bases[work.first_source] + work.offset;
    long long n_head = n_before_packs<T, T, N>(address, address, work.n_elems);
    long long n_packs = (work.n_elems - n_head) / N;
    gather_packs<Pack<T, N>, T, Op, N>(work, work.offset + n_head * (long long)sizeof(T), n_packs);
#pragma unroll 1
    for (long long i = first_thread(); i < work.n_elems - n_packs * N; i += all_threads()) {
        long long at = i < n_head ? i : i + n_packs * N;
        spread(work, work.offset, at, work.n_sources > 1 ? reduced<T, T, Op, 1>(work, work.offset, at)
                                                         : buffer_of<T>(work, work.first_source, work.offset)[at]);
    }
}

#define COMBINE(NAME, T, R, OP)                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME(T *own, const R *other, long long n_elems) {            \
        each<T, R, Combined<OP>>(own, other, n_elems);                                                                 \
    }

#define GATHER(NAME, T, OP)                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME(const __grid_constant__ Gathered work) {                \
        gather<T, OP>(work);                                                                                           \
    }

#define CONVERT(NAME, T, R)                                                                                            \
    extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) NAME(T *own, const R *other, long long n_elems) {            \
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
