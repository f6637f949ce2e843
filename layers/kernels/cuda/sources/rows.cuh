// What kernels with numbers per channel share, on (rows, channels) matrices. A block's x is channels, its y rows; blocks'
// y share the rows out. Sums over rows have two steps, each always in the same order: parts of blocks, then their totals.

// Parts of two sums per channel: parts is (2, gridDim.y, channels). prepare(width, first channel) reads numbers of
// channels and gives body(place, one, other), which adds a row's.
template <int W, class F> __device__ inline void sum_columns(int n_rows, int n_channels, A* parts, F prepare) {
    extern __shared__ double shared_bytes[];  // 2 packs a thread
    A* own = (A*)shared_bytes;
    int n_threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
    // All threads of a block take the same number of turns: barriers lie in the loop.
    for (unsigned c0 = blockIdx.x * blockDim.x * W; c0 < unsigned(n_channels); c0 += gridDim.x * blockDim.x * W) {
        int c = int(c0 + threadIdx.x * W);
        A one[W], other[W];
        for (int k = 0; k < W; k++) one[k] = other[k] = 0;
        if (c < n_channels) {
            auto body = prepare(Width<W>(), c);
            for (unsigned r = blockIdx.y * blockDim.y + threadIdx.y; r < unsigned(n_rows); r += gridDim.y * blockDim.y)
                body((long long)r * n_channels + c, one, other);
        }
        __syncthreads();
        for (int k = 0; k < W; k++) {
            own[k * n_threads + thread] = one[k];
            own[(W + k) * n_threads + thread] = other[k];
        }
        __syncthreads();
        if (threadIdx.y == 0 && c < n_channels)
            for (int k = 0; k < 2 * W; k++) {  // W of one, then W of the other
                A sum = 0;
                for (int y = 0; y < blockDim.y; y++) sum += own[k * n_threads + y * blockDim.x + threadIdx.x];
                parts[((long long)(k / W) * gridDim.y + blockIdx.y) * n_channels + c + k % W] = sum;
            }
    }
}

template <class F> __device__ inline void sum_rows(int n_rows, int n_channels, A* parts, bool packed, F prepare) {
    if (packed && n_channels % PACK == 0) sum_columns<PACK>(n_rows, n_channels, parts, prepare);
    else sum_columns<1>(n_rows, n_channels, parts, prepare);
}

// The total of one channel's parts, in the threads of y 0; a block is 32 channels by MOST_DOWN parts at a time, and all
// of its threads come here.
const int MOST_DOWN = 16;

__device__ inline double total(const A* parts, int which, int n_parts, int n_channels, int c) {
    __shared__ double sums[MOST_DOWN][33];
    double sum = 0;
    if (c < n_channels)
        for (int p = threadIdx.y; p < n_parts; p += blockDim.y)
            sum += parts[((long long)which * n_parts + p) * n_channels + c];
    __syncthreads();
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (int y = 0; y < blockDim.y; y++) sum += sums[y][threadIdx.x];
    return sum;
}

__device__ inline int own_channel() { return blockIdx.x * blockDim.x + threadIdx.x; }

// A channel's mean and variance from the sums of ``sum_squares``, whose shift is x's first row.
struct Moments { double mean, variance; };
__device__ inline Moments moments_of(const T* x, const A* parts, int n_rows, int n_parts, int n_channels, int c) {
    double away = total(parts, 0, n_parts, n_channels, c) / n_rows;
    double square = total(parts, 1, n_parts, n_channels, c) / n_rows;
    double variance = square - away * away;
    return {(c < n_channels ? widen(x[c]) : 0) + away, variance > 0 ? variance : 0};
}

// W numbers of channels from c on, or a stand-in where there are none.
template <int W> __device__ inline Pack<A, W> numbers_of(const A* all, int c, A missing) {
    Pack<A, W> found;
    for (int k = 0; k < W; k++) found.at[k] = all ? all[c + k] : missing;
    return found;
}

// prepare(width, first channel) reads numbers of channels and gives body(place), which is called for all rows.
template <class F> __device__ inline void for_rows(int n_rows, int n_channels, bool packed, F prepare) {
    for_channels(n_channels, packed, [&](auto width, int c) {
        auto body = prepare(width, c);
        for (unsigned r = blockIdx.y * blockDim.y + threadIdx.y; r < unsigned(n_rows); r += gridDim.y * blockDim.y)
            body((long long)r * n_channels + c);
    });
}
