// Batch normalisation with the layers fused to it: y = relu((x - mean) inverse scale + bias + addend). Scale, bias and
// addend may be missing (null); a slope of 1 is no ReLU.

// The numbers of W channels.
template <int W> struct Affine {
    Pack<A, W> mean, factor, bias;
    A slope;

    __device__ A away(int k, T x) const { return widen(x) - mean.at[k]; }
    __device__ A ahead_of_relu(int k, A away) const { return away * factor.at[k] + bias.at[k]; }
    __device__ T forward(int k, T x, A addend) const {
        A value = ahead_of_relu(k, away(k, x)) + addend;
        return narrow(value > 0 ? value : slope * value);
    }
    // The gradient ahead of ReLU: its sign is found again from x.
    __device__ A gradient(int k, A away, T g) const {
        return slope == 1 || ahead_of_relu(k, away) > 0 ? widen(g) : slope * widen(g);
    }
};

template <int W> __device__ inline Affine<W> affine_of(const A* mean, const A* inverse, const A* scale, const A* bias,
                                                       A slope, int c) {
    Affine<W> found = {numbers_of<W>(mean, c, 0), numbers_of<W>(inverse, c, 1), numbers_of<W>(bias, c, 0), slope};
    auto factor = numbers_of<W>(scale, c, 1);
    for (int k = 0; k < W; k++) found.factor.at[k] *= factor.at[k];
    return found;
}

// y may be x; kept, where given, takes a copy of x.
extern "C" __global__ void normalize(const T* x, const A* mean, const A* inverse, const A* scale, const A* bias, A slope,
                                     const T* addend, T* y, T* kept, int n_rows, int n_channels) {
    for_rows(n_rows, n_channels, lie_whole(x, y, kept, addend), [=](auto width, int c) {
        const int W = width.value;
        auto affine = affine_of<W>(mean, inverse, scale, bias, slope, c);
        return [=](long long i) {
            auto values = load<W>(x + i);
            auto addends = values;
            if (addend) addends = load<W>(addend + i);
            if (kept) store<W>(kept + i, values);
            for (int k = 0; k < W; k++)
                values.at[k] = affine.forward(k, values.at[k], addend ? widen(addends.at[k]) : A(0));
            store<W>(y + i, values);
        };
    });
}

// Sums of the gradient ahead of ReLU, and of it times x - mean.
extern "C" __global__ void sum_back(const T* x, const T* g, const A* mean, const A* inverse, const A* scale,
                                    const A* bias, A slope, A* parts, int n_rows, int n_channels) {
    sum_rows(n_rows, n_channels, parts, lie_whole(x, g), [=](auto width, int c) {
        const int W = width.value;
        auto affine = affine_of<W>(mean, inverse, scale, bias, slope, c);
        return [=](long long i, A* one, A* other) {
            auto values = load<W>(x + i);
            auto gradients = load<W>(g + i);
            for (int k = 0; k < W; k++) {
                A away = affine.away(k, values.at[k]), gradient = affine.gradient(k, away, gradients.at[k]);
                one[k] += gradient;
                other[k] += gradient * away;
            }
        };
    });
}

// gx = (g - level - (x - mean) tilt) inverse scale with g ahead of ReLU; level and tilt may be missing. gx may be g.
extern "C" __global__ void normalize_back(const T* x, const T* g, const A* mean, const A* inverse, const A* scale,
                                          const A* bias, A slope, T* gx, const A* level, const A* tilt, int n_rows,
                                          int n_channels) {
    for_rows(n_rows, n_channels, lie_whole(x, g, gx), [=](auto width, int c) {
        const int W = width.value;
        auto affine = affine_of<W>(mean, inverse, scale, bias, slope, c);
        auto offset = numbers_of<W>(level, c, 0), slant = numbers_of<W>(tilt, c, 0);
        return [=](long long i) {
            auto values = load<W>(x + i);
            auto gradients = load<W>(g + i);
            for (int k = 0; k < W; k++) {
                A away = affine.away(k, values.at[k]), gradient = affine.gradient(k, away, gradients.at[k]);
                gradients.at[k] = narrow((gradient - offset.at[k] - away * slant.at[k]) * affine.factor.at[k]);
            }
            store<W>(gx + i, gradients);
        };
    });
}

// Both, where g is thinned and 0 elsewhere.
extern "C" __global__ void sum_back_thinned(const T* x, const T* g, const A* mean, const A* inverse, const A* scale,
                                            const A* bias, A slope, THINNED, A* parts, int n_kept, int n_channels) {
    Thinned thinned = THE_THINNED;
    sum_rows(n_kept, n_channels, parts, lie_whole(x, g), [=](auto width, int c) {
        const int W = width.value;
        auto affine = affine_of<W>(mean, inverse, scale, bias, slope, c);
        return [=](long long i, A* one, A* other) {
            auto values = load<W>(x + thinned.place(unsigned(i) / unsigned(n_channels)) * n_channels + c);
            auto gradients = load<W>(g + i);
            for (int k = 0; k < W; k++) {
                A away = affine.away(k, values.at[k]), gradient = affine.gradient(k, away, gradients.at[k]);
                one[k] += gradient;
                other[k] += gradient * away;
            }
        };
    });
}

