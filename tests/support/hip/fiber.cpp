#include "support/hip/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <new>

// Saves the registers that a function must preserve (System V ABI) and the stack pointer, and continues at another one.
// The control words of floating point are the same in all fibers.
asm(R"(
.text
.local hone_switch_stack
.type hone_switch_stack, @function
hone_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size hone_switch_stack, .-hone_switch_stack
)");
extern "C" void hone_switch_stack(void** save, void* load);

namespace hone::emulation {
namespace {

constexpr std::size_t kStackBytes = std::size_t{128} << 10;
constexpr std::size_t kGuardBytes = 4096;

Fiber* running = nullptr;
void* resumer = nullptr;  // stack pointer of resume()
std::size_t created = 0;

}  // namespace

Fiber::Fiber() {
  memory_ = ::mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  // Tops of stacks at the same place of their pages would all be in the same few lines of the cache.
  top_ = kGuardBytes + kStackBytes - created++ * 1088 % 16384 / 16 * 16;
  if (memory_ == MAP_FAILED || ::mprotect(memory_, kGuardBytes, PROT_NONE) != 0) throw std::bad_alloc();
}

Fiber::~Fiber() { ::munmap(memory_, kGuardBytes + kStackBytes); }

void Fiber::start(void (*function)(void*), void* argument) {
  function_ = function;
  argument_ = argument;
  // Six registers, the address to return to, and a word that aligns the stack as a call does.
  auto* top = reinterpret_cast<void**>(static_cast<std::byte*>(memory_) + top_) - 8;
  for (int i = 0; i < 8; ++i) top[i] = nullptr;
  top[6] = reinterpret_cast<void*>(&Fiber::enter);
  stack_pointer_ = top;
}

void Fiber::enter() {
  running->function_(running->argument_);
  std::abort();  // it must not return
}

void Fiber::resume() {
  running = this;
  hone_switch_stack(&resumer, stack_pointer_);
  running = nullptr;
}

void Fiber::yield() { hone_switch_stack(&running->stack_pointer_, resumer); }

}  // namespace hone::emulation
