// Thinned images: of every step-th row and column, from the first on, the places alone, one after another.

struct Thinned {
    unsigned n_rows, n_columns, kept_rows, kept_columns, down, across;

    // Where the place with that number lies in the whole images.
    __device__ long long place(unsigned kept) const {
        unsigned column = kept % kept_columns, row = kept / kept_columns;
        unsigned image = row / kept_rows;
        row -= image * kept_rows;
        return ((long long)image * n_rows + row * down) * n_columns + column * across;
    }
    // The number of a place of the whole images; below 0 where it is left out.
    __device__ int kept(unsigned place) const {
        unsigned column = place % n_columns, row = place / n_columns;
        unsigned image = row / n_rows;
        row -= image * n_rows;
        if (row % down || column % across) return -1;
        return (image * kept_rows + row / down) * kept_columns + column / across;
    }
};
#define THINNED unsigned whole_rows, unsigned whole_columns, unsigned kept_rows, unsigned kept_columns, unsigned down, \
                unsigned across
#define THE_THINNED {whole_rows, whole_columns, kept_rows, kept_columns, down, across}
