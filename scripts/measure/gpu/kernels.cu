// Kernels that never end, each in a program of its own: kernels CASE
//
// Each prints READY with its process when nothing can keep it from hanging any more, and ends by an alarm. kernels.py says of
// each what a GPU core and a report must say. Built by kernels.py, with lines (-lineinfo), without, and for debugging (-G).
#include <cassert>
#include <condition_variable>
#include <cooperative_groups.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <mutex>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace groups = cooperative_groups;

static void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s: %d %s\n", call, error, cudaGetErrorString(error));
  exit(3);
}
#define CHECK(call) check(call, #call)

static void check_driver(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  fprintf(stderr, "%s: error %d\n", call, result);
  exit(3);
}
#define CHECK_DRIVER(call) check_driver(call, #call)

static void ready() {
  printf("READY pids=%d\n", getpid());
  fflush(stdout);
}

// What the waiting call says once it returns: a dump loses the context.
static void returned(const char* call, cudaError_t error) {
  printf("RETURNED %s %d %s\n", call, error, cudaGetErrorName(error));
  fflush(stdout);
}

static void synchronize() { returned("cudaDeviceSynchronize", cudaDeviceSynchronize()); }

template <typename T> static T* on_device(size_t count) {
  T* memory;
  CHECK(cudaMalloc(&memory, count * sizeof(T)));
  CHECK(cudaMemset(memory, 0, count * sizeof(T)));
  CHECK(cudaDeviceSynchronize());
  return memory;
}

// A word of the host that the device sees at the same address.
static volatile int* on_host() {
  int* word;
  CHECK(cudaHostAlloc((void**)&word, 4096, cudaHostAllocMapped));
  *word = 0;
  printf("WORD %p\n", (void*)word);
  fflush(stdout);
  return word;
}

static int multiprocessors() {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  return properties.multiProcessorCount;
}

// Locks and flags in memory.

__device__ void acquire(int* lock) {
  while (atomicCAS(lock, 0, 1) != 0) {
  }
}

__device__ void release(int* lock) { atomicExch(lock, 0); }

__global__ void adds_under_a_lock(int* lock, const float* values, float* sum) {
  if (threadIdx.x != 0) return;
  acquire(lock);
  float value = values[blockIdx.x];
  if (value < 0) return; // the lock stays taken
  *sum += value;
  release(lock);
}

static void spin_lock() {
  int* lock = on_device<int>(1);
  float *values = on_device<float>(8), *sum = on_device<float>(1);
  float negative[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
  CHECK(cudaMemcpy(values, negative, sizeof negative, cudaMemcpyHostToDevice));
  adds_under_a_lock<<<8, 64>>>(lock, values, sum);
  ready();
  synchronize();
}

__global__ void takes_two_locks(int* first, int* second, volatile int* taken) {
  int *mine = blockIdx.x ? second : first, *other = blockIdx.x ? first : second;
  acquire(mine);
  atomicAdd((int*)taken, 1);
  while (*taken < 2) {
  }
  acquire(other);
  release(other);
  release(mine);
}

static void lock_order() {
  int* locks = on_device<int>(3);
  takes_two_locks<<<2, 1>>>(locks, locks + 1, locks + 2);
  ready();
  synchronize();
}

__global__ void waits_for_flag(volatile int* flag, int round) {
  while (*flag != round) {
  }
}

static void device_flag() {
  int* flag = on_device<int>(1);
  waits_for_flag<<<4, 128>>>(flag, 7);
  ready();
  synchronize();
}

static std::mutex results_lock;

// The thread that should write the word needs a mutex of the one that waits for the kernel.
static void wait_for_writer(volatile int* word) {
  waits_for_flag<<<2, 96>>>(word, 7);
  std::lock_guard<std::mutex> results(results_lock);
  std::thread([word] {
    std::lock_guard<std::mutex> results(results_lock);
    *word = 7;
  }).detach();
  ready();
  synchronize();
}

static void host_flag() { wait_for_writer(on_host()); }

// Memory of the program's own that was registered: pages that can be read from outside like any others.
static void registered_flag() {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(page, 0, 4096);
  CHECK(cudaHostRegister(page, 4096, cudaHostRegisterMapped));
  printf("WORD %p\n", page);
  wait_for_writer((volatile int*)page);
}

// Threads that wait for each other.

__global__ void half_comes_to_the_barrier(volatile int* flag, float* out) {
  if (threadIdx.x < 32)
    while (*flag == 0) {
    }
  __syncthreads();
  out[threadIdx.x] = threadIdx.x;
}

static void barrier() {
  half_comes_to_the_barrier<<<3, 128>>>(on_device<int>(1), on_device<float>(128));
  ready();
  synchronize();
}

__global__ void one_block_skips_the_grid_barrier(int skips, float* out) {
  if (blockIdx.x == skips) return;
  groups::this_grid().sync();
  out[blockIdx.x] = threadIdx.x;
}

static void grid_barrier() {
  int skips = 3;
  float* out = on_device<float>(64);
  void* arguments[] = {&skips, &out};
  CHECK(cudaLaunchCooperativeKernel((void*)one_block_skips_the_grid_barrier, dim3(8), dim3(64), arguments, 0, 0));
  ready();
  synchronize();
}

__global__ void occupies_multiprocessors(volatile int* flag) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = 0;
  while (*flag == 0) {
  }
}

