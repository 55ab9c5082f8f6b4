# SPDX-License-Identifier: Apache-2.0
"""The casts of P that docs/p-cast.md measures: that the kernel's variants make them and nothing
else, and that the committed record is what the script makes.
"""
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import tessera

pytest.importorskip("ml_dtypes")
ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "analysis" / "studies"))
import p_cast
from p_cast_model import SLACK, rounded

RECORD = json.loads((ROOT / "docs" / "results" / "cpu" / "p_cast.json").read_text())
CASTS = ("f16", "bf16", "bf16x2")


def attend(scores, config):
    """O and LSE of fp32 where V is the identity: O_ij is P_ij, and one product each.

    scores (q_len, k_len), both at most 64, are exact: q holds them, k the identity.
    """
    def pad(x):
        return np.pad(x, ((0, 0), (0, 64 - x.shape[1]))).astype(np.float32)[None, None]

    one = np.eye(scores.shape[1])
    o, lse = tessera.attention(pad(scores), pad(one), pad(one), scale=1.0, return_lse=True,
                               arch="sm_89", config=config, exp2="soft")
    return o[0, 0, :, :scores.shape[1]], lse


def spread_scores(k_len):
    """Scores whose first is 0 and every row's maximum, so that its weight is 1."""
    scores = -abs(np.random.default_rng(3).standard_normal((64, k_len))).astype(np.float32) * 6
    scores[:, 0] = 0
    return scores


@pytest.mark.parametrize("cast", CASTS)
def test_a_variant_rounds_the_weights_and_nothing_else(cast):
    scores = spread_scores(32)  # one tile: nothing is rescaled
    kept, lse = attend(scores, "64x32")
    got, lse_of_variant = attend(scores, f"64x32-p-{cast}")
    assert np.array_equal(lse.view("u4"), lse_of_variant.view("u4"))  # l is of unrounded weights
    reciprocal = kept[:, :1]  # the weight of the first key is 1
    weights = kept.astype(np.float64) / reciprocal  # within two units of fp32
    want = rounded(weights, cast)
    sure = np.all([rounded(weights * (1 + x), cast) == want for x in (-(2**-22), 2**-22)], axis=0)
    assert sure.mean() > (0.99 if cast != "bf16x2" else 0.8)
    assert np.array_equal(got[sure], (want.astype(np.float32) * reciprocal)[sure])
    assert (got != kept)[:, 1:].mean() > 0.9


def test_casts_differ():
    outputs = [attend(spread_scores(32), f"64x32-p-{cast}")[0] for cast in CASTS]
    for i, one in enumerate(outputs):
        for other in outputs[i + 1:]:
            assert (one != other).mean() > 0.5


def test_weights_reach_2_to_the_slack_and_no_more():
    """Scores rise by SLACK powers of two before the reference follows: far from fp16's 65504."""
    powers = np.zeros(64)
    for top, reached in ((SLACK - 0.01, 2 ** (SLACK - 0.01)), (SLACK + 0.01, 1.0)):
        powers[32:] = top
        o, _ = attend(np.tile((powers * np.log(2)).astype(np.float32), (16, 1)), "64x32-p-f16")
        small, large = o[:, 0].astype(np.float64), o[:, 40].astype(np.float64)
        # The heavier weight was 2^4.99, in fp16, or the reference itself.
        assert np.allclose(large / small, 2**top, rtol=2**-11)
        total = 32 * (1 + 2**top) if reached > 1 else 32 * (1 + 2**-top)
        assert np.allclose(large * total, rounded(np.array(reached), "f16"), rtol=2**-18)


@pytest.mark.parametrize("point", [(64, 1.0, 1.0, None), (128, 10.0, 0.0, None)])
def test_the_committed_record_is_what_the_script_makes(point):
    k_len, spread, mean, _ = point
    got = p_cast.measure(*point)
    want = next(p for p in RECORD["sweep"]
                if (p["k_len"], p["spread"], p["mean"]) == (k_len, spread, mean))
    assert got["lines"].keys() == want["lines"].keys()
    for line, errors in want["lines"].items():
        assert got["lines"][line] == pytest.approx(errors, rel=1e-3), line
    for dtype, error in want["sum_error"].items():
        assert got["sum_error"][dtype] == pytest.approx(error, rel=1e-3, abs=1e-12)
    assert got["heaviest_weight"] == pytest.approx(want["heaviest_weight"], rel=1e-3)


def test_the_record_is_whole():
    keys = [(p["k_len"], p["spread"], p["mean"]) for p in RECORD["sweep"]]
    assert keys == [(n, spread, mean) for mean in p_cast.MEANS for spread in p_cast.SPREADS
                    for n in p_cast.LENGTHS]
    assert [p["sink"] for p in RECORD["sinks"]] == p_cast.SINK_SCORES
    assert json.loads(p_cast.text_of(RECORD)) == RECORD


def relative(point, line):
    return point["lines"][line]["relative"]


def test_what_the_page_says_of_the_record():
    for p in RECORD["sweep"] + RECORD["sinks"]:
        assert p["heaviest_weight"] <= 2**SLACK
        for dtype in ("f16", "bf16"):
            # The kernel's error is its rounding of P, replayed, beside what fp32 loses.
            assert abs(relative(p, f"cast_{dtype}") - relative(p, f"model_{dtype}")) < (
                0.01 * relative(p, f"model_{dtype}") + 1.5 * relative(p, "kept_f32")), p
            # One cast errs by at most u of sum P |V|, and so does the rounding of O.
            assert p["lines"][f"cast_{dtype}"]["max_u"] <= 1.01 or "sink" in p, p
            assert p["lines"][f"kernel_{dtype}"]["max_u"] <= 2 or "sink" in p, p
    for p in RECORD["sweep"]:
        if p["spread"] >= 0.1:  # independent errors explain it
            for dtype in ("f16", "bf16"):
                assert relative(p, f"expected_{dtype}") == pytest.approx(
                    relative(p, f"model_{dtype}"), rel=0.12), p


@pytest.mark.slow
def test_the_figure_is_the_same_every_time(tmp_path):
    pytest.importorskip("matplotlib")
    from p_cast_figure import draw

    files = [tmp_path / "one.svg", tmp_path / "two.svg"]
    for file in files:
        draw(RECORD, file)
    assert files[0].read_bytes() == files[1].read_bytes()
