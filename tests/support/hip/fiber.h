// Fibers, the threads of an emulated block: stacks that one thread of the host switches between.
#pragma once

#include <cstddef>
#include <functional>

namespace hone::emulation {

// A stack on which a function runs until it yields or returns.
class Fiber {
 public:
  Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  // Sets the function that the next resume() starts from its beginning. What ran before is abandoned.
  void start(void (*function)(void* argument), void* argument);
  // Runs until yield(). The function must not return but yield for good.
  void resume();
  // Returns to resume() of the fiber that runs.
  static void yield();

 private:
  void* memory_ = nullptr;         // stack, below it a page without access
  std::size_t top_ = 0;            // offset of the end of the stack
  void* stack_pointer_ = nullptr;  // where the fiber continues
  void (*function_)(void*) = nullptr;
  void* argument_ = nullptr;
  static void enter();
};

}  // namespace hone::emulation
