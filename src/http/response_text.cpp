#include "http/response_text.h"

#include <array>
#include <charconv>
#include <ctime>

namespace hone {
namespace {

std::string_view reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return status < 500 ? "Bad Request" : "Internal Server Error";
  }
}

// Time as RFC 9110 writes it, such as "Sun, 06 Nov 1994 08:49:37 GMT".
std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  static constexpr std::array<const char*, 7> kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  std::array<char, 40> text{};
  static constexpr std::array<const char*, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const int length = std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                                   kDays[static_cast<std::size_t>(parts.tm_wday)], parts.tm_mday,
                                   kMonths[static_cast<std::size_t>(parts.tm_mon)], parts.tm_year + 1900, parts.tm_hour,
                                   parts.tm_min, parts.tm_sec);
  return {text.data(), static_cast<std::size_t>(length)};
}

std::string head_text(int status, std::string_view content_type, const ResponseForm& form) {
  std::string text = "HTTP/1.1 " + std::to_string(status) + " ";
  text += reason_of(status);
  text += "\r\nDate: " + http_date() + "\r\nContent-Type: ";
  text += content_type;
  text += "\r\n";
  if (!form.keep_alive) text += "Connection: close\r\n";
  if (!form.origin.empty()) text += "Access-Control-Allow-Origin: " + form.origin + "\r\nVary: Origin\r\n";
  return text;
}

}  // namespace

std::string response_text(const ServerResponse& response, const ResponseForm& form) {
  std::string text = head_text(response.status, response.content_type, form);
  for (const auto& [name, value] : response.headers) text.append(name).append(": ").append(value).append("\r\n");
  text += "Content-Length: " + std::to_string(response.body.size()) + "\r\n\r\n";
  if (!form.head_only) text += response.body;
  return text;
}

std::string event_stream_head(const ResponseForm& form) {
  std::string text = head_text(200, "text/event-stream; charset=utf-8", form);
  text += "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n";
  if (form.version == 11) text += "Transfer-Encoding: chunked\r\n";
  return text + "\r\n";
}

std::string stream_part(std::string_view bytes, const ResponseForm& form) {
  if (form.version != 11) return std::string(bytes);
  std::array<char, 16> size{};
  const auto end = std::to_chars(size.data(), size.data() + size.size(), bytes.size(), 16).ptr;
  std::string text(size.data(), end);
  text += "\r\n";
  text += bytes;
  return text += "\r\n";
}

std::string stream_end(const ResponseForm& form) { return form.version == 11 ? "0\r\n\r\n" : ""; }

}  // namespace hone
