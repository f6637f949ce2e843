// Rows of equal length in another order, a word at a time: 4, 8 or 16 bytes, whatever the rows' length is a multiple of.

struct alignas(16) Sixteen {
    long long low, high;
};

// Word k of row i of what is packed belongs to word k of row places[i] of what is spread out.
template <class Word, bool IS_GATHER>
__device__ void move(Word *packed, Word *spread, const int *places, long long n_words, int row_words) {
    long long all = gridDim.x * (long long)blockDim.x;
#pragma unroll 1
    for (long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x; at < n_words; at += all) {
        long long row = at / row_words;
        long long there = places[row] * (long long)row_words + (at - row * row_words);
        if (IS_GATHER) packed[at] = spread[there];
        else spread[there] = packed[at];
    }
}

#define KERNELS(BYTES, WORD)                                                                                                   \
    extern "C" __global__ void gather_rows_##BYTES(WORD *packed, WORD *spread, const int *places, long long n_words,           \
                                                   int row_words) {                                                            \
        move<WORD, true>(packed, spread, places, n_words, row_words);                                                          \
    }                                                                                                                          \
    extern "C" __global__ void scatter_rows_##BYTES(WORD *packed, WORD *spread, const int *places, long long n_words,          \
                                                    int row_words) {                                                           \
        move<WORD, false>(packed, spread, places, n_words, row_words);                                                         \
    }

KERNELS(4, int)
KERNELS(8, long long)
KERNELS(16, Sixteen)
