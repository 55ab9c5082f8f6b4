// SPDX-License-Identifier: Apache-2.0
// Random accesses to tensors of random layouts: which lanes may touch memory, and what is counted,
// against a model that lists every element's address.
#include <algorithm>
#include <cstring>
#include <map>
#include <random>

#include "tests/faults/verdict.h"

namespace tessera::faults {
namespace {

constexpr int kBytes = 16384;

struct Tensor {
  GlobalTensor t;
  struct Element {
    i64 index, left;  // in its row, itself included
    bool written;
  };
  std::map<i64, Element> elements;  // by offset in bytes

  explicit Tensor(const GlobalTensor& tensor) : t(tensor) {
    i64 index = 0, x[4];
    for (x[0] = 0; x[0] < t.extent[0]; x[0]++)
      for (x[1] = 0; x[1] < t.extent[1]; x[1]++)
        for (x[2] = 0; x[2] < t.extent[2]; x[2]++)
          for (x[3] = 0; x[3] < t.extent[3]; x[3]++, index++) {
            i64 offset = 0;
            for (int i = 0; i < 4; i++) offset += x[i] * t.stride[i];
            // Of elements that share an address the first.
            elements.try_emplace(offset * t.element_size,
                                 Element{index, t.extent[3] - x[3], false});
          }
  }
};

// What lanes may do, in the order of their accesses, and how many findings there should be.
struct Model {
  std::vector<Tensor> tensors;
  u64 bounds = 0, twice = 0, unwritten = 0;

  bool access(const char* address, int bytes, bool write) {
    for (Tensor& x : tensors) {
      const auto at = x.elements.find(address - x.t.base);
      if (at == x.elements.end() || bytes > at->second.left * x.t.element_size) continue;
      if (!x.t.output) {
        bounds += write;
        return !write;
      }
      bool ok = true;
      for (auto e = at; e != x.elements.end(); ++e) {
        const i64 n = e->second.index - at->second.index;
        if (n < 0 || n >= bytes / x.t.element_size) continue;
        bool& written = e->second.written;
        if (write) twice += written, written = true;
        if (!written) unwritten++, ok = false;
      }
      return ok;
    }
    bounds++;
    return false;
  }
};

class Random {
 public:
  explicit Random(u64 seed) : engine_(seed) {}
  i64 operator()(i64 n) { return i64(engine_() % u64(n)); }

  // Dense or padded, dimensions in any order, an input perhaps broadcast; often in the gaps of the
  // tensor before it, sometimes over it.
  GlobalTensor tensor(const char* name, char* memory, const GlobalTensor* before) {
    GlobalTensor t{name, memory + 256, 1 << (*this)(3), (*this)(3) == 0, 4, {}, {}};
    for (i64& n : t.extent) n = 1 + (*this)(4);
    if ((*this)(2)) t.extent[3] = 8 * (1 + (*this)(3));
    int order[4] = {0, 1, 2, 3};
    if (!(*this)(3)) std::shuffle(order, order + 4, engine_);
    if ((*this)(3) == 1) std::swap(order[1], order[2]);
    i64 next = 1;
    const bool padded = (*this)(2);
    for (int k = 3; k >= 0; k--) {
      t.stride[order[k]] = next;
      next *= t.extent[order[k]];
      if (padded && !(*this)(3)) next += (*this)(2) ? 8 : (*this)(20);
    }
    if (!t.output && !(*this)(4)) t.stride[(*this)(3)] = 0;
    if (before) t.base = before->base + ((*this)(2) ? 16 * (*this)(10) : 16 * (*this)(400));
    if (before && !(*this)(2)) {  // of one packed tensor, as Q and K are
      const bool output = t.output;
      t = *before, t.name = name, t.output = output;
      t.base += t.extent[3] * t.element_size;
    }
    return t;
  }

