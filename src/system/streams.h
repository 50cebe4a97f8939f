// Pipes, sockets and in-memory files that connect processes. All descriptors are close-on-exec.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/descriptor.h"

namespace hone {

struct Pipe {
  Descriptor read;  // non-blocking
  Descriptor write;
};
// Throws Error with the system's reason.
[[nodiscard]] Pipe make_pipe();

struct SocketPair {
  Descriptor ours;
  Descriptor theirs;
};
// Creates a pair of connected AF_UNIX sockets; `type` is SOCK_STREAM or SOCK_SEQPACKET. Throws Error with the system's
// reason.
[[nodiscard]] SocketPair make_socket_pair(int type);

void set_nonblocking(int descriptor);

// Read or write all bytes over a blocking stream socket. Return false if the other end is closed or on an error.
[[nodiscard]] bool read_all(int channel, std::span<char> bytes);
[[nodiscard]] bool write_all(int channel, std::span<const char> bytes);

inline constexpr std::size_t kMostSentDescriptors = 6;

// Message of a number and file descriptors (SCM_RIGHTS) over a socket.
struct NumberedDescriptors {
  std::int32_t number = 0;
  std::vector<Descriptor> descriptors;
};
// Sends a message with at most kMostSentDescriptors descriptors, which the caller still owns. Returns false, with errno
// set, if it cannot be sent.
[[nodiscard]] bool send_numbered(int channel, std::int32_t number, std::span<const int> descriptors);
// Receives a message. Returns false if the other end is closed or on an error.
[[nodiscard]] bool receive_numbered(int channel, NumberedDescriptors& received);

// Creates an in-memory file with this content, positioned at its beginning and sealed: no process can change it. Throws
// Error with the system's reason.
[[nodiscard]] Descriptor sealed_file(std::string_view content);

}  // namespace hone
