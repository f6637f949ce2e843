// Sums over buffers in device memory (or in pinned host memory that the device reads by itself), at memory speed.
//
// Kernels are named after what they do, the element type and the operation: combine_float32_sum, gather_float16_max.
// Half types are summed in float and rounded once an operation has all its operands, other types in their own.
// Elements are read 16 bytes at a time wherever all addresses allow it.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

template <class T> struct Wide { typedef T type; };
template <> struct Wide<__half> { typedef float type; };
template <> struct Wide<__nv_bfloat16> { typedef float type; };

template <class T> __device__ typename Wide<T>::type widen(T value) { return value; }
template <> __device__ float widen(__half value) { return __half2float(value); }
template <> __device__ float widen(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T> __device__ T narrow(typename Wide<T>::type value) { return value; }
template <> __device__ __half narrow<__half>(float value) { return __float2half(value); }
template <> __device__ __nv_bfloat16 narrow<__nv_bfloat16>(float value) { return __float2bfloat16(value); }

struct Sum { template <class W> static __device__ W of(W left, W right) { return left + right; } };
struct Prod { template <class W> static __device__ W of(W left, W right) { return left * right; } };
struct Max { template <class W> static __device__ W of(W left, W right) { return left >= right ? left : right; } };
struct Min { template <class W> static __device__ W of(W left, W right) { return left <= right ? left : right; } };

const int PACK_BYTES = 16;

template <class T> struct alignas(PACK_BYTES) Pack {
    static const int length = PACK_BYTES / sizeof(T);
    T elements[length];
};

__device__ long long first_thread() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ long long all_threads() { return gridDim.x * (long long)blockDim.x; }

// The elements before the first 16-byte border of memory that starts at `address`: all of them where the second
// address is not as far from a border.
template <class T>
__device__ long long n_before_border(unsigned long long address, unsigned long long other, long long n_elems) {
    long long n_head = (PACK_BYTES - address % PACK_BYTES) % PACK_BYTES / sizeof(T);
    return n_head < n_elems && address % PACK_BYTES == other % PACK_BYTES ? n_head : n_elems;
}

// own = own op received, elementwise.
template <class T, class Op> __device__ void combine(T *own, const T *received, long long n_elems) {
    long long n_head = n_before_border<T>((unsigned long long)own, (unsigned long long)received, n_elems);
    long long n_packs = (n_elems - n_head) / Pack<T>::length;
    Pack<T> *packs = (Pack<T> *)(own + n_head);
    const Pack<T> *received_packs = (const Pack<T> *)(received + n_head);
    for (long long i = first_thread(); i < n_packs; i += all_threads()) {
        Pack<T> left = packs[i], right = received_packs[i];
        for (int k = 0; k < Pack<T>::length; k++)
            left.elements[k] = narrow<T>(Op::of(widen(left.elements[k]), widen(right.elements[k])));
        packs[i] = left;
    }
    long long n_packed = n_packs * Pack<T>::length;
    for (long long i = first_thread(); i < n_elems - n_packed; i += all_threads()) {
        long long at = i < n_head ? i : i + n_packed;
        own[at] = narrow<T>(Op::of(widen(own[at]), widen(received[at])));
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
    unsigned long long address = bases[ranks.first_source] + offset;
    long long n_head = n_before_border<T>(address, address, n_elems);
    long long n_packs = (n_elems - n_head) / Pack<T>::length;
    long long packed = offset + n_head * (long long)sizeof(T);
    for (long long i = first_thread(); i < n_packs; i += all_threads())
        gather_one<Pack<T>, T, Op, Pack<T>::length>(bases, packed, i, ranks);
    long long n_packed = n_packs * Pack<T>::length;
    for (long long i = first_thread(); i < n_elems - n_packed; i += all_threads())
        gather_one<T, T, Op, 1>(bases, offset, i < n_head ? i : i + n_packed, ranks);
}

#define KERNELS(T, NAME, OP, OP_NAME)                                                                                  \
    extern "C" __global__ void combine_##NAME##_##OP_NAME(T *own, const T *received, long long n_elems) {              \
        combine<T, OP>(own, received, n_elems);                                                                        \
    }                                                                                                                  \
    extern "C" __global__ void gather_##NAME##_##OP_NAME(const unsigned long long *bases, long long offset,            \
                                                         long long n_elems, int first_source, int n_sources,           \
                                                         int first_target, int n_targets, int left_out) {              \
        gather<T, OP>(bases, offset, n_elems, Ranks{first_source, n_sources, first_target, n_targets, left_out});      \
    }

#define ALL_OPS(T, NAME)                                                                                               \
    KERNELS(T, NAME, Sum, sum) KERNELS(T, NAME, Max, max) KERNELS(T, NAME, Min, min) KERNELS(T, NAME, Prod, prod)

ALL_OPS(float, float32)
ALL_OPS(double, float64)
ALL_OPS(__half, float16)
ALL_OPS(__nv_bfloat16, bfloat16)
ALL_OPS(int, int32)
ALL_OPS(long long, int64)