 private:
  std::mt19937_64 engine_;
};

template <class T>
void load_and_store(Random& random, Model& model, char* memory, char* expected) {
  const GlobalTensor& t = model.tensors[std::size_t(random(i64(model.tensors.size())))].t;
  const i64 size = i64(sizeof(T)), around = t.base - memory + 16 * random(60);
  const bool load = random(3) > 0;
  // A store of a chunk may stand anywhere, and so cross from one row to the next.
  const i64 shift = size == 16 && !load ? 2 * random(8) : 0;
  const i64 start = around / size * size + shift, step = random(3) ? size : size * random(20);
  const bool scattered = !random(4);
  const Lanes<i64> offset = sim::lanes_of<i64>(
      [&](int i) { return scattered ? random(kBytes / size) * size : start + i * step; });
  const Lanes<bool> mask = mask_of([&](int) { return random(8) != 0; });
  const auto allowed = [&](i64 bytes, bool write) {
    Lanes<bool> ok = mask;
    for (int i = 0; i < 32; i++)
      if (ok.v[i]) ok.v[i] = model.access(memory + offset.v[i], int(bytes), write) ? -1 : 0;
    return ok;
  };
  const char* const from = memory;
  if constexpr (sizeof(T) == 16) {
    if (load) {  // the end of a row may lie inside a chunk
      const i32 bytes = i32(random(2) ? 16 : 1 + random(16));
      const Lanes<bool> ok = allowed(bytes, false);
      const Chunk x = ld_global_chunk(from + offset,
                                      select(mask, Lanes<i32>(bytes), Lanes<i32>(0)));
      for (int i = 0; i < 32; i++) {
        char wanted[16] = {};
        if (ok.v[i]) std::memcpy(wanted, memory + offset.v[i], std::size_t(bytes));
        EXPECT_EQ(std::memcmp(wanted, x.v[i].b, 16), 0) << "lane " << i;
      }
    } else {
      Chunk x;
      std::memset(&x, int(random(256)), sizeof x);
      const Lanes<bool> ok = allowed(16, true);
      st_global_chunk(memory + offset, x, mask);
      for (int i = 0; i < 32; i++)
        if (ok.v[i]) std::memcpy(expected + offset.v[i], &x.v[i], 16);
    }
  } else if (load) {
    const Lanes<bool> ok = allowed(size, false);
    const Lanes<T> x = ld_global(
        sim::lanes_of<const T*>([&](int i) { return (const T*)(from + offset.v[i]); }), mask, T(7));
    for (int i = 0; i < 32; i++) {
      T wanted = 7;
      if (ok.v[i]) std::memcpy(&wanted, memory + offset.v[i], sizeof(T));
      EXPECT_EQ(x.v[i], wanted) << "lane " << i;
    }
  } else {
    const Lanes<bool> ok = allowed(size, true);
    const T x = T(random(256));
    st_global(sim::lanes_of<T*>([&](int i) { return (T*)(memory + offset.v[i]); }), Lanes<T>(x),
              mask);
    for (int i = 0; i < 32; i++)
      if (ok.v[i]) std::memcpy(expected + offset.v[i], &x, sizeof(T));
  }
}

TEST(GlobalModel, AllowsTheSameInRandomLayouts) {
  alignas(64) static char memory[kBytes], expected[kBytes];
  u64 bounds = 0, twice = 0, unwritten = 0;
  for (int seed = 0; seed < 400; seed++) {
    Random random{u64(seed)};
    for (char& c : memory) c = char(random(256));
    std::memcpy(expected, memory, sizeof memory);
    Model model;
    RunOptions run{.checks = true};
    static const char* const names[] = {"A", "B", "C"};
    for (i64 n = 1 + random(3), i = 0; i < n; i++) {
      run.tensors.push_back(random.tensor(names[i], memory, i ? &run.tensors[0] : nullptr));
      model.tensors.emplace_back(run.tensors.back());
    }
    const Outcome o = run_kernel(run, [&] {
      for (int n = 0; n < 12; n++) {
        const i64 kind = random(5);
        if (kind == 0) load_and_store<u16>(random, model, memory, expected);
        if (kind == 1) load_and_store<u32>(random, model, memory, expected);
        if (kind >= 2) load_and_store<Chunk::Bytes>(random, model, memory, expected);
      }
    });
    std::map<std::string, u64> found;
    for (const Finding& f : o.findings)
      if (f.message.find("never written") == std::string::npos) found[f.check] += f.count;
    EXPECT_EQ(found["bounds"], model.bounds);
    EXPECT_EQ(found["coverage"], model.twice);
    EXPECT_EQ(std::memcmp(memory, expected, sizeof memory), 0);
    ASSERT_FALSE(HasFailure()) << "seed " << seed << describe(o);
    bounds += model.bounds, twice += model.twice, unwritten += model.unwritten;
  }
  EXPECT_GT(std::min({bounds, twice, unwritten}), 1000u);  // the accesses are worth the run
}

}  // namespace
}  // namespace tessera::faults
