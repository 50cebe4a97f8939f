// A process that does nothing but fork others, on demand.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>

namespace hone {

// A file descriptor, closed at the end.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] bool open() const { return number_ >= 0; }
  int release();

 private:
  int number_ = -1;
};

struct ForkedWorker {
  pid_t id = 0;
  Descriptor channel;  // a stream to the worker and from it; does not block
};

// The server is this executable, started anew (so that it is small, has one thread, and shares no memory with a process
// whose heap is large and whose threads hold locks); the workers are its children, which run serve_comparisons. It
// ends, and ends them, when this object does or when this process dies in whatever way. Its signals are its own: Ctrl+C
// does not reach it. Not for use by several threads at once.
class ForkServer {
 public:
  ForkServer() = default;
  ~ForkServer();
  ForkServer(const ForkServer&) = delete;
  ForkServer& operator=(const ForkServer&) = delete;

  // Starts the server where it does not run. Throws Error where the system gives no process.
  [[nodiscard]] ForkedWorker fork();
  // Kills the worker, and leaves no zombie; a worker that is dead already is only cleared away.
  void kill(pid_t id);
  [[nodiscard]] pid_t id() const { return id_; }

 private:
  void start();
  void stop();

  pid_t id_ = 0;
  Descriptor channel_;
};

// What a worker does until its channel closes (workers.cpp).
void serve_comparisons(int channel);

// Blocking, whole; false where the other side is gone.
[[nodiscard]] bool read_all(int channel, std::span<char> bytes);
[[nodiscard]] bool write_all(int channel, std::span<const char> bytes);

}  // namespace hone
