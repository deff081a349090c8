/* The stand-in for CUDA's runtime. */
int cudaPeekAtLastError(void);
int cudaGetLastError(void);
/* What the real one has no function for: an error of the given number. */
int cudaFailWith(int error);
