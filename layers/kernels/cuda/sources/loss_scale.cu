// fp16's factor on the loss, which lives on the device: no iteration waits for the host to adapt it. One thread each.

struct LossScale { float scale, inverse, n_clean; };  // the factor, 1 / factor, and iterations without an overflow

// What an update goes by: the factor on its gradients, rid of the loss's, and whether to leave everything as it is.
extern "C" __global__ void update_control(const int* flag, const float* factor, float number, const LossScale* now,
                                          float* control) {
    control[0] = (factor ? factor[0] : number) * now->inverse;
    control[1] = flag[0] != 0;
}

extern "C" __global__ void next_loss_scale(const int* flag, LossScale* now, float patience, float largest) {
    float n_clean = flag[0] ? 0 : now->n_clean + 1;
    if (flag[0]) now->scale = max(now->scale / 2, 1.0f);
    if (n_clean >= patience) {
        now->scale = min(now->scale * 2, largest);
        n_clean = 0;
    }
    now->inverse = 1 / now->scale;
    now->n_clean = n_clean;
}
