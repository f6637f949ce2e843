// Kernels with numbers per channel, on (rows, channels) matrices. A block's x is channels, its y rows; blocks' y share
// the rows out. Sums over rows have two steps, each always in the same order: parts of blocks, then their totals.

// Parts of two sums per channel: parts is (2, gridDim.y, channels). body(width, row, channel, one, other) adds a row's.
template <int W, class F> __device__ inline void sum_columns(int n_rows, int n_channels, A* parts, F body) {
    extern __shared__ double shared_bytes[];  // 2 packs a thread
    A* own = (A*)shared_bytes;
    int n_threads = blockDim.x * blockDim.y, thread = threadIdx.y * blockDim.x + threadIdx.x;
    // All threads of a block take the same number of turns: barriers lie in the loop.
    for (int c0 = blockIdx.x * blockDim.x * W; c0 < n_channels; c0 += gridDim.x * blockDim.x * W) {
        int c = c0 + threadIdx.x * W;
        A one[W], other[W];
        for (int k = 0; k < W; k++) one[k] = other[k] = 0;
        if (c < n_channels)
            for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < n_rows; r += gridDim.y * blockDim.y)
                body(Width<W>(), r, c, one, other);
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

template <class F> __device__ inline void sum_rows(int n_rows, int n_channels, A* parts, bool packed, F body) {
    if (packed && n_channels % PACK == 0) sum_columns<PACK>(n_rows, n_channels, parts, body);
    else sum_columns<1>(n_rows, n_channels, parts, body);
}

// Of g alone.
extern "C" __global__ void sum_gradients(const T* g, A* parts, int n_rows, int n_channels) {
    sum_rows(n_rows, n_channels, parts, lie_whole(g), [&](auto width, int r, int c, A* one, A* other) {
        auto values = load<width.value>(g + (long long)r * n_channels + c);
        for (int k = 0; k < width.value; k++) one[k] += widen(values.at[k]);
    });
}

// Of x - shift and its square; shift is the first row, so that few digits cancel.
extern "C" __global__ void sum_squares(const T* x, A* parts, int n_rows, int n_channels) {
    sum_rows(n_rows, n_channels, parts, lie_whole(x), [&](auto width, int r, int c, A* one, A* other) {
        auto values = load<width.value>(x + (long long)r * n_channels + c);
        auto shift = load<width.value>(x + c);
        for (int k = 0; k < width.value; k++) {
            A away = widen(values.at[k]) - widen(shift.at[k]);
            one[k] += away;
            other[k] += away * away;
        }
    });
}

// Of g and of g (x - mean); without mean of g x.
extern "C" __global__ void sum_products(const T* x, const T* g, const A* mean, A* parts, int n_rows, int n_channels) {
    sum_rows(n_rows, n_channels, parts, lie_whole(x, g), [&](auto width, int r, int c, A* one, A* other) {
        auto values = load<width.value>(x + (long long)r * n_channels + c);
        auto gradients = load<width.value>(g + (long long)r * n_channels + c);
        for (int k = 0; k < width.value; k++) {
            A gradient = widen(gradients.at[k]);
            one[k] += gradient;
            other[k] += gradient * (widen(values.at[k]) - (mean ? mean[c + k] : A(0)));
        }
    });
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

// The bias's gradient: written, or added where keep is 1.
extern "C" __global__ void finish_gradients(const A* parts, A* gb, int keep, int n_parts, int n_channels) {
    int c = own_channel();
    A sum = total(parts, 0, n_parts, n_channels, c);
    if (c >= n_channels || threadIdx.y) return;
    gb[c] = keep ? gb[c] + sum : sum;
}

// Both sums, float64.
extern "C" __global__ void finish_products(const A* parts, double* sums, double* products, int n_parts, int n_channels) {
    int c = own_channel();
    double sum = total(parts, 0, n_parts, n_channels, c), product = total(parts, 1, n_parts, n_channels, c);
    if (c >= n_channels || threadIdx.y) return;
    sums[c] = sum;
    products[c] = product;
}

struct Moments { double mean, variance; };
__device__ inline Moments moments_of(const T* x, const A* parts, int n_rows, int n_parts, int n_channels, int c) {
    double away = total(parts, 0, n_parts, n_channels, c) / n_rows;
    double square = total(parts, 1, n_parts, n_channels, c) / n_rows;
    double variance = square - away * away;
    return {(c < n_channels ? widen(x[c]) : 0) + away, variance > 0 ? variance : 0};
}

extern "C" __global__ void finish_moments(const T* x, const A* parts, double* mean, double* variance, int n_rows,
                                          int n_parts, int n_channels) {
    int c = own_channel();
    Moments found = moments_of(x, parts, n_rows, n_parts, n_channels, c);
    if (c >= n_channels || threadIdx.y) return;
    mean[c] = found.mean;
    variance[c] = found.variance;
}

// Batch norm in training: what to normalise with, and the running sums brought up to date (Caffe 1.0).
extern "C" __global__ void finish_training(const T* x, const A* parts, A* mean, A* inverse, A* means, A* variances,
                                           A* factor, double eps, double fraction, int n_rows, int n_parts,
                                           int n_channels) {
    int c = own_channel();
    Moments found = moments_of(x, parts, n_rows, n_parts, n_channels, c);
    if (c >= n_channels || threadIdx.y) return;
    if (c == 0) factor[0] = factor[0] * fraction + 1;
    mean[c] = found.mean;
    inverse[c] = 1 / sqrt(found.variance + eps);
    double correction = n_rows > 1 ? double(n_rows) / (n_rows - 1) : 1;
    means[c] = means[c] * fraction + found.mean;
    variances[c] = variances[c] * fraction + found.variance * correction;
}

// Batch norm by the running sums.
extern "C" __global__ void finish_fixed(const A* means, const A* variances, const A* factor, A* mean, A* inverse,
                                        double eps, int n_channels) {
    int c = own_channel();
    if (c >= n_channels || threadIdx.y) return;
    double scale = factor[0] == 0 ? 0 : 1 / double(factor[0]);
    mean[c] = means[c] * scale;
    inverse[c] = 1 / sqrt(variances[c] * scale + eps);
}

// level = mean(g), slope = mean(g (x - mean)) inverse^2.
extern "C" __global__ void finish_normalize_back(const A* parts, const A* inverse, A* level, A* slope, int n_rows,
                                                 int n_parts, int n_channels) {
    int c = own_channel();
    double sum = total(parts, 0, n_parts, n_channels, c), product = total(parts, 1, n_parts, n_channels, c);
    if (c >= n_channels || threadIdx.y) return;
    level[c] = sum / n_rows;
    slope[c] = product / n_rows * inverse[c] * inverse[c];
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
        for (int r = blockIdx.y * blockDim.y + threadIdx.y; r < n_rows; r += gridDim.y * blockDim.y)
            body((long long)r * n_channels + c);
    });
}

