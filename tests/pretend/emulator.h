// Enough of CUDA C++ to run a kernel's source, unchanged, on the processor: one block after another, its threads as
// fibers of one thread of ours. A thread runs until it ends or waits at a barrier or in a shuffle; blocks take their
// threads in rising or in falling order by turns, so that a missing barrier shows as a wrong result.
#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <utility>

#define __global__ __attribute__((used))  // by which kernels are found in preprocessed text
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __constant__ static
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define CUDA_EMULATOR 1

struct uint3 { unsigned x, y, z; };
using dim3 = uint3;

// -- vector types, aligned as the device wants them ------------------------------------------------------------------
#define VECTORS(T, name, align)                                                                     \
    struct alignas(2 * align) name##2 { T x, y; };                                                  \
    struct alignas(4 * align) name##4 { T x, y, z, w; };                                            \
    static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                               \
    static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
VECTORS(float, float, 4)
VECTORS(int, int, 4)
VECTORS(unsigned, uint, 4)
VECTORS(short, short, 2)
VECTORS(unsigned short, ushort, 2)
VECTORS(unsigned char, uchar, 1)
struct alignas(16) double2 { double x, y; };
static inline double2 make_double2(double x, double y) { return {x, y}; }

// -- the fibers ------------------------------------------------------------------------------------------------------
namespace emulator {
constexpr int MOST_THREADS = 1024, WARP = 32, STACK_BYTES = 128 << 10, MOST_SHARED = 227 << 10;
enum State { COMING, RUNNING, AT_BARRIER, IN_WARP, GONE };

struct Fiber { jmp_buf place; ucontext_t context; char* stack; int thread; bool begun, over; };

static Fiber fibers[MOST_THREADS];
static State states[MOST_THREADS];
static unsigned masks[MOST_THREADS];
static int fiber_of[MOST_THREADS];
alignas(16) static char slots[MOST_THREADS][16];
alignas(256) static char dynamic_shared[MOST_SHARED];
static int votes, last_votes;
static jmp_buf scheduler;
static Fiber* current;
static int n_threads, n_begun;
static bool falling;
static char message[256];
static const char* failure;
struct Call { virtual void run() = 0; };
static Call* kernel;
}  // namespace emulator

static uint3 threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

namespace emulator {
static void place_thread(int thread) {
    threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / blockDim.x / blockDim.y};
}

[[noreturn]] __attribute__((noinline)) static void fail(const char* what, int thread) {
    snprintf(message, sizeof message, "%s (thread %d of block (%u, %u, %u))", what, thread, blockIdx.x, blockIdx.y,
             blockIdx.z);
    failure = message;
    _longjmp(scheduler, 2);
}

// A fiber runs one thread after another, as long as none waits: then it stays with that thread to its end.
static void body() {
    Fiber* self = current;
    while (n_begun < n_threads) {
        int i = n_begun++;
        self->thread = falling ? n_threads - 1 - i : i;
        fiber_of[self->thread] = int(self - fibers);
        states[self->thread] = RUNNING;
        place_thread(self->thread);
        kernel->run();
        states[self->thread] = GONE;
    }
    self->over = true;
    _longjmp(scheduler, 1);
}

