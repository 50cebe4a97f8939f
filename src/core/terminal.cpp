#include "core/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace hone {

bool is_terminal(OutputStream stream) {
  const char* term = std::getenv("TERM");
  return ::isatty(static_cast<int>(stream)) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

int terminal_width(OutputStream stream) {
  constexpr int kUsual = 80;
  winsize size{};
  if (::ioctl(static_cast<int>(stream), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return size.ws_col;
}

}  // namespace hone
