// SPDX-License-Identifier: Apache-2.0
#include "analysis/cli/demo.h"

#include <fmt/format.h>

#include <chrono>

#include "kernels/registry.h"

namespace tessera::cli {
namespace {

constexpr const char* kTutorialText = R"(
flash_step1 is FlashAttention-2 as one writes it first. Its source, the same that nvcc compiles,
runs here lane by lane in the emulator, and every row of O and LSE is compared with float64. Shapes
are (batch, queries, keys, head_dim), with one head. "error" is the largest one, "allowed" the
tolerance at that element, and "worst" the largest share of its tolerance that an element used up.

)";

constexpr const char* kMaskText = R"(
Step 1 visited {} of these tiles and masked {}: the full ones too, which need no mask, and the
hidden ones, which need no visit. GFLOP/s count visible pairs only: the causal cases above show the
price as half the speed.
)";

constexpr const char* kPaddedKeysText = R"(
Famous bug 1, --config 16x16-padded-keys. The last tile of keys is filled up with zeros, and these
zero keys stay in the softmax: each has the score 0 and the weight exp(0 - m), so l is too large.
Nothing shows while tiles divide the length, nor while a causal mask happens to hide the padding.
)";

constexpr const char* kDroppedCastText = R"(
Famous bug 2, --config 16x16-dropped-cast. P is cast to the storage type and the result is dropped
(`P.to(dtype)` for `P = P.to(dtype)`), so the multiplier reads raw fp32 bits as two 16-bit numbers;
an error of inf is a NaN or an infinity in O. f32 has nothing to cast and passes, and LSE is
made from P as it is before the cast: a test of f32 alone, or of LSE alone, sees nothing.
)";

struct Shape {
  std::int64_t batch, q_len, k_len, head_dim;
};

// The cases with which the tutorial's author tests; the last two are ragged in every way.
constexpr Shape kTutorial[] = {
    {4, 128, 128, 64}, {2, 1024, 1024, 64}, {2, 100, 100, 64}, {1, 37, 53, 32}, {1, 200, 96, 128}};
constexpr Arch kArchs[] = {Arch::sm_75, Arch::sm_89, Arch::sm_90};
constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};

class Demo {
 public:
  Demo(const CaseOptions& base, Output& out) : base_(base), out_(out), to_(out.text()) {}

  bool run() {
    const auto start = std::chrono::steady_clock::now();
    tutorial();
    mask();
    bugs();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    fmt::print(to_, "\n{}: {} runs in {:.1f} s\n",
               ok_ ? "All turned out as it should" : "SOMETHING DID NOT TURN OUT AS IT SHOULD",
               runs_, seconds.count());
    return ok_;
  }

 private:
  CaseOptions options(const Shape& s, Dtype dtype, Causal causal) const {
    CaseOptions o = base_;
    o.run.kernel = "flash_step1";
    o.dtype = dtype;
    o.batch = s.batch, o.heads = o.heads_kv = 1;
    o.q_len = s.q_len, o.k_len = s.k_len, o.head_dim = s.head_dim;
    o.run.causal = causal;
    return o;
  }

  // Step 1 visits every key tile from every query tile, and masks it.
  CaseResult run(AttentionCase& c, const CaseOptions& o) {
    CaseResult r = c.run(o.run);
    out_.record(record_of(o, r));
    ++runs_;
    const ConfigRow& row = config_of(r);
    const Counters& n = r.report.counters;
    const auto tiles = [](std::int64_t length, int tile) { return (length + tile - 1) / tile; };
    const auto all = std::uint64_t(o.batch * tiles(o.q_len, row.rows) * tiles(o.k_len, row.cols));
    ok_ = ok_ && n.tiles_masked == all && n.tiles_full == 0 && n.tiles_skipped == 0;
    return r;
  }

  static const ConfigRow& config_of(const CaseResult& r) {
    return find_config(find_kernel(r.report.kernel), parse_arch(r.report.arch),
                       parse_dtype(r.report.dtype), r.report.head_dim_bucket, r.report.config);
  }

  void heading(const Shape& s, Causal causal, const CaseResult& r) {
    const Counters& n = r.report.counters;
    fmt::print(to_, "\n({}, {}, {}, {}){}: {} tiles visited, {} of them masked\n", s.batch, s.q_len,
               s.k_len, s.head_dim, causal == Causal::none ? "" : " causal",
               n.tiles_full + n.tiles_masked, n.tiles_masked);
  }