__attribute__((noinline)) static void resume(Fiber* fiber) {
    current = fiber;
    if (_setjmp(scheduler) == 0) {
        if (fiber->begun) {
            place_thread(fiber->thread);
            _longjmp(fiber->place, 1);
        }
        if (!fiber->stack)
            fiber->stack = (char*)mmap(0, STACK_BYTES, PROT_READ | PROT_WRITE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        getcontext(&fiber->context);
        fiber->context.uc_stack.ss_sp = fiber->stack;
        fiber->context.uc_stack.ss_size = STACK_BYTES;
        makecontext(&fiber->context, body, 0);
        fiber->begun = true;
        setcontext(&fiber->context);
    }
}

__attribute__((noinline)) static void wait(State state) {
    Fiber* self = current;
    states[self->thread] = state;
    if (_setjmp(self->place) == 0) _longjmp(scheduler, 1);
}

static bool release_block() {
    for (int t = 0; t < n_threads; t++)
        if (states[t] != AT_BARRIER && states[t] != GONE) return false;
    bool any = false;
    for (int t = 0; t < n_threads; t++)
        if (states[t] == AT_BARRIER) states[t] = RUNNING, any = true;
    last_votes = votes;
    votes = 0;
    return any;
}

static bool release_warp(int first) {
    unsigned wanted = 0, here = 0;
    for (int lane = 0; lane < WARP && first + lane < n_threads; lane++)
        if (states[first + lane] == IN_WARP) wanted |= masks[first + lane];
    for (int lane = 0; lane < WARP && first + lane < n_threads; lane++) {
        if (states[first + lane] == IN_WARP) here |= 1u << lane;
        if (states[first + lane] == GONE && wanted >> lane & 1) fail("a shuffle names a lane that has ended", first + lane);
        if (states[first + lane] != IN_WARP && wanted >> lane & 1) return false;
    }
    for (int lane = 0; lane < WARP; lane++)
        if (here >> lane & 1) states[first + lane] = RUNNING;
    return here != 0;
}

static void run_block() {
    n_begun = votes = 0;
    int n_fibers = 0;
    for (int t = 0; t < n_threads; t++) states[t] = COMING;
    for (;;) {
        bool moved = false;
        for (int i = 0; i < n_fibers; i++)
            while (!fibers[i].over && states[fibers[i].thread] == RUNNING) {
                resume(&fibers[i]);
                if (failure) return;
                moved = true;
            }
        if (n_begun < n_threads) {
            fibers[n_fibers].begun = fibers[n_fibers].over = false;
            resume(&fibers[n_fibers++]);
            if (failure) return;
            continue;
        }
        if (moved) continue;
        bool released = release_block(), waits = false;
        for (int first = 0; first < n_threads; first += WARP) released |= release_warp(first);
        for (int t = 0; t < n_threads; t++) waits |= states[t] != GONE;
        if (!waits) return;
        if (!released) {
            snprintf(message, sizeof message, "a barrier or shuffle is not reached by all its threads, in block (%u, %u, %u)",
                     blockIdx.x, blockIdx.y, blockIdx.z);
            failure = message;
            return;
        }
    }
}

template <class... A, size_t... I>
static const char* launch_with(void (*function)(A...), const unsigned* dims, size_t shared_bytes, void** arguments,
                               std::index_sequence<I...>) {
    struct Bound : Call {
        void (*function)(A...);
        void** arguments;
        void run() override { function(*(std::remove_const_t<A>*)arguments[I]...); }
    } bound;
    bound.function = function;
    bound.arguments = arguments;
    kernel = &bound;
    gridDim = {dims[0], dims[1], dims[2]};
    blockDim = {dims[3], dims[4], dims[5]};
    n_threads = dims[3] * dims[4] * dims[5];
    failure = nullptr;
    unsigned n_blocks = dims[0] * dims[1] * dims[2];
    if (_setjmp(scheduler)) return failure;
    for (unsigned i = 0; i < n_blocks && !failure; i++) {
        blockIdx = {i % dims[0], i / dims[0] % dims[1], i / dims[0] / dims[1]};
        falling = i % 2;
        memset(dynamic_shared, 0xff, shared_bytes);
        run_block();
    }
    return failure;
}

template <class... A>
static const char* launch(void (*function)(A...), const unsigned* dims, size_t shared_bytes, void** arguments) {
    return launch_with(function, dims, shared_bytes, arguments, std::index_sequence_for<A...>{});
}

// A parameter's kind and bytes: 'p' pointer, 'f' floating, 'i' integer, 's' a struct.
template <class A> static char kind() {
    return std::is_pointer_v<A> ? 'p' : std::is_floating_point_v<A> ? 'f' : std::is_integral_v<A> ? 'i' : 's';
}
template <class... A> static void parameters(void (*)(A...), char* out) {
    ((out += sprintf(out, "%c%zu ", kind<A>(), sizeof(A))), ...);
}

static int own() { return current->thread; }

static void warp_wait(unsigned mask) {
    if (!(mask >> own() % WARP & 1)) fail("a thread shuffles under a mask that lacks it", own());
    masks[own()] = mask;
    wait(IN_WARP);
}

template <class T> static T shuffle(unsigned mask, T value, int from) {
    int first = own() / WARP * WARP;
    memcpy(slots[own()], &value, sizeof value);
    warp_wait(mask);
    if (from >= 0 && first + from < n_threads && (mask >> from & 1)) memcpy(&value, slots[first + from], sizeof value);
    warp_wait(mask);
    return value;
}
}  // namespace emulator

