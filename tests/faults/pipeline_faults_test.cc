// SPDX-License-Identifier: Apache-2.0
// The pipelines of flash_forward, two stages and one, in small: each clean, and with every wait,
// barrier, buffer and finish() that somebody could forget.
#include "kernels/tile/dot.h"
#include "kernels/tile/global.h"
#include "tests/faults/verdict.h"

namespace tessera::faults {
namespace {

enum class Fault {
  none,
  no_wait,            // a barrier, but nobody waits for copies
  no_barrier,         // each warp waits for its own copies, and for no other's
  one_group_too_few,  // the newest group may still be in flight
  one_buffer,         // the next tile goes where this one is read
  no_finish_of_k,     // on sm_75: loaded, and never stored
  no_finish_of_v,
  no_release,       // one stage: K's next tile is copied while slow warps read this one
  early_finish,     // one stage, sm_75: K's next tile is stored before the barrier
  sign_unordered,   // Q changes its sign, and a warp reads rows that another changes
  foreign_scratch,  // O leaves through V's tile, which other warps still read
  one_row_block,    // every warp stores the first warp's rows
};

constexpr int kSteps = 4, kBlockQ = 64, kBlockK = 32, kDim = 32, kKeys = kSteps * kBlockK;

struct PipelineFaults : ::testing::Test {
  alignas(16) static inline f16 q[kBlockQ * kDim] = {}, k[kKeys * kDim] = {}, v[kKeys * kDim] = {},
                                            o[kBlockQ * kDim] = {};
  template <Config C>
  using Slots = std::conditional_t<C.stages == 2, Ring<SharedTile<f16, kBlockK, kDim>, 2>,
                                   Ring<SharedTile<f16, kBlockK, kDim>, 1>>;
  using QTile = SharedTile<f16, kBlockQ, kDim>;

  template <Config C>
  static RunOptions options() {
    return {.warps = 2,
            .shared_bytes = QTile::kBytes + 2 * Slots<C>::kBytes,
            .tensors = {matrix("Q", q, kBlockQ, kDim, kDim, Role::input),
                        matrix("K", k, kKeys, kDim, kDim, Role::input),
                        matrix("V", v, kKeys, kDim, kDim, Role::input),
                        matrix("O", o, kBlockQ, kDim, kDim, Role::output)}};
  }

  template <Config C>
  static void wait_for_copies(Fault fault) {
    if (fault == Fault::no_wait)
      barrier();
    else if (fault == Fault::no_barrier) {
      if constexpr (C.has_cp_async()) cp_async_wait<0>();
    } else if (fault == Fault::one_group_too_few)
      wait<C, 1>();
    else
      wait<C, 0>();
  }

  template <Config C>
  static void pipeline(Fault fault) {
    constexpr int kRows = kBlockQ / 2;
    const int row0 = warp_id() * kRows;
    SharedMemory shared;
    const QTile q_tile = shared.tile<QTile>("Q");
    const auto k_ring = shared.ring<Slots<C>>("K"), v_ring = shared.ring<Slots<C>>("V");
    const auto slot = [&](int j) { return fault == Fault::one_buffer ? 0 : j; };
    TileStream<C, const f16, kBlockQ, kDim> q_stream({q, kDim, kBlockQ, kDim, 0, 0});
    TileStream<C, const f16, kBlockK, kDim> k_stream({k, kDim, kKeys, kDim, 0, 0}),
        v_stream({v, kDim, kKeys, kDim, 0, 0});
    q_stream.all(q_tile);
    k_stream.all(k_ring.acquire(0));
    commit<C>();
    if constexpr (C.stages == 2) v_stream.all(v_ring.acquire(0)), commit<C>();
    if (fault == Fault::sign_unordered) {
      wait<C, 0>();
      multiply<C>(q_tile, -1.0f);
      Operand<kRows, kDim, f16> rows;
      load(rows, q_tile, row0);  // without a barrier
    }
    Accumulator<kRows, kDim> acc;
    fill(acc, 0.0f);
    for (int j = 0; j < kSteps; j++) {
      wait_for_copies<C>(fault);
      if constexpr (C.stages == 2)
        k_stream.start(k_ring.acquire(slot(j + 1))), v_stream.start(v_ring.acquire(slot(j + 1)));
      else
        v_stream.start(v_ring.acquire(0));
      commit<C>();
      Accumulator<kRows, kBlockK> s;
      fill(s, 0.0f);
      dot<C>(s, q_tile, row0, transpose(k_ring.ready(slot(j))));
      if constexpr (C.stages == 1) {
        if (fault == Fault::early_finish) k_stream.start(k_ring.acquire(0));
        if (fault == Fault::early_finish) k_stream.finish(k_ring.acquire(0));
        if (fault != Fault::no_finish_of_v) v_stream.finish(v_ring.acquire(0));
        if (fault == Fault::no_release) {
          if constexpr (C.has_cp_async()) cp_async_wait<0>();
        } else {
          wait<C, 0>();
        }
        if (fault != Fault::early_finish) k_stream.start(k_ring.acquire(0));
        commit<C>();
      }
      dot<C>(acc, as_operand<f16>(s), v_ring.ready(slot(j)));
      if constexpr (C.stages == 1) {
        if (fault != Fault::no_finish_of_k && fault != Fault::early_finish)
          k_stream.finish(k_ring.acquire(0));
      } else {
        if (fault != Fault::no_finish_of_k) k_stream.finish(k_ring.acquire(slot(j + 1)));
        if (fault != Fault::no_finish_of_v) v_stream.finish(v_ring.acquire(slot(j + 1)));
      }
    }
    const BlockPtr<f16, kBlockQ, kDim> to{o, kDim, kBlockQ, kDim, 0, 0};
    const QTile scratch = fault == Fault::foreign_scratch ? QTile{v_ring.base} : q_tile;
    store(to, acc, fault == Fault::one_row_block ? 0 : row0, scratch);
  }

