"""A kernel runs until a word is written, and before that the program loads another kernel."""
import ctypes

HEAD = b".version 7.0 .target sm_70 .address_size 64\n"
KERNEL = HEAD + b""".visible .entry until_flag(.param .u64 flag) {
    .reg .u64 %address; .reg .u32 %value; .reg .pred %unset;
    ld.param.u64 %address, [flag];
again: ld.volatile.global.u32 %value, [%address];
    setp.eq.u32 %unset, %value, 0;
    @%unset bra again; ret; }"""
cuda = ctypes.CDLL("libcuda.so.1")
context, module, kernel, word, there, another = [ctypes.c_void_p() for _ in range(6)]
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuModuleLoadData(ctypes.byref(module), KERNEL)
cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"until_flag")
cuda.cuMemHostAlloc(ctypes.byref(word), ctypes.c_size_t(4), 2)
cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(there), word, 0)
flag = ctypes.cast(word, ctypes.POINTER(ctypes.c_uint32))
flag[0] = 0
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(there))
cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
cuda.cuModuleLoadData(ctypes.byref(another), HEAD + b".visible .entry empty() { ret; }")  # waits
flag[0] = 1
