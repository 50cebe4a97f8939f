// hone serve in a child process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/program.h"
#include "core/files.h"
#include "support/paths.h"

namespace hone::test {

// A server in a child process, which is killed unless the test has ended it.
class ServerProgram {
 public:
  // Waits until the server says where it listens, or ends.
  explicit ServerProgram(const std::vector<std::string>& arguments) : child_(start_program(arguments, log_path())) {
    constexpr std::string_view kPlace = "://127.0.0.1:";
    while (is_running(child_)) {
      const std::string text = log();
      const std::size_t place = text.find(kPlace);
      if (place != std::string::npos && text.find('\n', place) != std::string::npos) {
        port_ = static_cast<std::uint16_t>(std::stoi(text.substr(place + kPlace.size())));
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ServerProgram(const ServerProgram&) = delete;
  ServerProgram& operator=(const ServerProgram&) = delete;
  ~ServerProgram() {
    if (ended_) return;
    ::kill(child_, SIGKILL);
    (void)wait_for(child_);
  }

  [[nodiscard]] pid_t id() const { return child_; }
  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string log() const { return is_file(log_path()) ? read_file(log_path()) : ""; }
  void signal(int number) const { ::kill(child_, number); }
  [[nodiscard]] int wait() {
    ended_ = true;
    return wait_for(child_);
  }

 private:
  [[nodiscard]] std::filesystem::path log_path() const { return folder_.path() / "log"; }

  TemporaryDirectory folder_;
  pid_t child_;
  std::uint16_t port_ = 0;
  bool ended_ = false;
};

}  // namespace hone::test
