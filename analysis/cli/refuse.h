// SPDX-License-Identifier: Apache-2.0
// Mistakes on the command line, each refused by its name and with what would have been right.
#pragma once
#include <CLI/CLI.hpp>
#include <charconv>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "analysis/cli/options.h"
#include "kernels/registry.h"

namespace tessera::cli {

using Names = std::vector<std::string>;

[[noreturn]] void invalid(const std::string& message);

// CLI11 collects what it does not know; the first such flag is named, with its nearest neighbour.
// A value that followed it was collected as well, or was taken for the kernel, so flags go first.
void refuse_unknown(const CLI::App* sub);

// A flag that has no meaning for this case would be ignored silently.
void refuse_meaningless(const CLI::App* sub, const Command& c, const KernelRow& kernel);

// The library calls a name that it does not have unsupported. Here a name that exists nowhere is a
// mistake in the command: scripts skip what is unsupported, and must not skip a typing error.
void refuse_misspelt(const Options& o);

// Why a text is no number of type T; empty if it is one. CLI11 would say "Could not convert".
template <class T>
std::string why_no_number(const std::string& text) {
  T value;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  // CLI11 converts what passes here, and takes a leading zero for octal.
  const std::size_t digit = text.starts_with("-") ? 1 : 0;
  if (std::is_integral_v<T> && text.size() > digit + 1 && text[digit] == '0')
    return "'" + text + "' has a leading zero";
  if (error == std::errc() && stop == end) return "";
  const char* kind = std::is_floating_point_v<T> ? "number"
                     : std::is_signed_v<T>       ? "whole number"
                                                 : "whole number from 0 up";
  return "'" + text + "' is " +
         (error == std::errc::result_out_of_range ? "out of range" : std::string("not a ") + kind);
}

// The T of optional<T>, or T.
template <class T>
struct value_type {
  using type = T;
};
template <class T>
struct value_type<std::optional<T>> {
  using type = T;
};

// A flag of a group of the help; what is no number is refused by why_no_number.
template <class Value>
void add_flag(CLI::App* sub, const char* group, const char* name, Value& value, const char* what,
              const char* type) {
  CLI::Option* option = sub->add_option(name, value, what)->group(group)->type_name(type);
  if constexpr (!std::is_same_v<Value, std::string>)
    option->check(&why_no_number<typename value_type<Value>::type>, "");
}

}  // namespace tessera::cli
