"""Loads the libcuda that an image brings, in place of the host's, as LD_LIBRARY_PATH can."""
import ctypes

cuda = ctypes.CDLL("/usr/local/cuda/compat/libcuda.so.1")
with open("/proc/driver/nvidia/version") as version:
    print("the kernel's driver:", version.readline())
print("cuInit:", cuda.cuInit(0))  # 803 or 804 where they do not fit
input("Look at this process now.")
