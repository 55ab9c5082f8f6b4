// SPDX-License-Identifier: Apache-2.0
#include "sim/fiber.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define TESSERA_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define TESSERA_TSAN 1
#endif

namespace tessera::sim {
namespace ctx = boost::context::detail;

namespace {
std::size_t page() { return std::size_t(sysconf(_SC_PAGESIZE)); }
}  // namespace

Fiber::Fiber(Fiber&& o) noexcept {  // only an idle fiber is moved
  std::swap(stack_, o.stack_);
  std::swap(sanitizer_inside_, o.sanitizer_inside_);
  std::swap(returned_, o.returned_);
}

Fiber::~Fiber() {
  if (!stack_) return;
#if TESSERA_TSAN
  if (sanitizer_inside_) __tsan_destroy_fiber(sanitizer_inside_);
#endif
#if TESSERA_ASAN
  __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
  munmap(stack_ - page(), kStackBytes + page());
}

void Fiber::start(void (*body)(void*), void* argument) {
  if (!stack_) {  // a page without access below the stack: an overflow faults, it does not corrupt
    void* p = mmap(nullptr, kStackBytes + page(), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    mprotect(p, page(), PROT_NONE);
    stack_ = static_cast<char*>(p) + page();
  }
#if TESSERA_TSAN  // making one takes 0.3 ms: kept from run to run, unless a run was abandoned
  if (sanitizer_inside_ && !returned_)
    __tsan_destroy_fiber(std::exchange(sanitizer_inside_, nullptr));
  if (!sanitizer_inside_) sanitizer_inside_ = __tsan_create_fiber(0);
#endif
  body_ = body, argument_ = argument, returned_ = false;
  inside_ = ctx::make_fcontext(stack_ + kStackBytes, kStackBytes, main);
#if TESSERA_ASAN
  sanitizer_inside_ = nullptr;
  __asan_unpoison_memory_region(stack_, kStackBytes);  // what an abandoned run's frames left
#endif
}

#if TESSERA_TSAN  // it is entered in every run and left in none: TSan's own stack must not learn of
                  // it
__attribute__((no_sanitize("thread")))
#endif
void Fiber::main(ctx::transfer_t t) {
  Fiber* f = static_cast<Fiber*>(t.data);
  f->outside_ = t.fctx;
#if TESSERA_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &f->outside_bottom_, &f->outside_size_);
#endif
  f->body_(f->argument_);
  f->returned_ = true;
#if TESSERA_ASAN
  __sanitizer_start_switch_fiber(nullptr, f->outside_bottom_, f->outside_size_);
#endif
#if TESSERA_TSAN
  __tsan_switch_to_fiber(f->sanitizer_outside_, 0);
#endif
  ctx::jump_fcontext(f->outside_, nullptr);
  std::abort();  // nobody resumes a fiber that has returned
}

bool Fiber::resume() {
#if TESSERA_ASAN
  __sanitizer_start_switch_fiber(&sanitizer_outside_, stack_, kStackBytes);
#endif
#if TESSERA_TSAN
  sanitizer_outside_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(sanitizer_inside_, 0);
#endif
  const ctx::transfer_t t = ctx::jump_fcontext(inside_, this);
#if TESSERA_ASAN
  __sanitizer_finish_switch_fiber(sanitizer_outside_, nullptr, nullptr);
#endif
  inside_ = t.fctx;
  return !returned_;
}

void Fiber::suspend() {
#if TESSERA_ASAN
  __sanitizer_start_switch_fiber(&sanitizer_inside_, outside_bottom_, outside_size_);
#endif
#if TESSERA_TSAN
  __tsan_switch_to_fiber(sanitizer_outside_, 0);
#endif
  const ctx::transfer_t t = ctx::jump_fcontext(outside_, nullptr);
#if TESSERA_ASAN
  __sanitizer_finish_switch_fiber(sanitizer_inside_, &outside_bottom_, &outside_size_);
#endif
  outside_ = t.fctx;
}

}  // namespace tessera::sim
