// Measures how many events a relay passes on (http/relay.h), as the front of a server with replicas does.
//   relay_speed [STREAMS [EVENTS]]
// STREAMS clients read EVENTS server-sent events of 308 bytes each, twice from a server directly and twice through a
// relay, in turns. All of them are in this process.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "http/relay.h"
#include "http/server.h"

namespace hone {
namespace {

HttpOptions options() {
  HttpOptions options;
  options.error_body = [](int, std::string_view message) { return std::string(message); };
  return options;
}

// Sends events, as many at a time as the client takes.
void send_events(ServerReply& reply, int events) {
  const std::string event = "data: " + std::string(300, 'e') + "\n\n";
  reply.begin_events();
  for (int i = 0; i < events; ++i) {
    while (reply.congested()) std::this_thread::sleep_for(std::chrono::microseconds(200));
    reply.write(event);
  }
  reply.end();
}

// Reads one stream to its end and returns its bytes.
std::size_t read_stream(std::uint16_t port) {
  const int client = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(port);
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(client, reinterpret_cast<const sockaddr*>(&place), sizeof place) != 0) std::abort();
  constexpr std::string_view kRequest = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
  if (::send(client, kRequest.data(), kRequest.size(), 0) != static_cast<ssize_t>(kRequest.size())) std::abort();
  std::array<char, 1 << 16> bytes;
  std::size_t all = 0;
  for (ssize_t got = 0; (got = ::recv(client, bytes.data(), bytes.size(), 0)) > 0;)
    all += static_cast<std::size_t>(got);
  ::close(client);
  return all;
}

void measure(std::string_view name, std::uint16_t port, int streams, int events) {
  const auto start = std::chrono::steady_clock::now();
  std::atomic<std::size_t> bytes = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < streams; ++i) clients.emplace_back([&] { bytes += read_stream(port); });
  for (std::thread& client : clients) client.join();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  std::printf("%-8s %d streams of %d events: %.0f events/s, %.1f MB/s\n", std::string(name).c_str(), streams, events,
              streams * events / passed.count(), static_cast<double>(bytes.load()) / passed.count() / 1e6);
}

void run(int streams, int events) {
  HttpServer server(options(), [events](const ServerRequest&, std::shared_ptr<ServerReply> reply) {
    std::thread([reply = std::move(reply), events] { send_events(*reply, events); }).detach();
  });
  HttpRelay relay(options().error_body);
  HttpServer front(options(), [&](ServerRequest request, std::shared_ptr<ServerReply> reply) {
    relay.forward(std::move(request), std::move(reply), server.port(), [] {});
  });
  for (int turn = 0; turn < 2; ++turn) {
    measure("direct", server.port(), streams, events);
    measure("relayed", front.port(), streams, events);
  }
}

}  // namespace
}  // namespace hone

int main(int count, char** arguments) {
  hone::run(count > 1 ? std::atoi(arguments[1]) : 256, count > 2 ? std::atoi(arguments[2]) : 1000);
}