  template <Config C>
  static Outcome expect(Fault fault, const std::set<std::string>& checks) {
    SCOPED_TRACE(::testing::Message()
                 << "fault " << int(fault) << " stages " << C.stages << " sm_" << int(C.arch));
    return expect_verdict(
        options<C>(), [&] { pipeline<C>(fault); }, checks);
  }
};

constexpr Config kTwo{.arch = Arch::sm_89, .warps = 2, .stages = 2};
constexpr Config kOne{.arch = Arch::sm_89, .warps = 2, .stages = 1};
constexpr Config kTwoTuring{.arch = Arch::sm_75, .warps = 2, .stages = 2};
constexpr Config kOneTuring{.arch = Arch::sm_75, .warps = 2, .stages = 1};

TEST_F(PipelineFaults, Clean) {
  expect<kTwo>(Fault::none, {});
  expect<kOne>(Fault::none, {});
  expect<kTwoTuring>(Fault::none, {});
  expect<kOneTuring>(Fault::none, {});
}

TEST_F(PipelineFaults, WaitsAndBarriersOfTwoStages) {
  const auto o = expect<kTwo>(Fault::no_wait, {"async"});
  expect_message(o, "async", {"Q(0, 0)", "its group was not waited for"});
  expect<kTwo>(Fault::no_barrier, {"async"});
  expect<kTwo>(Fault::one_group_too_few, {"async"});
  expect<kTwo>(Fault::one_buffer, {"async"});
  expect<kTwoTuring>(Fault::no_barrier, {"races"});
  expect<kTwoTuring>(Fault::one_buffer, {"races"});
}

TEST_F(PipelineFaults, WaitsAndBarriersOfOneStage) {
  expect<kOne>(Fault::no_wait, {"async"});
  expect<kOne>(Fault::no_barrier, {"async"});
  expect<kOne>(Fault::no_release, {"async"});
  expect<kOneTuring>(Fault::no_barrier, {"races"});
  expect<kOneTuring>(Fault::no_release, {"races"});
  expect<kOneTuring>(Fault::early_finish, {"races"});
}

TEST_F(PipelineFaults, AFinishThatIsForgotten) {
  // With cp.async there is nothing to finish.
  expect<kTwo>(Fault::no_finish_of_k, {});
  expect<kOne>(Fault::no_finish_of_v, {});
  // Through registers the second tile of a ring was never written ...
  expect_message(expect<kTwoTuring>(Fault::no_finish_of_k, {"uninit"}), "uninit", {"K(0, 0)"});
  expect_message(expect<kTwoTuring>(Fault::no_finish_of_v, {"uninit"}), "uninit", {"V(0, 0)"});
  expect_message(expect<kOneTuring>(Fault::no_finish_of_v, {"uninit"}), "uninit", {"V(0, 0)"});
  // ... but with one buffer K's is the tile before: no check sees that, only the result does.
  expect<kOneTuring>(Fault::no_finish_of_k, {});
}

TEST_F(PipelineFaults, WhatSharesATile) {
  expect<kTwo>(Fault::sign_unordered, {"races"});
  expect<kOneTuring>(Fault::sign_unordered, {"races"});
  expect_message(expect<kTwoTuring>(Fault::foreign_scratch, {"races"}), "races", {"V("});
  expect<kTwo>(Fault::foreign_scratch, {"races", "async"});  // and the copy that runs ahead
  expect<kTwo>(Fault::one_row_block, {"races", "coverage"});
}

}  // namespace
}  // namespace tessera::faults
