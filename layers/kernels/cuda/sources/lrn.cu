// Local response normalisation of channels-last images: y = x s^-beta, s = k + rate (sum of squares in the window).
// Backward has s computed once more, in A.

__device__ inline A power(A s, A beta) {  // s^-beta; the usual 3/4 by roots
    if (beta == A(0.75)) {
        A root = rsqrt(s);
        return root * sqrt(root);
    }
    return pow(s, -beta);
}

// The values of a pack of channels and of half ones to each side, 0 beyond the ends: load_one(channel) gives one's.
// Small halves come with whole packs: values[HALO + k] is channel c + k.
const int HALO = PACK;

template <int W, class F> __device__ inline void window_sums(int c, int n_channels, int half, A* sums, F value_of) {
    if (W == PACK && half <= HALO) {
        A values[W + 2 * HALO];
        for (int part = -1; part <= 1; part++) {
            int first = c + part * W;
            if (first >= 0 && first < n_channels) value_of(Width<W>(), first, values + (part + 1) * W);
            else
                for (int k = 0; k < W; k++) values[(part + 1) * W + k] = 0;
        }
        for (int k = 0; k < W; k++) {
            A sum = 0;
#pragma unroll
            for (int d = -HALO; d <= HALO; d++) sum += d >= -half && d <= half ? values[HALO + k + d] : A(0);
            sums[k] = sum;
        }
        return;
    }
    for (int k = 0; k < W; k++) {
        A sum = 0;
        for (int j = max(c + k - half, 0); j <= min(c + k + half, n_channels - 1); j++) {
            A value;
            value_of(Width<1>(), j, &value);
            sum += value;
        }
        sums[k] = sum;
    }
}

// body(width, row's first element, channel) for packs of channels, x of the grid, of rows, y.
template <class F> __device__ inline void for_packs(long long n_rows, int n_channels, bool packed, F body) {
    for (long long r = blockIdx.y * blockDim.y + threadIdx.y; r < n_rows; r += gridDim.y * blockDim.y)
        for_channels(n_channels, packed, [&](auto width, int c) { body(width, r * n_channels, c); });
}

template <int W> __device__ inline Pack<A, W> scales_across(const T* row, int c, int half, A k, A rate, int n_channels) {
    A sums[W];
    window_sums<W>(c, n_channels, half, sums, [&](auto n, int from, A* out) {
        auto values = load<n.value>(row + from);
        for (int i = 0; i < n.value; i++) out[i] = widen(values.at[i]) * widen(values.at[i]);
    });
    Pack<A, W> s;
    for (int i = 0; i < W; i++) s.at[i] = k + rate * sums[i];
    return s;
}

extern "C" __global__ void across(const T* x, T* y, int half, A k, A rate, A beta, long long n_rows, int n_channels) {
    for_packs(n_rows, n_channels, lie_whole(x, y), [&](auto width, long long row, int c) {
        const int W = width.value;
        auto s = scales_across<W>(x + row, c, half, k, rate, n_channels);
        auto values = load<W>(x + row + c);
        for (int i = 0; i < W; i++) values.at[i] = narrow(widen(values.at[i]) * power(s.at[i], beta));
        store<W>(y + row + c, values);
    });
}

extern "C" __global__ void across_scale(const T* x, A* scale, int half, A k, A rate, long long n_rows, int n_channels) {
    for_packs(n_rows, n_channels, lie_whole(x, scale), [&](auto width, long long row, int c) {
        store<width.value>(scale + row + c, scales_across<width.value>(x + row, c, half, k, rate, n_channels));
    });
}

// gx = gy s^-beta - back x (sum in the window of gy y / s), with y as forward wrote it.
extern "C" __global__ void across_back(const T* x, const T* gy, T* gx, const A* scale, int half, A back, A beta,
                                       long long n_rows, int n_channels) {
    for_packs(n_rows, n_channels, lie_whole(x, gy, gx, scale), [&](auto width, long long row, int c) {
        const int W = width.value;
        A sums[W];
        window_sums<W>(c, n_channels, half, sums, [&](auto n, int from, A* out) {
            auto values = load<n.value>(x + row + from);
            auto gradients = load<n.value>(gy + row + from);
            auto s = load<n.value>(scale + row + from);
            for (int i = 0; i < n.value; i++) {
                A y = widen(narrow(widen(values.at[i]) * power(s.at[i], beta)));
                out[i] = widen(gradients.at[i]) * y / s.at[i];
            }
        });
        auto values = load<W>(x + row + c);
        auto gradients = load<W>(gy + row + c);
        auto s = load<W>(scale + row + c);
        for (int i = 0; i < W; i++)
            values.at[i] = narrow(widen(gradients.at[i]) * power(s.at[i], beta)
                                  - back * widen(values.at[i]) * sums[i]);
        store<W>(gx + row + c, values);
    });
}

// Sum over the square of places around (h, v), cut at the borders, of value_of(place).
template <class F> __device__ inline A box_sum(int h, int v, int n_rows, int n_columns, int half, F value_of) {
    A sum = 0;
    for (int i = max(h - half, 0); i <= min(h + half, n_rows - 1); i++)
        for (int j = max(v - half, 0); j <= min(v + half, n_columns - 1); j++) sum += value_of(i * n_columns + j);
    return sum;
}

// s of the place in a row of all images, of channel c.
__device__ inline A scale_within(const T* x, long long row, int c, int half, A k, A rate, int n_rows, int n_columns,
                                 int n_channels) {
    int place = int(row / n_channels % (n_rows * n_columns));
    const T* image = x + (row - (long long)place * n_channels) + c;
    A sum = box_sum(place / n_columns, place % n_columns, n_rows, n_columns, half, [&](int p) {
        A value = widen(image[(long long)p * n_channels]);
        return value * value;
    });
    return k + rate * sum;
}

extern "C" __global__ void within(const T* x, T* y, int half, A k, A rate, A beta, int n_images, int n_rows,
                                  int n_columns, int n_channels) {
    long long n_places = (long long)n_images * n_rows * n_columns;
    for_packs(n_places, n_channels, false, [&](auto width, long long row, int c) {
        A s = scale_within(x, row, c, half, k, rate, n_rows, n_columns, n_channels);
        y[row + c] = narrow(widen(x[row + c]) * power(s, beta));
    });
}

extern "C" __global__ void within_scale(const T* x, A* scale, int half, A k, A rate, int n_images, int n_rows,
                                        int n_columns, int n_channels) {
    long long n_places = (long long)n_images * n_rows * n_columns;
    for_packs(n_places, n_channels, false, [&](auto width, long long row, int c) {
        scale[row + c] = scale_within(x, row, c, half, k, rate, n_rows, n_columns, n_channels);
    });
}

extern "C" __global__ void within_back(const T* x, const T* y, const T* gy, T* gx, const A* scale, int half, A back,
                                       A beta, int n_images, int n_rows, int n_columns, int n_channels) {
    long long n_places = (long long)n_images * n_rows * n_columns;
    for_packs(n_places, n_channels, false, [&](auto width, long long at, int c) {
        int place = int(at / n_channels % (n_rows * n_columns));
        long long image = at - (long long)place * n_channels + c;
        A sum = box_sum(place / n_columns, place % n_columns, n_rows, n_columns, half, [&](int p) {
            long long q = image + (long long)p * n_channels;
            return widen(gy[q]) * widen(y[q]) / scale[q];
        });
        gx[at + c] = narrow(widen(gy[at + c]) * power(scale[at + c], beta) - back * widen(x[at + c]) * sum);
    });
}
