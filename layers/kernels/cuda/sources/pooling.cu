// Poolings of channels-last images, Caffe's windows. A block's x is channels, its y places. Place, the type that holds
// which element of a window was taken, comes by -DPlace=..., S is a mask's. Gradients are gathered, so always summed in
// one order.

struct Window { int n_rows, n_columns, out_rows, out_columns, kh, kw, sh, sw, ph, pw; };
#define WINDOW int n_images, int n_channels, int n_rows, int n_columns, int out_rows, int out_columns, int kh, int kw, \
               int sh, int sw, int ph, int pw
#define THE_WINDOW {n_rows, n_columns, out_rows, out_columns, kh, kw, sh, sw, ph, pw}

const Place NOWHERE = static_cast<Place>(-1);  // larger than all places of a window, or negative

struct Bounds { int top, bottom, left, right, first_row, first_column, count; };

// The part of a window inside the image, where the window itself starts, and how many elements AVE divides by.
__device__ inline Bounds bounds(const Window& w, int i, int j) {
    int top = i * w.sh - w.ph, left = j * w.sw - w.pw;
    int bottom = min(top + w.kh, w.n_rows + w.ph), right = min(left + w.kw, w.n_columns + w.pw);
    return {max(top, 0), min(bottom, w.n_rows), max(left, 0), min(right, w.n_columns), top, left,
            (bottom - top) * (right - left)};
}

// body(width, output's place, its channel, window's bounds, image's first element) for all outputs.
template <class F> __device__ inline void for_outputs(const Window& w, int n_images, int n_channels, bool packed, F body) {
    unsigned n_places = unsigned(n_images) * w.out_rows * w.out_columns;
    for (unsigned p = blockIdx.y * blockDim.y + threadIdx.y; p < n_places; p += gridDim.y * blockDim.y) {
        int j = p % w.out_columns, i = p / w.out_columns % w.out_rows, n = p / w.out_columns / w.out_rows;
        Bounds at = bounds(w, i, j);
        long long image = (long long)n * w.n_rows * w.n_columns;
        for_channels(n_channels, packed, [&](auto width, int c) {
            body(width, (long long)p * n_channels + c, c, at, image);
        });
    }
}

// The first of the largest elements, and its place in the window, or NOWHERE if only an element above_zero is to have one;
// mask, where given, gets h W + w of the image.
extern "C" __global__ void maximum(const T* x, T* y, Place* places, S* mask, int above_zero, WINDOW) {
    Window w = THE_WINDOW;
    for_outputs(w, n_images, n_channels, lie_whole(x, y, places), [&](auto width, long long out, int c, Bounds at,
                                                                     long long image) {
        Pack<T, width.value> best;
        Pack<Place, width.value> taken;
        A most[width.value];
        for (int h = at.top; h < at.bottom; h++)
            for (int v = at.left; v < at.right; v++) {
                auto values = load<width.value>(x + (image + h * n_columns + v) * n_channels + c);
                bool is_first = h == at.top && v == at.left;
                for (int k = 0; k < width.value; k++) {
                    A value = widen(values.at[k]);
                    if (is_first || value > most[k]) {
                        most[k] = value;
                        best.at[k] = values.at[k];
                        taken.at[k] = (h - at.first_row) * kw + v - at.first_column;
                    }
                }
            }
        store<width.value>(y + out, best);
        if (mask)
            for (int k = 0; k < width.value; k++) {
                int place = taken.at[k];
                mask[out + k] = Narrowed<S>::of((at.first_row + place / kw) * n_columns + at.first_column + place % kw);
            }
        if (above_zero)
            for (int k = 0; k < width.value; k++)
                if (!(most[k] > 0)) taken.at[k] = NOWHERE;
        store<width.value>(places + out, taken);
    });
}

extern "C" __global__ void average(const T* x, T* y, WINDOW) {
    Window w = THE_WINDOW;
    for_outputs(w, n_images, n_channels, lie_whole(x, y), [&](auto width, long long out, int c, Bounds at,
                                                             long long image) {
        A sums[width.value];
        for (int k = 0; k < width.value; k++) sums[k] = 0;
        for (int h = at.top; h < at.bottom; h++)
            for (int v = at.left; v < at.right; v++) {
                auto values = load<width.value>(x + (image + h * n_columns + v) * n_channels + c);
                for (int k = 0; k < width.value; k++) sums[k] += widen(values.at[k]);
            }
        Pack<T, width.value> results;
        for (int k = 0; k < width.value; k++) results.at[k] = narrow(sums[k] / at.count);
        store<width.value>(y + out, results);
    });
}