__global__ void all_blocks_meet(float* out) {
  groups::this_grid().sync();
  out[blockIdx.x] = threadIdx.x;
}

// A cooperative launch that fills the GPU, while another stream's kernel has some of it.
static void cooperative() {
  cudaStream_t background, foreground;
  CHECK(cudaStreamCreateWithFlags(&background, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&foreground, cudaStreamNonBlocking));
  int blocks_each = 0, everything = 200 << 10;
  int* flag = on_device<int>(1);
  float* out = on_device<float>(1 << 16);
  CHECK(cudaFuncSetAttribute(occupies_multiprocessors, cudaFuncAttributeMaxDynamicSharedMemorySize, everything));
  occupies_multiprocessors<<<4, 64, everything, background>>>(flag);
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks_each, all_blocks_meet, 1024, 0));
  void* arguments[] = {&out};
  CHECK(cudaLaunchCooperativeKernel((void*)all_blocks_meet, dim3(blocks_each * multiprocessors()), dim3(1024), arguments, 0, foreground));
  ready();
  returned("cudaStreamSynchronize", cudaStreamSynchronize(foreground));
}

__global__ void each_block_waits_for_the_next(volatile int* done) {
  if (blockIdx.x + 1 < gridDim.x)
    while (done[blockIdx.x + 1] == 0) {
    }
  done[blockIdx.x] = 1;
}

// Blocks that wait for blocks which come only after them.
static void later_block() {
  int blocks = multiprocessors() * 4;
  each_block_waits_for_the_next<<<blocks, 1024>>>(on_device<int>(blocks));
  ready();
  synchronize();
}

__global__ void __cluster_dims__(2, 1, 1) half_of_a_cluster_waits(volatile int* flag, float* out) {
  if (blockIdx.x % 2)
    while (*flag == 0) {
    }
  groups::this_cluster().sync();
  out[blockIdx.x] = threadIdx.x;
}

static void cluster() {
  half_of_a_cluster_waits<<<4, 64>>>(on_device<int>(1), on_device<float>(4));
  ready();
  synchronize();
}

__device__ void wait_for_phase(unsigned barrier, unsigned phase) {
  unsigned done = 0;
  while (!done)
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(barrier), "r"(phase) : "memory");
}

// An mbarrier that expects one more to arrive than there are.
__global__ void waits_for_an_arrival(float* out) {
  __shared__ unsigned long long barrier;
  unsigned address = (unsigned)__cvta_generic_to_shared(&barrier);
  if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(blockDim.x + 1));
  __syncthreads();
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(address) : "memory");
  wait_for_phase(address, 0);
  out[threadIdx.x] = 1;
}

static void arrival() {
  waits_for_an_arrival<<<2, 96>>>(on_device<float>(96));
  ready();
  synchronize();
}

