// Helpers of the tests of this room.
#pragma once

#include <chrono>
#include <string>

#include "core/error.h"

namespace hone::test {

// Returns the message of the Error that call() throws; "no error" if it throws none.
template <class Call>
std::string error_text(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// A deadline that no test reaches.
inline std::chrono::steady_clock::time_point soon() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(60);
}

}  // namespace hone::test
