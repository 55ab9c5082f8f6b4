// SPDX-License-Identifier: Apache-2.0
// The kernels with matrices: C = A B and y = X w.
#include <cmath>

#include "analysis/cli/case.h"

namespace tessera::cli {
namespace {

// How far an fp32 sum of `terms` products, rounded once to storage, may be from `exact`:
//   (terms + 2) * step * sum |products| + u |exact| [+ 2^-25 for f16, half its subnormals' spacing]
// step is 2^-24 on the CUDA cores, which round to nearest, and 2^-23 on the tensor cores, which
// cut.
double sum_tolerance(Dtype storage, bool tensor_core, std::int64_t terms, double sum_abs,
                     double exact) {
  const double u = storage == Dtype::f32 ? 0x1p-24 : storage == Dtype::f16 ? 0x1p-11 : 0x1p-8;
  const double step = tensor_core && storage != Dtype::f32 ? 0x1p-23 : 0x1p-24;
  return double(terms + 2) * step * sum_abs + u * std::fabs(exact) +
         (storage == Dtype::f16 ? 0x1p-25 : 0);
}

// (rows, inner) . (inner, cols) in float64, with the tolerance of each element.
struct Product {
  Product(const Array& a, const Array& b, std::int64_t rows, std::int64_t cols, std::int64_t inner,
          bool tensor_core)
      : exact(std::size_t(rows * cols)), tolerance(std::size_t(rows * cols)) {
    const std::vector<double> x = a.widened(), y = b.widened();
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t k = 0; k < inner; ++k)
        for (std::int64_t j = 0; j < cols; ++j) {
          const double term = x[std::size_t(i * inner + k)] * y[std::size_t(k * cols + j)];
          exact[std::size_t(i * cols + j)] += term;
          tolerance[std::size_t(i * cols + j)] += std::fabs(term);
        }
    for (std::size_t i = 0; i < exact.size(); ++i)
      tolerance[i] = sum_tolerance(a.dtype(), tensor_core, inner, tolerance[i], exact[i]);
  }
  std::vector<double> exact, tolerance;
};

CaseResult finish(Report report, OutputResult output, double flops) {
  CaseResult result;
  result.report = std::move(report);
  result.pass = output.error.pass;
  result.outputs.push_back(std::move(output));
  result.flops = flops;
  return result;
}

}  // namespace

CaseResult run_matmul(const CaseOptions& o) {
  const std::int64_t none = empty_unless_invalid(o.rows);
  require_instance(matmul(shape_only(o.dtype, {none, o.inner}),
                          shape_only(o.dtype, {o.inner, empty_unless_invalid(o.cols)}),
                          shape_only(o.dtype, {none, empty_unless_invalid(o.cols)}), o.run),
                   o.run);
  Array a("a", o.dtype, {o.rows, o.inner}, o.run.target);
  Array b("b", o.dtype, {o.inner, o.cols}, o.run.target);
  Array c("c", o.dtype, {o.rows, o.cols}, o.run.target);
  a.fill_input(o.seed, 0), b.fill_input(o.seed, 1);
  if (o.run.target == Target::cuda)  // the first launch loads the code
    matmul(a.tensor(), b.tensor(), c.tensor(), o.run);
  c.poison();
  Report report = matmul(a.tensor(), b.tensor(), c.tensor(), o.run);
  c.download();
  const Product p(a, b, o.rows, o.cols, o.inner, true);
  return finish(std::move(report), judge("c", c, p.exact, p.tolerance),
                2 * double(o.rows) * double(o.cols) * double(o.inner));
}

CaseResult run_weighted_sum(const CaseOptions& o) {
  // w has no dimension that is empty with the rows, so its memory must exist: one element stands
  // in.
  float one = 0;
  Tensor w_shape = shape_only(o.dtype, {o.cols});
  w_shape.data = &one;
  const std::int64_t none = empty_unless_invalid(o.rows);
  require_instance(weighted_sum(shape_only(o.dtype, {none, o.cols}), w_shape,
                                shape_only(o.dtype, {none}), o.run),
                   o.run);
  Array x("x", o.dtype, {o.rows, o.cols}, o.run.target);
  Array w("w", o.dtype, {o.cols}, o.run.target);
  Array y("y", o.dtype, {o.rows}, o.run.target);
  x.fill_input(o.seed, 0), w.fill_input(o.seed, 1);
  if (o.run.target == Target::cuda)  // the first launch loads the code
    weighted_sum(x.tensor(), w.tensor(), y.tensor(), o.run);
  y.poison();
  Report report = weighted_sum(x.tensor(), w.tensor(), y.tensor(), o.run);
  y.download();
  const Product p(x, w, o.rows, 1, o.cols, false);
  return finish(std::move(report), judge("y", y, p.exact, p.tolerance),
                2 * double(o.rows) * double(o.cols));
}

}  // namespace tessera::cli
