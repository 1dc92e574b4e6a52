// The system's header would replace the assert of cuda_runtime.h, which tells the thread. Included anew each time, for NDEBUG.
#include "cuda_runtime.h"
#ifdef NDEBUG
#undef assert
#define assert(condition) ((void)0)
#endif