__device__ __noinline__ int wait_at_depth(volatile int* flag, int depth) {
  if (depth > 0) return wait_at_depth(flag, depth - 1) + 1;
  while (*flag == 0) {
  }
  return *flag;
}

__global__ void waits_in_a_call(volatile int* flag, int* out) { *out = wait_at_depth(flag, threadIdx.x % 3); }

static void calls() {
  waits_in_a_call<<<1, 64>>>(on_device<int>(1), on_device<int>(1));
  ready();
  synchronize();
}

// Streams, contexts, graphs.

__global__ void first_endless(volatile int* flag) {
  while (*flag == 0) {
  }
}

__global__ void second_endless(volatile int* flag, double scale, char mark) {
  while (*flag != (int)scale + mark) {
  }
}

static void two_streams() {
  cudaStream_t one, other;
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  int* flag = on_device<int>(1);
  first_endless<<<1, 32, 0, one>>>(flag);
  second_endless<<<dim3(2, 2, 2), dim3(8, 4, 2), 0, other>>>(flag, 2.5, 'a');
  ready();
  returned("cudaStreamSynchronize", cudaStreamSynchronize(other));
}

static void event_of_another_stream() {
  cudaStream_t one, other;
  cudaEvent_t event;
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&event));
  int* flag = on_device<int>(1);
  first_endless<<<1, 32, 0, one>>>(flag);
  CHECK(cudaEventRecord(event, one));
  CHECK(cudaStreamWaitEvent(other, event));
  second_endless<<<1, 32, 0, other>>>(flag, 0, 0);
  ready();
  returned("cudaStreamSynchronize", cudaStreamSynchronize(other));
}

__global__ void sets_flag(volatile int* flag) { *flag = 1; }
__global__ void nothing() {}

// With one queue of the hardware, the kernel that would set the flag stands behind the one that waits for it.
static void one_queue() {
  cudaStream_t one, other;
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  int* flag = on_device<int>(1);
  first_endless<<<1, 32, 0, one>>>(flag);
  nothing<<<1, 1, 0, one>>>();
  sets_flag<<<1, 1, 0, other>>>(flag);
  ready();
  returned("cudaStreamSynchronize", cudaStreamSynchronize(other));
}

