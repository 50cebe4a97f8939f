// The refusal of a request: a status and OpenAI's error object.
#pragma once

#include <string>
#include <string_view>

#include "core/error.h"

namespace hone {

class RequestError : public Error {
 public:
  // `param`: the parameter at fault, such as "messages[0].role"; empty if there is none. `status`: the HTTP status.
  RequestError(std::string_view param, std::string_view what, std::string_view fix = {}, int status = 400);
  [[nodiscard]] const std::string& param() const { return param_; }
  [[nodiscard]] int status() const { return status_; }

 private:
  std::string param_;
  int status_;
};

// Returns {"error": {"message", "type", "param", "code"}} as JSON text. `param` is null if it is empty, `code` is the
// status. Bytes of the message that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string error_body(std::string_view message, std::string_view param, int status);

}  // namespace hone
