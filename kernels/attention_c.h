/* SPDX-License-Identifier: Apache-2.0
 * The C interface of libtessera: what Python and other languages bind to. Plain C, no exceptions.
 * Strings are UTF-8. Sizes and strides count elements. Not listed here: see attention.h, whose
 * meaning and messages are the same. */
#ifndef TESSERA_ATTENTION_C_H
#define TESSERA_ATTENTION_C_H
#include <stdint.h>

#if defined(TESSERA_BUILDING)
#define TESSERA_API __attribute__((visibility("default")))
#else
#define TESSERA_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TESSERA_ABI_VERSION 2

typedef enum {
  TESSERA_OK = 0,
  TESSERA_INTERNAL_ERROR = 1,   /* a bug, or a launch that failed */
  TESSERA_INVALID_ARGUMENT = 2, /* the message names the argument and its limit */
  TESSERA_UNSUPPORTED = 3,      /* no such kernel, type, configuration or device */
  TESSERA_FINDING = 4           /* the emulator's checks found a fault; outputs were written */
} tessera_status;

typedef enum {
  TESSERA_F32 = 0,
  TESSERA_F16 = 1,
  TESSERA_BF16 = 2,
  TESSERA_FIELD = 3
} tessera_dtype;
typedef enum {
  TESSERA_CAUSAL_NONE = 0,
  TESSERA_CAUSAL_TOP_LEFT = 1,    /* key j <= query i (PyTorch's is_causal) */
  TESSERA_CAUSAL_BOTTOM_RIGHT = 2 /* key j <= query i + k_len - q_len (FlashAttention) */
} tessera_causal;
typedef enum {
  TESSERA_ALIGN_DEFAULT = 0, /* causal's, else top-left */
  TESSERA_ALIGN_TOP_LEFT = 1,
  TESSERA_ALIGN_BOTTOM_RIGHT = 2
} tessera_align;

/* A strided tensor; ndim is the rank, shape[ndim..3] and stride[ndim..3] are not read. */
typedef struct {
  void* data;
  int32_t dtype; /* tessera_dtype */
  int32_t ndim;
  int64_t shape[4];
  int64_t stride[4];
} tessera_tensor;

/* Set struct_size = sizeof(tessera_options) and the rest to 0: every 0 or NULL is the default. */
typedef struct {
  int64_t struct_size;
  const char* kernel; /* "flash_forward" ... */
  const char* arch;   /* "sm_75" | "sm_89" | "sm_90" */
  const char* card;   /* "t4" | "rtx4070" | "h200" */
  const char* config;
  const char* exp2;     /* "soft" | "hardware" */
  const char* isa;      /* "best" | "v2" | "v3" | "v4" */
  const char* target;   /* "sim" | "cuda" */
  const char* numerics; /* "exact" | "fma" */
  int32_t causal;       /* tessera_causal */
  int32_t has_scale;    /* 0: 1/sqrt(head_dim); 1: scale below */
  double scale;
  int32_t threads; /* of the emulator; 0: one a core */
  int32_t checks;  /* 1: the emulator's checks; a finding makes the status TESSERA_FINDING */
  uint64_t order_seed;
  void* stream; /* cudaStream_t */
  /* A sliding window: the query at key p (p = i, or i + k_len - q_len) sees p - left .. p + right.
   */
  int32_t has_left; /* 0: no limit on that side; 1: left below */
  int32_t has_right;
  int64_t left;
  int64_t right;
  int32_t align; /* tessera_align */
} tessera_options;

/* q, o (B, H, Nq, D); k, v (B, Hkv, Nk, D); lse (B, H, Nq) float32 contiguous or NULL. */
TESSERA_API tessera_status tessera_attention(const tessera_tensor* q, const tessera_tensor* k,
                                             const tessera_tensor* v, const tessera_tensor* o,
                                             const tessera_tensor* lse,
                                             const tessera_options* options);

/* Of this thread's last call: the error's message ("" if there was none) and the report as JSON
 * ("{}" if the launch did not happen). Valid until the thread's next call. */
TESSERA_API const char* tessera_last_error(void);
TESSERA_API const char* tessera_last_report(void);

/* JSON array of the kernels, each with its configurations: what `tessera list --json -` prints. */
TESSERA_API const char* tessera_list(void);

/* Deterministic inputs, the same on every machine (reference/inputs.h): count elements of `dtype`,
 * element i from (seed, tensor, i), about normal with standard deviation `scale`. */
TESSERA_API tessera_status tessera_fill(void* data, int32_t dtype, int64_t count, uint64_t seed,
                                        uint32_t tensor, double scale);

/* TFLOP/s that no kernel here exceeds on the current device: what mma.sync (f16, bf16) or FFMA
 * (f32) reach with nothing beside them. Measured by the first call for a device and type, in some
 * 50 ms. TESSERA_UNSUPPORTED, and *tflops as it was, where there is no device or it lacks the type.
 */
TESSERA_API tessera_status tessera_cuda_rate_limit(int32_t dtype, double* tflops);

TESSERA_API const char* tessera_version(void);
TESSERA_API int32_t tessera_abi_version(void);

#ifdef __cplusplus
}
#endif
#endif