// A kernel that waits for one in another stream: ends where both may run at a time.
static void side_by_side() {
  cudaStream_t one, other;
  CHECK(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  int* flag = on_device<int>(1);
  sets_flag<<<1, 1>>>(flag); // loaded before
  CHECK(cudaMemset(flag, 0, sizeof *flag));
  CHECK(cudaDeviceSynchronize());
  first_endless<<<1, 32, 0, one>>>(flag);
  sets_flag<<<1, 1, 0, other>>>(flag);
  ready();
  synchronize();
}

static void two_contexts() {
  int* flag = on_device<int>(1);
  first_endless<<<1, 32>>>(flag);
  std::mutex launched;
  launched.lock();
  std::thread second([&] {
    CUdevice device;
    CUcontext context;
    CHECK_DRIVER(cuDeviceGet(&device, 0));
    CHECK_DRIVER(cuCtxCreate(&context, nullptr, 0, device));
    int* own = on_device<int>(1);
    second_endless<<<2, 64>>>(own, 1, 'b');
    launched.unlock();
    returned("cudaDeviceSynchronize in the second context", cudaDeviceSynchronize());
  });
  launched.lock();
  ready();
  synchronize();
  second.join();
}

static void graph() {
  cudaStream_t stream;
  cudaGraph_t recorded;
  cudaGraphExec_t ready_graph;
  int* flag = on_device<int>(1);
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  nothing<<<1, 1, 0, stream>>>();
  first_endless<<<1, 32, 0, stream>>>(flag);
  second_endless<<<1, 32, 0, stream>>>(flag, 1, 'c');
  CHECK(cudaStreamEndCapture(stream, &recorded));
  CHECK(cudaGraphInstantiate(&ready_graph, recorded, 0));
  CHECK(cudaGraphLaunch(ready_graph, stream));
  ready();
  returned("cudaStreamSynchronize", cudaStreamSynchronize(stream));
}

// A stream that waits for a word of the host before its next kernel: nothing runs.
static void stream_waits_value() {
  cudaStream_t stream;
  volatile int* word = on_host();
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  nothing<<<1, 1, 0, stream>>>(); // loaded before
  CHECK(cudaStreamSynchronize(stream));
  CHECK_DRIVER(cuStreamWaitValue32(stream, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ));
  nothing<<<1, 1, 0, stream>>>();
  ready();
  returned("cudaStreamSynchronize", cudaStreamSynchronize(stream));
}

// Errors of an earlier kernel. Who sees the error waits for somebody else for ever after.

__global__ void writes_to(float* out, int step) { out[(size_t)threadIdx.x * step] = 1; }
__global__ void writes_between(char* out) { *(double*)(out + threadIdx.x * 8 + 1) = 1; }
__global__ void asserts(const int* counts) { assert(counts[threadIdx.x] > 0); }
__global__ void traps(const int* counts) {
  if (counts[threadIdx.x] == 0) __trap();
}
__global__ void never_ends_beside(volatile int* flag) {
  while (*flag == 0) {
  }
}

static std::condition_variable handled;

static void handle_error() {
  int* memory;
  synchronize();
  returned("cudaGetLastError", cudaGetLastError());
  returned("cudaMalloc", cudaMalloc(&memory, 4));
  nothing<<<1, 1>>>();
  returned("launch", cudaGetLastError());
  synchronize();
  std::unique_lock<std::mutex> results(results_lock);
  ready();
  handled.wait(results);
}

static void illegal_address() {
  float* out = on_device<float>(64);
  writes_to<<<2, 64>>>(out + (1ull << 42), 1);
  handle_error();
}

static void illegal_address_beside() {
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  never_ends_beside<<<1, 32, 0, stream>>>(on_device<int>(1));
  writes_to<<<2, 64>>>((float*)nullptr, 1);
  handle_error();
}

static void misaligned() {
  writes_between<<<1, 32>>>(on_device<char>(4096));
  handle_error();
}

static void assertion() {
  asserts<<<1, 32>>>(on_device<int>(32));
  handle_error();
}

static void trap() {
  traps<<<1, 32>>>(on_device<int>(32));
  handle_error();
}

// A launch that is refused, which nobody looks at: who waits for what the kernel would have written waits without end.
static void refused_launch() {
  float* out = on_device<float>(64);
  writes_to<<<1, 4096>>>(out, 1);
  std::unique_lock<std::mutex> results(results_lock);
  ready();
  handled.wait(results);
}

// A kernel that will end: the healthy twin of those above.
__global__ void works_for(long long nanoseconds, long long* out) {
  long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  while (now - start < nanoseconds);
  *out = now;
}

static void long_kernel() {
  works_for<<<8, 128>>>(60'000'000'000ll, on_device<long long>(1));
  ready();
  synchronize();
}

static const struct {
  const char* name;
  void (*run)();
} CASES[] = {
    {"spin-lock", spin_lock},
    {"lock-order-on-device", lock_order},
    {"device-flag", device_flag},
    {"host-flag-in-cpp", host_flag},
    {"registered-flag", registered_flag},
    {"barrier", barrier},
    {"grid-barrier", grid_barrier},
    {"cooperative", cooperative},
    {"later-block", later_block},
    {"cluster", cluster},
    {"arrival", arrival},
    {"calls", calls},
    {"two-streams", two_streams},
    {"event-of-another-stream", event_of_another_stream},
    {"one-queue", one_queue},
    {"side-by-side", side_by_side},
    {"two-contexts", two_contexts},
    {"graph", graph},
    {"stream-waits-value", stream_waits_value},
    {"illegal-address", illegal_address},
    {"illegal-address-beside", illegal_address_beside},
    {"misaligned", misaligned},
    {"assertion", assertion},
    {"trap", trap},
    {"refused-launch", refused_launch},
    {"long-kernel", long_kernel},
};

int main(int count, char** arguments) {
  alarm(300);
  for (const auto& one : CASES)
    if (count > 1 && !strcmp(arguments[1], one.name)) {
      one.run();
      pause();
    }
  return 2;
}