  void row(const CaseResult& r, const std::string& verdict) {
    fmt::print(to_, "  {:<5} {:<7} {:<4}", r.report.arch, r.report.card, r.report.dtype);
    for (const OutputResult& out : r.outputs) {
      const double share = out.error.max_ratio;
      fmt::print(to_, "  {:>8.2e} {:>8.2e} {:>5}", out.error.max_abs, out.tolerance,
                 share > 10     ? ">10x"
                 : share < 0.01 ? "<1 %"
                                : fmt::format("{:.0f} %", 100 * share));
    }
    fmt::print(to_, "  {:>7.2f}  {}\n", r.gflops(), verdict);
    std::fflush(to_);
  }

  void tutorial() {
    fmt::print(to_, "{}", kTutorialText + 1);
    fmt::print(to_, "  {:<5} {:<7} {:<4}  {:>8} {:>8} {:>5}  {:>8} {:>8} {:>5}  {:>7}\n", "arch",
               "card", "type", "O error", "allowed", "worst", "LSE err.", "allowed", "worst",
               "GFLOP/s");
    for (const Shape& s : kTutorial)
      for (const Causal causal : {Causal::none, Causal::top_left}) tutorial_case(s, causal);
  }

  void tutorial_case(const Shape& s, Causal causal) {
    bool first = true;
    for (const Dtype dtype : kDtypes) {
      CaseOptions o = options(s, dtype, causal);
      AttentionCase c(o);  // one set of inputs and one float64 result for all archs
      for (const Arch arch : kArchs) {
        if (!supports(arch, dtype)) continue;
        o.run.arch = tessera::name_of(arch);
        const CaseResult r = run(c, o);
        ok_ = ok_ && r.pass;
        if (first) heading(s, causal, r);
        first = false;
        row(r, r.pass ? "right" : "WRONG");
      }
    }
  }

  void mask() {
    const CaseOptions o = options({1, 100, 100, 64}, Dtype::f16, Causal::top_left);
    AttentionCase c(o);
    const CaseResult r = run(c, o);
    const Counters& n = r.report.counters;
    const ConfigRow& row = config_of(r);
    ok_ = ok_ && r.pass;
    fmt::print(to_,
               "\nThe causal mask of {} queries (down) and {} keys (across), in {}x{} tiles:\n\n",
               o.q_len, o.k_len, row.rows, row.cols);
    draw_mask(to_, c.problem(), row.rows, row.cols);
    fmt::print(to_, kMaskText, n.tiles_full + n.tiles_masked, n.tiles_masked);
  }

  void bugs() {
    const Shape whole{4, 128, 128, 64}, ragged{2, 100, 100, 64};
    const auto never = [](Dtype) { return false; };
    const auto always = [](Dtype) { return true; };
    fmt::print(to_, "{}", kPaddedKeysText);
    bug("16x16-padded-keys", whole, Causal::none, never);
    bug("16x16-padded-keys", ragged, Causal::top_left, never);
    bug("16x16-padded-keys", ragged, Causal::none, always);
    fmt::print(to_, "{}", kDroppedCastText);
    bug("16x16-dropped-cast", ragged, Causal::none, [](Dtype d) { return d != Dtype::f32; });
  }

  // Runs a variant with a bug in every type. `wrong`: whether it must show in a type.
  void bug(const char* config, const Shape& s, Causal causal, bool (*wrong)(Dtype)) {
    for (const Dtype dtype : kDtypes) {
      CaseOptions o = options(s, dtype, causal);
      o.run.arch = "sm_89";
      o.run.config = config;
      AttentionCase c(o);
      const CaseResult r = run(c, o);
      const bool as_it_should = r.pass != wrong(dtype);
      ok_ = ok_ && as_it_should;
      if (dtype == kDtypes[0]) heading(s, causal, r);
      row(r, std::string(r.pass ? "looks right" : "wrong") + (as_it_should ? "" : " (UNEXPECTED)"));
    }
  }

  const CaseOptions& base_;
  Output& out_;
  std::FILE* to_;
  bool ok_ = true;
  int runs_ = 0;
};

}  // namespace

bool demo(const CaseOptions& options, Output& out) { return Demo(options, out).run(); }

}  // namespace tessera::cli
