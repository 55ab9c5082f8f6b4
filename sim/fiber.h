// SPDX-License-Identifier: Apache-2.0
// Fibers on Boost.Context's fcontext (13 ns a switch), with guarded stacks and the switch
// annotations that AddressSanitizer and ThreadSanitizer need.
#pragma once
#include <boost/context/detail/fcontext.hpp>
#include <cstddef>

namespace tessera::sim {

class Fiber {
 public:
  static constexpr std::size_t kStackBytes = 512 << 10;

  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  Fiber(Fiber&& o) noexcept;

  // Makes the fiber ready to run body(argument) on its stack, which is kept from run to run. A run
  // that did not end is abandoned: nothing on its stack is destroyed.
  void start(void (*body)(void*), void* argument);
  // Runs until the body suspends or returns; false once it has returned.
  bool resume();
  // Called on the fiber: back to who resumed it.
  void suspend();

 private:
  static void main(boost::context::detail::transfer_t t);

  char* stack_ = nullptr;
  boost::context::detail::fcontext_t inside_ = nullptr, outside_ = nullptr;
  void (*body_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool returned_ = true;
  void *sanitizer_inside_ = nullptr, *sanitizer_outside_ = nullptr;  // fake stack or TSan fiber
  const void* outside_bottom_ = nullptr;
  std::size_t outside_size_ = 0;
};

}  // namespace tessera::sim
