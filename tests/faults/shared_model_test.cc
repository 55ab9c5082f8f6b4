// SPDX-License-Identifier: Apache-2.0
// Random kernels, judged by the emulator and by a model that knows nothing but words: the findings
// are the same to the letter.
#include <algorithm>
#include <array>
#include <map>
#include <random>

#include "kernels/tile/swizzle.h"
#include "tests/faults/verdict.h"

namespace tessera::faults {
namespace {

using sim::SharedRegion;
using std::to_string;
enum class Kind { read, write, copy };

// Vector clocks over words, as checker.h describes them, of one block.
class Model {
 public:
  Model(int warps, u32 bytes)
      : bytes_(bytes),
        word_(bytes / 4),
        clock_(std::size_t(warps), std::vector<u32>(std::size_t(warps), 0)),
        groups_(std::size_t(warps), {{}}) {
    for (Word& w : word_) w.read.resize(std::size_t(warps));
    for (int w = 0; w < warps; w++) own(w) = 1;
  }
  void name(const SharedRegion& tile) { tiles_.push_back(tile); }
  void access(Kind kind, int warp, Site site, const u32* address, int bytes) {
    for (int lane = 0; lane < 32; lane++) {
      const u32 a = address[lane];
      if (!inside(kind, {own(warp), warp, lane, site}, a, u32(bytes))) continue;
      for (u32 i = a / 4; i < (a + u32(bytes)) / 4; i++)
        touch(kind, i, {own(warp), warp, lane, site});
      if (kind == Kind::copy) groups_[std::size_t(warp)].back().push_back(a);
    }
  }
  void commit(int warp) { groups_[std::size_t(warp)].push_back({}); }
  void wait(int warp, std::size_t pending) {
    auto& groups = groups_[std::size_t(warp)];  // the last one is open
    for (; groups.size() > pending + 1; groups.erase(groups.begin()))
      for (const u32 a : groups.front())
        for (u32 i = a / 4; i < a / 4 + 4; i++)
          if (word_[i].state == Word::pending)
            word_[i].state = Word::written, word_[i].by.clock = own(warp);
  }
  void sync(int warp) { own(warp)++; }
  void barrier(int id, int warp, int warps) {
    std::vector<int>& here = waiting_[id];
    here.push_back(warp);
    if (int(here.size()) < warps) return;
    std::vector<u32> joined(clock_.size(), 0);
    for (const int w : here)
      for (std::size_t k = 0; k < joined.size(); k++)
        joined[k] = std::max(joined[k], clock_[std::size_t(w)][k]);
    for (const int w : here) clock_[std::size_t(w)] = joined, own(w)++;
    here.clear();
  }
  std::vector<Finding> finish() {
    for (const auto& [word, r] : early_) {
      const auto late = overtaken_.find({word, r.warp});
      if (late == overtaken_.end() || r.clock <= late->second)
        report("uninit", word, r, "is read and nobody has written it");
    }
    return findings_.take();
  }

 private:
  struct Event {
    u32 clock = 0;
    int warp = 0, lane = 0;
    Site site;
    std::string text() const {
      return "warp " + to_string(warp) + ", lane " + to_string(lane) + " at " +
             sim::file_line(site);
    }
  };
  struct Word {
    enum { unwritten, pending, written } state = unwritten;
    bool async = false;
    Event by;
    std::vector<Event> read;  // by each warp: the first at its newest clock
  };
  u32& own(int warp) { return clock_[std::size_t(warp)][std::size_t(warp)]; }
  bool seen(const Event& by, const Event& e) {
    if (by.warp != e.warp) return by.clock <= clock_[std::size_t(e.warp)][std::size_t(by.warp)];
    return by.lane == e.lane || by.clock < e.clock;
  }
  bool inside(Kind kind, const Event& e, u32 a, u32 bytes) {
    static const char* const verb[] = {"read", "write", "cp.async"};
    for (const SharedRegion& t : tiles_)
      if (a % bytes == 0 && a >= t.base && a - t.base + bytes <= t.bytes && a + bytes <= bytes_)
        return true;
    findings_.add(
        "bounds", 0, e.warp, e.site, e.lane,
        verb[int(kind)] + (" of " + to_string(bytes)) + " bytes at shared address " + to_string(a) +
            (a % bytes ? ", which is not aligned to them" : ", outside every shared tile"));
    return false;
  }
  void touch(Kind kind, u32 word, const Event& e) {
    Word& w = word_[word];
    const bool copy = kind == Kind::copy;
    const std::string is = kind == Kind::read ? "is read"
                           : copy             ? "is written by cp.async"
                                              : "is written";
    const char* const missing = w.by.warp != e.warp ? "no barrier" : "no warp_sync";
    if (w.state == Word::unwritten) {
      if (kind == Kind::read) early_.push_back({word, e});
    } else if (w.state == Word::pending) {
      report("async", word, e,
             is + " while the cp.async of " + w.by.text() + " is in flight" +
                 (kind == Kind::read ? ": its group was not waited for" : ""));
    } else if (!seen(w.by, e)) {
      report(w.async || copy ? "async" : "races", word, e,
             is + ", and " + missing + " orders it after the " + (w.async ? "cp.async" : "write") +
                 " of " + w.by.text());
    }
    if (kind == Kind::read) {
      Event& mine = w.read[std::size_t(e.warp)];
      if (mine.clock != e.clock) mine = e;
      return;
    }
    bool reported = false;
    for (const Event& r : w.read) {
      const u32 clock = clock_[std::size_t(e.warp)][std::size_t(r.warp)];
      if (r.warp == e.warp || r.clock <= clock) continue;
      if (!reported)
        report(copy ? "async" : "races", word, e,
               is + ", and no barrier orders it after the read of warp " + to_string(r.warp) +
                   " at " + sim::file_line(r.site));
      reported = true;
      const auto [it, fresh] = overtaken_.try_emplace({word, r.warp}, clock);
      it->second = std::min(it->second, clock);
    }
    w.state = copy ? Word::pending : Word::written, w.async = copy, w.by = e;
  }
  void report(const char* check, u32 word, const Event& e, const std::string& what) {
    for (const SharedRegion& t : tiles_) {
      if (word * 4 < t.base || word * 4 >= t.base + t.bytes) continue;
      const int pitch = t.cols * 4, offset = int(word * 4 - t.base), row = offset / pitch;
      const int col = swizzle(pitch / 16, row, offset % pitch / 16) * 4 + offset % 16 / 4;
      return findings_.add(check, 0, e.warp, e.site, e.lane,
                           std::string("shared tile ") + t.name + "(" + to_string(row) + ", " +
                               to_string(col) + ") " + what);
    }
  }

