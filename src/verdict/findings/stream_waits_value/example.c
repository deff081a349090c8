// A stream waits for a word that the program would write when the stream is done.
#include <cuda.h>
#include <stdint.h>

int main(void) {
    CUcontext context;
    CUstream stream;
    void *word;
    cuInit(0);
    cuDevicePrimaryCtxRetain(&context, 0);
    cuCtxSetCurrent(context);
    cuStreamCreate(&stream, 0);
    cuMemHostAlloc(&word, 4096, 2);
    volatile uint32_t *ready = word;
    *ready = 0;
    cuStreamWaitValue32(stream, (CUdeviceptr)word, 1, 1);
    cuStreamSynchronize(stream);
    *ready = 1;
    return 0;
}
