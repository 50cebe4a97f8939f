// Properties of the terminal that standard output or standard error is connected to.
#pragma once

namespace hone {

enum class OutputStream { kStandardOutput = 1, kStandardError = 2 };

// Returns true if the stream is a terminal that handles escape sequences: TERM is not "dumb".
[[nodiscard]] bool is_terminal(OutputStream stream);
// Width in columns; 80 if the stream is not a terminal or its width is unknown.
[[nodiscard]] int terminal_width(OutputStream stream);

}  // namespace hone
