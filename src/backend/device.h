// A device and its memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace hone {

enum class DeviceKind { cpu, cuda };

class Device;

// Memory of a device; given back at the end of its life. Zero-filled when allocated.
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

// Launches that were recorded once and are repeated as a whole.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void launch() = 0;
};

// A device takes its work in order, and may still be at it when a call returns.
class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual DeviceKind kind() const = 0;
  [[nodiscard]] virtual std::string name() const = 0;
  // Host to device, in order with the work given before and after; the host's bytes may change once it returns.
  virtual void upload(std::byte* device, const void* host, std::size_t bytes) = 0;
  // Device to host, after all work given before; returns when the copy is done.
  virtual void download(void* host, const std::byte* device, std::size_t bytes) = 0;
  // As download, but returns at once: the host's bytes, a few, are there after the next synchronize or download.
  virtual void download_later(void* host, const std::byte* device, std::size_t bytes) { download(host, device, bytes); }
  // Within the device, in order with its other work; the ranges do not overlap.
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void fill(std::byte* device, int byte, std::size_t bytes) = 0;
  // Returns when all work is done; throws Error where some of it failed.
  virtual void synchronize() = 0;
  // What `launches` gives to the device is kept instead of run. Null where the device does not record (nothing is
  // called then).
  [[nodiscard]] virtual std::unique_ptr<Recording> record(const std::function<void()>& launches) {
    (void)launches;
    return nullptr;
  }

  // Bytes held in Buffers now.
  [[nodiscard]] std::size_t allocated_bytes() const { return allocated_; }

 private:
  friend class Buffer;
  virtual std::byte* allocate(std::size_t bytes) = 0;  // throws Error with both sizes where there is no room
  virtual void release(std::byte* data, std::size_t bytes) = 0;

  std::atomic<std::size_t> allocated_{0};
};

// The host. One object for the process.
[[nodiscard]] Device& cpu_device();

enum class DeviceChoice : std::uint8_t { automatic, cpu, cuda };

// One object a device for the process. `automatic` is the first GPU where this build has the CUDA backend and a GPU
// can be used, else the host. Throws Error where the named one cannot be had, saying why.
[[nodiscard]] Device& open_device(DeviceChoice choice);

// Every tensor in a region starts at a multiple of this many bytes.
inline constexpr std::size_t kAlignment = 64;
[[nodiscard]] constexpr std::size_t align_up(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace hone
