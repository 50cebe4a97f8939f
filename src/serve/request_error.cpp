#include "serve/request_error.h"

#include "core/json_value.h"

namespace hone {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

RequestError::RequestError(std::string_view param, std::string_view what, std::string_view fix, int status)
    : Error(param, what, fix), param_(param), status_(status) {}

std::string error_body(std::string_view message, std::string_view param, int status) {
  Json error{{"message", message}, {"type", type_of(status)}, {"param", nullptr}, {"code", status}};
  if (!param.empty()) error["param"] = param;
  return Json{{"error", std::move(error)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hone
