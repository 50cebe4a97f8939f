#include "support/raw_client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace hone::test {

RawClient::RawClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0)
    throw std::runtime_error("cannot connect to the server");
}

RawClient::~RawClient() { RawClient::close(); }

void RawClient::close() {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

void RawClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = write_some(bytes);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

ssize_t RawClient::write_some(std::string_view bytes) {
  return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

ssize_t RawClient::read_some(char* bytes, std::size_t size) { return ::recv(socket_, bytes, size, 0); }

bool RawClient::more() {
  char bytes[16384];
  const ssize_t count = read_some(bytes, sizeof(bytes));
  if (count <= 0) return false;
  arrived_.append(bytes, static_cast<std::size_t>(count));
  return true;
}

bool RawClient::wait_for(std::string_view text) {
  while (arrived_.find(text) == std::string::npos)
    if (!more()) return false;
  return true;
}

std::string RawClient::rest() {
  while (more()) {
  }
  return std::exchange(arrived_, {});
}

RawResponse RawClient::receive() {
  RawResponse response;
  const auto take = [&](std::size_t bytes, std::string& to) {
    while (arrived_.size() < bytes)
      if (!more()) return false;
    to = arrived_.substr(0, bytes);
    arrived_.erase(0, bytes);
    return true;
  };
  if (!wait_for("\r\n\r\n") || !take(arrived_.find("\r\n\r\n") + 4, response.head)) return response;
  const auto length = response.head.find("Content-Length: ");
  if (length != std::string::npos) {
    if (!take(std::strtoull(response.head.c_str() + length + 16, nullptr, 10), response.body)) return response;
  } else if (response.head.find("Transfer-Encoding: chunked") != std::string::npos) {
    for (std::string chunk = "-"; !chunk.empty();) {
      std::string line;
      if (!wait_for("\r\n") || !take(arrived_.find("\r\n") + 2, line)) return response;
      const std::size_t size = std::strtoull(line.c_str(), nullptr, 16);
      if (!take(size + 2, chunk)) return response;
      chunk.resize(size);
      response.body += chunk;
    }
  } else {
    response.body = rest();
  }
  response.status = std::atoi(response.head.c_str() + 9);
  return response;
}

std::string http_request(std::string_view method, std::string_view target, std::string_view body,
                         std::string_view more) {
  std::string text(method);
  text.append(" ").append(target).append(" HTTP/1.1\r\nHost: localhost\r\n").append(more);
  if (!body.empty())
    text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  text += "\r\n";
  return text.append(body);
}

RawResponse fetch(std::uint16_t port, std::string_view method, std::string_view target, std::string_view body,
                  std::string_view more) {
  RawClient client(port);
  client.send(http_request(method, target, body, more));
  return client.receive();
}

}  // namespace hone::test