  std::vector<SharedRegion> tiles_;
  u32 bytes_;
  std::vector<Word> word_;
  std::vector<std::vector<u32>> clock_;
  std::vector<std::vector<std::vector<u32>>> groups_;  // of each warp: where its copies go
  std::map<int, std::vector<int>> waiting_;
  std::vector<std::pair<u32, Event>> early_;
  std::map<std::pair<u32, int>, u32> overtaken_;
  sim::Findings findings_{"test_kernel", "again"};
};

// ---- random kernels

struct Step {
  enum What { read, write, copy, commit, wait, sync, block_barrier, pair_barrier, name } what;
  int bytes = 16, number = 0;  // of an access; of copies pending, of the barrier or tile
  int line = 0;
  std::array<u32, 32> address = {};
};
using Script = std::vector<Step>;
constexpr u32 kShared = 1536;

// Chunks that straddle tiles, a tile of no whole chunks, one that passes the block's end.
constexpr int kTileCount = 4;
constexpr SharedRegion kTiles[kTileCount] = {{"S", 0, 1024, 8, 32, 4, swizzled_position},
                                             {"T", 1024, 200, 5, 12, 4, swizzled_position},
                                             {"U", 1224, 152, 4, 12, 4, swizzled_position},
                                             {"V", 1456, 128, 2, 16, 4, swizzled_position}};

class Random {
 public:
  explicit Random(u64 seed) : engine_(seed) {}
  int operator()(int n) { return int(engine_() % u64(n)); }

  std::vector<Script> scripts(int warps) {
    std::vector<Script> all{std::size_t(warps)};
    for (Script& s : all) s.push_back({Step::name, 0, 0});
    (*this)(3) ? orderly(all) : chaotic(all);
    return all;
  }

