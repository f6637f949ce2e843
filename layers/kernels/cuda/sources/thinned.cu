// What works on thinned images beside batch normalisation (batch_norm.cu).

// y: the places of x that count.
extern "C" __global__ void keep_places(const T* x, T* y, THINNED, int n_kept, int n_channels) {
    Thinned thinned = THE_THINNED;
    for_rows(n_kept, n_channels, lie_whole(x, y), [=](auto width, int c) {
        const int W = width.value;
        return [=](long long i) {
            store<W>(y + i, load<W>(x + thinned.place(unsigned(i) / unsigned(n_channels)) * n_channels + c));
        };
    });
}

// y += addend, which is thinned, where signs are above 0, or bits are set, if one of them is given. y is x: what it
// holds at other places stays.
extern "C" __global__ void add_thinned(const T* x, const T* addend, const T* signs, const unsigned char* bits, T* y,
                                       THINNED, int n_kept, int n_channels) {
    Thinned thinned = THE_THINNED;
    for_rows(n_kept, n_channels, lie_whole(x, addend, signs, y), [=](auto width, int c) {
        const int W = width.value;
        return [=](long long i) {
            long long at = thinned.place(unsigned(i) / unsigned(n_channels)) * n_channels + c;
            auto values = load<W>(x + at), others = load<W>(addend + i), kept = values;
            if (signs) kept = load<W>(signs + at);
            unsigned own = bits ? bits[at / 8] >> at % 8 : ~0u;  // a pack's lie in one byte
            for (int k = 0; k < W; k++)
                if (signs ? widen(kept.at[k]) > 0 : own >> k & 1)
                    values.at[k] = narrow(widen(values.at[k]) + widen(others.at[k]));
            store<W>(y + at, values);
        };
    });
}
