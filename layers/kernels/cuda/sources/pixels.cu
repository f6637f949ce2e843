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