// An element of each window with probability in proportion to it, by one draw in [0, 1) an output.
extern "C" __global__ void stochastic(const T* x, T* y, Place* places, const float* draws, WINDOW) {
    Window w = THE_WINDOW;
    for_outputs(w, n_images, n_channels, false, [&](auto width, long long out, int c, Bounds at, long long image) {
        A sum = 0, seen = 0;
        for (int h = at.top; h < at.bottom; h++)
            for (int v = at.left; v < at.right; v++) sum += widen(x[(image + h * n_columns + v) * n_channels + c]);
        A limit = draws[out] * sum;
        int h = at.top, v = at.left;
        for (;; v++) {
            if (v == at.right) v = at.left, h++;
            seen += widen(x[(image + h * n_columns + v) * n_channels + c]);
            if (seen >= limit || (h == at.bottom - 1 && v == at.right - 1)) break;
        }
        places[out] = (h - at.first_row) * kw + v - at.first_column;
        y[out] = x[(image + h * n_columns + v) * n_channels + c];
    });
}

// The mean weighted by the elements themselves: what stochastic pooling expects.
extern "C" __global__ void weighted_mean(const T* x, T* y, WINDOW) {
    Window w = THE_WINDOW;
    for_outputs(w, n_images, n_channels, false, [&](auto width, long long out, int c, Bounds at, long long image) {
        A sum = 0, squares = 0;
        for (int h = at.top; h < at.bottom; h++)
            for (int v = at.left; v < at.right; v++) {
                A value = widen(x[(image + h * n_columns + v) * n_channels + c]);
                sum += value;
                squares += value * value;
            }
        y[out] = narrow(sum > 0 ? squares / sum : A(0));
    });
}

// For each element of the image: sum over the windows that hold it of body(width, output's place, its bounds, sums); 0
// where signs, if given, are not above 0.
template <class F> __device__ inline void gather(const Window& w, int n_images, int n_channels, const T* signs, T* gx,
                                                 bool packed, F body) {
    unsigned n_places = unsigned(n_images) * w.n_rows * w.n_columns;
    for (unsigned p = blockIdx.y * blockDim.y + threadIdx.y; p < n_places; p += gridDim.y * blockDim.y) {
        int v = p % w.n_columns, h = p / w.n_columns % w.n_rows, n = p / w.n_columns / w.n_rows;
        int i0 = max((h + w.ph - w.kh + w.sh) / w.sh, 0), i1 = min((h + w.ph) / w.sh, w.out_rows - 1);
        int j0 = max((v + w.pw - w.kw + w.sw) / w.sw, 0), j1 = min((v + w.pw) / w.sw, w.out_columns - 1);
        for_channels(n_channels, packed, [&](auto width, int c) {
            A sums[width.value];
            for (int k = 0; k < width.value; k++) sums[k] = 0;
            for (int i = i0; i <= i1; i++)
                for (int j = j0; j <= j1; j++) {
                    long long out = (((long long)n * w.out_rows + i) * w.out_columns + j) * n_channels + c;
                    body(width, out, i, j, h, v, sums);
                }
            long long own = (long long)p * n_channels + c;
            Pack<T, width.value> results, kept;
            if (signs) kept = load<width.value>(signs + own);
            for (int k = 0; k < width.value; k++)
                results.at[k] = narrow(signs && !(widen(kept.at[k]) > 0) ? A(0) : sums[k]);
            store<width.value>(gx + own, results);
        });
    }
}

extern "C" __global__ void maximum_back(const T* gy, const Place* places, T* gx, WINDOW) {
    Window w = THE_WINDOW;
    gather(w, n_images, n_channels, nullptr, gx, lie_whole(gy, places, gx), [&](auto width, long long out, int i, int j, int h,
                                                                       int v, A* sums) {
        auto gradients = load<width.value>(gy + out);
        auto taken = load<width.value>(places + out);
        int own = (h - i * sh + ph) * kw + v - j * sw + pw;
        for (int k = 0; k < width.value; k++)
            if (taken.at[k] == own) sums[k] += widen(gradients.at[k]);
    });
}

extern "C" __global__ void average_back(const T* gy, const T* signs, T* gx, WINDOW) {
    Window w = THE_WINDOW;
    gather(w, n_images, n_channels, signs, gx, lie_whole(gy, signs, gx), [&](auto width, long long out, int i, int j,
                                                                            int h, int v, A* sums) {
        auto gradients = load<width.value>(gy + out);
        A share = A(1) / bounds(w, i, j).count;
        for (int k = 0; k < width.value; k++) sums[k] += widen(gradients.at[k]) * share;
    });
}