// -- barriers, shuffles, atomics -------------------------------------------------------------------------------------
static inline void __syncthreads() { emulator::wait(emulator::AT_BARRIER); }
static inline int __syncthreads_count(int vote) {
    emulator::votes += vote != 0;
    emulator::wait(emulator::AT_BARRIER);
    return emulator::last_votes;
}
static inline int __syncthreads_or(int vote) { return __syncthreads_count(vote) != 0; }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { emulator::warp_wait(mask); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
template <class T> static T __shfl_sync(unsigned mask, T value, int from, int width = 32) {
    return emulator::shuffle(mask, value, emulator::own() % 32 / width * width + from % width);
}
template <class T> static T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
    return emulator::shuffle(mask, value, emulator::own() % 32 ^ bits);
}
template <class T> static T __shfl_down_sync(unsigned mask, T value, unsigned n, int width = 32) {
    int lane = emulator::own() % 32, from = lane + int(n);
    return emulator::shuffle(mask, value, from / width == lane / width ? from : lane);
}
template <class T> static T __shfl_up_sync(unsigned mask, T value, unsigned n, int width = 32) {
    int lane = emulator::own() % 32, from = lane - int(n);
    return emulator::shuffle(mask, value, from >= lane / width * width ? from : lane);
}
static inline unsigned __ballot_sync(unsigned mask, int vote) {
    unsigned all = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) all |= unsigned(emulator::shuffle(mask, vote != 0, lane)) << lane;
    return all;
}
static inline int __any_sync(unsigned mask, int vote) { return __ballot_sync(mask, vote) != 0; }
static inline int __all_sync(unsigned mask, int vote) { return __ballot_sync(mask, !vote) == 0; }
static inline unsigned __activemask() { return 0xffffffffu; }

template <class T, class U> static T atomicAdd(T* at, U value) { T old = *at; *at = old + T(value); return old; }
template <class T, class U> static T atomicMax(T* at, U value) { T old = *at; if (T(value) > old) *at = value; return old; }
template <class T, class U> static T atomicMin(T* at, U value) { T old = *at; if (T(value) < old) *at = value; return old; }
template <class T, class U> static T atomicOr(T* at, U value) { T old = *at; *at = old | T(value); return old; }
template <class T, class U> static T atomicExch(T* at, U value) { T old = *at; *at = T(value); return old; }
template <class T> static T atomicCAS(T* at, T expected, T value) { T old = *at; if (old == expected) *at = value; return old; }

// -- numbers ---------------------------------------------------------------------------------------------------------
template <class T> static T __ldg(const T* at) { return *at; }
template <class T, class U> static constexpr auto max(T a, U b) -> decltype(a + b) { return a > b ? a : b; }
template <class T, class U> static constexpr auto min(T a, U b) -> decltype(a + b) { return a < b ? a : b; }
static inline float rsqrt(float x) { return 1 / sqrtf(x); }
static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
#define __expf expf  // the C library declares such names of its own
#define __logf logf
#define __powf powf
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frsqrt_rn(float x) { return 1 / sqrtf(x); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(uint64_t(a) * b >> 32); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
template <class T, class F> static T same_bits(F from) { T to; static_assert(sizeof to == sizeof from); memcpy(&to, &from, sizeof to); return to; }
static inline int __float_as_int(float x) { return same_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return same_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return same_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return same_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }

// Half precision by bits, in place of the device's instructions: the kernels' own sources define these from PTX.
static inline float half_bits_to_float(unsigned short bits) {
    unsigned magnitude = bits & 0x7fffu;
    float value = same_bits<float>(magnitude << 13) * 0x1p112f;  // exact, subnormal numbers too
    if (magnitude >= 0x7c00u) value = same_bits<float>(0x7f800000u | (magnitude << 13 & 0x7fffffu));
    return same_bits<float>(same_bits<unsigned>(value) | unsigned(bits & 0x8000u) << 16);
}
static inline unsigned short float_to_half_bits(float value) {  // to nearest, ties to even
    unsigned bits = same_bits<unsigned>(value), sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return 0x7fffu;
    if (bits >= 0x477ff000u) return sign | 0x7c00u;
    if (bits < 0x38800000u)  // subnormal: adding 1/2 puts the last place of half where float rounds
        return sign | (same_bits<unsigned>(same_bits<float>(bits) + 0.5f) - 0x3f000000u);
    return sign | (bits - 0x38000000u + 0xfffu + (bits >> 13 & 1)) >> 13;
}
static inline float bfloat_bits_to_float(unsigned short bits) { return same_bits<float>(unsigned(bits) << 16); }
static inline unsigned short float_to_bfloat_bits(float value) {  // to nearest, ties to even
    unsigned bits = same_bits<unsigned>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}

// A misaligned vector access, which the device refuses (the compiler is told to call this).
struct UbsanLocation { const char* file; unsigned line, column; };
struct UbsanMismatch { UbsanLocation location; };
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1(UbsanMismatch* data, uintptr_t at) {
    char what[128];
    snprintf(what, sizeof what, "misaligned address %#lx at line %u", (unsigned long)at, data->location.line);
    emulator::fail(what, emulator::own());
}
extern "C" __attribute__((visibility("hidden"))) void __ubsan_handle_type_mismatch_v1_abort(UbsanMismatch* data, uintptr_t at) {
    __ubsan_handle_type_mismatch_v1(data, at);
}
