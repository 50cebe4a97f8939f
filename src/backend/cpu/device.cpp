#include "backend/device.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "backend/cpu/bf16_products.h"
#include "core/error.h"
#include "core/strings.h"

namespace hone {
namespace {

// The CPU as a device. Buffers are mapped instead of allocated on the heap: they are zero-filled and page-aligned, and
// released memory returns to the system immediately.
class CpuDevice final : public Device {
 public:
  CpuDevice() { (void)bf16_products(); }  // a wrong choice is refused before any work
  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string name() const override { return "cpu"; }
  // Pointers to 0 bytes may be null, which memcpy and memset do not accept.
  void upload(std::byte* device, const void* host, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(device, host, bytes);
  }
  void download(void* host, const std::byte* device, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(host, device, bytes);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void fill(std::byte* device, int byte, std::size_t bytes) override {
    if (bytes > 0) std::memset(device, byte, bytes);
  }
  void synchronize() override {}

 private:
  std::byte* allocate(std::size_t bytes) override {
    void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
      throw Error("memory", text_of("cannot allocate ", format_bytes(bytes), ": ", std::strerror(errno),
                                    "; hone holds ", format_bytes(allocated_bytes())));
    }
    ::madvise(data, bytes, MADV_HUGEPAGE);  // fewer pages to translate; nothing changes where refused
    return static_cast<std::byte*>(data);
  }
  void release(std::byte* data, std::size_t bytes) override { ::munmap(data, bytes); }
};

}  // namespace

Device& cpu_device() {
  static CpuDevice device;
  return device;
}

}  // namespace hone
