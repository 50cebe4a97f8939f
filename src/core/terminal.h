// The terminal at hand.
#pragma once

namespace hone {

enum class OutputStream { standard_output = 1, standard_error = 2 };

// Whether a person reads it: a terminal, and TERM is not "dumb".
[[nodiscard]] bool is_terminal(OutputStream stream);
// Columns; 80 where it is no terminal or does not say.
[[nodiscard]] int terminal_width(OutputStream stream);

}  // namespace hone
