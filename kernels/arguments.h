// SPDX-License-Identifier: Apache-2.0
// What is checked of a call's arguments before any memory is touched. Everything here throws Error
// (invalid_argument unless said otherwise) naming the argument and its limit.
#pragma once
#include <string>

#include "kernels/attention.h"

namespace tessera {

[[noreturn]] void invalid(const std::string& message);

int size_of(Dtype d);         // of an element, in bytes
bool empty(const Tensor& t);  // it has no element

// Rank, extents, strides, type, pointer. `dims` names the dimensions in the message.
void check_tensor(const char* name, const Tensor& t, int rank, const char* dims);
// An output: from the innermost dimension outwards, a step must clear all that lies inside.
void check_no_overlap(const char* name, const Tensor& t);
void check_contiguous(const char* name, const Tensor& t);
void same(const char* name, const char* what, i64 value, const char* of, i64 expected);
void same_dtype(const char* name, const Tensor& t, const char* of, Dtype expected);
// An output and another tensor share no element. Refuses (unsupported) as well what overlap()
// leaves undecided.
void check_apart(const char* output, const Tensor& t, const char* other, const Tensor& u);

// Whether two tensors have a byte in common. Exact: tensors that only interleave do not. The search
// gives up after kOverlapSteps steps (some ten milliseconds), which takes at least three strides of
// similar size that have no common divisor; slices of one array need a few.
enum class Overlap { no, yes, undecided };
constexpr int kOverlapSteps = 1 << 20;
Overlap overlap(const Tensor& a, const Tensor& b);

// The option that leaves some query of 0 .. q_len - 1 no key of 0 .. k_len - 1, with its value, for
// a message; "" if every query sees one. Needs q_len and k_len > 0.
std::string what_empties_a_row(const AttentionOptions& options, i64 q_len, i64 k_len);

// The command's flags for the same shape, mask and scale: part of the command that repeats a call.
std::string attention_flags(const Tensor& q, const Tensor& k, const AttentionOptions& options);

}  // namespace tessera
