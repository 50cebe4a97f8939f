#include "serve/runs/jsonl_slice.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "core/descriptor.h"
#include "core/digest.h"
#include "core/error.h"

namespace hone {
namespace {

constexpr std::uint64_t kCheckedBytes = 256;

// Reads up to `count` bytes at an offset; fewer if the file ends before.
std::string bytes_at(int file, std::uint64_t offset, std::size_t count, const std::filesystem::path& path) {
  std::string bytes(count, '\0');
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = ::pread(file, bytes.data() + done, count - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(path.string(), text_of("cannot be read: ", std::strerror(errno)));
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

std::string check_of(std::string_view before) {
  Fingerprint fingerprint;
  fingerprint.add(before);
  return fingerprint.finish().substr(0, 16);
}

std::string check_before(int file, std::uint64_t offset, const std::filesystem::path& path) {
  const std::uint64_t count = std::min(offset, kCheckedBytes);
  return check_of(bytes_at(file, offset - count, static_cast<std::size_t>(count), path));
}

}  // namespace

LineSlice read_lines(const std::filesystem::path& path, const FilePosition& from, const SliceLimits& limits) {
  // O_NONBLOCK: opening a FIFO must not wait for its writer.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status{};
  if (!file.open() || ::fstat(file.number(), &status) != 0)
    throw Error(path.string(), text_of("cannot be read: ", std::strerror(errno)));
  if (!S_ISREG(status.st_mode)) throw Error(path.string(), "is not a regular file");
  LineSlice slice;
  slice.size = static_cast<std::uint64_t>(status.st_size);
  std::uint64_t begin = from.offset;
  if (begin > slice.size || (begin > 0 && check_before(file.number(), begin, path) != from.check)) {
    begin = 0;
    slice.restarted = true;
  }
  const std::string bytes = bytes_at(file.number(), begin, limits.bytes, path);
  std::size_t at = 0;
  while (at < bytes.size() && slice.lines.size() < limits.lines) {
    std::size_t end = bytes.find('\n', at);
    if (end == std::string::npos) {
      if (at > 0 || bytes.size() < limits.bytes) break;  // the line is not complete, or belongs to the next slice
      end = bytes.size();
    }
    slice.lines.push_back(bytes.substr(at, end - at));
    at = std::min(end + 1, bytes.size());
  }
  slice.next.offset = begin + at;
  slice.next.check = check_before(file.number(), slice.next.offset, path);
  return slice;
}

}  // namespace hone
