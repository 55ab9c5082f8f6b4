// SPDX-License-Identifier: Apache-2.0
// One attention problem with deterministic inputs, run through the public interface on either
// target and compared with the float64 reference (the field: with the naive formula, by ==).
#pragma once
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/configs.h"
#include "reference/attention.h"

namespace tessera::testing {

struct Case {
  std::string kernel;  // empty: the default
  std::string arch = "sm_89", card, config, exp2 = "soft", isa;
  Dtype dtype = Dtype::f16;
  i64 batch = 1, heads = 1, heads_kv = 0, q_len = 16, k_len = 16,
      head_dim = 64;  // heads_kv 0: heads
  Causal causal = Causal::none;
  std::optional<i64> left, right;  // a window, as AttentionOptions has it
  std::optional<Align> align;
  std::optional<double> scale;
  double magnitude = 1;  // standard deviation of the inputs
  u64 seed = 1;

  i64 kv_heads() const { return heads_kv ? heads_kv : heads; }
  std::string name()
      const;  // as a golden file and a test's parameter call it: letters, digits and _
};
std::ostream& operator<<(std::ostream& os, const Case& c);

// Every configuration of a kernel on a target: each (type, head_dim bucket) of each of its rows.
// Variants, which are not right, are asked for by name.
struct Configured {
  const ConfigRow* row;
  Dtype dtype;
  int bucket;
  Case start() const;  // this configuration by its name, head_dim the whole bucket
  std::string name() const;
};
std::vector<Configured> every_config(std::string_view kernel, Where where = Where::sim);
std::ostream& operator<<(std::ostream& os, const Configured& c);
constexpr const char* kAttentionKernels[] = {"flash_step1", "flash_forward"};

// Memory at a multiple of 256 bytes, so that sector counts do not depend on the allocator.
class Bytes {
 public:
  explicit Bytes(std::size_t n, int fill = 0xff);  // 0xff: NaN in every type
  ~Bytes();
  Bytes(Bytes&& o) noexcept : data_(o.data_), size_(o.size_) { o.data_ = nullptr; }
  Bytes& operator=(Bytes&& o) noexcept {
    std::swap(data_, o.data_), std::swap(size_, o.size_);
    return *this;
  }
  Bytes(const Bytes&) = delete;
  char* data() { return data_; }
  const char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  char* data_;
  std::size_t size_;
};

struct Tensors {
  Bytes q, k, v, o, lse;
};
Tensors make_inputs(const Case& c);  // outputs are NaN

// Runs c with `options` on top of the case's own choices; on Target::cuda through device buffers.
Report run(const Case& c, Tensors& t, AttentionOptions options = {});

AttentionOptions options_of(const Case& c, AttentionOptions options = {});
Problem problem(const Case& c);

struct Verdict {
  Comparison o, lse;
  bool pass() const { return o.pass && lse.pass; }
  std::string text() const;
};
// loosen: factor on both tolerances (hardware exp2: see exp2_bound).
Verdict compare_with_reference(const Case& c, const Tensors& t, double loosen = 1);
// ex2.approx is within 2 ulp of the rounded value where soft exp2 is within 1: weights move by
// 2^-22, which the tolerance's 4 * 2^-24 * (... + 4) allows for within this factor.
constexpr double kHardwareExp2 = 2;

// Makes inputs, runs, wants no finding and O and LSE within their tolerances of the reference.
Report expect_right(const Case& c, AttentionOptions options = {});
Report expect_right_with_checks(const Case& c);

// The largest error of O, and that of plain attention that rounds S and P to the storage type:
// a kernel's may be twice as large.
struct Errors {
  double ours, plain;
};
Errors errors_of_o(const Case& c, const Tensors& t);

std::string hash_o(const Case& c, const Tensors& t);
std::string hash_lse(const Case& c, const Tensors& t);

}  // namespace tessera::testing
