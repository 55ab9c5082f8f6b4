// SPDX-License-Identifier: Apache-2.0
// Faults in the use of global memory: bounds, coverage, reads of outputs, blocks that meet. Each
// beside its clean kernel.
#include <vector>

#include "kernels/tile/global.h"
#include "tests/faults/verdict.h"

namespace tessera::faults {
namespace {

const std::string kFile = "global_faults_test.cc";

// A (rows, 32) input and output in memory with padded rows of 48 and two rows to spare.
struct GlobalFaults : ::testing::Test {
  static constexpr i64 kRows = 10, kCols = 32, kStride = 48;
  std::vector<float> x = std::vector<float>((kRows + 2) * kStride, 1.0f), y = x;
  Line line;

  RunOptions options(int warps = 1, i64 blocks = 1) {
    return {.warps = warps,
            .blocks = blocks,
            .shared_bytes = 4096,
            .tensors = {matrix("X", x.data(), kRows, kCols, kStride, Role::input),
                        matrix("Y", y.data(), kRows, kCols, kStride, Role::output)}};
  }
  const float* in(i64 row, i64 col) const { return x.data() + row * kStride + col; }
  Lanes<const float*> in_row(i64 row, i64 col = 0) const {
    return in(row, col) + Lanes<i64>(lane_id());
  }
  Lanes<float*> out_row(i64 row, i64 col = 0) {
    return y.data() + row * kStride + col + Lanes<i64>(lane_id());
  }
  Lanes<const float*> written_row(i64 row) const {
    return y.data() + row * kStride + Lanes<i64>(lane_id());
  }
  void write_row(i64 row) { st_global(out_row(row), Lanes<float>(2.0f), Lanes<bool>(true)); }
  void write_rows(i64 first, i64 end) {
    for (i64 r = first; r < end; r++) write_row(r);
  }
};
const Lanes<bool> kAll(true);

// ---- bounds

TEST_F(GlobalFaults, Clean) {
  expect_silence(options(1, kRows), [&] {
    const i64 row = block_index();
    st_global(out_row(row), ld_global(in_row(row), kAll, 0.0f), kAll);
  });
}
TEST_F(GlobalFaults, ReadPastTheLastRow) {
  const auto o = expect_verdict(options(),
                                [&] {
                                  write_rows(0, kRows);
                                  at(line.note()), ld_global(in_row(kRows), kAll, 0.0f);
                                },
                                {"bounds"});
  expect_message(o, "bounds",
                 {"test_kernel: block 0, warp 0, lane 0, " + line.at(kFile),
                  "read of 4 bytes at X(10, 0), outside its shape (10, 32)"});
  EXPECT_EQ(o.findings[0].count, 32u);
}
TEST_F(GlobalFaults, ReadOfRowPadding) {
  const auto o = expect_verdict(options(),
                                [&] {
                                  write_rows(0, kRows);
                                  at(line.note()),
                                      ld_global(in_row(3, 8), kAll, 0.0f);  // columns 8 to 39
                                },
                                {"bounds"});
  expect_message(o, "bounds",
                 {"lane 24, " + line.at(kFile), "read of 4 bytes at X(3, 32), outside its shape"});
  EXPECT_EQ(o.findings[0].count, 8u);
}
TEST_F(GlobalFaults, ReadBeforeTheFirstRow) {
  const auto o = expect_verdict(options(),
                                [&] {
                                  write_rows(0, kRows);
                                  at(line.note()), ld_global(in_row(0, -2), kAll, 0.0f);
                                },
                                {"bounds"});
  expect_message(o, "bounds",
                 {"lane 0, " + line.at(kFile), "read of 4 bytes, 8 before the start of X"});
  EXPECT_EQ(o.findings[0].count, 2u);
}
TEST_F(GlobalFaults, WriteIntoRowPadding) {
  const std::vector<float> before = y;
  const auto o = expect_verdict(options(),
                                [&] {
                                  write_rows(0, kRows);
                                  at(line.note()),
                                      st_global(out_row(9, 32), Lanes<float>(7.0f), kAll);
                                },
                                {"bounds"});
  expect_message(o, "bounds",
                 {"lane 0, " + line.at(kFile), "write of 4 bytes at Y(9, 32), outside its shape"});
  EXPECT_EQ(y[9 * kStride + 33], before[9 * kStride + 33]);  // reported, and not done
}
TEST_F(GlobalFaults, WriteToAnInput) {
  const auto o = expect_verdict(
      options(),
      [&] {
        write_rows(0, kRows);
        const Lanes<float*> p = const_cast<float*>(in(4, 0)) + Lanes<i64>(lane_id());
        at(line.note()), st_global(p, Lanes<float>(7.0f), mask_of([](int i) { return i == 17; }));
      },
      {"bounds"});
  expect_message(o, "bounds",
                 {"warp 0, lane 17, " + line.at(kFile), "write to the input X(4, 17)"});
  EXPECT_EQ(*in(4, 17), 1.0f);
}
// The chunk at a row's end that is asked for whole.
TEST_F(GlobalFaults, AChunkThatPassesItsRow) {
  const auto body = [&](i32 bytes) {
    return [&, bytes] {
      write_rows(0, kRows);
      const Lanes<const char*> p = reinterpret_cast<const char*>(in(2, 28)) +
                                   Lanes<i64>(lane_id() * 192);
      at(line.note()),
          ld_global_chunk(p, select(lane_id() < Lanes<i32>(8), Lanes<i32>(bytes), Lanes<i32>(0)));
    };
  };
  RunOptions run = options();
  run.tensors[0].extent[1] = 30;  // two of the chunk's four elements exist
  expect_silence(run, body(8));
  const auto o = expect_verdict(run, body(16), {"bounds"});
  expect_message(
      o, "bounds",
      {"lane 0, " + line.at(kFile), "read of 16 bytes at X(2, 28), outside its shape (10, 30)"});
  EXPECT_EQ(o.findings[0].count, 8u);
}
TEST_F(GlobalFaults, AChunkThatIsNotAligned) {
  const auto body = [&](i64 col) {
    return [&, col] {
      write_rows(0, kRows);
      name_shared("S", 0, 512, 1, 128, 4);
      const Lanes<const char*> p = reinterpret_cast<const char*>(in(2, col)) + Lanes<i64>(0);
      at(line.note());
      cp_async(Lanes<u32>(lane_id() * 16), p,
               select(lane_id() == Lanes<i32>(5), Lanes<i32>(16), Lanes<i32>(0)));
    };
  };
  expect_silence(options(), body(4));
  const auto o = expect_verdict(options(), body(6), {"bounds"});
  expect_message(o, "bounds", {"lane 5, " + line.at(kFile), "not aligned to 16 bytes"});
}
// A window over a matrix whose extent is given too large, as when lengths of K and Q are mixed up.
TEST_F(GlobalFaults, ATileLoadWithTheWrongLength) {
  constexpr Config C{.arch = Arch::sm_89};
  using Tile = SharedTile<float, 16, 32>;
  const auto body = [&](i32 rows) {
    return [&, rows] {
      write_rows(0, kRows);
      const Tile tile = SharedMemory().tile<Tile>("T");
      load<C>(tile, BlockPtr<const float, 16, 32>{x.data(), kStride, rows, i32(kCols), 0, 0},
              line.note());
      commit<C>();
      wait<C, 0>();
    };
  };
  expect_silence(options(), body(i32(kRows)));
  const auto o = expect_verdict(options(), body(i32(kRows) + 1), {"bounds"});
  expect_message(o, "bounds", {line.at(kFile), "read of 16 bytes at X(10, 0), outside its shape"});
  EXPECT_EQ(o.findings[0].count, 8u);
}
// Strides that broadcast, permute and leave gaps: a packed (batch, row, 3, col) tensor's middle
// slice.
TEST_F(GlobalFaults, OffsetsInAGapOfAPackedTensor) {
  std::vector<float> qkv(2 * 5 * 3 * 8, 1.0f);
  char* const k = reinterpret_cast<char*>(qkv.data() + 8);
  const GlobalTensor tensor{"K", k, 4, false, 3, {2, 5, 8}, {5 * 24, 24, 1}};
  const auto body = [&](i64 shift) {
    return [&, shift] {
      for (i64 b = 0; b < 2; b++)
        for (i64 r = 0; r < 5; r++) {
          const Lanes<const float*> p = static_cast<const float*>(qkv.data()) + 8 + b * 5 * 24 +
                                        r * 24 + Lanes<i64>(lane_id() & Lanes<i32>(7));
          at(line.note()), ld_global(p + Lanes<i64>(shift), kAll, 0.0f);
        }
    };
  };
  expect_silence({.tensors = {tensor}}, body(0));
  for (i64 shift : {-8, -1, 1, 8}) expect_verdict({.tensors = {tensor}}, body(shift), {"bounds"});
}

// ---- coverage

TEST_F(GlobalFaults, AnElementThatIsNeverWritten) {
  const auto o = expect_verdict(options(1, kRows),
                                [&] {
                                  const i64 row = block_index();
                                  st_global(out_row(row), Lanes<float>(2.0f), mask_of([&](int i) {
                                              return row != 7 || (i != 3 && i != 20);
                                            }));
                                },
                                {"coverage"});
  expect_message(o, "coverage",
                 {"2 elements of the output Y are never written, the first is Y(7, 3)"});
}
TEST_F(GlobalFaults, WrittenTwiceByOneBlock) {
  const auto o = expect_verdict(options(1, kRows),
                                [&] {
                                  write_row(block_index());
                                  if (block_index() == 4) at(line.note()), write_row(4);
                                },
                                {"coverage"});
  expect_message(o, "coverage",
                 {"block 4, warp 0, lane 0, " + line.at(kFile), "Y(4, 0) is written twice"});
  EXPECT_EQ(o.findings[0].count, 32u);
}
TEST_F(GlobalFaults, WrittenTwiceByTwoWarps) {
  const auto o = expect_verdict(options(2),
                                [&] {
                                  at(line.note());
                                  if (warp_id() == 0) write_rows(0, kRows);
                                  if (warp_id() == 1) write_row(6);
                                },
                                {"coverage"});
  expect_message(o, "coverage",
                 {"block 0, warp 1, lane 0, " + line.at(kFile), "Y(6, 0) is written twice"});
}
TEST_F(GlobalFaults, WrittenByTwoBlocks) {
  const auto o = expect_verdict(options(1, kRows),
                                [&] {
                                  at(line.note());
                                  write_row(block_index());
                                  if (block_index() == 8) write_row(2);
                                },
                                {"races"});
  expect_message(
      o, "races",
      {"block 8, warp 0, lane 0, " + line.at(kFile), "Y(2, 0) is written by block 2 too"});
}

// ---- reads of outputs

TEST_F(GlobalFaults, AnOutputReadBeforeItIsWritten) {
  const auto o = expect_verdict(options(1, kRows),
                                [&] {
                                  const i64 row = block_index();
                                  const Lanes<const float*> p = written_row(row);
                                  if (row == 3) at(line.note()), ld_global(p, kAll, 0.0f);
                                  write_row(row);
                                  ld_global(p, kAll, 0.0f);  // its own, written: allowed
                                },
                                {"uninit"});
  expect_message(o, "uninit",
                 {"block 3, warp 0, lane 0, " + line.at(kFile),
                  "read of the output Y(3, 0) that nobody has written"});
  EXPECT_EQ(o.findings[0].count, 32u);
}
TEST_F(GlobalFaults, AnOutputReadThatNobodyWrites) {
  const auto o = expect_verdict(options(1, kRows - 1),
                                [&] {
                                  write_row(block_index());
                                  if (block_index() == 1) {
                                    const Lanes<const float*> p = written_row(9);
                                    at(line.note()), ld_global(p, kAll, 0.0f);
                                  }
                                },
                                {"uninit", "coverage"});
  expect_message(o, "uninit", {"block 1", line.at(kFile), "Y(9, 0)"});
  expect_message(o, "coverage", {"32 elements", "Y(9, 0)"});
}
// Blocks are not ordered, so it is a race whichever ran first.
TEST_F(GlobalFaults, ABlockReadsWhatAnotherWrites) {
  const auto o = expect_verdict(options(1, kRows),
                                [&] {
                                  write_row(block_index());
                                  if (block_index() == 5) {
                                    const Lanes<const float*> p = written_row(8);
                                    at(line.note()), ld_global(p, kAll, 0.0f);
                                  }
                                },
                                {"races"});
  expect_message(o, "races",
                 {"block 5, warp 0, lane 0, " + line.at(kFile),
                  "read of the output Y(8, 0), which block 8 writes"});
}
TEST_F(GlobalFaults, TwoBlocksReadWhatAThirdWrites) {
  const auto o = expect_verdict(options(1, kRows),
                                [&] {
                                  write_row(block_index());
                                  const Lanes<const float*> p = written_row(6);
                                  if (block_index() >= 6 && block_index() <= 8)
                                    at(line.note()), ld_global(p, kAll, 0.0f);
                                },
                                {"races"});
  expect_message(o, "races", {"block 7", line.at(kFile), "Y(6, 0), which block 6 writes"});
  EXPECT_EQ(o.findings[0].count, 64u);
}

}  // namespace
}  // namespace tessera::faults
