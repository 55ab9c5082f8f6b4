/* SPDX-License-Identifier: Apache-2.0
 * The C interface, as main.cc: all scores are 0, so O is the mean of V, and LSE the logarithm of
 * the number of keys. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <tessera/attention_c.h>

enum { Q_LEN = 7, K_LEN = 33, DIM = 16 };
static float q[Q_LEN * DIM], k[K_LEN * DIM], v[K_LEN * DIM], o[Q_LEN * DIM], lse[Q_LEN];

static tessera_tensor tensor(float* data, int length) {
  tessera_tensor t = {
      data, TESSERA_F32, 4, {1, 1, length, DIM}, {length * DIM, length * DIM, DIM, 1}};
  return t;
}

int main(void) {
  if (tessera_abi_version() != TESSERA_ABI_VERSION) {
    printf("header and library differ\n");
    return 1;
  }
  for (int j = 0; j < K_LEN; j++)
    for (int d = 0; d < DIM; d++) v[j * DIM + d] = (float)(j - d);
  const tessera_tensor tq = tensor(q, Q_LEN), tk = tensor(k, K_LEN), tv = tensor(v, K_LEN),
                       to = tensor(o, Q_LEN);
  const tessera_tensor tl = {lse, TESSERA_F32, 3, {1, 1, Q_LEN, 0}, {Q_LEN, Q_LEN, 1, 0}};
  tessera_options options;
  memset(&options, 0, sizeof options);
  options.struct_size = sizeof options;
  options.arch = "sm_75";
  const tessera_status status = tessera_attention(&tq, &tk, &tv, &to, &tl, &options);
  if (status != TESSERA_OK) {
    printf("%s\n", tessera_last_error());
    return status;
  }
  for (int i = 0; i < Q_LEN; i++)
    for (int d = 0; d < DIM; d++)
      if (!(fabs(lse[i] - log(K_LEN)) < 1e-5) ||
          !(fabs(o[i * DIM + d] - (0.5 * (K_LEN - 1) - d)) < 1e-4)) {
        printf("row %d is wrong\n", i);
        return 1;
      }
  printf("right\n");
  return 0;
}
