// Copies between types, between Caffe's order of weights and cuDNN's channels-last one, and of pixels to floats.
// S is the source's type; weights are (O, I, K...) with K places.

template <class To, class From> __device__ inline To converted(From x) { return Narrowed<To>::of(widen(x)); }

// y = x.
extern "C" __global__ void convert(const S* x, T* y, long long n_elems) {
    for_elements(n_elems, lie_whole(x, y), [&](auto width, long long i) {
        auto values = load<width.value>(x + i);
        Pack<T, width.value> results;
        for (int k = 0; k < width.value; k++) results.at[k] = converted<T>(values.at[k]);
        store<width.value>(y + i, results);
    });
}

// (O, I, K) to (O, K, I).
extern "C" __global__ void weights_channels_last(const S* w, T* y, int n_in, int n_places, long long n_elems) {
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
    for (long long i = first; i < n_elems; i += step) {
        long long row = i / n_in;
        int c = int(i - row * n_in), place = int(row % n_places);
        y[i] = converted<T>(w[(row / n_places * n_in + c) * n_places + place]);
    }
}

// (O, K, I) back to (O, I, K): written, or added where keep is 1. blockIdx.y is the entry (deferred.py).
struct Gradient { const S* g; T* gw; int n_elems, n_in, n_places, keep; };
struct Gradients { Gradient at[64]; };

extern "C" __global__ void gradients_in_caffes_order(const __grid_constant__ Gradients table) {
    const Gradient own = table.at[blockIdx.y];
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < unsigned(own.n_elems); i += gridDim.x * blockDim.x) {
        unsigned row = i / own.n_places, place = i - row * own.n_places, c = row % own.n_in;
        auto value = widen(own.g[(row / own.n_in * own.n_places + place) * own.n_in + c]);
        own.gw[i] = Narrowed<T>::of(own.keep ? widen(own.gw[i]) + value : value);
    }
}

// Floats of pixels, (N, H, W, C): y = (pixel - mean) scale. places has each crop's first row and column, and 1 where it is
// to be mirrored. The mean is indexed by a pixel's place in the uncropped image; strides of 0: one number a channel.

extern "C" __global__ void floats_of_pixels(const unsigned char* pixels, const int* places, const float* mean,
                                            int row_stride, int column_stride, A scale, T* y, int height, int width,
                                            int n_channels, long long n_elems) {
    long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = gridDim.x * (long long)blockDim.x;
    for (long long i = first; i < n_elems; i += step) {
        long long pixel = i / n_channels, row = pixel / width;
        int c = int(i - pixel * n_channels), column = int(pixel - row * width);
        const int* at = places + row / height * 3;
        int h = int(row % height), w = at[2] ? width - 1 - column : column;
        A away = A(pixels[(row * width + w) * n_channels + c])
                 - mean[(at[0] + h) * (long long)row_stride + (at[1] + w) * (long long)column_stride + c];
        y[i] = narrow(away * scale);
    }
}

// Parts of images, of bytes, to their places in a batch y. table has for each image the address of the part's first byte,
// the bytes from one of the image's rows to the next, and the sample of the batch. blockIdx.y is the image.
extern "C" __global__ void take_parts(const long long* table, unsigned char* y, int n_rows, int row_bytes) {
    const long long* image = table + 3 * blockIdx.y;
    const unsigned char* from = reinterpret_cast<const unsigned char*>(image[0]);
    for (int h = blockIdx.x; h < n_rows; h += gridDim.x) {
        unsigned char* to = y + (image[2] * n_rows + h) * row_bytes;
        for (int k = threadIdx.x; k < row_bytes; k += blockDim.x) to[k] = from[h * image[1] + k];
    }
}
