// Variables of the environment for the length of a test.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace hone::test {

using Variables = std::map<std::string, std::optional<std::string>>;

// Variables of the environment, as they were before when it dies.
class Environment {
 public:
  explicit Environment(const Variables& wanted) {
    for (const auto& [name, value] : wanted) set(name, value);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : before_) put(name, value);
  }
  // Nothing unsets it.
  void set(const std::string& name, const std::optional<std::string>& value) {
    const char* now = std::getenv(name.c_str());
    before_.emplace(name, now == nullptr ? std::nullopt : std::optional<std::string>(now));
    put(name, value);
  }

 private:
  static void put(const std::string& name, const std::optional<std::string>& value) {
    value ? ::setenv(name.c_str(), value->c_str(), 1) : ::unsetenv(name.c_str());
  }
  Variables before_;
};

}  // namespace hone::test
