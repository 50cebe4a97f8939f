// The message of an expected Error.
#pragma once

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

}  // namespace hone::test
