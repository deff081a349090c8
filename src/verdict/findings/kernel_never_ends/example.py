"""A kernel that waits for a word of the GPU's own memory (run it with `--gpu-core`)."""
import ctypes

KERNEL = b""".version 7.0 .target sm_70 .address_size 64
.visible .entry until_flag(.param .u64 flag) {
    .reg .u64 %a; .reg .u32 %v; .reg .pred %unset;
    ld.param.u64 %a, [flag];
again: ld.volatile.global.u32 %v, [%a];
    setp.eq.u32 %unset, %v, 0;
    @%unset bra again;
    ret; }"""
cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel, flag = [ctypes.c_void_p() for _ in range(4)]
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuModuleLoadData(ctypes.byref(module), KERNEL)
cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"until_flag")
cuda.cuMemAlloc_v2(ctypes.byref(flag), ctypes.c_size_t(4096))
cuda.cuMemsetD32_v2(flag, 0, ctypes.c_size_t(1024))
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(flag))
cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
cuda.cuCtxSynchronize()
