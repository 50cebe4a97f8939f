// TCP connections over IPv4 between processes that may be on several machines, and small messages over sockets.
#pragma once

#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>

#include "core/descriptor.h"

namespace hone {

// Returns the address of a name or of four numbers. Throws Error that begins with `where` if there is none.
[[nodiscard]] sockaddr_in ipv4_address(const std::string& host, std::uint16_t port, const std::string& where);

// Returns the address of this machine from which packets to `other` leave, with port 0. Throws Error that begins with
// `where` if there is no way to it.
[[nodiscard]] sockaddr_in address_towards(sockaddr_in other, const std::string& where);
// Returns the four numbers of an address.
[[nodiscard]] std::string numbers_of(const sockaddr_in& address);

// Returns the name of this machine.
[[nodiscard]] std::string own_host();

// Makes small messages leave immediately, and a machine that disappears be noticed after half a minute.
void configure(int connection);

// Connects, trying again while the connection is refused. `stops`, if given, is called every 50 ms; once it returns
// true, or the deadline has passed, Error is thrown with the last reason and `fix`. Returns a blocking socket that is
// configured. name: of the other end, in the Error
[[nodiscard]] Descriptor connect_to(const sockaddr_in& address, const std::string& name, const std::string& fix,
                                    std::chrono::steady_clock::time_point deadline,
                                    const std::function<bool()>& stops = {});

struct Listener {
  Descriptor socket;
  std::uint16_t port = 0;
};
// Returns a blocking socket that listens on an address, and its port, which the system chooses if it is 0. Throws Error
// that begins with `where` and ends with `fix` if that is not possible.
[[nodiscard]] Listener listen_on(sockaddr_in address, const std::string& where, const std::string& fix);

// Send or receive all bytes over a blocking stream socket. Return false if the other end is closed, on an error, or if
// they have not come before the deadline. A message must be smaller than the buffer of a new connection.
[[nodiscard]] bool send_bytes(int connection, std::span<const std::byte> bytes);
[[nodiscard]] bool receive_bytes(int connection, std::span<std::byte> bytes,
                                 std::chrono::steady_clock::time_point deadline);

// The same of a struct.
template <class T>
[[nodiscard]] bool send_struct(int connection, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return send_bytes(connection, std::as_bytes(std::span(&value, 1)));
}
template <class T>
[[nodiscard]] bool receive_struct(int connection, T& value, std::chrono::steady_clock::time_point deadline) {
  static_assert(std::is_trivially_copyable_v<T>);
  return receive_bytes(connection, std::as_writable_bytes(std::span(&value, 1)), deadline);
}

}  // namespace hone
