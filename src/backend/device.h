// Devices, on which programs run, and their memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace hone {

enum class DeviceKind { kCpu, kCuda };

class Device;

// Owner of device memory, which is zero-filled when allocated and released by the destructor. Movable.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device& device, std::size_t bytes);
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }  // bytes

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Launches that were recorded once and are replayed as a whole (a CUDA graph).
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void launch() = 0;
};

// A place in the sequence of a device's work.
struct DeviceMark {
  std::uint64_t number = 0;
};

// A device executes its work in the order of the calls, possibly asynchronously: a call may return before its work is
// done. Only one thread at a time may use a device, from its first call until it has waited for the last of its work;
// usage_of() (device_usage.h) is an exception.
class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceKind kind() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  // Copies from host to device, in order with other work. The host's bytes may be changed when the call returns.
  virtual void upload(std::byte* device, const void* host, std::size_t bytes) = 0;
  // Copies from device to host after all earlier work; returns when the copy is done.
  virtual void download(void* host, const std::byte* device, std::size_t bytes) = 0;
  // Copies a few bytes like download(), but may return earlier: the host's bytes are valid after the next synchronize()
  // or download(), or after wait() for a later mark().
  virtual void download_later(void* host, const std::byte* device, std::size_t bytes) { download(host, device, bytes); }
  // Copies within the device, in order with other work. The ranges must not overlap.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void fill(std::byte* device, int byte, std::size_t bytes) = 0;
  // Waits until all work is done; throws Error if some of it failed.
  virtual void synchronize() = 0;
  // Marks the end of the work submitted so far.
  [[nodiscard]] virtual DeviceMark mark() { return {}; }
  // Waits until the work before a mark is done, but not for later work. Throws Error if some of it failed.
  virtual void wait(DeviceMark mark) {
    (void)mark;
    synchronize();
  }
  // Calls launches() and records the work that it submits instead of executing it. Returns null, without calling
  // launches(), if the device does not support recording.
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const std::function<void()>& launches) {
    (void)launches;
    return nullptr;
  }

  // Bytes currently allocated in Buffers.
  [[nodiscard]] std::size_t allocated_bytes() const { return allocated_; }

 private:
  friend class Buffer;
  virtual std::byte* allocate(std::size_t bytes) = 0;  // throws Error with the sizes if there is not enough memory
  virtual void release(std::byte* data, std::size_t bytes) = 0;

  std::atomic<std::size_t> allocated_{0};
};

// Returns the CPU; there is one object per process.
[[nodiscard]] Device& cpu_device();

enum class DeviceChoice : std::uint8_t { kAutomatic, kCpu, kCuda };

// Returns the chosen device; there is one object per device and process. `automatic` selects the first GPU if this
// build has the CUDA backend and the GPU can be used, otherwise the CPU. Throws Error with the reason if `cuda` cannot
// be used.
[[nodiscard]] Device& open_device(DeviceChoice choice);

// Alignment in bytes of every tensor within a region of memory.
inline constexpr std::size_t kAlignment = 64;
[[nodiscard]] constexpr std::size_t align_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace hone
