// Kernels with numbers per channel: gradients of biases, moments, learned scales.

// Of g alone.
extern "C" __global__ void sum_gradients(const T* g, A* parts, int n_rows, int n_channels) {
    sum_rows(n_rows, n_channels, parts, lie_whole(g), [=](auto width, int c) {
        const int W = width.value;
        return [=](long long i, A* one, A* other) {
            auto values = load<W>(g + i);
            for (int k = 0; k < W; k++) one[k] += widen(values.at[k]);
        };
    });
}

// Of x - shift and its square; shift is the first row, so that few digits cancel.
extern "C" __global__ void sum_squares(const T* x, A* parts, int n_rows, int n_channels) {
    sum_rows(n_rows, n_channels, parts, lie_whole(x), [=](auto width, int c) {
        const int W = width.value;
        auto shift = load<W>(x + c);
        return [=](long long i, A* one, A* other) {
            auto values = load<W>(x + i);
            for (int k = 0; k < W; k++) {
                A away = widen(values.at[k]) - widen(shift.at[k]);
                one[k] += away;
                other[k] += away * away;
            }
        };
    });
}

// Sums of g x and of g.
extern "C" __global__ void sum_products(const T* x, const T* g, A* parts, int n_rows, int n_channels) {
    sum_rows(n_rows, n_channels, parts, lie_whole(x, g), [=](auto width, int c) {
        const int W = width.value;
        return [=](long long i, A* one, A* other) {
            auto values = load<W>(x + i);
            auto gradients = load<W>(g + i);
            for (int k = 0; k < W; k++) {
                one[k] += widen(gradients.at[k]);
                other[k] += widen(gradients.at[k]) * widen(values.at[k]);
            }
        };
    });
}

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

extern "C" __global__ void finish_moments(const T* x, const A* parts, double* mean, double* variance, int n_rows,
                                          int n_parts, int n_channels) {
    int c = own_channel();
    Moments found = moments_of(x, parts, n_rows, n_parts, n_channels, c);
    if (c >= n_channels || threadIdx.y) return;
    mean[c] = found.mean;
    variance[c] = found.variance;
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
