// Random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, 3.3).
//
// `state` holds (key, calls so far), both 64 bits, in device memory, so that a replayed graph draws anew; element i of
// call n has the number i % 4 of the block of counter (i / 4, n).

struct Four { unsigned at[4]; };

__device__ inline Four philox(Four counter, unsigned key0, unsigned key1) {
    for (int round = 0; round < 10; round++) {
        unsigned high0 = __umulhi(0xD2511F53u, counter.at[0]), low0 = 0xD2511F53u * counter.at[0];
        unsigned high1 = __umulhi(0xCD9E8D57u, counter.at[2]), low1 = 0xCD9E8D57u * counter.at[2];
        counter = {high1 ^ counter.at[1] ^ key0, low1, high0 ^ counter.at[3] ^ key1, low0};
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

__device__ inline Four draw_four(const unsigned long long* state, long long block) {
    unsigned long long key = state[0], call = state[1];
    return philox({(unsigned)block, (unsigned)(block >> 32), (unsigned)call, (unsigned)(call >> 32)}, (unsigned)key,
                  (unsigned)(key >> 32));
}

// body(place, draw) for all elements, four a thread.
template <class F> __device__ inline void for_draws(const unsigned long long* state, long long n_elems, F body) {
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
    for (long long block = first; block * 4 < n_elems; block += step) {
        Four draws = draw_four(state, block);
        for (int k = 0; k < 4; k++)
            if (block * 4 + k < n_elems) body(block * 4 + k, draws.at[k]);
    }
}

// A new mask, 1 where the draw is at most limit, and y = x scale there, 0 elsewhere. y may be x.
extern "C" __global__ void dropout(const T* x, T* y, unsigned char* mask, const unsigned long long* state,
                                   unsigned limit, A scale, long long n_elems) {
    for_draws(state, n_elems, [&](long long i, unsigned draw) {
        bool kept = draw <= limit;
        mask[i] = kept;
        y[i] = narrow(kept ? widen(x[i]) * scale : A(0));
    });
}

// Numbers in [0, 1), of 24 bits.
extern "C" __global__ void uniform(float* y, const unsigned long long* state, long long n_elems) {
    for_draws(state, n_elems, [&](long long i, unsigned draw) { y[i] = (draw >> 8) * 0x1p-24f; });
}

// The raw draws.
extern "C" __global__ void raw_draws(unsigned* y, const unsigned long long* state, long long n_elems) {
    for_draws(state, n_elems, [&](long long i, unsigned draw) { y[i] = draw; });
}

// Behind every call.
extern "C" __global__ void next_call(unsigned long long* state) { state[1]++; }