extern "C" __global__ void normalize_back_thinned(const T* x, const T* g, const A* mean, const A* inverse,
                                                  const A* scale, const A* bias, A slope, T* gx, const A* level,
                                                  const A* tilt, THINNED, int n_rows, int n_channels) {
    Thinned thinned = THE_THINNED;
    for_rows(n_rows, n_channels, lie_whole(x, g, gx), [=](auto width, int c) {
        const int W = width.value;
        auto affine = affine_of<W>(mean, inverse, scale, bias, slope, c);
        auto offset = numbers_of<W>(level, c, 0), slant = numbers_of<W>(tilt, c, 0);
        return [=](long long i) {
            auto values = load<W>(x + i), gradients = values;
            int kept = thinned.kept(unsigned(i) / unsigned(n_channels));
            if (kept >= 0) gradients = load<W>(g + (long long)kept * n_channels + c);
            for (int k = 0; k < W; k++) {
                A away = affine.away(k, values.at[k]);
                A gradient = kept < 0 ? A(0) : affine.gradient(k, away, gradients.at[k]);
                gradients.at[k] = narrow((gradient - offset.at[k] - away * slant.at[k]) * affine.factor.at[k]);
            }
            store<W>(gx + i, gradients);
        };
    });
}

// The running sums of one channel, brought up to date (Caffe 1.0).
__device__ inline void add_moments(Moments found, A* means, A* variances, A* factor, double fraction, double correction,
                                   int c) {
    if (c == 0) factor[0] = factor[0] * fraction + 1;
    means[c] = means[c] * fraction + found.mean;
    variances[c] = variances[c] * fraction + found.variance * correction;
}

// In training: what to normalise with, from the sums of ``sum_squares``.
extern "C" __global__ void finish_training(const T* x, const A* parts, A* mean, A* inverse, A* means, A* variances,
                                           A* factor, double eps, double fraction, double correction, int n_rows,
                                           int n_parts, int n_channels) {
    int c = own_channel();
    Moments found = moments_of(x, parts, n_rows, n_parts, n_channels, c);
    if (c >= n_channels || threadIdx.y) return;
    mean[c] = found.mean;
    inverse[c] = 1 / sqrt(found.variance + eps);
    add_moments(found, means, variances, factor, fraction, correction, c);
}

// The same where somebody else has found mean and inverse. blockIdx.y is the entry (deferred.py).
struct Sums {
    const A *mean, *inverse;
    A *means, *variances, *factor;
    double eps, fraction, correction;
    int n_channels;
};
struct AllSums { Sums at[56]; };

extern "C" __global__ void add_to_sums(const __grid_constant__ AllSums table) {
    const Sums& own = table.at[blockIdx.y];
    for (int c = own_channel(); c < own.n_channels; c += gridDim.x * blockDim.x) {
        double variance = 1 / (double(own.inverse[c]) * own.inverse[c]) - own.eps;
        add_moments({own.mean[c], variance > 0 ? variance : 0}, own.means, own.variances, own.factor, own.fraction,
                    own.correction, c);
    }
}

// By the running sums.
extern "C" __global__ void finish_fixed(const A* means, const A* variances, const A* factor, A* mean, A* inverse,
                                        double eps, int n_channels) {
    int c = own_channel();
    if (c >= n_channels || threadIdx.y) return;
    double scale = factor[0] == 0 ? 0 : 1 / double(factor[0]);
    mean[c] = means[c] * scale;
    inverse[c] = 1 / sqrt(variances[c] * scale + eps);
}

// A gradient of a parameter, where somebody wants it: written, or added where keep is 1.
__device__ inline void leave(A* gradients, int keep, int c, A gradient) {
    if (gradients) gradients[c] = keep ? gradients[c] + gradient : gradient;
}

// From the sums of ``sum_back``: level = mean(g), tilt = mean(g (x - mean)) inverse^2, and gradients of scale and bias.
extern "C" __global__ void finish_back(const A* parts, const A* inverse, A* level, A* tilt, A* for_scale, A* for_bias,
                                       int keep, int n_rows, int n_parts, int n_channels) {
    int c = own_channel();
    double sum = total(parts, 0, n_parts, n_channels, c), product = total(parts, 1, n_parts, n_channels, c);
    if (c >= n_channels || threadIdx.y) return;
    level[c] = sum / n_rows;
    tilt[c] = product / n_rows * inverse[c] * inverse[c];
    leave(for_scale, keep, c, product * inverse[c]);
    leave(for_bias, keep, c, sum);
}

// Gradients of scale and bias that somebody else has found.
extern "C" __global__ void leave_both(const A* of_scale, const A* of_bias, A* for_scale, A* for_bias, int keep,
                                      int n_channels) {
    int c = own_channel();
    if (c >= n_channels || threadIdx.y) return;
    leave(for_scale, keep, c, of_scale[c]);
    leave(for_bias, keep, c, of_bias[c]);
}
