// Pipes, sockets and files in memory between processes. All descriptors are closed on exec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/descriptor.h"

namespace hone {

struct Pipe {
  Descriptor read;  // does not block
  Descriptor write;
};
// Throws Error with the system's reason.
[[nodiscard]] Pipe make_pipe();

struct SocketPair {
  Descriptor ours;
  Descriptor theirs;
};
// A pair of AF_UNIX; `type` is SOCK_STREAM or SOCK_SEQPACKET. Throws Error with the system's reason.
[[nodiscard]] SocketPair make_socket_pair(int type);

void set_nonblocking(int descriptor);

// Over a stream socket that blocks. Whole; false where the other side is gone.
[[nodiscard]] bool read_all(int channel, std::span<char> bytes);
[[nodiscard]] bool write_all(int channel, std::span<const char> bytes);

inline constexpr std::size_t kMostSentDescriptors = 6;

// A number, and descriptors with it, over a socket.
struct NumberedDescriptors {
  std::int32_t number = 0;
  std::vector<Descriptor> descriptors;
};
// False, with errno, where they cannot be sent; the descriptors stay the caller's.
[[nodiscard]] bool send_numbered(int channel, std::int32_t number, std::span<const int> descriptors);
// False where the other side is gone.
[[nodiscard]] bool receive_numbered(int channel, NumberedDescriptors& received);

// A file in memory that holds `content`, to be read from its beginning; nobody can change it. Throws Error with the
// system's reason.
[[nodiscard]] Descriptor sealed_file(std::string_view content);

}  // namespace hone
