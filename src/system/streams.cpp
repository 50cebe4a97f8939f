#include "system/streams.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace hone {

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Error("cannot create a pipe", std::strerror(errno));
  set_nonblocking(ends[0]);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

SocketPair make_socket_pair(int type) {
  int ends[2];
  if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error("cannot create a socket pair", std::strerror(errno));
  }
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

void set_nonblocking(int descriptor) { (void)::fcntl(descriptor, F_SETFL, O_NONBLOCK); }

bool read_all(int channel, std::span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::read(channel, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

bool write_all(int channel, std::span<const char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(channel, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

bool send_numbered(int channel, std::int32_t number, std::span<const int> descriptors) {
  HONE_ASSERT(descriptors.size() <= kMostSentDescriptors, descriptors.size(), " descriptors");
  iovec part{&number, sizeof number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostSentDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t count = -1;
  do count = ::sendmsg(channel, &message, MSG_NOSIGNAL);
  while (count < 0 && errno == EINTR);
  return count == static_cast<ssize_t>(sizeof number);
}

bool receive_numbered(int channel, NumberedDescriptors& received) {
  iovec part{&received.number, sizeof received.number};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostSentDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = -1;
  do count = ::recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
  while (count < 0 && errno == EINTR);
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (count > 0 && header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    std::array<int, kMostSentDescriptors> numbers{};
    const std::size_t size = header->cmsg_len - CMSG_LEN(0);
    std::memcpy(numbers.data(), CMSG_DATA(header), size);
    for (std::size_t i = 0; i < size / sizeof(int); ++i) received.descriptors.emplace_back(numbers[i]);
  }
  return count == static_cast<ssize_t>(sizeof received.number);
}

Descriptor sealed_file(std::string_view content) {
  Descriptor file(::memfd_create("hone", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  while (file.open() && !content.empty()) {
    const ssize_t count = ::write(file.number(), content.data(), content.size());
    if (count <= 0) break;
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  if (!file.open() || !content.empty() || ::lseek(file.number(), 0, SEEK_SET) != 0 ||
      ::fcntl(file.number(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0) {
    throw Error("cannot create an in-memory file", std::strerror(errno));
  }
  return file;
}

}  // namespace hone