// y = (x - mean) inverse. y may be x; kept, where given, takes a copy of x.
extern "C" __global__ void normalize(const T* x, const A* mean, const A* inverse, T* y, T* kept, int n_rows,
                                     int n_channels) {
    for_rows(n_rows, n_channels, lie_whole(x, y, kept), [=](auto width, int c) {
        const int W = width.value;
        auto level = numbers_of<W>(mean, c, 0), factor = numbers_of<W>(inverse, c, 1);
        return [=](long long i) {
            auto values = load<W>(x + i);
            if (kept) store<W>(kept + i, values);
            for (int k = 0; k < W; k++) values.at[k] = narrow((widen(values.at[k]) - level.at[k]) * factor.at[k]);
            store<W>(y + i, values);
        };
    });
}

// gx = (g - level - (x - mean) slope) inverse. gx may be g.
extern "C" __global__ void normalize_back(const T* x, const T* g, T* gx, const A* mean, const A* inverse,
                                          const A* level, const A* slope, int n_rows, int n_channels) {
    for_rows(n_rows, n_channels, lie_whole(x, g, gx), [=](auto width, int c) {
        const int W = width.value;
        auto middle = numbers_of<W>(mean, c, 0), factor = numbers_of<W>(inverse, c, 1);
        auto offset = numbers_of<W>(level, c, 0), tilt = numbers_of<W>(slope, c, 0);
        return [=](long long i) {
            auto values = load<W>(x + i);
            auto gradients = load<W>(g + i);
            for (int k = 0; k < W; k++) {
                A away = widen(values.at[k]) - middle.at[k];
                gradients.at[k] = narrow((widen(gradients.at[k]) - offset.at[k] - away * tilt.at[k]) * factor.at[k]);
            }
            store<W>(gx + i, gradients);
        };
    });
}

// y = x scale + bias, either of which may be missing, and ReLU of that slope (1: none). y may be x; kept, where given,
// takes a copy of x.
extern "C" __global__ void scale_rows(const T* x, const A* scale, const A* bias, T* y, T* kept, A slope, int n_rows,
                                      int n_channels) {
    for_rows(n_rows, n_channels, lie_whole(x, y, kept), [=](auto width, int c) {
        const int W = width.value;
        auto factor = numbers_of<W>(scale, c, 1), offset = numbers_of<W>(bias, c, 0);
        return [=](long long i) {
            auto values = load<W>(x + i);
            if (kept) store<W>(kept + i, values);
            for (int k = 0; k < W; k++) {
                A value = widen(values.at[k]) * factor.at[k] + offset.at[k];
                values.at[k] = narrow(value > 0 ? value : slope * value);
            }
            store<W>(y + i, values);
        };
    });
}
