// Layers that compute each element alone, on flat arrays; y may be x and gx may be gy.

// y = x where x > 0, slope x elsewhere.
extern "C" __global__ void relu_forward(const T* x, T* y, A slope, long long n_elems) {
    for_elements(n_elems, lie_whole(x, y), [&](auto width, long long i) {
        auto values = load<width.value>(x + i);
        for (int k = 0; k < width.value; k++) {
            A value = widen(values.at[k]);
            values.at[k] = narrow(value > 0 ? value : slope * value);
        }
        store<width.value>(y + i, values);
    });
}

// y = a + b where that is above 0, slope (a + b) elsewhere.
extern "C" __global__ void add_relu(const T* a, const T* b, T* y, A slope, long long n_elems) {
    for_elements(n_elems, lie_whole(a, b, y), [&](auto width, long long i) {
        auto values = load<width.value>(a + i), others = load<width.value>(b + i);
        for (int k = 0; k < width.value; k++) {
            A value = widen(values.at[k]) + widen(others.at[k]);
            values.at[k] = narrow(value > 0 ? value : slope * value);
        }
        store<width.value>(y + i, values);
    });
}

// y = ((a + b) + c) + d, 0 where signs are not above 0; c, d and signs may be none. Half types are rounded once.
extern "C" __global__ void add_up(const T* a, const T* b, const T* c, const T* d, const T* signs, T* y,
                                  long long n_elems) {
    for_elements(n_elems, lie_whole(a, b, c, d, y) && lie_whole(signs), [&](auto width, long long i) {
        const int W = width.value;
        auto values = load<W>(a + i), seconds = load<W>(b + i), thirds = values, fourths = values,
             kept = values;
        if (c) thirds = load<W>(c + i);
        if (d) fourths = load<W>(d + i);
        if (signs) kept = load<W>(signs + i);
        for (int k = 0; k < W; k++) {
            A sum = widen(values.at[k]) + widen(seconds.at[k]);
            if (c) sum += widen(thirds.at[k]);
            if (d) sum += widen(fourths.at[k]);
            values.at[k] = narrow(signs && !(widen(kept.at[k]) > 0) ? A(0) : sum);
        }
        store<W>(y + i, values);
    });
}

// gx = gy where y > 0, slope gy elsewhere.
extern "C" __global__ void relu_backward(const T* y, const T* gy, T* gx, A slope, long long n_elems) {
    for_elements(n_elems, lie_whole(y, gy, gx), [&](auto width, long long i) {
        auto signs = load<width.value>(y + i);
        auto values = load<width.value>(gy + i);
        for (int k = 0; k < width.value; k++)
            if (!(widen(signs.at[k]) > 0)) values.at[k] = narrow(slope * widen(values.at[k]));
        store<width.value>(gx + i, values);
    });
}

// A sign mask: bit j of word w is for element 128 j + w of the 4096 whose signs 128 words have (extents.py). A thread
// goes through the elements of one word.
const int LANES = 128;

template <class F> __device__ inline void for_words(long long n_elems, F body) {
    long long n_words = (n_elems + 32 * LANES - 1) / (32 * LANES) * LANES;
    long long step = gridDim.x * (long long)blockDim.x;
    for (long long w = blockIdx.x * (long long)blockDim.x + threadIdx.x; w < n_words; w += step)
        body(w, w / LANES * 32 * LANES + w % LANES);
}

// The bits of the elements above 0 are set, all others are not.
extern "C" __global__ void save_sign_mask(const T* y, unsigned* mask, long long n_elems) {
    for_words(n_elems, [&](long long w, long long first) {
        unsigned word = 0;
        for (int j = 0; j < 32; j++) {
            long long i = first + j * LANES;
            if (i < n_elems && widen(y[i]) > 0) word |= 1u << j;
        }
        mask[w] = word;
    });
}

// gx = gy where the bit is set, slope gy elsewhere.
extern "C" __global__ void relu_backward_mask(const unsigned* mask, const T* gy, T* gx, A slope, long long n_elems) {
    for_words(n_elems, [&](long long w, long long first) {
        unsigned word = mask[w];
        for (int j = 0; j < 32; j++) {
            long long i = first + j * LANES;
            if (i < n_elems) gx[i] = word >> j & 1 ? gy[i] : narrow(slope * widen(gy[i]));
        }
    });
}

// y = x scale where mask, else 0.
extern "C" __global__ void mask_scale(const T* x, const unsigned char* mask, T* y, A scale, long long n_elems) {
    for_elements(n_elems, lie_whole(x, mask, y), [&](auto width, long long i) {
        auto values = load<width.value>(x + i);
        auto kept = load<width.value>(mask + i);
        for (int k = 0; k < width.value; k++)
            values.at[k] = narrow(kept.at[k] ? widen(values.at[k]) * scale : A(0));
        store<width.value>(y + i, values);
    });
}

// y = x scale + keep y; keep 0 does not read y.
extern "C" __global__ void add_scaled(const T* x, T* y, A scale, A keep, long long n_elems) {
    for_elements(n_elems, lie_whole(x, y), [&](auto width, long long i) {
        auto values = load<width.value>(x + i);
        auto before = values;
        if (keep != 0) before = load<width.value>(y + i);
        for (int k = 0; k < width.value; k++) {
            A value = widen(values.at[k]) * scale;
            values.at[k] = narrow(keep != 0 ? value + keep * widen(before.at[k]) : value);
        }
        store<width.value>(y + i, values);
    });
}

// Rows of n_columns elements from one place to another, rows that far apart; x of the grid takes columns, y rows.
extern "C" __global__ void copy_rows(const T* x, T* y, long long x_row, long long y_row, int n_rows, int n_columns) {
    bool packed = lie_whole(x, y) && x_row % PACK == 0 && y_row % PACK == 0;
    for_channels(n_columns, packed, [=](auto width, int c) {
        const int W = width.value;
        for (unsigned r = blockIdx.y * blockDim.y + threadIdx.y; r < unsigned(n_rows); r += gridDim.y * blockDim.y)
            store<W>(y + r * y_row + c, load<W>(x + r * x_row + c));
    });
}