 private:
  Step access(Step::What what, bool tame) {
    Step s{what, (*this)(2) ? 16 : 4 << (*this)(2), 0, (*this)(8), {}};
    if (what == Step::copy) s.bytes = 16;
    if (what == Step::write && s.bytes == 8) s.bytes = 4;
    const int pattern = (*this)(tame ? 3 : 6), bits = (*this)(32);
    const u32 size = u32(s.bytes), base = u32((*this)(tame ? 2 : 3)) * 512;
    for (int lane = 0; lane < 32; lane++) {
      u32& a = s.address[std::size_t(lane)];
      if (pattern <= 2) a = base + u32(lane ^ bits) * size;
      if (pattern == 3) a = base + u32(lane / 2) * size;  // two lanes on each
      if (pattern == 4) a = u32((*this)(kShared / int(size))) * size;
      if (pattern == 5) a = (*this)(20) ? u32(lane) * size : u32((*this)(2 * kShared));
    }
    return s;
  }
  // Phases between barriers in which all read or one warp writes; now and then a barrier, a
  // warp_sync or a wait is missing.
  void orderly(std::vector<Script>& all) {
    const int often = (*this)(2) ? 1000 : 12;
    for (int phase = 0; phase < 10; phase++) {
      const int writer = phase && (*this)(2) ? -1 : (*this)(int(all.size()));
      for (int w = 0; w < int(all.size()); w++)
        for (int k = writer < 0 ? (*this)(3) : w == writer ? 2 : 0; k > 0; k--) {
          const auto what = writer < 0 ? Step::read : phase % 3 ? Step::copy : Step::write;
          Step s = access(what, true);
          if (phase == 0)  // all of the first tile
            for (u32 i = 0; i < 32; i++) s.bytes = 16, s.address[i] = u32(k - 1) * 512 + i * 16;
          all[std::size_t(w)].push_back(s);
          if (what == Step::copy) all[std::size_t(w)].push_back({Step::commit});
          if ((*this)(often)) all[std::size_t(w)].push_back({Step::wait});
          if ((*this)(often)) all[std::size_t(w)].push_back({Step::sync});
        }
      if ((*this)(often))
        for (Script& s : all) s.push_back({Step::block_barrier});
    }
  }
  void chaotic(std::vector<Script>& all) {
    const int warps = int(all.size()), barriers = (*this)(5);
    const bool tame = (*this)(2);
    for (int n = 3 + (*this)(8); n > 0; n--) {
      for (Script& s : all)
        for (int k = (*this)(4); k > 0; k--) {
          if ((*this)(2)) s.push_back({Step::name, 0, (*this)(kTileCount)});
          s.push_back(access(Step::What((*this)(3)), tame));
          if (s.back().what == Step::copy && (*this)(3)) s.push_back({Step::commit});
          if (!(*this)(4)) s.push_back({Step::wait, 0, (*this)(2)});
          if (!(*this)(3)) s.push_back({Step::sync});
        }
      if ((*this)(4) < barriers)
        for (Script& s : all) s.push_back({Step::block_barrier});
      if (warps < 2 || (*this)(2)) continue;
      const int a = (*this)(warps), b = (a + 1 + (*this)(warps - 1)) % warps;
      for (const int w : {a, b}) all[std::size_t(w)].push_back({Step::pair_barrier, 0, n});
    }
  }

  std::mt19937_64 engine_;
};

void execute(const Step& s, Model& model, const char* source) {
  const int warp = warp_id(), warps = sim::self().warps;
  const Site site{"random.h", s.line};
  Lanes<u32> address;
  std::copy(s.address.begin(), s.address.end(), address.v);
  at(site);
  if (s.what <= Step::copy) model.access(Kind(s.what), warp, site, address.v, s.bytes);
  Lanes<u32> x[4] = {};
  Lanes<u32> pair[2];
  switch (s.what) {
    case Step::read:
      if (s.bytes == 4) ld_shared(x[0], address);
      if (s.bytes == 8) ld_shared(pair, address);
      if (s.bytes == 16) ld_shared(x, address);
      break;
    case Step::write:
      if (s.bytes == 4) st_shared(address, x[0]);
      if (s.bytes == 16) st_shared_chunk(address, Chunk{});
      break;
    case Step::copy:
      tessera::cp_async(address, source + Lanes<i64>(lane_id() * 16), Lanes<i32>(16));
      break;
    case Step::name: {
      const SharedRegion& t = kTiles[s.number];
      model.name(t), tessera::name_shared(t.name, t.base, t.bytes, t.rows, t.cols, 4);
      break;
    }
    case Step::commit: model.commit(warp), tessera::cp_async_commit(); break;
    case Step::wait:
      model.wait(warp, std::size_t(s.number));
      s.number ? tessera::cp_async_wait<1>() : tessera::cp_async_wait<0>();
      break;
    case Step::sync: model.sync(warp), tessera::warp_sync(site); break;
    case Step::block_barrier: model.barrier(0, warp, warps), barrier(site); break;
    case Step::pair_barrier: model.barrier(s.number, warp, 2), barrier(s.number, 2, site); break;
  }
}

TEST(SharedModel, FindsTheSameInRandomKernels) {
  alignas(16) static const char source[512] = {};
  std::map<std::string, int> kernels;  // with a finding of this check
  int silent = 0;
  for (int seed = 0; seed < 600; seed++) {
    Random random{u64(seed)};
    const int warps = 1 + random(5);
    const std::vector<Script> scripts = random.scripts(warps);
    Model model(warps, kShared);
    RunOptions run{.warps = warps,
                   .shared_bytes = int(kShared),
                   .checks = true,
                   .order_seed = u64(seed % 7),
                   .tensors = {vector("X", source, 512, Role::input)}};
    const Outcome o = run_kernel(run, [&] {
      for (const Step& s : scripts[std::size_t(warp_id())]) execute(s, model, source);
    });
    Outcome expected;
    expected.findings = model.finish();
    ASSERT_EQ(describe(o), describe(expected)) << "seed " << seed;
    silent += o.findings.empty();
    std::map<std::string, int> found;
    for (const Finding& f : o.findings) found[f.check] = 1;
    for (const auto& [check, one] : found) kernels[check] += one;
  }
  EXPECT_GT(silent, 100);  // the kernels are worth the run
  for (const char* check : {"bounds", "uninit", "races", "async"})
    EXPECT_GT(kernels[check], 50) << check;
}

}  // namespace
}  // namespace tessera::faults
