// The bytes of HTTP responses.
#pragma once

#include <string>
#include <string_view>

#include "http/message.h"

namespace hone {

// The properties of a request that the bytes of its response depend on.
struct ResponseForm {
  int version = 11;         // 10 or 11, of the request
  bool keep_alive = false;  // the connection stays open after the response
  bool head_only = false;   // the response to HEAD has no body
  std::string origin = {};  // the origin of a web page that may read the response; empty: none
};

[[nodiscard]] std::string response_text(const ServerResponse& response, const ResponseForm& form);
// The head of a stream of server-sent events. The stream is chunked, or ends with the connection for HTTP/1.0.
[[nodiscard]] std::string event_stream_head(const ResponseForm& form);
[[nodiscard]] std::string stream_part(std::string_view bytes, const ResponseForm& form);
[[nodiscard]] std::string stream_end(const ResponseForm& form);

}  // namespace hone
